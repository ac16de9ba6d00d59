# SPDX-License-Identifier: GPL-3.0-or-later
"""Verbs of the engine that take no documents (undo, wish, drift): what is asked, and what a task says of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import from_failure
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.run import RUN
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import transport


def request(verb: str, *, check: bool, **more: Any) -> dict[str, Any]:
    """What the engine is asked; it reads no facts for it."""
    project = catalog.collection_version()
    return {"verb": verb, "check": check, "consents": {}, "facts": None, "project": project, "run": RUN, **more}


def ask(
    action: ActionBase, task_vars: Mapping[str, Any], verb: str, **more: Any
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The result of the task, and the answer of its host; none where it cannot be reached."""
    name = task_vars["inventory_hostname"]
    try:
        answer = transport.call(action, request(verb, check=bool(action._task.check_mode), **more), task_vars)
    except AnsibleConnectionFailure as error:
        cluster = str(action._templar.template(task_vars.get("gb10_cluster")) or name)
        members = task_vars["groups"].get(cluster, [name])
        others = any(other not in members for other in task_vars["ansible_play_hosts_all"])
        finding = from_failure(name, str(error), cluster=cluster, size=len(members), others=others)
        # Of such a result Ansible shows everything; `msg` says the finding, and finding.said_by reads it there.
        return {"unreachable": True, "changed": False, "msg": str(finding)}, None
    result: dict[str, Any] = {"changed": bool(answer["changes"]), "changes": answer["changes"]}
    if answer["error"]:
        result.update(failed=True, msg=f"{name}: {answer['error']['message']}")
    return result, answer
