"""Who has a host for himself, and until when."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import reserved

NOW = datetime(2026, 12, 24, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("", ""),
        (None, ""),
        ("ada until 2026-12-24", "ada until 2026-12-24"),  # that day counts
        ("ada until 2026-12-23", ""),
        ("team of ada until 2026-12-24T12:01", "team of ada until 2026-12-24T12:01"),
        ("ada until 2026-12-24T12:00", ""),
        ("ada until 9999-12-31", "ada until 9999-12-31"),  # no day comes after it
    ],
)
def test_it_holds_until_then(said: str | None, found: str) -> None:
    assert reserved.now_for(said, NOW) == found


@pytest.mark.parametrize("said", ["ada", "until 2026-12-24", "ada until tomorrow", "ada until 2026-13-40", True])
def test_what_is_no_reservation_is_named(said: object) -> None:
    with pytest.raises(reserved.WrongReservation, match="write WHO until DAY"):
        reserved.now_for(said, NOW)
