# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module, and says of which run its facts are: a fact cache may keep them for later ones."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import facts_schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host


class ActionModule(ActionBase):
    """Read the facts of one host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        result.update(self._execute_module(task_vars=task_vars))
        if "ansible_facts" in result:
            if wrong := facts_schema.problem(result["ansible_facts"]["gb10_spark"]):
                name = (task_vars or {}).get("inventory_hostname")
                return {
                    "failed": True,
                    "msg": f"{name}: {wrong}; look at what runs on that host, its answer is not ours",
                }
            result["ansible_facts"].update(host.said_now(result["ansible_facts"]["gb10_spark"]))
        return result
