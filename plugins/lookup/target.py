# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of our plays. Ansible skips a play without hosts, and calls the run a success; this is an error instead."""

from __future__ import annotations

DOCUMENTATION = """
name: target
author: gb10-fleet contributors (@gb10-fleet)
version_added: "0.1.0"
short_description: The hosts that a playbook of the collection works on
description:
  - The group or pattern in O(gb10_hosts), for the keyword C(hosts) of a play. Fails where it matches no host within
    C(--limit), and names the groups that there are. Fails with C(--start-at-task), too.
  - A play knows extra variables and those of C(import_playbook), and no variable of the inventory.
options:
  _terms:
    description: Variables that the command sets whose part the playbook is. Fails where one is missing.
    type: list
    elements: str
  gb10_hosts:
    description: The group or pattern.
    type: raw
    default: sparks
    vars:
      - name: gb10_hosts
"""

EXAMPLES = """
- name: A play of your own, on the same hosts
  hosts: "{{ lookup('gb10.fleet.target') }}"
"""

RETURN = """
_raw:
  description: The group or pattern.
  type: list
  elements: raw
"""

from typing import Any

from ansible import context
from ansible.plugins.lookup import LookupBase
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import bounds, own_action, target

# Who only reads a playbook needs no inventory.
_READING = ("syntax", "listtasks", "listtags", "listhosts")


class LookupModule(LookupBase):
    """Ansible asks this class."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **_kwargs: Any) -> list[Any]:
        known = variables or {}
        pattern = known.get(target.VARIABLE, target.DEFAULT)
        if not any(context.CLIARGS.get(option) for option in _READING):
            target.refuse_start(context.CLIARGS.get("start_at_task"))
            bounds.count_pipes_of_others()  # before Ansible forks
            own_action.guard_ansible()
            target.check(pattern, known.get("groups", {}), known.get("ansible_limit"), self._loader)
            target.require(terms, known)
        return [pattern]
