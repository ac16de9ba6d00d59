# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans roles for the host of this task from the facts of this run, and refuses what speaks against them.

It changes nothing. What it returns is what every later task reads: nothing is decided a second time.
"""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction


class ActionModule(OwnAction):
    """Plan, and refuse."""

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        documented = [role for role in options["roles"] if not plan.serves_tasks_only(role)]
        host.check_roles(documented)
        own = host.Host(self, task_vars)
        view, rendered = own.render(documented, own.facts or own.read_facts())
        refusals = own.refusals(rendered)
        for role in options["roles"]:
            if role not in documented:
                refusals += [host.named(own.name, text) for text in _plan(role, view).refusals]
        result = {"changed": False, "refusals": refusals, "waits_for": own.waits_for(rendered)}
        if options["refuse"] and refusals:
            return {**result, "failed": True, **host.lacking(rendered), "msg": "\n".join(refusals)}
        return {**result, **{role: plan.shown(_plan(role, view)) for role in options["roles"]}}


def _plan(role: str, view: View) -> plan.RolePlan:
    try:
        return plan.of(role, view)
    except (plan.PlanError, plan.SettingsError) as error:
        raise AnsibleActionFail(str(error)) from None


host.preload()
