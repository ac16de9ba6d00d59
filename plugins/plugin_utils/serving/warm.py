# SPDX-License-Identifier: GPL-3.0-or-later
"""Who makes a warm cache, and who takes it from whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def sources(said: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """For each host the one that its cache comes from; itself where it has one, or is to make it.

    `said`: what each host that serves the same found, in the order of the inventory. Only hosts with the same key
    share a cache. A host without a key has none.
    """
    found: dict[str, str] = {}
    for host, own in said.items():
        if own.get("key"):
            alike = [name for name, other in said.items() if other.get("key") == own["key"]]
            having = [name for name in alike if said[name].get("cache")]
            found[host] = host if own.get("cache") else (having or alike)[0]
    return found


def takers(said: Mapping[str, Mapping[str, Any]], giver: str) -> list[str]:
    """The hosts that take the cache of this one, which has it."""
    if not said.get(giver, {}).get("cache"):
        return []
    return [host for host, source in sources(said).items() if source == giver and host != giver]
