"""One writer for a fleet, and what a killed one has left running.

The lock is the kernel's, on an open file: it is gone with the process, however that ended, and an ansible-playbook does
not inherit it. So a killed gb10 leaves no lock, and perhaps its ansible-playbook, which ignores the hangup and detaches
its workers. All of them carry GB10_ROLLOUT in their environment: by that they are found (Linux), and ended by id.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.run import ROLLOUT

from gb10_fleet.rollout.journal import place, utc
from gb10_fleet.rollout.written import text_of

SHARED = "share"  # below the fleet's folder: of who gives or takes back the keys of clients
_PROC = Path("/proc")
_MANY = "beside"
# Seconds that an orphan gets after SIGTERM, which Ansible hands on to its workers.
GRACE_S = 10.0
_POLL_S = 0.05


class Busy(Exception):
    """Somebody else writes."""


@dataclass(frozen=True)
class Owner:
    """The holder of a fleet. `started` is in clock ticks after boot: with the pid it names a process for good."""

    pid: int
    started: int
    boot_id: str
    run: str | None
    since: str


@dataclass(frozen=True)
class Process:
    """One process; `rollout` is the run and the attempt that it belongs to."""

    pid: int
    started: int
    rollout: str
    command: str

    @property
    def words(self) -> str:
        """For people. Not an orphan: that is a resource which no role declares any longer."""
        return f"left behind by {self.rollout}: process {self.pid}, {self.command[:100]}"


@contextlib.contextmanager
def held(folder: Path) -> Iterator[Callable[[str], None]]:
    """Be the only writer; yields a function that says which run it is for. Busy says who is at it."""
    for each in (folder.parent, folder):  # of a parent that it makes, mkdir takes no mode
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = _open(folder / "lock")
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(_words(folder, _read(descriptor))) from None
        since = text_of(utc())

        def say(run: str | None) -> None:
            owner = Owner(os.getpid(), _started(os.getpid()) or 0, _boot_id(), run, since)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(asdict(owner)).encode(), 0)

        say(None)
        yield say
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def held_for(folder: Path, inventories: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """The same for all that looks at one of these inventories: its own folder tells, whatever --state and -i say."""
    with contextlib.ExitStack() as stack:
        says = [stack.enter_context(held(folder))]
        for other in sorted({place([name]) for name in inventories} - {folder}):
            with contextlib.suppress(OSError):  # one that is not ours to write in, as of /etc/ansible
                says.append(stack.enter_context(held(other)))

        def say(run: str) -> None:
            for each in says:
                each(run)

        yield say


@contextlib.contextmanager
def beside(folder: Path) -> Iterator[None]:
    """Be one of many at work, of whom `others` tells. Where the folder is not there, or not ours, nobody asks."""
    try:
        descriptor = _open(folder / _MANY)
    except OSError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def others(folder: Path) -> bool:
    """Tell whether somebody is `beside` at this moment."""
    descriptor = _open(folder / _MANY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _open(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def owner(folder: Path) -> Owner | None:
    """Return who writes at this moment; None where nobody does."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor) or Owner(0, 0, "", None, "")
    else:
        return None
    finally:
        os.close(descriptor)


def refuse(folder: Path) -> None:
    """Raise Busy where somebody writes; of a folder that only another user may read nobody can say."""
    with contextlib.suppress(PermissionError):
        if who := owner(folder):
            raise Busy(_words(folder, who if who.pid else None))


def orphans(runs: Sequence[str], proc: Path = _PROC) -> list[Process]:
    """Processes of these runs."""
    return carrying(ROLLOUT, lambda value: value.rpartition("/")[0] in runs, proc)


def carrying(variable: str, ours: Callable[[str], bool], proc: Path = _PROC) -> list[Process]:
    """Processes with such a variable. The masters that ssh keeps for later are none: they do nothing by themselves."""
    found = []
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # it has just ended, or is somebody else's
            environment = (folder / "environ").read_bytes().split(b"\0")
            name = f"{variable}=".encode()
            value = next((item for item in environment if item.startswith(name)), b"").decode(errors="replace")
            value = value.partition("=")[2]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            started = _started(int(folder.name), proc)
            # Root may read those of all, and a program with the setuid bit is root's, whoever has started it.
            mine = folder.stat().st_uid == os.geteuid() and not (folder / "exe").stat().st_mode & stat.S_ISUID
            if mine and ours(value) and started is not None and not command.endswith("[mux]"):
                found.append(Process(int(folder.name), started, value, command))
    return sorted(found, key=lambda process: (process.started, process.pid))


def end(
    processes: Sequence[Process], again: Callable[[], Sequence[Process]], grace_s: float = GRACE_S
) -> list[Process]:
    """End them, and those that `again` finds after them, by their ids. Returns those that do not go."""
    deadline, left, asked = time.monotonic() + grace_s, list(processes), set[Process]()
    while left and time.monotonic() < deadline:
        for process in left:
            if process not in asked:
                _signal(process, signal.SIGTERM)
                asked.add(process)
        time.sleep(_POLL_S)
        left = [*again()]
    deadline = time.monotonic() + grace_s
    while left and time.monotonic() < deadline:
        for process in left:
            _signal(process, signal.SIGKILL)
        time.sleep(_POLL_S)
        left = [*again()]
    return left


def _signal(process: Process, number: signal.Signals) -> None:
    """A pid may belong to somebody else by now; with its start it cannot."""
    if _started(process.pid) == process.started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _started(pid: int, proc: Path = _PROC) -> int | None:
    """Clock ticks after boot (field 22 of /proc/PID/stat); None where it is gone or only waits to be reaped."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(") ")[2].split()
    except (OSError, ValueError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return ""


def _read(descriptor: int) -> Owner | None:
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        said = json.loads(os.pread(descriptor, 4096, 0))
        return Owner(**said) if schema.problem(said, Owner, "lock") is None else None
    return None


def _words(folder: Path, who: Owner | None) -> str:
    if who is None:
        return f"another gb10 is at work on this fleet ({folder}); wait until it has ended"
    run = f"run {who.run}" if who.run else "a run that is just beginning"
    return (
        f"another gb10 is at work on this fleet: {run}, process {who.pid}, since {who.since}; wait until it has ended"
    )
