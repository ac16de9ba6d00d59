"""Made-up rollouts, written through the journal itself, in every state that one can be in.

`python -m tests.support.stories DIRECTORY` writes their pages, to be looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import judge

from gb10_fleet import report
from gb10_fleet.report import model
from gb10_fleet.rollout.journal import Journal, Record
from gb10_fleet.rollout.waves import FleetHost, Wave
from tests.support import proofs

START = datetime(2026, 11, 21, 1, 0, 0, tzinfo=UTC)
POLICY = {"canary": 1, "growth": ["10%", "100%"], "threshold": 0, "soak_s": 120, "timeout_s": 14400, "window": []}
CHANGE = {"role": "driver", "resource": "package:nvidia-driver-580-open", "action": "update", "detail": "580.142"}
UNREACHABLE = ("unreachable", "Update: Failed to connect to the host via ssh: No route to host")
UNHEALTHY = ("unhealthy", "spark-002 p0 to spark-003 p0: degraded_cx7: 13.2 Gb/s of 98 expected")


class Clock:
    """Goes on by itself, a little at each look."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=7)
        return self.now


class Story:
    """A rollout of some hosts in clusters of two, told through the journal."""

    def __init__(self, folder: Path, hosts: int, sizes: tuple[int, ...], kind: str = "rollout") -> None:
        self.clock = Clock()
        self.journal = Journal(folder, write=True, clock=self.clock)
        self.hosts = [FleetHost(f"spark-{n:03d}", f"pair{n // 2 + 1}", True) for n in range(hosts)]
        self.waves, first = [], 0
        for number, size in enumerate(sizes, start=1):
            members = self.hosts[first : first + size]
            clusters = tuple(dict.fromkeys(str(host.cluster) for host in members))
            self.waves.append(Wave(number, tuple(host.name for host in members), clusters))
            first += size
        order = {
            "playbook": "site", "inventories": ["inventory/mine"], "directory": str(folder),
            "to": {"driver_host_set": "r580.178"}, "steps": [{"name": "work", "plays": []}], "limit": None,
            "words": [], "drain": True, "prove": True,
        }  # fmt: skip
        of = "20261120T010203Z-ab12" if kind == "rollback" else None
        self.run = self.journal.begin(kind, order, POLICY, self.hosts, self.waves, of)

    def wave(self, number: int, bad: Mapping[str, tuple[str, str]] | None = None, proof: str | None = None) -> None:
        """One wave to its gate; whoever is bad stops it."""
        wave, journal, judged = self.waves[number - 1], self.journal, dict(bad or {})
        journal.begin_wave(self.run, number, wave.hosts)
        for index, step in enumerate(("move", "reboot", "work")):
            journal.begin_step(self.run, number, index, step)
            self.clock.now += timedelta(seconds=40 + 30 * index + len(wave.hosts))
            changes = {host: [CHANGE] for host in wave.hosts} if index == 0 else {}
            journal.end_step(self.run, number, index, {}, changes, proof if index == 2 else None)
        states: dict[str, tuple[str, str | None]] = {host: judged.get(host, ("done", None)) for host in wave.hosts}
        journal.end_wave(self.run, number, states, stop=bool(judged))
        self.clock.now += timedelta(seconds=120)

    def end(self, outcome: str, reason: str | None = None) -> None:
        self.journal.end(self.run, outcome, reason)

    def record(self) -> Record:
        return self.journal.record(self.run)

    def document(self, proofs: Mapping[int, Record] | None = None, drift: Record | None = None) -> Record:
        """The report, as if it were made at the time of the story."""
        return model.build(self.record(), self.journal.events(self.run), proofs or {}, drift, self.clock.now)


def done(folder: Path) -> Story:
    story = Story(folder, 6, (2, 4))
    story.wave(1)
    story.wave(2)
    story.end("done")
    return story


def stopped(folder: Path, bad: Mapping[str, tuple[str, str]] | None = None) -> Story:
    """The canary was good, the second wave was not."""
    story = Story(folder, 10, (2, 4, 4))
    story.wave(1)
    story.wave(
        2, bad or {"spark-002": UNREACHABLE, "spark-003": ("skipped", "spark-002 of its cluster is unreachable")}
    )
    story.end("partial", "wave 2: spark-002 unreachable, spark-003 skipped")
    return story


def killed(folder: Path) -> Story:
    """SIGKILL in the middle of the second wave: nobody wrote an end."""
    story = Story(folder, 6, (2, 4))
    story.wave(1)
    story.journal.begin_wave(story.run, 2, story.waves[1].hosts)
    story.journal.begin_step(story.run, 2, 0, "move")
    return story


def canary(folder: Path, outcome: str, state: str) -> Story:
    """Stopped at the very first wave."""
    story = Story(folder, 4, (2, 2))
    story.wave(1, {"spark-000": (state, "Update: it said nothing")})
    story.end(outcome, f"wave 1: spark-000 {state}")
    return story


def rollback(folder: Path) -> Story:
    story = Story(folder, 4, (2, 2), kind="rollback")
    story.wave(1)
    story.wave(2)
    story.end("done")
    return story


def large(folder: Path, hosts: int = 300) -> Story:
    """300 hosts, of which a few are bad in different ways, and the last wave was never begun."""
    sizes = (2, hosts // 10, hosts // 2, hosts - 2 - hosts // 10 - hosts // 2)
    story = Story(folder, hosts, sizes)
    story.wave(1)
    story.wave(2)
    bad = {f"spark-{number:03d}": UNREACHABLE for number in range(40, 80, 2)}
    bad |= {
        name.replace(name[-3:], f"{int(name[-3:]) + 1:03d}"): ("skipped", f"{name} of its cluster is unreachable")
        for name in bad
    }
    story.wave(3, {**bad, "spark-100": UNHEALTHY, "spark-102": ("rescued", "a failure was rescued: Check it: rc 1")})
    story.end("partial", "wave 3: spark-040 unreachable, spark-042 unreachable and 40 more")
    return story


def proof(story: Story, wave: int, gbps: Mapping[str, float] | None = None, floor: str | None = None) -> Record:
    """The evidence of a wave: each of its clusters is a pair, whose slower host may have a figure of its own."""
    measured: dict[str, Any] = {}
    for cluster in story.waves[wave - 1].clusters:
        members = [host.name for host in story.hosts if host.cluster == cluster]
        slow = [figure for name, figure in (gbps or {}).items() if name in members]
        pair = proofs.proof("pair", {"spark-b": min(slow)} if slow else None)
        if floor in members:
            pair["spark-a"]["findings"] = [proofs.WARNING]
        for old, new in zip(("spark-a", "spark-b"), members, strict=True):
            measured[new] = {**_renamed(pair[old], {"spark-a": members[0], "spark-b": members[1]}), "cluster": cluster}
    return judge.build(measured, {}, proofs.thresholds(), START)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, dict):
        return {key: _renamed(item, names) for key, item in value.items()}
    return [_renamed(item, names) for item in value] if isinstance(value, list) else value


def scan(story: Story, drifted: str) -> Record:
    """A drift scan after the story in which one host drifted."""
    change = {"resource": "sysctl:vm.swappiness", "action": "update", "detail": "60 -> 10", "consent": None}
    clean: Record = {"state": "clean", "changes": {}, "orphans": [], "silence": None}
    hosts = {host.name: clean for host in story.hosts}
    hosts[drifted] = {**clean, "state": "drift", "changes": {"kernel_parameters": [change]}}
    return {
        "schema_version": 1, "created": f"{story.clock.now:%Y-%m-%dT%H:%M:%SZ}", "seconds": 2.0,
        "clean": len(hosts) - 1, "drifted": [drifted], "silent": [], "converge": [drifted], "hosts": hosts,
    }  # fmt: skip


def documents(folder: Path) -> dict[str, Record]:
    """Named reports: a good run, and one for each kind of trouble."""
    stories = {kind.__name__: kind(folder / kind.__name__) for kind in (done, stopped, killed, rollback)}
    found = {name: story.document() for name, story in stories.items()}
    big = large(folder / "large")
    first = {1: proof(big, 1), 2: proof(big, 2, {"spark-005": 13.2}, floor="spark-008")}
    return {**found, "large": big.document(first, scan(big, "spark-007"))}


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for name, document in documents(target / "journals").items():
        print(report.write(document, target / name))
