"""`python -m benchmarks`: fleets up, every way in turn, a table at the end."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import last_facts

from benchmarks import desired, report
from benchmarks.counts import Counts, count
from benchmarks.meter import Cost, MeterError, close_masters, controller_words, measure
from benchmarks.report import Kind, Results, Run
from benchmarks.ways import ROOT, Way, Workplace, fetch_rivals
from lab import lifecycle, network, shell
from lab.shell import LabError

WORK = ROOT / ".work" / "bench"
RESULTS = ROOT / "benchmarks" / "results"
# Of ssh's masters. One folder for all runs, so that the next one ends what a killed one has left; and a short name.
SOCKETS = Path("/run/gb10-bench")
FIRST_HOSTS = 10
FIRST = ("pyinfra", "idiomatic")  # beside ours, the ways whose changing run on fresh hosts is measured
SLOW_RUNS = 2
DEAD, DEAD_AMONG = 2, 30  # hosts without a cable, among so many
WAYS = (
    *("ours", "drift", "ours-changed", "drift-changed", "status", "ps", "ssh", "drift-dead", "ps-dead"),
    *("floor", "pyinfra", "mitogen", "tuned", "idiomatic"),
)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks", description="What a run costs. Needs root and the lab.")
    top.add_argument("--hosts", type=_numbers, default=[1, 10, 30, 60], metavar="N,N", help="default 1,10,30,60")
    top.add_argument("--runs", type=int, default=5, help=f"of each way and size (of slow ways {SLOW_RUNS}); default 5")
    top.add_argument("--only", type=_ways, metavar="WAY,WAY", help=f"only these ways of {', '.join(WAYS)}")
    top.add_argument("--skip-first", action="store_true", help="leave out the changing runs on fresh hosts")
    top.add_argument(
        "--first-hosts", type=int, default=FIRST_HOSTS, metavar="N", help=f"fresh hosts of these; default {FIRST_HOSTS}"
    )
    return top


def _numbers(text: str) -> list[int]:
    return sorted({int(word) for word in text.split(",")})


def _ways(text: str) -> list[str]:
    names = text.split(",")
    if unknown := sorted(set(names) - set(WAYS)):
        raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(WAYS)}")
    return names


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if os.geteuid() != 0:
        print("benchmarks: the lab needs root: run this as root, for example with `sudo -E`", file=sys.stderr)
        return 1
    try:
        SOCKETS.mkdir(mode=0o700, exist_ok=True)
        try:
            bench(args, SOCKETS)
        finally:
            close_masters(SOCKETS)
    except (MeterError, LabError, subprocess.CalledProcessError, ValueError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    return 0


def bench(args: argparse.Namespace, sockets: Path) -> None:
    versions = {
        "ansible-core": version("ansible-core"),
        "python": sys.version.split()[0],
        "gb10-fleet": version("gb10-fleet"),
        **fetch_rivals(WORK),
    }
    os.environ["XDG_CACHE_HOME"] = str(WORK / "cache")  # where `ours` keeps the facts; read below
    session = Session(sockets, args.runs, args.only)
    if not args.skip_first:
        session.first_runs(args.first_hosts)
    counts = session.unchanged_runs(args.hosts)
    whole = vars(args) == vars(parser().parse_args([]))
    show(Results(session.runs), session.notes, counts, versions, whole)


class Session:
    """The runs so far."""

    def __init__(self, sockets: Path, rounds: int, only: Sequence[str] | None) -> None:
        self.sockets, self.rounds, self.only = sockets, rounds, only
        self.runs: list[Run] = []
        self.notes: list[str] = []

    def wanted(self, ways: Iterable[Way]) -> list[Way]:
        return [way for way in ways if self.only is None or way.name in self.only]

    def first_runs(self, hosts: int) -> None:
        """On fresh hosts each, and on fresh hosts that have the packages, for apt's part is the same for all ways.

        Ours goes first: the others' state follows from what the hosts then are.
        """
        with fleet(hosts) as inventory:
            place = Workplace(WORK, self.sockets, inventory, hosts)
            ours = place.ours()[0]
            self.run(ours, hosts, "first")
            wanted = state_of(place)
        apt = place.packages_alone(wanted)
        ways = [way for way in self.wanted(place.others(wanted)) if way.name in FIRST]
        for way in ways:
            with fleet(hosts):
                self.run(way, hosts, "first")
        for way in (ours, *ways):
            with fleet(hosts):
                self.run(apt, hosts, "first")
                self.run(way, hosts, "packages there")

    def unchanged_runs(self, sizes: Sequence[int]) -> dict[str, dict[str, Counts]]:
        """Every way in turn, round by round, so that whatever disturbs the machine disturbs all of them."""
        with fleet(max(sizes)) as inventory:
            everywhere = Workplace(WORK, self.sockets, inventory, max(sizes))
            self.settle(everywhere.ours()[0])
            for hosts in sizes:
                place = Workplace(WORK, self.sockets, inventory, hosts)
                ways = [*place.ours(), *place.ours_left_out(), *place.glances(), *place.others(state_of(place))]
                ways = [way for way in self.wanted(ways) if hosts <= way.most]
                ways = [way for way in ways if self.warm(way, hosts)]
                for number in range(self.rounds):
                    for way in ways:
                        if number < (SLOW_RUNS if way.slow else self.rounds):
                            self.run(way, hosts, "no change")
            ours = {way.name: way for way in everywhere.ours()}
            counts = {name: count(way, everywhere.hosts, WORK / "ssh.log") for name, way in ours.items()}
            if DEAD_AMONG in sizes:
                self.beside_dead(Workplace(WORK, self.sockets, inventory, DEAD_AMONG))
            return counts

    def beside_dead(self, place: Workplace) -> None:
        """Last, for the hosts stay without an answer."""
        ways = self.wanted(place.beside_dead())
        for host in [*place.hosts][-DEAD:] if ways else ():
            unplug(host)
        ways = [way for way in ways if self.warm(way, DEAD_AMONG)]
        for _ in range(self.rounds):
            for way in ways:
                self.run(way, DEAD_AMONG, "no change")

    def settle(self, ours: Way) -> None:
        """Untimed: all hosts have the state, and a second run finds nothing to do."""
        for _ in range(2):
            log = self.once(ours)
        if recap := changed(log):
            raise MeterError(f"site.yml changes hosts a second time ({', '.join(recap)}): {log}")

    def warm(self, way: Way, hosts: int) -> bool:
        """A run that is not counted: does the way work here, and has it nothing to do?"""
        try:
            log = self.once(way)
            if way.converges and changed(log):
                log = self.once(way)  # it has ideas of its own how to write a file; from now on they stand
                if recap := changed(log):
                    raise MeterError(f"it changes {', '.join(recap)} every time ({log})")
        except MeterError as error:
            if way.name in ("ours", "drift", "floor"):
                raise
            self.note(f"{way.name} at N={hosts} is left out: {error}")
            return False
        return True

    def note(self, text: str) -> None:
        self.notes.append(text)
        print(f"benchmarks: {text}", flush=True)

    def once(self, way: Way) -> Path:
        log = WORK / f"{way.name}.log"
        self._measure(way, log)
        return log

    def run(self, way: Way, hosts: int, kind: Kind) -> None:
        cost = self._measure(way, WORK / f"{way.name}.log")
        self.runs.append(Run(way.name, hosts, kind, cost))
        print(
            f"  {kind:9} N={hosts:<3} {way.name:10} {cost.wall_s:7.2f} s  "
            f"CPU s: controller {cost.controller_cpu_s:6.2f}  hosts {cost.hosts_cpu_s:6.2f}  {cost.memory_mb:5.0f} MB",
            flush=True,
        )

    def _measure(self, way: Way, log: Path) -> Cost:
        close_masters(self.sockets)
        return measure(way.argv, log, way.env, ROOT, ends=way.ends)


def changed(log: Path) -> list[str]:
    """The hosts that a run changed, from Ansible's recap or pyinfra's."""
    text = log.read_text(errors="replace")
    hosts = re.findall(r"^(\S+)\s+: ok=.* changed=[1-9]", text, re.MULTILINE)
    operations = re.search(r"^\s*Grand total +\d+ +(\d+)", text, re.MULTILINE)
    return hosts + ([f"{operations[1]} operations' worth of hosts"] if operations else [])


def state_of(place: Workplace) -> dict[str, desired.Desired]:
    """What our documents ask of each host, by the facts that `ours` has kept."""
    states = {}
    for host, address in place.hosts.items():
        facts = last_facts.read(host, address)
        if facts is None:
            raise MeterError(f"{host}: site.yml has kept no facts; its output: {WORK / 'ours.log'}")
        states[host] = desired.of_host(host, place.variables, facts, facts["packages"])
    return states


@contextmanager
def fleet(hosts: int) -> Iterator[dict[str, Any]]:
    """Fresh containers, and their inventory."""
    for last in (WORK / "cache").rglob("*.json"):
        last.unlink()  # what other hosts of these names said
    with lifecycle.state() as now:
        if now.up:
            raise MeterError(
                f"a lab is up ({', '.join(now.up)}): end it with `python -m lab down`, then run this again"
            )
    try:
        lab("up", "fleet", "--hosts", str(hosts))
        yield yaml.safe_load((ROOT / "inventory/lab/fleet/hosts.yml").read_text())
    finally:
        lab("down")


def unplug(name: str) -> None:
    """Take the cable out by which the controller reaches a host: it is then as silent as one without power."""
    with lifecycle.state() as now:
        _, host = now.find(name)
    for nic in host.nics:
        if nic.port is None:
            shell.run([*network.IP, "link", "set", nic.outer, "down"])


def lab(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "lab", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def show(
    results: Results,
    notes: Sequence[str],
    counts: dict[str, dict[str, Counts]],
    versions: dict[str, str],
    whole: bool,
) -> None:
    found = report.bars(results)
    print(f"\n{report.table(results)}\n{report.bar_table(found)}")
    for name, hosts in counts.items():
        worst = {key: max(asdict(each)[key] for each in hosts.values()) for key in asdict(next(iter(hosts.values())))}
        print(f"{name}, on the host with most: {', '.join(f'{value} {key}' for key, value in worst.items())}")
    for note in notes:
        print(f"note: {note}")
    now = datetime.now(UTC)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / (f"{now:%Y-%m-%d}.json" if whole else f"{now:%Y-%m-%dT%H%M}.json")
    content = {
        "format": 1,
        "when": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "machine": controller_words(),
        "commit": _commit(),
        "versions": versions,
        "runs": [asdict(run) for run in results.runs],
        "bars": [{**asdict(bar), "holds": bar.holds} for bar in found],
        "counts": {name: {host: asdict(each) for host, each in hosts.items()} for name, hosts in counts.items()},
        "notes": list(notes),
    }
    path.write_text(report.document(content) + "\n")
    path.with_suffix(".svg").write_text(report.plot(results))
    print(f"\n{path.relative_to(ROOT)} and {path.with_suffix('.svg').name} written")


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"
