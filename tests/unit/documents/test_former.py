"""A newer version of this collection, and an inventory of before: no service restarts."""

from __future__ import annotations

import json

from tests.support.former import RECORDED, stands


def test_no_unit_of_a_service_restarts_for_an_inventory_of_the_former_version() -> None:
    """Else say so in a fragment, then write the record anew (tests/support/former.py)."""
    assert stands() == json.loads(RECORDED.read_text())
