# SPDX-License-Identifier: GPL-3.0-or-later
"""What the error counters of a rail say, by two readings around each measurement. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding

RAIL_ERRORS = "rail_errors"
WAY_OUT = (
    "seat the cable of that rail anew on both ends or take another one; behind a switch, compare its flow control"
    " (PFC, ECN) with that of the hosts; then measure again"
)


def findings(host: str, results: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """A warning for each device whose counters rose while it was measured, information where they only stand high."""
    risen: dict[str, dict[str, list[int]]] = {}
    stood: dict[str, dict[str, int]] = {}
    for result in results:
        for name, (before, after) in result.get("counters", {}).items():
            if name in names and after > before:
                # Several rounds are one story: the first reading of all, and the last.
                risen.setdefault(result["device"], {}).setdefault(name, [before, after])[1] = after
            elif name in names:
                stood.setdefault(result["device"], {})[name] = after
    found = [_risen(host, device, rises) for device, rises in risen.items()]
    return found + [_stood(host, device, counts) for device, counts in stood.items() if device not in risen]


def _risen(host: str, device: str, rises: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    told = ", ".join(f"{name} from {before} to {after}" for name, (before, after) in rises.items())
    fact = f"the error counters of {device} rose while it was measured: {told}"
    return Finding(RAIL_ERRORS, "warn", host, fact, WAY_OUT).as_dict()


def _stood(host: str, device: str, counts: Mapping[str, int]) -> dict[str, Any]:
    told = ", ".join(f"{name} {count}" for name, count in counts.items())
    fact = f"{device} has counted errors since its driver started, and none while it was measured: {told}"
    return Finding(RAIL_ERRORS, "info", host, fact, "nothing to do while they do not rise").as_dict()
