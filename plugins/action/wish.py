# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of a wish: which unit, what, until when. The engine on the host does the rest."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import target, verbs
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import changes


class ActionModule(OwnAction):
    """Have a unit of one host stand still, or not any more."""

    _supports_diff = True

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        target.refuse_inventory(task_vars)
        wish = {"unit": options["unit"], "state": options["state"], "until": options["end"]}
        said, answer = verbs.ask(self, task_vars, "wish", wish=wish)
        if answer is None or answer["error"]:
            return said
        result = {**said, "wish": next((wish for wish in answer["wishes"] if wish["unit"] == options["unit"]), None)}
        if self._task.diff:
            whole = bool(task_vars.get("ansible_diff_mode"))
            result["diff"] = changes.diff(task_vars["inventory_hostname"], answer, whole=whole)
        return result
