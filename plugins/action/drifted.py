# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scan found out of one host, as the result of its own task. Asks nobody."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import drift_report


class ActionModule(ActionBase):
    """One host of a scan."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, options = self.validate_argument_spec(argument_spec={"record": {"type": "raw", "required": True}})  # type: ignore[no-untyped-call]
        try:
            name = str((task_vars or {})["inventory_hostname"])
            result.update(drift_report.result(name, documents.plain(options["record"])))
        except (KeyError, TypeError, AttributeError) as error:
            raise AnsibleActionFail(f"record: expected what gb10.fleet.drift says of this host: {error!r}") from error
        return result
