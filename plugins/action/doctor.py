# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of plugin_utils/hosts/probe.py: looks at a host in one call, and fails it when something blocks.

A host that gives no answer is unreachable to Ansible, with a finding that says the way out; any_errors_fatal stops the
run for all hosts then, too.
"""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host, probe, transport
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction


class ActionModule(OwnAction):
    """Judge one host."""

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        if options["judged"] is not None:
            return _delivered(options["judged"])
        asked = probe.prepare(host.Host(self, task_vars), task_vars, int(task_vars["ansible_forks"]))
        answer: dict[str, Any] | None = None
        failure = None
        began = time.time()
        try:
            answer = asked.host.heard(transport.call(self, asked.request, task_vars))
            if more := probe.again(asked, answer):
                asked, began = more, time.time()
                answer = asked.host.heard(transport.call(self, asked.request, task_vars))
        except transport.NoAnswer as error:
            failure = asked.failure(error.said, answered=True)
        except AnsibleError as error:  # connection failures, refused privilege escalation
            failure = asked.failure(str(error))
        asked = asked.called(began, time.time())
        return probe.judge(asked, answer, failure, refuse=options["refuse"])


def _delivered(judged: Any) -> dict[str, Any]:
    """What the action look has found out of this host, as the result of its own task."""
    try:
        result = documents.plain(judged)
    except TypeError as error:
        raise AnsibleActionFail(f"judged: {error}") from None
    if not isinstance(result, dict) or not {"findings", "msg", "failed"} <= result.keys():
        raise AnsibleActionFail("judged: expected the result of gb10.fleet.probe for this host")
    if result["failed"] or result.get("unreachable"):
        del result["findings"]  # of a failure Ansible shows everything; `msg` says it, and the probe's result has them
    return result


host.preload()
