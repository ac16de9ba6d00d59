# SPDX-License-Identifier: GPL-3.0-or-later
"""What it may cost to read one thing, whatever its parts are: a bound on each part is none on their sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock


class Budget:
    """`most`: by what is spent. Each reader of a part spends of it; `fault` makes the error of who finds it empty."""

    def __init__(self, most: Mapping[str, int], fault: Callable[[str], Exception]) -> None:
        self._most, self._left, self._fault, self._lock = most, dict(most), fault, Lock()

    def spend(self, what: str, amount: int) -> None:
        with self._lock:
            self._left[what] -= amount
            if self._left[what] >= 0:
                return
        raise self._fault(f"all its parts together have more than {self._most[what]} {what}")

    def spend_json(self, text: bytes) -> None:
        """The values of a document, before there are any."""
        self.spend("nodes", sum(map(text.count, (b",", b"[", b"{"))))
