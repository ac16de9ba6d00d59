# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts that a playbook works on, and what is wrong with a target without hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import some
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import origins

DEFAULT = "sparks"
VARIABLE = "gb10_hosts"
_SHOWN = 20  # groups in a message
_NOT_GROUPS = ("all", "ungrouped")
_PATTERN = re.compile(r"[:,!&*~\[?]")  # what makes more of a name than a name


class NoTarget(AnsibleError):
    """No host is left to work on, or other hosts than meant; the text says why, and the way out."""


def refuse_inventory(variables: Mapping[str, Any]) -> None:
    """Raise NoTarget where the inventory of this host sets gb10_hosts: the play has chosen its hosts without it."""
    if VARIABLE not in variables or VARIABLE in variables["hostvars"]._variable_manager.extra_vars:
        return
    host = str(variables["inventory_hostname"])
    place = origins.of([VARIABLE], variables["hostvars"], host)[VARIABLE]
    if place != origins.DEFAULT:
        raise NoTarget(
            f"{VARIABLE} is set in the inventory ({place}), and a play chooses its hosts before it reads their"
            f" variables: remove it there, and say it with the run, -e {VARIABLE}=GROUP"
        )


def refuse_start(task: Any) -> None:
    """Raise NoTarget where the run is to start at a task: those before it look at the hosts and plan for the rest."""
    if task:
        raise NoTarget(
            f"--start-at-task '{task}' would leave out the tasks that look and plan, and those behind them need the"
            " plan: leave it out, for a run again does only what is not done yet; --tags chooses roles"
        )


def require(names: Sequence[str], known: Mapping[str, Any]) -> None:
    """Raise NoTarget where a command's part is played by itself."""
    if missing := [name for name in names if name not in known]:
        raise NoTarget(
            f"{', '.join(missing)} is not set. This playbook is a part of a command of gb10, which sets it: the head "
            "of the file names the command"
        )


def check(pattern: Any, groups: Mapping[str, Sequence[str]], limit: str | None, loader: DataLoader | None) -> None:
    """Raise NoTarget where the pattern, within --limit, matches no host. `groups`: Ansible's magic variable."""
    if not limit and isinstance(pattern, str) and groups.get(pattern):
        return
    inventory = _inventory(groups, loader)
    if not _matches(inventory, pattern):
        raise NoTarget(f"{_of(pattern)} matches no host; {_groups(groups)}")
    if limit:
        inventory.subset(limit)
        if not _matches(inventory, pattern):
            raise NoTarget(f"--limit {limit} leaves no host of {_of(pattern)}: name hosts or groups of it")


def _matches(inventory: InventoryManager, pattern: Any) -> bool:
    """Whether there is a host. A name that is neither a host's nor a group's is not asked for: Ansible would warn."""
    known = {*inventory.groups, *inventory.hosts, *C.LOCALHOST}
    if isinstance(pattern, str) and not _PATTERN.search(pattern) and pattern not in known:
        return False
    try:
        return bool(inventory.get_hosts(pattern))
    except AnsibleError:  # host_pattern_mismatch = error
        return False


def _inventory(groups: Mapping[str, Sequence[str]], loader: DataLoader | None) -> InventoryManager:
    """One with these groups and nothing else: Ansible gives a template no way to its own."""
    inventory = InventoryManager(loader, parse=False)
    for group, hosts in groups.items():
        inventory.add_group(group)
        for host in hosts:
            inventory.add_host(host, group=group)
    return inventory


def _of(pattern: Any) -> str:
    named = pattern if isinstance(pattern, str) else ",".join(map(str, pattern))
    return f"the group {named}" if pattern == DEFAULT else f"{VARIABLE}={named}"


def _groups(groups: Mapping[str, Sequence[str]]) -> str:
    """What there is instead."""
    found = sorted(name for name, hosts in groups.items() if hosts and name not in _NOT_GROUPS)
    if found:
        said = f"the inventory has the groups {some(found, _SHOWN)}"
        return f"{said}: -e {VARIABLE}=GROUP takes another one (with gb10: -- -e {VARIABLE}=GROUP)"
    if groups.get("all"):
        return f"the inventory has hosts and no group: put them into a group {DEFAULT}, or say -e {VARIABLE}=all"
    return "the inventory is empty: check -i, and what Ansible says about parsing it (docs/inventory.md)"
