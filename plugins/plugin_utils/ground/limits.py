# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the catalog says of health, in the form in which the checks take it."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import Rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog


def rules() -> Rules:
    """Those of the catalog. Figures of a load test, a rail, fragmentation and free disk hold here as well."""
    thresholds, health = catalog.load("thresholds"), catalog.load("health")
    fragmentation = catalog.load("memory")["fragmentation"]
    room = {"cache_free": catalog.load("units")["supervisor"]["cache_free"]}
    figures = {**thresholds["benchmark"], **thresholds["thresholds"], **fragmentation, **room, **health["limits"]}
    minimums = {entry["path"]: entry["value"] for entry in catalog.load("platforms")["minimum_free_disk"]}
    return Rules(
        limits={**{name: entry["value"] for name, entry in figures.items()}, "minimum_free_gib": minimums},
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
