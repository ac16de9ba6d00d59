# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module, and says of which run its facts are: a fact cache may keep them for later ones."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import facts_schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.module_front import ModuleFront


class ActionModule(ModuleFront):
    """Read the facts of one host."""

    answer, facts = "ansible_facts", ("gb10_spark",)

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        if "gb10_spark" in result.get("ansible_facts", {}):
            result["ansible_facts"].update(host.said_now(result["ansible_facts"]["gb10_spark"]))
        return result

    def _wrong(self, said: Any) -> str | None:
        return facts_schema.problem(said.get("gb10_spark") if said else None)
