# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans roles for the host of this task from the facts of this run, and refuses what speaks against them.

It changes nothing. What it returns is what every later task reads: nothing is decided a second time.
"""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host


class ActionModule(ActionBase):
    """Plan, and refuse."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, options = self.validate_argument_spec(  # type: ignore[no-untyped-call]
            argument_spec={
                "roles": {"type": "list", "elements": "str", "required": True},
                "refuse": {"type": "bool", "default": True},
            }
        )
        documented = [role for role in options["roles"] if not plan.serves_tasks_only(role)]
        host.check_roles(documented)
        own = host.Host(self, task_vars or {})
        view, rendered = own.render(documented, own.facts or own.read_facts())
        refusals = [host.named(own.name, text) for document in rendered for text in host.refusals(document)]
        for role in options["roles"]:
            if role not in documented:
                refusals += [host.named(own.name, text) for text in _plan(role, view).refusals]
        result.update(changed=False, refusals=refusals)
        if options["refuse"] and refusals:
            result.update(failed=True, msg="\n".join(refusals))
            return result
        result.update({role: plan.shown(_plan(role, view)) for role in options["roles"]})
        return result


def _plan(role: str, view: View) -> plan.RolePlan:
    try:
        return plan.of(role, view)
    except (plan.PlanError, plan.SettingsError) as error:
        raise AnsibleActionFail(str(error)) from None


host.preload()
