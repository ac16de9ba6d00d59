"""`make test`: the gates, the page in a browser, roles and engine on containers, and site.yml on two virtual Sparks.

The containers run beside the gates, because their tests wait often. The machines come last and alone: what happens on
them has time limits, and an emulated CPU needs both cores. docs/development/tests.md says where the minutes go.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts import check, release
from scripts.gates import ROOT, Gate, execute, run_all, summarise

AS_ROOT = ROOT / "scripts/as-root"


# What a test starts, by the Debian package that brings it. Without one of them its tests skip, and say so.
PROGRAMS = {
    "chromium": "chromium",
    "grub-editenv": "grub-common",
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
        "prometheus-node-exporter": "prometheus-node-exporter",
    }
    if Path("/run/systemd/system").is_dir():  # tests have daemons of their own
        for package in set(missing) & set(started):
            gate.run(AS_ROOT, "systemctl", "disable", "--now", f"{started[package]}.service")


def page(gate: Gate) -> None:
    gate.run("pytest", "tests/browser", "-v", tests=True)


def roles(gate: Gate) -> None:
    """Of each role: check before converge, converge, again without a change, verify with testinfra, undo."""
    gate.run(AS_ROOT, "molecule", "reset", "--scenario-name", "default")  # what a killed run says of its hosts is over
    gate.run(AS_ROOT, "molecule", "test", "--all", tests=True)


def truth(gate: Gate) -> None:
    """Check mode, drift, undo and secrets tell and do exactly what they should, also after a kill."""
    gate.run(AS_ROOT, "pytest", "tests/fleet", "-v", "-m", "not long", tests=True)


def attacks(gate: Gate) -> None:
    """Each in a short form; `make test-all` has them whole."""
    gate.run(AS_ROOT, sys.executable, "-m", "scripts.attacks", tests=True)


def pair(gate: Gate) -> None:
    gate.run(AS_ROOT, "pytest", "tests/lab", "-v", "-m", "not long", tests=True)


def nothing_left(gate: Gate) -> None:
    """What a killed run has left of the lab is no fresh host."""
    gate.run(AS_ROOT, sys.executable, "-m", "lab", "down")


def containers() -> list[Gate]:
    """The lane of the lab's containers."""
    molecule = Gate("roles on systemd-nspawn hosts (molecule)", roles, minutes=5, live=True)
    fleet = Gate("engine's truth on systemd-nspawn hosts", truth, minutes=10, live=True)
    return [execute(molecule), execute(fleet)]


def without_hosts() -> list[Gate]:
    """The lane of everything that needs no host of the lab."""
    rest = (
        Gate("release: the whole of it in a copy", release.rehearsal),
        Gate("unit tests that start Ansible", check.plays, minutes=3),
        Gate("evidence page in a browser", page, minutes=1, live=True),
        Gate("attackers", attacks, minutes=3, live=True),
    )
    return run_all([*check.gates(), *rest], workers=1)


def side_by_side(lanes: Sequence[Callable[[], list[Gate]]]) -> list[Gate]:
    with ThreadPoolExecutor(max_workers=len(lanes)) as pool:
        return [gate for lane in list(pool.map(lambda lane: lane(), lanes)) for gate in lane]


def main() -> int:
    started = time.monotonic()
    print("Tools, gates, page, roles and truth side by side, then the pair; the lab needs root.", flush=True)
    done = [execute(Gate("tools of the tests", tools, minutes=3, live=True))]
    done.append(execute(Gate("lab of an earlier run", nothing_left)))
    done += side_by_side((containers, without_hosts))
    done.append(execute(Gate("site.yml on two virtual Sparks", pair, minutes=15, live=True)))
    return summarise(done, started)


if __name__ == "__main__":
    sys.exit(main())
