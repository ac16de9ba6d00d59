"""`make test`: the gates, the page in a browser, roles and engine on containers, and site.yml on two virtual Sparks.

First come the tests with time limits or servers of their own, beside the lab's containers, whose tests wait often. Then
come the machines. They have time limits too, and an emulated CPU needs both cores: beside them run only gates without a
time limit, on what the machines leave. docs/development/tests.md says where the minutes go.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from scripts import attacks as attackers
from scripts import check, release
from scripts.gates import ROOT, Gate, execute, run_all, summarise

AS_ROOT = ROOT / "scripts/as-root"
FLEET = ROOT / "inventory/lab/fleet/hosts.yml"
# Two containers for each group of tests, in an inventory that names no others.
GROUPS = ("roles", "engine", "moves")
# Of the fleet's tests half of the minutes: runs that are killed or undone, packages that move, hosts that come and go.
MOVES = tuple(
    f"tests/fleet/test_{name}.py" for name in ("kill", "undo", "apt_faults", "upgrades", "rollout", "up", "retire")
)
LONGEST = ("--durations=15", "--durations-min=10")  # a run says where its minutes went

# What a test starts, by the Debian package that brings it. Without one of them its tests skip, and say so.
PROGRAMS = {
    "amtool": "prometheus-alertmanager",
    "chromium": "chromium",
    "grub-editenv": "grub-common",
    "grub-reboot": "grub2-common",
    "haproxy": "haproxy",
    "modinfo": "kmod",
    "nft": "nftables",
    "nginx": "nginx-light",
    "prometheus": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
    "rsync": "rsync",
}


def tools(gate: Gate) -> None:
    """Debian packages that the gates below need."""
    gate.run(AS_ROOT, sys.executable, "-m", "lab", "deps")
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [package for program, package in PROGRAMS.items() if not shutil.which(program, path=path)]
    if not missing or not shutil.which("apt-get"):
        return
    gate.run(AS_ROOT, "apt-get", "update")
    gate.run(AS_ROOT, "apt-get", "install", "-y", "--no-install-recommends", *missing)
    started = {
        "haproxy": "haproxy",
        "nginx-light": "nginx",
        "prometheus": "prometheus",
        "prometheus-alertmanager": "prometheus-alertmanager",
        "prometheus-node-exporter": "prometheus-node-exporter",
    }
    if Path("/run/systemd/system").is_dir():  # tests have daemons of their own
        for package in set(missing) & set(started):
            gate.run(AS_ROOT, "systemctl", "disable", "--now", f"{started[package]}.service")


def page(gate: Gate) -> None:
    gate.run("pytest", "tests/browser", "-v", tests=True)


def hosts(gate: Gate) -> None:
    """The containers of all tests, and the inventories of those who share them."""
    gate.run(AS_ROOT, sys.executable, "-m", "lab", "up", "fleet", "--hosts", str(2 * len(GROUPS)))
    parts = divided(yaml.safe_load(FLEET.read_text(encoding="utf-8")), len(GROUPS))
    for group, part in zip(GROUPS, parts, strict=True):
        folder = ROOT / _inventory(group)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts.yml").write_text(yaml.safe_dump(part, sort_keys=False), encoding="utf-8")


def divided(inventory: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """The inventory of a fleet as several ones, with an equal share of its hosts each."""
    everything = inventory["all"]
    sparks = everything["children"]["sparks"]
    names = list(sparks["hosts"])
    size = len(names) // count
    shares = [names[index * size : (index + 1) * size] for index in range(count)]
    return [
        {"all": {**everything, "children": {"sparks": {**sparks, "hosts": {it: sparks["hosts"][it] for it in share}}}}}
        for share in shares
    ]


def _inventory(group: str) -> str:
    return f".work/hosts/{group}"


def _fleet(group: str, *tests: str) -> tuple[str | Path, ...]:
    return (
        AS_ROOT,
        "env",
        f"GB10_FLEET_INVENTORY={_inventory(group)}",
        "pytest",
        "-v",
        *LONGEST,
        "-m",
        "not long",
        *tests,
    )


def roles(gate: Gate) -> None:
    """Of each role: check before converge, converge, again without a change, verify with testinfra, undo."""
    molecule = (AS_ROOT, "env", f"GB10_MOLECULE_INVENTORY={_inventory('roles')}", "molecule")
    gate.run(*molecule, "reset", "--scenario-name", "default")  # what a killed run says of its hosts is over
    gate.run(*molecule, "test", "--all", tests=True)


def truth(gate: Gate) -> None:
    """Check mode, drift, undo and secrets tell and do exactly what they should."""
    gate.run(*_fleet("engine", "tests/fleet", *(f"--ignore={path}" for path in MOVES)), tests=True)


def moves(gate: Gate) -> None:
    """A killed run is completed by the next one, an undo undoes, packages move where they should and nowhere else."""
    gate.run(*_fleet("moves", *MOVES), tests=True)


def attacks(gate: Gate) -> None:
    """Each in a short form; `make test-all` has them whole."""
    gate.run(AS_ROOT, sys.executable, "-m", "scripts.attacks", tests=True)


def pair(gate: Gate) -> None:
    gate.run(AS_ROOT, "pytest", "tests/lab", "-v", *LONGEST, "-m", "not long", tests=True)


def nothing_left(gate: Gate) -> None:
    """What a killed run has left of the lab is no fresh host."""
    gate.run(AS_ROOT, sys.executable, "-m", "lab", "down")


def containers() -> list[Gate]:
    """The lane of the lab's containers, which have no hosts in common and so run side by side."""
    started = execute(Gate("hosts of the lab", hosts, minutes=1, live=True))
    if started.failed:
        return [started]
    molecule = Gate("roles on systemd-nspawn hosts (molecule)", roles, minutes=8, live=True)
    fleet = Gate("engine's truth on systemd-nspawn hosts", truth, minutes=10, live=True)
    others = Gate("kills and moves on systemd-nspawn hosts", moves, minutes=10, live=True)
    return [started, *run_all([molecule, fleet, others], workers=3)]


def in_time() -> list[Gate]:
    """The lane of what needs no host of the lab, and both cores: its tests have time limits.

    The plays take as long as all others together. They begin, in two parts, so that two gates run to the end.
    """
    first = [
        Gate(
            f"unit tests that start Ansible, part {part + 1}",
            partial(check.plays, part=part, parts=2, elsewhere=attackers.UNIT_TESTS),
            minutes=5,
        )
        for part in range(2)
    ]
    rest = (
        Gate("evidence page in a browser", page, minutes=1, live=True),
        Gate("attackers", attacks, minutes=3, live=True),
    )
    others = check.gates(elsewhere=attackers.UNIT_TESTS)
    return run_all([*first, *(gate for gate in others if not gate.patient), *rest], workers=2)


def machines() -> list[Gate]:
    return [execute(Gate("site.yml on two virtual Sparks", pair, minutes=15, live=True))]


def patient() -> list[Gate]:
    """The lane of what may take as long as it likes: it gets what the machines leave."""
    # Of this thread alone, and of what it starts. A machine that wakes up takes the core at once, as it does not from a
    # process that is only nice.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    rehearsal = Gate("release: the whole of it in a copy", release.rehearsal)
    return run_all([*(gate for gate in check.gates() if gate.patient), *check.packages(), rehearsal], workers=1)


def side_by_side(lanes: Sequence[Callable[[], list[Gate]]]) -> list[Gate]:
    with ThreadPoolExecutor(max_workers=len(lanes)) as pool:
        return [gate for lane in list(pool.map(lambda lane: lane(), lanes)) for gate in lane]


def main() -> int:
    started = time.monotonic()
    print("Containers beside tests, then machines beside gates that can wait; the lab needs root.", flush=True)
    done = [execute(Gate("tools of the tests", tools, minutes=3, live=True))]
    done.append(execute(Gate("lab of an earlier run", nothing_left)))
    done += side_by_side((containers, in_time))
    done.append(execute(Gate("end of the containers", nothing_left)))
    done += side_by_side((machines, patient))
    return summarise(done, started)


if __name__ == "__main__":
    sys.exit(main())
