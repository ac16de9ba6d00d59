"""Words of machines that nobody here had seen: each fault has its name, and a sound machine's has none."""

from __future__ import annotations

import pytest

from tests.support.unseen import rows, told

ROWS = [row for name in ("first", "second", "third", "fourth") for row in rows(name)]


@pytest.mark.parametrize(("kind", "said", "right"), ROWS, ids=[f"{kind}-{said[:60]}" for kind, said, _right in ROWS])
def test_words_of_machines_are_told_for_what_they_are(kind: str, said: str, right: str) -> None:
    assert told(kind, said) in (right.split() or [""])
