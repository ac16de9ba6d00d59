# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a variable of a host was set: an extra variable, the host, one of its groups, or nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible.inventory.group import Group
from ansible.inventory.host import Host
from ansible.vars.plugins import get_vars_from_inventory_sources

DEFAULT = "default"
EXTRA = "extra variable"


def of(names: list[str], hostvars: Any, name_of_host: str) -> dict[str, str]:
    """For each of the names the place that won, in Ansible's order of precedence; `DEFAULT` where nobody set it."""
    manager, inventory = hostvars._variable_manager, hostvars._inventory
    host = inventory.get_host(name_of_host)
    places = list(_places(host, inventory, manager.extra_vars))
    return {name: next((place for place, given in places if name in given), DEFAULT) for name in names}


def _places(host: Host, inventory: Any, extra: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What is set where, the strongest place first."""
    yield EXTRA, extra
    yield f"host {host.name}", _given(host, inventory)
    # As ansible.vars.manager sorts them, backwards: a child before its parents.
    groups = sorted(host.get_groups(), key=lambda group: (group.depth, group.priority, group.name), reverse=True)
    for group in groups:
        yield f"group {group.name}", _given(group, inventory)


def _given(entity: Host | Group, inventory: Any) -> dict[str, Any]:
    """In the inventory itself, and in host_vars or group_vars beside it."""
    beside = get_vars_from_inventory_sources(inventory._loader, inventory._sources, [entity], "all")
    return {**entity.vars, **beside}
