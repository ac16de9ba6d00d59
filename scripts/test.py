"""`make test`: the gates, the page in a browser, roles and engine on containers, and site.yml on two virtual Sparks."""

from __future__ import annotations

import shutil
import sys
import time

from scripts import check
from scripts.gates import ROOT, Gate, execute, run_all, summarise

AS_ROOT = ROOT / "scripts/as-root"


def tools(gate: Gate) -> None:
    """Debian packages that the rings below need."""
    gate.run(AS_ROOT, sys.executable, "-m", "lab", "deps")
    if not shutil.which("chromium") and shutil.which("apt-get"):
        gate.run(AS_ROOT, "apt-get", "update")
        gate.run(AS_ROOT, "apt-get", "install", "-y", "--no-install-recommends", "chromium")


def page(gate: Gate) -> None:
    gate.run("pytest", "tests/browser", "-v", tests=True)


def roles(gate: Gate) -> None:
    """Of each role: check before converge, converge, again without a change, verify with testinfra, undo."""
    gate.run(AS_ROOT, "molecule", "reset", "--scenario-name", "default")  # what a killed run says of its hosts is over
    gate.run(AS_ROOT, "molecule", "test", "--all", tests=True)


def truth(gate: Gate) -> None:
    """Check mode, drift, undo and secrets tell and do exactly what they should, also after a kill."""
    gate.run(AS_ROOT, "pytest", "tests/fleet", "-v", "-m", "not long", tests=True)


def pair(gate: Gate) -> None:
    gate.run(AS_ROOT, "pytest", "tests/lab", "-v", "-m", "not long", tests=True)


def main() -> int:
    started = time.monotonic()
    print("Gates, page, roles, truth, pair: at most 45 minutes on 2 cores; the lab needs root.", flush=True)
    done = run_all(check.gates(), workers=2)
    for gate in (
        Gate("unit tests that start Ansible", check.plays, minutes=3),
        Gate(f"they on Python {check.NEWEST_PYTHON}, ansible-core {check.NEWEST_CORE}", check.newest_plays, minutes=3),
        Gate("tools of the lab", tools, minutes=2, live=True),
        Gate("evidence page in a browser", page, minutes=1, live=True),
        Gate("roles on systemd-nspawn hosts (molecule)", roles, minutes=5, live=True),
        Gate("the engine's truth on systemd-nspawn hosts", truth, minutes=6, live=True),
        Gate("site.yml on two virtual Sparks", pair, minutes=15, live=True),
    ):
        done.append(execute(gate))
    return summarise(done, started)


if __name__ == "__main__":
    sys.exit(main())
