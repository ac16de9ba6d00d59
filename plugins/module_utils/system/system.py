# SPDX-License-Identifier: GPL-3.0-or-later
"""The host as the engine sees it: files below a root, commands, and a clock. A test injects all three."""

from __future__ import annotations

import contextlib
import functools
import os
import posixpath
import shlex
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ansible_collections.gb10.fleet.plugins.module_utils.system import commands, folders

T = TypeVar("T")

# A temporary file lies beside its target: a rename is atomic only within one file system. The dot hides it from what
# reads whole directories (sysctl.d, apt.conf.d, systemd). By its fixed name the next run replaces what a killed one
# left. At its end is the target's name, for validators look at the suffix.
TEMPORARY_PREFIX = ".gb10-new."
LARGEST_FILE = 2**26  # characters of a file; far above any sound one
_PIECE = 2**16  # at once: the kernel refuses to fill a buffer of megabytes from /proc/sys (ENOMEM)


class HostError(Exception):
    """The host cannot be brought to the desired state; the text names the resource, the fact and the way out."""


NOT_ENDED = 124  # exit status of what its time ran out for, as timeout(1) says it


@dataclass(frozen=True)
class Completed:
    """A finished command. `rc` is NOT_ENDED if its time ran out and 127 if there is no such command."""

    argv: tuple[str, ...]
    rc: int
    stdout: str = ""
    stderr: str = ""

    @property
    def words(self) -> str:
        """What the command itself says went wrong, short enough for an error message."""
        said = (self.stderr.strip() or self.stdout.strip()).splitlines()
        errors = [line for line in said if line.startswith(("E:", "Error:", "error:"))]
        return " / ".join((errors or said)[-5:]) or f"exit status {self.rc}"


# argv, text for stdin (or None), seconds until it is stopped
Runner = Callable[[Sequence[str], "str | None", float], Completed]


def run_command(
    argv: Sequence[str], stdin: str | None, timeout: float, environment: Mapping[str, str] | None = None
) -> Completed:
    """Run argv without a shell, in the C locale, and stop it with all its children when the time is over.

    `environment`: in place of our own.
    """
    environment = environment or {
        **os.environ,
        "LC_ALL": "C",
        "LANGUAGE": "",
        "DEBIAN_FRONTEND": "noninteractive",
        "NEEDRESTART_MODE": "l",  # list only: which service restarts is for the document to say
    }
    given = None if stdin is None else stdin.encode("utf-8", "replace")
    try:
        status, *said = commands.run(argv, environment, given, timeout)
    except commands.NotStarted as error:
        return Completed(tuple(argv), 127, stderr=f"{argv[0]}: {error}")
    except commands.TooMuch as error:
        return Completed(tuple(argv), 125, stderr=f"{argv[0]} {error}")
    if status is None:
        return Completed(tuple(argv), NOT_ENDED, stderr=f"{argv[0]} did not end within {timeout:g} s")
    return Completed(tuple(argv), status, *map(commands.text, said))


class Clock:
    """Time in seconds; a test replaces it, so that no test waits."""

    def now(self) -> float:
        return time.monotonic()

    def utc(self) -> str:
        """The time of day, for people who read a record later."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class System:
    """One host: absolute paths are looked up below `root`, commands go through `runner`.

    `privileged`: whether we are root. `commands`: how many were started so far. `confirmed_as`: the id under which
    another call confirms a change of the network, if so. `guard`: the way back that this process has in hand.
    `confirms`: this call was the word for an earlier change, and makes none of its own.
    """

    def __init__(
        self,
        root: str | Path = "/",
        runner: Runner = run_command,
        clock: Clock | None = None,
        *,
        privileged: bool | None = None,
    ) -> None:
        self._root = str(root)
        self.clock = clock or Clock()
        self.privileged = os.geteuid() == 0 if privileged is None else privileged
        self.commands = 0
        self.confirmed_as: str | None = None
        self.guard: str | None = None
        self.confirms = False
        self._runner = runner
        self._memory: dict[Callable[[System], Any], Any] = {}

    def run(self, argv: Sequence[str], *, input: str | None = None, timeout: float = 60.0) -> Completed:  # noqa: A002
        self.commands += 1
        return self._runner(argv, input, timeout)

    def ask(self, argv: Sequence[str], *, input: str | None = None, timeout: float = 60.0) -> str:  # noqa: A002
        """The stdout of a command that must succeed."""
        done = self.run(argv, input=input, timeout=timeout)
        if done.rc != 0:
            raise HostError(f"`{shlex.join(argv)}` failed: {done.words}")
        return done.stdout

    def once(self, read: Callable[[System], T]) -> T:
        """The result of `read`, asked once however many kinds of resource need it, until `forget`."""
        if read not in self._memory:
            self._memory[read] = read(self)
        result: T = self._memory[read]
        return result

    def forget(self) -> None:
        """The host has changed: whatever was read is old."""
        self._memory.clear()

    @property
    def root(self) -> Path:
        return Path(self._root)

    def path(self, absolute: str) -> Path:
        return self.root / absolute.lstrip("/")

    def place(self, absolute: str) -> str:
        """The same as text: a look reads a hundred files, and a `Path` takes as long to make as a file to open."""
        return os.path.join(self._root, absolute.lstrip("/"))  # noqa: PTH118

    @contextlib.contextmanager
    def folder_of(self, absolute: str, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder that a file or directory lies in: what is done there is done relative to it."""
        try:
            with folders.folder(posixpath.dirname(absolute), root=self._root, make=make) as parent:
                yield parent
        except folders.ForeignLink as error:
            raise HostError(
                f"{absolute}: {error.filename} {error.strerror}; name the folder that it leads to"
            ) from None
        except OSError as error:
            if isinstance(error.filename, str) and not error.filename.startswith("/"):
                error.filename = posixpath.join(posixpath.dirname(absolute), error.filename)
            raise

    def text(self, absolute: str) -> str | None:
        """The text of a file; None where it cannot be read, for example because it is absent.

        A pipe that nobody writes to holds up nobody, and what has no end is none.
        """
        try:
            with open(self.place(absolute), encoding="utf-8", errors="replace", opener=_open) as file:
                said = file.read(_PIECE)
                while len(said) <= LARGEST_FILE and (more := file.read(_PIECE)):
                    said += more
        except OSError:
            return None
        return said if len(said) <= LARGEST_FILE else None

    def names(self, absolute: str) -> list[str]:
        """The entries of a directory; none where it cannot be read, for example because it is absent."""
        try:
            return sorted(os.listdir(self.place(absolute)))  # noqa: PTH208 - names are wanted, not paths
        except OSError:
            return []

    def private_directory(self, absolute: str) -> Path:
        """A directory that only root can look into."""
        with self.folder_of(absolute, make=True) as parent:
            made = folders.make_folder(posixpath.basename(absolute), parent, 0o700)
            try:
                if stat.S_IMODE(os.fstat(made).st_mode) != 0o700:
                    os.chmod(made, 0o700)  # noqa: PTH101 - a descriptor
            finally:
                os.close(made)
        return self.path(absolute)

    def account_names(self, database: str) -> dict[int, str]:
        """Number -> name of the host's own accounts; `database` is passwd or group."""
        names: dict[int, str] = {}
        for line in (self.text(f"/etc/{database}") or "").splitlines():
            fields = line.split(":")
            if len(fields) > 2 and fields[2].isdigit():
                names.setdefault(int(fields[2]), fields[0])
        return names

    def account_id(self, database: str, name: str) -> int:
        """The number of an account; a number stands for itself."""
        if name.isdigit():
            return int(name)
        for number, known in self.account_names(database).items():
            if known == name:
                return number
        raise HostError(f"there is no {name!r} in /etc/{database}")

    def write(
        self,
        absolute: str,
        content: bytes,
        *,
        mode: int,
        owner: str = "root",
        group: str = "root",
        check: Callable[[Path], None] | None = None,
    ) -> None:
        """Replace a file as a whole: neither a kill nor a power cut leaves half of it.

        `check` sees the finished temporary file and raises to keep the old one.
        """
        name = posixpath.basename(absolute)
        temporary = TEMPORARY_PREFIX + name
        uid, gid = self.account_id("passwd", owner), self.account_id("group", group)
        with self.folder_of(absolute, make=True) as parent:
            folders.remove_file(temporary, parent)
            try:
                # Private until it is complete: the content may be a secret that only `mode` protects.
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=parent), "wb") as file:
                    file.write(content)
                    set_access(file.fileno(), mode, uid, gid)
                    file.flush()
                    os.fsync(file.fileno())
                if check is not None:
                    check(self.path(absolute).with_name(temporary))
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                folders.remove_file(temporary, parent)
                raise
            folders.sync(parent)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def sha256(content: bytes) -> str:
    """In hexadecimal."""
    return str(_hash()(content).hexdigest())


@functools.cache
def _hash() -> Callable[[bytes], Any]:
    """Python's own implementation where there is one: hashlib loads OpenSSL, which takes 6 ms.

    Looked for once: Python forgets that a module is missing, and searches its whole path for it each time.
    """
    for module in ("_sha2", "_sha256"):  # from Python 3.12 on, and before
        with contextlib.suppress(ImportError):
            found: Callable[[bytes], Any] = __import__(module).sha256
            return found
    import hashlib

    return hashlib.sha256


def set_access(descriptor: int, mode: int, uid: int, gid: int) -> None:
    """Owner first: changing it clears the set-id bits of the mode."""
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (uid, gid):
        os.fchown(descriptor, uid, gid)
        status = os.fstat(descriptor)
    if stat.S_IMODE(status.st_mode) != mode:
        os.fchmod(descriptor, mode)
