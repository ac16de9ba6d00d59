# SPDX-License-Identifier: GPL-3.0-or-later
"""A wish of the operator's in words. The host says the time, in its own zone; who it was is for us to say."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import ShownWish
from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import ON_DEMAND
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.run import RUN


def is_asleep(wish: ShownWish) -> bool:
    """Return whether a request starts it; nobody has stopped it."""
    return wish.get("who") == ON_DEMAND


def said_of(wish: ShownWish) -> str:
    """`stopped by you until 07:00 CET`; of a service that requests start, what it waits for."""
    if is_asleep(wish):
        return "asleep, starts when asked"
    who = "you" if wish["who"] == RUN.partition(" ")[0] else wish["who"]
    return f"stopped by {who}" + (f" until {wish['shown']}" if wish["shown"] else "")
