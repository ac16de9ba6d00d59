# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of ground/notify.py: tells people of an event, or that the hook works."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import notify
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import notify_action


class ActionModule(OwnAction):
    """Hand one event to gb10_notify. The hook is no argument, because arguments are shown."""

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        value = notify_action.value(self, task_vars)
        told = documents.plain(options["event"])
        if value is None and told is None:
            raise AnsibleActionFail(f"{notify.VARIABLE} is not set; {notify.EXPECTED}")
        if value is None:
            return {"changed": False, "msg": f"{notify.VARIABLE} is not set"}
        if told is None:
            told = notify.event(notify.TEST, "sent", "the hook works", list(task_vars["ansible_play_hosts_all"]))
        fault = None if self._task.check_mode else notify.send(value, told)
        return {"changed": False, "failed": fault is not None, "msg": fault or "told"}
