# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter of a rollout: the routers that send requests to some hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.host import Inventory
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import router as gateway_router


def routers(hosts: Sequence[str], hostvars: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """The hosts of the inventory whose router offers a service of these; nothing but the inventory is read."""
    if not hosts:
        return []
    inventory = Inventory(hostvars)
    first = View(hosts[0], {}, inventory[hosts[0]], groups=groups, inventory=inventory)
    return gateway_router.routers_of(hosts, (first.of(str(name)) for name in groups["all"]))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"routers": routers}
