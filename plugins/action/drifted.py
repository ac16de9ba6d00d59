# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scan found out of one host, as the result of its own task. Asks nobody."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import drift_report


class ActionModule(OwnAction):
    """One host of a scan."""

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        try:
            name = str(task_vars["inventory_hostname"])
            return drift_report.result(name, documents.plain(options["record"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise AnsibleActionFail(f"record: expected what gb10.fleet.drift says of this host: {error!r}") from error
