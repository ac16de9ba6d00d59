"""When whoever waits is told that it goes on."""

from __future__ import annotations

import time


class Beat:
    """`every_s`: whoever hears nothing for longer than that asks whether it hangs."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self.begin()

    def begin(self) -> None:
        """Count anew: something was said, or a person has thought about an answer, which is no work."""
        self._began_s = self._told_s = time.monotonic()

    def due(self) -> str:
        """Return for how long it has gone on, such as `31 s`, where a word is due; else nothing."""
        now_s = time.monotonic()
        if now_s - self._told_s <= self._every_s:
            return ""
        self._told_s = now_s
        return f"{now_s - self._began_s:.0f} s"
