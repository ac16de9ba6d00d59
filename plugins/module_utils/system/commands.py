# SPDX-License-Identifier: GPL-3.0-or-later
"""A command as a child process, without Python's subprocess: importing that takes an eighth of a look at a host."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import FileIO

CHUNK = 2**16  # bytes
MOST = 64 * 2**20  # bytes of all that a child says: it may repeat what a container or a user of the host has written
KILL_S = 5.0  # for a child that was killed to be gone
TICK_S = 1.0  # between two looks at what a child does
# By number, as importing signal takes a while, too. Python ignores the last two; a child would go on ignoring them.
SIGKILL, SIGPIPE, SIGXFSZ = 9, 13, 25
LONGEST_PAUSE_S = 0.05
_stuck: set[int] = set()  # children that outlived SIGKILL, in a driver; each run looks whether they have ended


class NotStarted(Exception):
    """There is no such program, or it cannot be run; the text says why."""


class TooMuch(Exception):
    """The child said more than anybody keeps, and was ended."""

    def __init__(self) -> None:
        super().__init__(f"said more than {MOST >> 20} MiB, and was ended")


class _Late(Exception):
    """The time is over."""


def run(
    argv: Sequence[str], environment: Mapping[str, str], given: bytes | None, timeout_s: float
) -> tuple[int | None, bytes, bytes]:
    """Exit status (negative: the signal that ended it), stdout and stderr; NotStarted where there is no child; TooMuch.

    The child leads a session of its own. When its time is over, it is killed with all its children: then the status is
    None, and what they said is lost. A descriptor of ours that is inheritable, which Python makes none, reaches it.
    """
    until = time.monotonic() + timeout_s
    _stuck.difference_update([pid for pid in _stuck if _ended(pid) is not None])
    with contextlib.ExitStack() as ends:
        try:
            pid, writer, readers = _start(argv, environment, ends, fed=given is not None)
        except OSError as error:
            raise NotStarted(error.strerror) from None
        try:
            out, err = talk(writer, memoryview(given or b""), readers, until)
            return _status(pid, until), out, err
        except _Late:
            _kill(pid, [reader for reader in readers if not reader.closed])
            return None, b"", b""
        except TooMuch:
            _kill(pid, ())
            raise


def _start(
    argv: Sequence[str], environment: Mapping[str, str], ends: contextlib.ExitStack, *, fed: bool
) -> tuple[int, FileIO | None, list[FileIO]]:
    """The child's id, the end that it is fed by, and those by which it answers."""
    (out, child_out), (err, child_err) = _pipe(ends), _pipe(ends)
    theirs, writer = {1: child_out, 2: child_err}, None
    actions: list[tuple[object, ...]] = []
    if fed:
        theirs[0], writer = _pipe(ends)
    else:
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    actions += [(os.POSIX_SPAWN_DUP2, end.fileno(), number) for number, end in theirs.items()]
    spawn = functools.partial(
        os.posix_spawnp, argv[0], list(argv), environment, file_actions=actions, setsigdef=(SIGPIPE, SIGXFSZ)
    )
    try:
        pid = spawn(setsid=True)
    except NotImplementedError:  # a Python that was built for an older libc, as uv's is: at least a group of its own
        pid = spawn(setpgroup=0)
    for end in theirs.values():
        end.close()
    return pid, writer, [out, err]


def _kill(pid: int, readers: Sequence[FileIO]) -> None:
    """The child and all its children; then wait till nobody holds its outputs, nor what else it held, a lock say."""
    over = time.monotonic() + KILL_S
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, SIGKILL)
    with contextlib.suppress(_Late):
        talk(None, memoryview(b""), readers, over)
    try:
        _status(pid, over)
    except _Late:
        _stuck.add(pid)


def _pipe(ends: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    """Both ends; a child gets neither by itself."""
    reader, writer = os.pipe()
    return ends.enter_context(os.fdopen(reader, "rb", 0)), ends.enter_context(os.fdopen(writer, "wb", 0))


def talk(
    writer: FileIO | None,
    given: memoryview,
    readers: Sequence[FileIO],
    until: float,
    watch: Callable[[], None] | None = None,
) -> Iterator[bytes]:
    """Write what is given, and read until nobody writes any more; _Late when the time is over, TooMuch beyond MOST.

    `watch` is called about once a second.
    """
    left, seen = MOST, time.monotonic()
    said = {reader.fileno(): bytearray() for reader in readers}
    waiting = {end.fileno(): end for end in (*readers, *([writer] if writer else []))}
    poll = select.poll()
    for number in waiting:
        poll.register(number, select.POLLIN if number in said else select.POLLOUT)
    while waiting:
        now = time.monotonic()
        if now >= until:
            raise _Late
        if watch is not None and now >= seen + TICK_S:
            watch()
            seen = now
        for number, _event in poll.poll(min(until - now, TICK_S) * 1000):
            if number in said:
                chunk = os.read(number, CHUNK)
                left -= len(chunk)
                if left < 0:
                    raise TooMuch
                said[number] += chunk
                over = not chunk
            else:
                given = given[_written(number, given) :]
                over = not given
            if over:
                poll.unregister(number)
                waiting.pop(number).close()
    return map(bytes, said.values())


def _written(number: int, given: memoryview) -> int:
    """Return how many bytes went into a pipe that takes some; all of them, where nobody reads them."""
    try:
        return os.write(number, given[: select.PIPE_BUF])
    except BrokenPipeError:
        return len(given)


def text(said: bytes) -> str:
    """With lines as Python has them."""
    return said.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


def _status(pid: int, until: float) -> int:
    """The exit status of a child that has ended, or soon will; _Late when the time is over."""
    pause_s = 0.0005
    while True:
        status = _ended(pid)
        if status is not None:
            return status
        if time.monotonic() >= until:
            raise _Late
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _ended(pid: int) -> int | None:
    """The exit status, if it has one. It is lost where SIGCHLD is ignored, and 0 then, as Python's own modules say."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if found else None
