# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a variable may have something waited for."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog


def longest() -> int:
    """In seconds."""
    return int(catalog.load("software")["longest_wait"]["value"])


def too_long(**seconds: int) -> Iterator[str]:
    """Yield what is wrong with variables that say how many seconds to wait, by their names."""
    for name, value in seconds.items():
        if value > longest():
            yield f"{name} is {value}. Say at most {longest()} seconds, which is {longest() // 3600} hours."
