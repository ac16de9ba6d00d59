# SPDX-License-Identifier: GPL-3.0-or-later
"""How near a name is to one of ours: a slip of the fingers, or another word."""

from __future__ import annotations

from collections.abc import Iterable

# One slip; two in a word of eight letters and more, behind the role's name. Why: docs/decisions/names.md
LONG = 8


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that this one was probably meant to be; None where it is another word."""
    found = min(((slips(name, other), other) for other in known if abs(len(other) - len(name)) <= 2), default=None)
    if found is None:
        return None
    count, other = found
    word = other.partition("_")[2]
    return other if count <= (2 if len(word) >= LONG else 1) else None


def slips(one: str, other: str) -> int:
    """Letters to add, drop, replace or exchange with their neighbour (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]
