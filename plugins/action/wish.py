# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of a wish: which unit, what, until when. The engine on the host does the rest."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.finding import from_failure
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import target, transport
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.run import RUN
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import changes


class ActionModule(ActionBase):
    """Have a unit of one host stand still, or not any more."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _valid, options = self.validate_argument_spec(  # type: ignore[no-untyped-call]
            argument_spec={
                "unit": {"type": "str", "required": True},
                "state": {"type": "str", "choices": ["stopped", "started"], "required": True},
                "end": {"type": "str", "default": ""},
            }
        )
        target.refuse_inventory(task_vars)
        name = task_vars["inventory_hostname"]
        request = {
            "verb": "wish",
            "check": bool(self._task.check_mode),
            "consents": {},
            "facts": None,
            "project": catalog.collection_version(),
            "run": RUN,
            "wish": {"unit": options["unit"], "state": options["state"], "until": options["end"]},
        }
        try:
            answer = transport.call(self, request, task_vars)
        except AnsibleConnectionFailure as error:
            cluster = self._templar.template(task_vars.get("gb10_cluster")) or name
            finding = from_failure(name, str(error), cluster=str(cluster))
            result.update(unreachable=True, changed=False, changes=[], findings=[finding.as_dict()], msg=str(finding))
            return result
        result.update(changed=bool(answer["changes"]), changes=answer["changes"])
        if answer["error"]:
            result.update(failed=True, msg=f"{name}: {answer['error']['message']}")
            return result
        result["wish"] = next((wish for wish in answer["wishes"] if wish["unit"] == options["unit"]), None)
        if self._task.diff:
            result["diff"] = changes.diff(name, answer, whole=bool(task_vars.get("ansible_diff_mode")))
        return result
