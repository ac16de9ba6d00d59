"""A rollout from one release to the next, over hosts of two boards: set, packages, firmware, one boot, and the proof.

The canary is bad first: its firmware cannot be staged. It stops the rollout, which goes on after the repair; then the
whole is taken back. On all hosts that are up, and on twelve of its own where none are:

    pytest tests/fleet/test_rollout_release.py -m long -s
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lab.vendor.releases import BOARD
from tests.fleet import boards
from tests.fleet.boards import AFTER, APRIL, BACK, BEFORE, JULY, SEEN
from tests.fleet.fleet import Fleet
from tests.fleet.rollouts import Gb10, states

pytestmark = [pytest.mark.lab, pytest.mark.long]

HOSTS = int(os.environ.get("GB10_RELEASE_HOSTS", "12"))
BROKEN = "the simulated service cannot write the capsule"
SET_FAULT = f"""python3 - <<'END'
import json, pathlib
path = pathlib.Path("{BOARD}/fwupd.json")
path.write_text(json.dumps({{**json.loads(path.read_text()), "update_fails": "%s"}}))
END"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Fleet]:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    fleet = Fleet(HOSTS, roles=["driver"])
    fleet.up()
    on_all(fleet, fleet.clear)
    before = on_all(fleet, lambda host: fleet.shell(host, boards.PLACES))
    yield fleet
    on_all(fleet, lambda host: fleet.shell(host, boards.LEAVE))
    after = on_all(fleet, lambda host: fleet.shell(host, boards.PLACES))
    fleet.down()
    assert after == before


def on_all(fleet: Fleet, work: Any) -> dict[str, Any]:
    with ThreadPoolExecutor(max_workers=4) as pool:
        return dict(zip(fleet.hosts, pool.map(work, fleet.hosts), strict=True))


def seen(fleet: Fleet) -> dict[str, str]:
    return on_all(fleet, lambda host: fleet.shell(host, SEEN))


def order(gb10: Gb10) -> list[str]:
    _, plan = gb10.run(gb10.plan())
    return [host["host"] for wave in plan["waves"] for host in wave["hosts"]]


def test_a_release_goes_over_the_fleet_stops_at_a_bad_canary_and_comes_back(hosts: Fleet, tmp_path: Path) -> None:
    gb10 = Gb10(hosts, tmp_path)
    canary, *others = order(gb10)
    board = {host: ("asus" if place % 3 == 1 else "nvidia") for place, host in enumerate([canary, *others])}
    on_all(hosts, lambda host: hosts.shell(host, boards.become(board[host], APRIL, JULY)))
    on_all(hosts, lambda host: hosts.shell(host, boards.offers(JULY)))
    assert set(seen(hosts).values()) == {BEFORE}

    hosts.shell(canary, SET_FAULT % BROKEN)
    status, report = gb10.run(gb10.rollout("site", "--to", "OTA2607", "--firmware"))
    assert status == 2, report
    assert states(report)[canary] == "failed" and canary in report["reason"]
    assert {states(report)[host] for host in others} == {"planned"}
    page = (tmp_path / "reports" / report["run"] / "index.html").read_text()
    assert canary in page and BROKEN in page and "gb10 resume" in page and "gb10 rollback" in page
    assert {host: found for host, found in seen(hosts).items() if found != BEFORE}.keys() == {canary}
    assert all(hosts.manifest(host) is None for host in others), "a host of a later wave was touched"

    hosts.shell(canary, SET_FAULT % "")
    status, report = gb10.run(gb10.resume())
    assert status == 0 and set(states(report).values()) == {"done"}, report
    assert set(seen(hosts).values()) == {AFTER}
    boards.judge(report, board.__getitem__)

    status, report = gb10.run(gb10.rollback(report["run"]))
    assert status == 0, report
    assert set(seen(hosts).values()) == {BACK}
