# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dpkg's database: what is installed and held, and whether an interrupted dpkg has to be repaired first.

The status file is read as a file, once: that costs milliseconds, needs no lock, and shows what `dpkg --audit` shows.

A repair may complete what was begun and nothing else. apt is free to mend broken dependencies by removing packages, so
it is asked what it would do first, and it does not touch the driver or the kernel on its own account.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.module_utils.resources.common import (
    Fields,
    Kind,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system import Completed, HostError, System

STATUS = "/var/lib/dpkg/status"
UPDATES = "/var/lib/dpkg/updates"
DPKG_LOCK = "/var/lib/dpkg/lock-frontend"

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

# What no repair may install or exchange unasked: the host set moves as one, and only on purpose.
_HOST_SET = re.compile(r"(lib)?nvidia-|linux-(image|modules|headers)")

# Package states with work left over: a dpkg that was killed leaves these behind.
_UNFINISHED = ("half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")
_PRESENT = ("installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")


@dataclass(frozen=True)
class Installed:
    version: str
    held: bool


@dataclass(frozen=True)
class Database:
    """Installed packages by name (`name:architecture` for a foreign one), and those with work left over."""

    installed: Mapping[str, Installed]
    unfinished: tuple[str, ...]


@dataclass(frozen=True)
class Simulation:
    """What apt would do: packages to install or change, packages to remove; or why it cannot."""

    installs: frozenset[str] = frozenset()
    removes: frozenset[str] = frozenset()
    error: str = ""


def simulate(system: System, argv: Sequence[str]) -> Simulation:
    """`argv` is an `apt-get install`."""
    done = system.run([*argv[:2], "--simulate", *argv[2:]], timeout=COMMAND_TIMEOUT_S)
    return parse_simulation(done.stdout) if done.rc == 0 else Simulation(error=done.words)


def parse_simulation(text: str) -> Simulation:
    words = [line.split() for line in text.splitlines()]
    return Simulation(
        frozenset(line[1] for line in words if len(line) > 1 and line[0] == "Inst"),
        frozenset(line[1] for line in words if len(line) > 1 and line[0] in ("Remv", "Purg")),
    )


def read_database(system: System) -> Database:
    text = system.text(STATUS)
    if text is None:
        raise HostError(f"{STATUS} cannot be read: packages and holds need a Debian or Ubuntu host")
    database = parse_status(text)
    updates = system.path(UPDATES)
    journal = [entry.name for entry in updates.iterdir()] if updates.is_dir() else []
    if any(name.isdigit() for name in journal):
        return Database(database.installed, (*database.unfinished, "dpkg's own journal"))
    return database


def parse_status(text: str) -> Database:
    """The status file; the native architecture is the one of dpkg itself."""
    rows = []
    native = ""
    for block in re.split(r"\n\n+", text):
        row = dict(re.findall(r"^(Package|Status|Architecture|Version): *(.*)$", block, re.MULTILINE))
        if "Package" in row and len(row.get("Status", "").split()) == 3:
            rows.append(row)
            if row["Package"] == "dpkg":
                native = row.get("Architecture", "")
    installed: dict[str, Installed] = {}
    unfinished = []
    for row in rows:
        want, flag, state = row["Status"].split()
        architecture = row.get("Architecture", native)
        foreign = native and architecture not in (native, "all")
        name = f"{row['Package']}:{architecture}" if foreign else row["Package"]
        if state in _UNFINISHED or flag == "reinstreq":
            unfinished.append(name)
        if state in _PRESENT:
            installed[name] = Installed(row.get("Version", ""), held=want == "hold")
    return Database(installed, tuple(unfinished))


def lock_holder(system: System, lock: str) -> int | None:
    """The process that holds a lock file, from /proc/locks: asking by taking the lock could make somebody else fail."""
    try:
        inode = system.path(lock).stat().st_ino
    except OSError:
        return None
    for line in (system.text("/proc/locks") or "").splitlines():
        # 1: POSIX  ADVISORY  WRITE 1234 08:01:131074 0 EOF
        fields = line.split()
        if len(fields) >= 6 and fields[1] != "->" and fields[5].rpartition(":")[2] == str(inode):
            return int(fields[4])
    return None


def run_locked(system: System, argv: Sequence[str], *, stdin: str | None = None) -> Completed:
    """Run a command that gives up at once if its lock is taken, as often as it takes for the lock to come free."""
    deadline = system.clock.now() + LOCK_TIMEOUT_S
    while True:
        done = system.run(argv, input=stdin, timeout=COMMAND_TIMEOUT_S)
        locked = done.rc != 0 and re.search(r"\block(ed)?\b", done.stderr)
        if not locked or system.clock.now() >= deadline:
            return done
        system.clock.sleep(_POLL_S)


def wait_for_dpkg(system: System) -> None:
    """A dpkg at work looks like one that was interrupted: let it finish before judging."""
    deadline = system.clock.now() + LOCK_TIMEOUT_S
    while (holder := lock_holder(system, DPKG_LOCK)) is not None:
        if system.clock.now() >= deadline:
            raise HostError(f"process {holder} has held dpkg's lock for {LOCK_TIMEOUT_S} s; look at it, then run again")
        system.clock.sleep(_POLL_S)


_CONFIGURE = ("dpkg", "--force-confdef", "--force-confold", "--configure", "-a")
_FIX_BROKEN = ("apt-get", "install", "--fix-broken", *APT_OPTIONS)


@dataclass(frozen=True)
class Dpkg(Resource):
    """dpkg's database in order; the engine puts it in front of every document with packages or holds."""

    KIND = "dpkg"


@dataclass(frozen=True)
class DpkgState:
    """`simulation` of the repair, asked only if there is one."""

    database: Database
    simulation: Simulation | None = None


class DpkgKind(Kind[Dpkg, DpkgState]):
    name = Dpkg.KIND

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
            # An error is no reason to give up yet: `dpkg --configure -a` may be all it takes.
            _refuse_side_effects(state.simulation)
            unfinished = ", ".join(state.database.unfinished)
            plan.steps.append(Step(resources[0], "repair", f"dpkg was interrupted: {unfinished}"))

    def apply(self, system: System, steps: Sequence[Step[Dpkg]], state: DpkgState, progress: Progress) -> None:
        configured = run_locked(system, _CONFIGURE)
        # Its exit status does not matter yet: packages with missing dependencies are for apt to complete.
        simulation = simulate(system, _FIX_BROKEN)
        _refuse_side_effects(simulation)
        error = simulation.error
        if not error:
            fixed = system.run([*_FIX_BROKEN, "--no-remove"], timeout=COMMAND_TIMEOUT_S)
            error = fixed.words if fixed.rc != 0 else ""
        if error:
            raise HostError(f"dpkg was interrupted and cannot be repaired: {configured.words} / {error}")
        system.forget()
        progress.done.extend(steps)


def _refuse_side_effects(simulation: Simulation) -> None:
    unwanted = [f"remove {name}" for name in sorted(simulation.removes)]
    unwanted += [f"install {name}" for name in sorted(simulation.installs) if _HOST_SET.match(name)]
    if unwanted:
        raise HostError(
            f"dpkg was interrupted, and to repair it apt would {', '.join(unwanted)}; look at"
            " `apt-get install --simulate --fix-broken` and at the pins under /etc/apt/preferences.d, repair it by"
            " hand, then run again"
        )
