# SPDX-License-Identifier: GPL-3.0-or-later
"""Names near a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Similarity of two ids, 0 to 1. Below it a name is another one; above CLOSE it is the same one, misspelt.
SIMILAR = 0.6
CLOSE = 0.9


def nearest(wrong: str, names: Iterable[str], count: int = 3, at_least: float = SIMILAR) -> tuple[str, ...]:
    """The names most like `wrong`, the most similar first. Capitals do not count; an id also goes without its owner."""
    keys: dict[str, str] = {}
    for name in names:
        keys.setdefault(name.lower(), name)
    for name in list(keys.values()):
        keys.setdefault(name.lower().rpartition("/")[2], name)
    wanted = wrong.lower()
    found = [
        match
        for spelling in dict.fromkeys((wanted, wanted.rpartition("/")[2]))
        for match in difflib.get_close_matches(spelling, keys, n=count + 1, cutoff=at_least)
    ]
    found.sort(key=lambda match: -max(_ratio(match, wanted), _ratio(match, wanted.rpartition("/")[2])))
    return tuple(dict.fromkeys(keys[match] for match in found))[:count]


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
