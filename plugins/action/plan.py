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
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import plan


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
        host.check_roles(options["roles"])
        own = host.Host(self, task_vars or {})
        view, rendered = own.render(options["roles"], own.facts or own.read_facts())
        refusals = [f"{own.name}: {text}" for document in rendered for text in host.refusals(document)]
        result.update(changed=False, refusals=refusals)
        if options["refuse"] and refusals:
            result.update(failed=True, msg="\n".join(refusals))
            return result
        try:
            result.update({role: plan.shown(plan.of(role, view)) for role in options["roles"]})
        except (plan.PlanError, plan.SettingsError) as error:
            raise AnsibleActionFail(str(error)) from None  # type: ignore[no-untyped-call]
        return result


host.preload()
