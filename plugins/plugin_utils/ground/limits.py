# SPDX-License-Identifier: GPL-3.0-or-later
"""What the catalog says of health, in the form in which the checks take it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import Rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog


def rules() -> Rules:
    """Those of the catalog. Figures of a load test, a rail, fragmentation and free disk hold here as well."""
    thresholds, health = catalog.load("thresholds"), catalog.load("health")
    fragmentation = catalog.load("memory")["fragmentation"]
    room = {"cache_free": catalog.load("units")["supervisor"]["cache_free"]}
    figures = {**thresholds["benchmark"], **thresholds["thresholds"], **fragmentation, **room, **health["limits"]}
    return Rules(
        limits={**{name: entry["value"] for name, entry in figures.items()}, "minimum_free_gib": minimum_free_gib()},
        rail_errors=frozenset([*thresholds["error_counters"]["value"], *health["link_errors"]["value"]]),
        losses=frozenset(health["loss_counters"]["value"]),
        xids=health["xids"]["value"],
        displays=tuple(health["display_threads"]["value"]),
        places=health["pci_places"]["value"],
        signs={entry["value"]: entry for entry in health["signs"]},
        causes=health["causes"],
        sure=health["sure"]["value"],
        step=health["step"]["value"],
    )


def of_host(rules: Rules, own: Any) -> Rules:
    """Those of a host that `gb10_minimum_free_gib` gives `own`."""
    return replace(rules, limits={**rules.limits, "minimum_free_gib": minimum_free_gib(own)})


def minimum_free_gib(own: Any = None) -> dict[str, float]:
    """GiB that are to be free, by path: those of the catalog, and over them the sound entries of `own`."""
    known = {entry["path"]: entry["value"] for entry in catalog.load("platforms")["minimum_free_disk"]}
    return {**known, **own_minimums(own)}


def own_minimums(own: Any) -> dict[str, float]:
    """The sound entries of gb10_minimum_free_gib; the doctor names the others."""
    entries = own.items() if isinstance(own, Mapping) else ()
    return {path: gib for path, gib in entries if is_minimum(path, gib)}


def is_minimum(path: Any, gib: Any) -> bool:
    is_number = isinstance(gib, (int, float)) and not isinstance(gib, bool) and math.isfinite(gib)
    return isinstance(path, str) and path.startswith("/") and is_number and gib > 0
