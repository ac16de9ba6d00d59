# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of plugin_utils/serving/serving_plan.py: runs on the controller and touches no host."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import serving_plan


class ActionModule(ActionBase):
    """Say how to serve a model."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _valid, options = self.validate_argument_spec(  # type: ignore[no-untyped-call]
            argument_spec={
                "model": {"type": "str", "required": True},
                "memories_bytes": {"type": "list", "elements": "float", "required": True},
                "image": {"type": "str", "default": ""},
                "version": {"type": "str", "default": ""},
                "max_model_len": {"type": "int", "default": 0},
                "concurrency": {"type": "int", "default": 0},
                "only": {"type": "str", "default": ""},
                "settings": {"type": "dict", "default": {}},
                "accepted": {"type": "dict", "default": {}},
                "executor": {"type": "str", "choices": list(serving_plan.EXECUTORS), "default": "mp"},
                "driver": {"type": "str"},
            }
        )
        try:
            found = serving_plan.plan(options.pop("model"), options.pop("memories_bytes"), **options)
        except (serving_plan.PlanError, catalog.CatalogError) as error:
            raise AnsibleError(str(error)) from error
        result.update(changed=False, plan=found.as_dict(), refused=found.refused, msg="\n".join(found.lines()))
        return result
