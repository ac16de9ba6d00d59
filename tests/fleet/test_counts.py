"""What a clean host costs, in numbers without noise. Times and ratios are for `make bench`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from benchmarks.counts import Counts, count
from benchmarks.meter import close_masters
from benchmarks.ways import ROOT, Way, Workplace
from tests.fleet.fleet import Fleet

pytestmark = pytest.mark.lab

SENT_LIMIT = 25_000  # bytes; engine and long texts are on the host
SUBPROCESS_LIMIT = 5


@dataclass
class Counted:
    """Our playbooks on the hosts of the fixture, with caches of their own."""

    place: Workplace
    log: Path

    def way(self, name: str) -> Way:
        return next(way for way in [*self.place.ours(), *self.place.ours_left_out()] if way.name == name)

    def of(self, name: str) -> list[Counts]:
        close_masters(self.place.sockets)
        return list(count(self.way(name), self.place.hosts, self.log).values())


@pytest.fixture(scope="module")
def clean(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    inventory = yaml.safe_load((fleet.inventory / "hosts.yml").read_text())
    sparks = inventory["all"]["children"]["sparks"]
    sparks["hosts"] = {name: sparks["hosts"][name] for name in fleet.hosts}
    folder = tmp_path_factory.mktemp("counts")
    sockets = Path(tempfile.mkdtemp(prefix="gb10-"))  # short: a socket's path has 108 bytes at most
    counted = Counted(Workplace(folder, sockets, inventory, len(fleet.hosts)), folder / "ssh.log")
    site = counted.way("ours")
    for _ in range(2):  # the second run settles what the first one has changed: facts
        subprocess.run(site.argv, cwd=ROOT, env=site.env, check=True, stdin=subprocess.DEVNULL)
    yield counted
    close_masters(sockets)
    shutil.rmtree(sockets)


@pytest.mark.parametrize("name", ["ours", "drift"])
def test_a_clean_host_costs_one_call_and_one_task(clean: Counted, name: str) -> None:
    counts = clean.of(name)
    assert [host.calls for host in counts] == [1] * len(counts)
    # Its own result, and a `meta` that lets nobody leave; the first host has the scan too, and a second `meta`.
    assert [host.tasks for host in counts] == [4] + [2] * (len(counts) - 1)


def test_a_host_left_out_costs_one_call_of_a_bounded_size_and_no_task(clean: Counted) -> None:
    counts = clean.of("ours-changed")
    # The look, which is one for all hosts, and shown for one.
    assert sum(host.tasks for host in counts) <= 1
    for host in counts:
        assert host.calls == 1
        assert 0 < host.sent <= SENT_LIMIT
        assert 0 < host.subprocesses <= SUBPROCESS_LIMIT


def test_a_scan_costs_one_call_and_one_task_for_all_hosts(clean: Counted) -> None:
    counts = clean.of("drift-changed")
    assert all(host.calls == 1 and 0 < host.sent <= SENT_LIMIT for host in counts)
    assert all(host.subprocesses <= SUBPROCESS_LIMIT for host in counts)
    # The scan, which is shown for one host.
    assert sum(host.tasks for host in counts) <= 1


def test_a_controller_that_has_forgotten_a_host_pays_one_more_call(clean: Counted) -> None:
    shutil.rmtree(clean.place.cache)
    assert [host.calls for host in clean.of("ours")] == [2] * len(clean.place.hosts)
    assert [host.calls for host in clean.of("ours")] == [1] * len(clean.place.hosts)
