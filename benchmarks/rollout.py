"""`python -m benchmarks.rollout`: what `gb10 rollout` adds to the playbooks that it runs, and how it grows.

The hosts are simulated, so what is measured is the controller. Overhead is against the bare ansible-playbook for the
same waves: the same playbook and the same proof in one run, with `--limit`. Each round runs both; each of the update's
three tasks takes a host 5 s, which is little for one that installs something. What a rollout costs once, however many
hosts and waves it has, is its plan: that is not counted as a cost of each host. The curve is one rollout of each size,
up to 1000 hosts that answer at once. Needs no root and no lab; takes about 25 minutes on 2 cores, most of it Ansible's
own work for 1000 hosts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.meter import controller_words
from benchmarks.report import Bar, document

ROOT = Path(__file__).resolve().parent.parent
SIMULATED = ROOT / "benchmarks" / "simulated"
RESULTS = ROOT / "benchmarks" / "results"
UPDATE, BARE = SIMULATED / "update.yml", SIMULATED / "update_and_prove.yml"
GB10 = (sys.executable, "-c", "from gb10_fleet.cli import main; main()")
OVERHEAD_HOSTS = 60
# The goals: of the wall time, and seconds of controller CPU for each host (a host is in one wave).
MOST_OVERHEAD, MOST_CPU_S = 1.05, 0.02
TASK_S = "5"
PERIOD_S = 0.05  # of the memory samples


class BenchmarkError(Exception):
    """A command failed; the text ends with what it said."""


@dataclass(frozen=True)
class Cost:
    """Of one command with all its children. MB = 1e6 bytes.

    `own_mb`: the peak of the command's own process; `largest_mb`: of the largest of all, which is ansible-playbook.
    """

    wall_s: float
    cpu_s: float
    own_mb: float
    largest_mb: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.wall_s + other.wall_s,
            self.cpu_s + other.cpu_s,
            max(self.own_mb, other.own_mb),
            max(self.largest_mb, other.largest_mb),
        )


@dataclass(frozen=True)
class Point:
    """One size of fleet: what it costs to plan, to roll out and to report."""

    hosts: int
    waves: int
    plan: Cost
    rollout: Cost
    report: Cost


def measure(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> tuple[Cost, str]:
    """Run a command; its cost and its output. Of CPU, everything counts that it has waited for."""
    with tempfile.TemporaryFile("w+") as output:
        started = time.monotonic()
        child = subprocess.Popen(
            argv, cwd=folder, env=dict(env), text=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        own = 0.0
        while True:
            own = max(own, _peak_mb(child.pid))
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(PERIOD_S)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - started
        output.seek(0)
        said = output.read()
    if child.returncode:
        raise BenchmarkError(f"{' '.join(argv[-6:])} failed with status {child.returncode}:\n{said[-2000:]}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, own, usage.ru_maxrss * 1024 / 1e6), said


def _peak_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:")), 0.0)


class Fleet:
    """Simulated hosts in a folder of their own."""

    def __init__(self, folder: Path, hosts: int, task_s: str = "0") -> None:
        self.folder = folder
        self.folder.mkdir()
        names = [f"spark-{number:04d}" for number in range(1, hosts + 1)]
        variables = {"ansible_connection": "instant", "gb10_roles": []}
        inventory = {"sparks": {"hosts": {name: {} for name in names}, "vars": variables}}
        (folder / "inventory.json").write_text(json.dumps(inventory))
        (folder / "ansible.cfg").touch()
        self.env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": f"{ROOT / 'collections'}:{ROOT}",
            "XDG_CACHE_HOME": str(folder / "cache"),
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_FORKS": "50",
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
            "ANSIBLE_CONNECTION_PLUGINS": str(SIMULATED),
            "GB10_SIMULATED_S": task_s,
        }

    def gb10(self, *words: str) -> tuple[Cost, dict[str, Any]]:
        cost, said = measure([*GB10, *words, "-i", "inventory.json", "--json"], self.folder, self.env)
        return cost, json.loads(said)

    def plan(self) -> tuple[Cost, list[list[str]]]:
        """The waves, as lists of hosts."""
        cost, said = self.gb10("rollout", str(UPDATE), "--plan", "--soak", "0")
        return cost, [[host["host"] for host in wave["hosts"]] for wave in said["waves"]]

    def rollout(self) -> Cost:
        return self.gb10("rollout", str(UPDATE), "--soak", "0")[0]

    def report(self) -> Cost:
        cost, _ = measure([*GB10, "report", "-i", "inventory.json"], self.folder, self.env)
        return cost

    def bare(self, waves: Sequence[Sequence[str]]) -> Cost:
        """The same plays for the same waves, and nothing else."""
        total = Cost(0, 0, 0, 0)
        for number, wave in enumerate(waves):
            limit = self.folder / f"wave-{number}"
            limit.write_text("".join(f"{host}\n" for host in wave))
            argv = ["ansible-playbook", "-i", "inventory.json", "--limit", f"@{limit}", str(BARE)]
            total += measure(argv, self.folder, self.env)[0]
        return total


def bars(hosts: int, plan: Cost, ours: Sequence[Cost], bare: Sequence[Cost]) -> list[Bar]:
    """Both goals, from the medians of pairs: whatever disturbs the machine disturbs both halves of a pair."""
    wall = median(one.wall_s / other.wall_s for one, other in zip(ours, bare, strict=True))
    cpu = median((one.cpu_s - other.cpu_s - plan.cpu_s) / hosts for one, other in zip(ours, bare, strict=True))
    return [
        Bar(f"wall time against the bare playbooks, N={hosts}", wall, "at most", MOST_OVERHEAD),
        Bar(f"controller CPU for each host and wave, N={hosts}, s", cpu, "at most", MOST_CPU_S),
    ]


def overhead(folder: Path, hosts: int, rounds: int) -> tuple[Cost, list[Cost], list[Cost]]:
    """What the plan costs, and each round's rollout and bare run."""
    fleet = Fleet(folder / "overhead", hosts, TASK_S)
    _, waves = fleet.plan()
    fleet.bare(waves[:1])  # the first run compiles
    plan, _ = fleet.plan()
    ours, bare = [], []
    for number in range(rounds):
        bare.append(fleet.bare(waves))
        ours.append(fleet.rollout())
        print(f"round {number + 1}: bare {bare[-1].wall_s:.1f} s, gb10 {ours[-1].wall_s:.1f} s", flush=True)
    return plan, ours, bare


def point(folder: Path, hosts: int) -> Point:
    fleet = Fleet(folder / f"curve-{hosts}", hosts)
    plan, waves = fleet.plan()
    return Point(hosts, len(waves), plan, fleet.rollout(), fleet.report())


def line(item: Point) -> str:
    return (
        f"{item.hosts:6} hosts, {item.waves} waves: plan {item.plan.wall_s:.1f} s, rollout {item.rollout.wall_s:.0f} s"
        f" ({item.rollout.cpu_s:.0f} s CPU), report {item.report.wall_s:.1f} s; peak: gb10"
        f" {max(item.plan.own_mb, item.rollout.own_mb, item.report.own_mb):.0f} MB, largest process"
        f" {item.rollout.largest_mb:.0f} MB"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rollout", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs for the overhead; default 5")
    parser.add_argument("--hosts", type=int, nargs="*", default=[10, 60, 250, 1000], help="sizes of the curve")
    args = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="gb10-rollout-") as name:
            plan, ours, bare = overhead(Path(name), OVERHEAD_HOSTS, args.rounds)
            found = bars(OVERHEAD_HOSTS, plan, ours, bare)
            for bar in found:
                print(f"{'PASS' if bar.holds else 'MISS'}  {bar.name}: {bar.value:.3f} ({bar.sense} {bar.limit:g})")
            points = []
            for hosts in args.hosts:
                points.append(point(Path(name), hosts))
                print(line(points[-1]), flush=True)
    except BenchmarkError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    record = {
        "created": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "machine": controller_words(),
        "versions": {"ansible-core": version("ansible-core"), "python": sys.version.split()[0]},
        "bars": [asdict(bar) for bar in found],
        "overhead": {
            "hosts": OVERHEAD_HOSTS,
            "plan": asdict(plan),
            "gb10": [asdict(c) for c in ours],
            "bare": [asdict(c) for c in bare],
        },
        "curve": [asdict(item) for item in points],
    }
    file = RESULTS / f"rollout-{datetime.now(UTC):%Y-%m-%d}.json"
    file.write_text(document(record) + "\n")
    print(f"written: {file.relative_to(ROOT)}")
    return 0 if all(bar.holds for bar in found) else 1


if __name__ == "__main__":
    sys.exit(main())
