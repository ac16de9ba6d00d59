# SPDX-License-Identifier: GPL-3.0-or-later
"""dpkg's database: what is installed and held, and whether an interrupted dpkg has to be repaired first.

The status file is read as a file, once: that costs milliseconds, needs no lock, and shows what `dpkg --audit` shows.

A repair may complete what was begun and nothing else. apt is free to mend broken dependencies by removing packages, so
it is asked what it would do first, and it does not touch the driver or the kernel on its own account.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine import apt_errors
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    Fields,
    Kind,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.dpkg import (
    DPKG_LOCK,
    Database,
    lock_holder,
    read_database,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.driver_packages import moves_on_purpose
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, HostError, System

PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9-]+)?\Z")


LOCK_TIMEOUT_S = 600  # unattended-upgrades holds the lock for minutes while it builds kernel modules
COMMAND_TIMEOUT_S = 3600
_POLL_S = 2.0

APT_OPTIONS = (
    "-y",
    f"-oDPkg::Lock::Timeout={LOCK_TIMEOUT_S}",
    # A configuration file that somebody changed stays as it is, and no prompt ever waits for an answer.
    "-oDpkg::Options::=--force-confdef",
    "-oDpkg::Options::=--force-confold",
)


@dataclass(frozen=True)
class Simulation:
    """What apt would do: packages to install or change, packages to remove; or why it cannot."""

    installs: frozenset[str] = frozenset()
    removes: frozenset[str] = frozenset()
    error: str = ""


def simulate(system: System, argv: Sequence[str]) -> Simulation:
    """`argv` is an `apt-get install` with all its options."""
    done = system.run([*argv[:2], "--simulate", *argv[2:]], timeout=COMMAND_TIMEOUT_S)
    return parse_simulation(done.stdout) if done.rc == 0 else Simulation(error=apt_errors.explained(done, system))


def parse_simulation(text: str) -> Simulation:
    words = [line.split() for line in text.splitlines()]
    return Simulation(
        frozenset(line[1] for line in words if len(line) > 1 and line[0] == "Inst"),
        frozenset(line[1] for line in words if len(line) > 1 and line[0] in ("Remv", "Purg")),
    )


def run_locked(system: System, argv: Sequence[str], *, stdin: str | None = None) -> Completed:
    """Run a command that may find its lock taken, as often as it takes for the lock to come free.

    Every apt-get goes through here: DPkg::Lock::Timeout is for dpkg's lock, and apt gives up at once where another apt
    holds the lock of its lists or of its archives.
    """
    deadline = system.clock.now() + LOCK_TIMEOUT_S
    while True:
        done = system.run(argv, input=stdin, timeout=COMMAND_TIMEOUT_S)
        if not apt_errors.is_locked(done) or system.clock.now() >= deadline:
            return done
        system.clock.sleep(_POLL_S)


def wait_for_dpkg(system: System) -> None:
    """A dpkg at work looks like one that was interrupted: let it finish before judging."""
    deadline = system.clock.now() + LOCK_TIMEOUT_S
    while (holder := lock_holder(system, DPKG_LOCK)) is not None:
        if system.clock.now() >= deadline:
            command = (system.text(f"/proc/{holder}/cmdline") or "unknown").replace("\0", " ").strip()[:120]
            raise HostError(
                f"apt_locked: process {holder} ({command}) has held dpkg's lock for"
                f" {LOCK_TIMEOUT_S} s; wait for it or end it, then run again"
            )
        system.clock.sleep(_POLL_S)


_ARCHIVES = "/var/cache/apt/archives"
_CONFIGURE = ("dpkg", "--force-confdef", "--force-confold", "--configure", "-a")
_FIX_BROKEN = ("apt-get", "install", "--fix-broken", *APT_OPTIONS)


@dataclass(frozen=True)
class Dpkg(Resource):
    """dpkg's database in order; the engine puts it in front of every document with packages or holds.

    `partly`: a consented driver move was interrupted, and what dpkg cannot complete is for the packages of the plan.
    """

    KIND = "dpkg"

    partly: bool = False


# A pin of the very documents must not decide how an interrupted installation is completed.
_BEFORE_ALL = -1


def in_order(role: str) -> Dpkg:
    """An interrupted dpkg is repaired before anything is asked of it."""
    return Dpkg(_BEFORE_ALL, "database", role)


@dataclass(frozen=True)
class DpkgState:
    """`simulation` of the repair, asked only if there is one."""

    database: Database
    simulation: Simulation | None = None


class DpkgKind(Kind[Dpkg, DpkgState]):
    name = Dpkg.KIND
    declarable = False

    def parse(self, index: int, fields: Fields) -> Dpkg:
        raise fields.fail(self.name, "is not a resource of a document")

    def read(self, system: System, resources: Sequence[Dpkg]) -> DpkgState:
        database = system.once(read_database)
        if database.unfinished:
            wait_for_dpkg(system)
            system.forget()
            database = system.once(read_database)
        return DpkgState(database, simulate(system, _FIX_BROKEN) if database.unfinished else None)

    def plan(self, resources: Sequence[Dpkg], state: DpkgState, plan: Plan) -> None:
        if state.simulation is not None:
            partly = _is_moving(plan.document, state.database)
            if not partly:
                # An error is no reason to give up yet: `dpkg --configure -a` may be all it takes.
                _refuse_side_effects(state.simulation)
            unfinished = ", ".join(state.database.unfinished)
            resource = replace(resources[0], partly=partly)
            plan.steps.append(Step(resource, "repair", f"dpkg was interrupted: {unfinished}"))

    def apply(self, system: System, steps: Sequence[Step[Dpkg]], state: DpkgState, progress: Progress) -> None:
        configured = run_locked(system, _CONFIGURE)
        system.forget()  # it has also put dpkg's journal into the database
        database = system.once(read_database)
        if database.damaged:
            _unpack_again(system, database)
            configured = run_locked(system, _CONFIGURE)
        if steps[0].resource.partly:
            system.forget()
            progress.done.extend(steps)
            return
        # Its exit status does not matter yet: packages with missing dependencies are for apt to complete.
        simulation = simulate(system, _FIX_BROKEN)
        _refuse_side_effects(simulation)
        error = simulation.error
        if not error:
            fixed = run_locked(system, [*_FIX_BROKEN, "--no-remove"])
            error = apt_errors.explained(fixed, system) if fixed.rc != 0 else ""
        if error:
            raise HostError(f"dpkg_interrupted: it cannot be repaired: {configured.words} / {error}")
        system.forget()
        progress.done.extend(steps)

    def record(self, resource: Dpkg, state: DpkgState) -> dict[str, Any]:
        """A repair is no state that anybody would want back."""
        return {}

    def restore(self, resource: Dpkg, record: Mapping[str, Any]) -> list[Resource]:
        return []


def _unpack_again(system: System, database: Database) -> None:
    """The same versions over what is there, as dpkg asks for.

    apt passes such a package over in its own repair, and to ask it for a reinstallation takes a host whose other
    dependencies are in order. In this folder it verifies and takes what an earlier run has fetched.
    """
    files = []
    for name in database.damaged:
        version = database.installed[name].version
        fetch = ["env", f"--chdir={_ARCHIVES}", "apt-get", "download", f"{name}={version}"]
        done = system.run(fetch, timeout=COMMAND_TIMEOUT_S)
        if done.rc != 0:
            raise HostError(
                f"dpkg_interrupted: {name} {version} is half unpacked, and what would complete it cannot be fetched:"
                f" {apt_errors.explained(done, system)}"
            )
        start = f"{name.partition(':')[0]}_{version.replace(':', '%3a')}_"
        files += [f"{_ARCHIVES}/{file}" for file in system.names(_ARCHIVES) if file.startswith(start)]
    done = run_locked(system, ["dpkg", "--force-confdef", "--force-confold", "--unpack", *files])
    if done.rc != 0:
        raise HostError(f"dpkg_interrupted: {', '.join(database.damaged)} cannot be unpacked again: {done.words}")


def _is_moving(document: Sequence[Resource], database: Database) -> bool:
    """Whether these documents move the driver or kernel with the operator's consent, and have not come to the end."""
    for resource in document:
        package: Any = resource  # packages.py imports this file
        if package.KIND != "package" or package.state != "present" or not (package.consent and package.allowed):
            continue
        installed = database.installed.get(package.name)
        if moves_on_purpose(package.name) and not (installed and package.accepts(installed.version)):
            return True
    return False


def _refuse_side_effects(simulation: Simulation) -> None:
    """No repair may install or exchange a part of the host set unasked: it moves as one, and only on purpose."""
    unwanted = [f"remove {name}" for name in sorted(simulation.removes)]
    unwanted += [f"install {name}" for name in sorted(simulation.installs) if moves_on_purpose(name)]
    if unwanted:
        raise HostError(
            f"dpkg was interrupted, and to repair it apt would {', '.join(unwanted)}; look at"
            " `apt-get install --simulate --fix-broken` and at the pins under /etc/apt/preferences.d, repair it by"
            " hand, then run again"
        )
