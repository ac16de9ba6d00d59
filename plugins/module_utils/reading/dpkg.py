# SPDX-License-Identifier: GPL-3.0-or-later
"""dpkg's database: what is installed and held, and what an interrupted dpkg has left.

The status file is read as a file, once: that costs milliseconds, needs no lock, and shows what `dpkg --audit` shows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

STATUS = "/var/lib/dpkg/status"
EXTENDED_STATES = "/var/lib/apt/extended_states"
UPDATES = "/var/lib/dpkg/updates"
DPKG_LOCK = "/var/lib/dpkg/lock-frontend"

# Package states with work left over: a dpkg that was killed leaves these behind.
_UNFINISHED = ("half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")
_PRESENT = ("installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")


class Installed(NamedTuple):
    version: str
    held: bool


@dataclass(frozen=True)
class Database:
    """Installed packages by name (`name:architecture` for a foreign one), and those with work left over.

    `holds`: all names on hold, also those that are not installed any more. `residual`: removed, and their configuration
    is still there. `damaged`: those that dpkg was killed in the middle of unpacking, and now refuses to configure.
    """

    installed: Mapping[str, Installed]
    unfinished: tuple[str, ...]
    holds: tuple[str, ...] = ()
    residual: frozenset[str] = frozenset()
    damaged: tuple[str, ...] = ()


def read_database(system: System) -> Database:
    """For `System.once`: facts, packages and holds share one reading."""
    try:
        text = system.path(STATUS).read_bytes().decode("utf-8", "replace")
    except OSError:
        raise HostError(f"{STATUS} cannot be read: packages and holds need a Debian or Ubuntu host") from None
    database = parse_status(text)
    if any(name.isdigit() for name in system.names(UPDATES)):
        return replace(database, unfinished=(*database.unfinished, "dpkg's own journal"))
    return database


def parse_status(text: str) -> Database:
    """The status file; the native architecture is the one of dpkg itself.

    A DGX has 2,500 packages in 4 MB, and every run reads them: searching for four fields takes a fifth of the time of a
    regular expression over all lines.
    """
    rows = []
    native = ""
    for block in text.split("\n\n"):
        block = "\n" + block
        name, status = _field(block, "\nPackage: "), _field(block, "\nStatus: ").split()
        if name and len(status) == 3:
            architecture = _field(block, "\nArchitecture: ")
            rows.append((name, architecture, _field(block, "\nVersion: "), *status))
            if name == "dpkg":
                native = architecture
    installed: dict[str, Installed] = {}
    unfinished, holds, residual, damaged = [], [], set(), []
    for name, architecture, version, want, flag, state in rows:
        if native and architecture not in (native, "all", ""):
            name = f"{name}:{architecture}"
        if state in _UNFINISHED or flag == "reinstreq":
            unfinished.append(name)
        if state in _PRESENT:
            installed[name] = Installed(version, want == "hold")
            if flag == "reinstreq":
                damaged.append(name)
        if state == "config-files":
            residual.add(name)
        if want == "hold":
            holds.append(name)
    return Database(installed, tuple(unfinished), tuple(sorted(holds)), frozenset(residual), tuple(damaged))


def read_automatic(system: System) -> set[str]:
    """The packages that apt installed for others, and that nobody has asked for by name since (`apt-mark manual`)."""
    automatic = set()
    for block in (system.text(EXTENDED_STATES) or "").split("\n\n"):
        block = "\n" + block
        name = _field(block, "\nPackage: ")
        architecture = _field(block, "\nArchitecture: ")
        if _field(block, "\nAuto-Installed: ") == "1":
            automatic |= {name, f"{name}:{architecture}"}
    return automatic


def _field(block: str, start: str) -> str:
    """The value of a one-line field; `start` is its name with the end of the line before."""
    place = block.find(start)
    if place < 0:
        return ""
    place += len(start)
    end = block.find("\n", place)
    return (block[place:] if end < 0 else block[place:end]).strip()


def lock_holder(system: System, *locks: str) -> int | None:
    """The process that holds one of these files, the first one's before the others'.

    From /proc/locks: asking by taking a lock could make somebody else fail. One look for all of them: for each the
    kernel waits for all its cores, 5 ms in the lab.
    """
    # Numbers of inodes repeat from one file system to the next, so the device counts as well.
    files = []
    for lock in locks:
        with contextlib.suppress(OSError):
            status = system.path(lock).stat()
            files.append(f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}")
    holders: dict[str, int] = {}
    for line in (system.text("/proc/locks") or "").splitlines() if files else ():
        # 1: POSIX  ADVISORY  WRITE 1234 08:01:131074 0 EOF; apt and dpkg take no other kind, and a waiter has an arrow
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "POSIX":
            holders.setdefault(fields[5], int(fields[4]))
    return next((holders[file] for file in files if file in holders), None)
