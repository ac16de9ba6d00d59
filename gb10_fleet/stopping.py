"""A wish to end, as a signal handler may say it."""

from __future__ import annotations

import contextlib
import queue

_HOW = "ended on the way by Ctrl-C or another signal"
INTERRUPTED = f"{_HOW}: what was applied stays, and the same command goes on from there"
READ_ONLY = f"{_HOW}: this step only reads, and changed nothing"
_READ = (
    *("ask", "bundle", "discover", "doctor", "drift", "enrol", "explain", "glance", "hosts", "image", "look"),
    *("release", "seed", "services", "switch", "validate", "way", "why"),
)
READING = frozenset(f"gb10.fleet.{name}" for name in _READ)  # playbooks that change no host


class Stop:
    """Whether somebody wants the end. A signal handler may set it whatever the main thread does, also while it waits.

    An Event may not: its lock may be the one that the main thread has taken at that moment.
    """

    def __init__(self) -> None:
        self._set = False
        self._told: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        self._set = True
        self._told.put(None)

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float) -> bool:
        """Wait for it, so long at most."""
        with contextlib.suppress(queue.Empty):
            if not self._set:
                self._told.get(timeout=seconds)
        return self._set
