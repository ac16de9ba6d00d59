"""A rollout over real hosts: a bad one stops it, a killed one is gone on with, and it leads back.

On all hosts that are up, at most thirty, and on thirty of its own where none are. `make test` has two up, which is a
canary and one more, and leaves out what takes long; for the whole of it:

    python -m lab up fleet --hosts 30; pytest tests/fleet/test_rollout.py -s
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Fleet
from tests.fleet.rollouts import Gb10, RolloutCampaign, states
from tests.support.rig import differences

pytestmark = pytest.mark.lab

MOST = 30
FLOOR = "ubuntu24.04-580.178.04-6.17.0-1032"
SOURCES = "/etc/apt/sources.list.d/dgx.sources"
SOURCE = "/etc/apt/sources.list.d/security.sources"
OFFER = f"sed 's/^Suites: .*/Suites: offer-security/' {SOURCES} >{SOURCE}; apt-get -qq update"
USERLAND = "dpkg-query -W -f '${Version}' nvidia-driver-580-open"


@pytest.fixture(scope="module")
def hosts() -> Iterator[Fleet]:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    fleet = Fleet(MOST)
    fleet.up()
    yield fleet
    fleet.down()


@pytest.fixture
def gb10(hosts: Fleet, tmp_path: Path) -> Iterator[Gb10]:
    on_all(hosts, hosts.clear)
    yield Gb10(hosts, tmp_path)
    on_all(hosts, hosts.clear)


def on_all(fleet: Fleet, work: Any) -> dict[str, Any]:
    with ThreadPoolExecutor(max_workers=8) as pool:
        return dict(zip(fleet.hosts, pool.map(work, fleet.hosts), strict=True))


def bad_host(gb10: Gb10, *, wave: int) -> tuple[str, set[str], set[str]]:
    """The last host of a wave (or of the last one, where there are fewer): its name, who comes before, who later."""
    _, plan = gb10.run(gb10.plan())
    waves = [[host["host"] for host in wave["hosts"]] for wave in plan["waves"]]
    place = min(wave, len(waves)) - 1
    before = {host for wave in waves[:place] for host in wave} | set(waves[place][:-1])
    return waves[place][-1], before, {host for wave in waves[place + 1 :] for host in wave}


def test_a_host_that_gives_no_answer_stops_the_rollout_and_keeps_its_place(hosts: Fleet, gb10: Gb10) -> None:
    bad, _, later = bad_host(gb10, wave=1)
    hosts.lab("power-off", bad)
    try:
        status, report = gb10.run(gb10.rollout())
        assert status == 3, report
        assert states(report)[bad] == "unreachable" and bad in report["reason"]
        assert {states(report)[host] for host in later} == {"planned"}
        assert all(hosts.manifest(host) is None for host in later), "a host of a later wave was touched"
    finally:
        hosts.lab("power-on", bad)
        hosts.prepare(bad)
    status, report = gb10.run(gb10.resume())
    assert status == 0 and set(states(report).values()) == {"done"}, report
    assert all(hosts.manifest(host) is not None for host in hosts.hosts)


@pytest.mark.long
def test_a_killed_rollout_is_resumed_to_where_an_undisturbed_one_ends(hosts: Fleet, tmp_path: Path) -> None:
    RolloutCampaign(hosts, tmp_path, seed=20261121).run(kills=4)


@pytest.mark.long
def test_the_driver_moves_in_waves_stops_at_a_bad_host_and_moves_back(hosts: Fleet, gb10: Gb10) -> None:
    """From 580.142 to the next set. The bad host's sources do not offer it, which nobody knows before its wave."""
    before = on_all(hosts, hosts.snapshot)
    bad, _, later = bad_host(gb10, wave=2)
    on_all(hosts, lambda host: None if host == bad else hosts.shell(host, OFFER))
    try:
        status, report = gb10.run(gb10.rollout("tests/fleet/driver.yml", "--to", FLOOR))
        assert status in (4, 6), report
        assert states(report)[bad] == "failed" and bad in report["reason"]
        assert {states(report)[host] for host in later} <= {"planned"}
        for host in later:
            assert hosts.shell(host, USERLAND).startswith("580.142-"), host

        hosts.shell(bad, OFFER)
        status, report = gb10.run(gb10.resume())
        assert status == 0 and set(states(report).values()) == {"done"}, report
        versions = on_all(hosts, lambda host: hosts.shell(host, USERLAND))
        assert {version.partition("-")[0] for version in versions.values()} == {"580.178.04"}

        status, report = gb10.run(gb10.rollback(report["run"]))
        assert status == 0, report
    finally:
        on_all(hosts, lambda host: hosts.shell(host, f"rm -f {SOURCE}; apt-get -qq update"))
    after = on_all(hosts, hosts.snapshot)
    assert {host: rows for host in hosts.hosts if (rows := differences(before[host], after[host]))} == {}
