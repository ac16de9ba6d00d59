# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of undo: what to take back, and the operator's consents. The host's manifest knows the rest."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host, target, verbs
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import changes

_NEEDED = {"page_cache", "docker", "container_toolkit", "fabric"}  # for a start of the units of vllm


class ActionModule(OwnAction):
    """Take roles back on one host."""

    _supports_diff = True

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        if bool(options["roles"]) == options["all"]:
            raise AnsibleActionFail("name the roles to take back, or say all: true; one of the two")
        target.refuse_inventory(task_vars)
        variables = host.Variables(task_vars, self._templar.template)
        said, answer = verbs.ask(
            self,
            task_vars,
            "undo",
            consents=host.said_consents(variables, host.declared_consents(), options["consents"]),
            roles=options["roles"] or None,
            known_roles=list(catalog.ROLES),
            **({"of": options["rollout"]} if options["rollout"] else {}),
        )
        if answer is None:
            return said
        remains = changes.left_behind(answer["changes"], catalog.load("software")["left_behind"]["value"])
        gone = {change["role"] for change in answer["changes"]}
        stays = not options["all"] and "vllm" not in options["roles"]
        if stays and gone & _NEEDED:
            names = ", ".join(sorted(gone & _NEEDED))
            remains.append(f"vllm, where it is set up: its next start needs {names} (undo vllm as well, or run site)")
        if stays and "firewall" in gone:
            remains.append("vllm, where it is set up: nothing closes its ports now (undo vllm as well, or run site)")
        result = {**said, "remains": remains}
        if self._task.diff and not answer["error"]:
            name, whole = task_vars["inventory_hostname"], bool(task_vars.get("ansible_diff_mode"))
            more = [f"{name}  stays: {text}" for text in remains]
            result["diff"] = changes.diff(name, answer, whole=whole, more=more)
        return result
