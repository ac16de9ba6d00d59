# SPDX-License-Identifier: GPL-3.0-or-later
"""Child processes that are watched together and never left behind.

Each child leads its own process group. Leaving the ``with`` block kills every group, also when this process is told to
stop; a child is only reaped there, so until then no other process can get its id and be killed by mistake. When this
process is killed and cannot do anything any more, the kernel kills its children.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any

KEEP_BYTES = 64 * 1024  # of the beginning and again of the end of what a child prints
KILL_S = 5.0  # for a child that was killed to be gone
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
# Before the command runs, the same process asks the kernel to kill it when its parent is gone. The parent is the thread
# that started it: start children in the main one. It may have gone just before, so it is looked at. Python code is not
# safe there, so util-linux does it. A command with file capabilities (ping) loses the wish, and has to end by itself.
BOUND_TO_PARENT = ("setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"')


class StuckError(Exception):
    """A child outlives SIGKILL: it hangs in the kernel, and nobody can wait for that."""


class Child:
    """One running command; stdout and stderr are one stream, of which beginning and end are kept."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            [*BOUND_TO_PARENT, str(os.getpid()), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},  # the texts are classified, so they must be the untranslated ones
        )
        self.pid = self._process.pid
        self._name = argv[0]
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        if self._process.stdout is None:  # never: PIPE makes one; said for the type checker
            return
        descriptor = self._process.stdout.fileno()
        for chunk in iter(lambda: os.read(descriptor, KEEP_BYTES), b""):
            room = KEEP_BYTES - len(self._head)
            self._head += chunk[:room]
            self._tail = (self._tail + chunk[room:])[-KEEP_BYTES:]

    def finished(self) -> bool:
        """Return whether the command ended by itself."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self._process.returncode is not None or os.waitid(os.P_PID, self.pid, flags) is not None

    def close(self) -> int:
        """Kill what is left of the group, reap the child, and return its exit status (negative: the signal).

        StuckError if it cannot be reaped.
        """
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            try:
                self._process.wait(KILL_S)
            except subprocess.TimeoutExpired:
                raise StuckError(
                    f"{self._name} (process {self.pid}) has not ended {KILL_S:g} s after it was killed: it hangs in the"
                    " kernel (state D), as a rule in a driver; see `journalctl -k`. Only a reboot of the host ends it"
                ) from None
            self._reader.join(timeout=2)
        return self._process.returncode

    @property
    def output(self) -> str:
        """What the command printed; complete after ``close()``."""
        return (bytes(self._head) + bytes(self._tail)).decode("utf-8", "replace")


class Children:
    """The children of one task."""

    def __init__(self) -> None:
        self._children: list[Child] = []
        self._handlers: dict[signal.Signals, Any] = {}

    def start(self, argv: Sequence[str]) -> Child:
        child = Child(argv)
        self._children.append(child)
        return child

    def __enter__(self) -> Children:
        for number in STOP_SIGNALS:
            self._handlers[number] = signal.signal(number, _stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stuck: StuckError | None = None
        for child in self._children:
            try:
                child.close()
            except StuckError as hangs:
                stuck = stuck or hangs
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if stuck is not None and error is None:
            raise stuck


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
