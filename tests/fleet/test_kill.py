"""The short form of `make campaign`, one round for each victim: the next run completes a killed one."""

from __future__ import annotations

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.kills import Campaign

pytestmark = pytest.mark.lab


def test_the_run_after_a_kill_ends_where_an_undisturbed_one_does(fleet: Fleet) -> None:
    Campaign(fleet, seed=20261121).run(kills=5)  # of two hosts' engines, of those with their children, of a playbook
