# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module, judges each section of its answer, and says of which run the facts are.

A fact cache may keep facts for later runs.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks import coherence
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, effort
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import bounds, host, sections
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.long_step import Said
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.module_front import ModuleFront


class ActionModule(ModuleFront):
    """Read the sections of one host."""

    answer = sections.Answer

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> Said:
        former = sections.FORMER.get(self._task.action.rpartition(".")[2], "facts")
        self._task.args = {"sections": [former], **self._task.args}
        if "recorded" in self._sections():
            figures = catalog.load("flight_recorder")["figures"]
            self._task.args = {"shown_s": figures["shown_s"]["value"], **self._task.args}
        self.facts = ("gb10_spark",) if "facts" in self._sections() else ()
        result = super()._act(task_vars, options)
        for key in {*self.answers} - {"ansible_facts", *sections.of(self._sections(), self._task.args)}:
            result.pop(key, None)  # the answer about one host would be taken for that of another
        if "gb10_spark" in result.get("ansible_facts", {}):
            result["ansible_facts"].update(host.said_now(result["ansible_facts"]["gb10_spark"]))
        if "against_a_boot" in result:  # a person follows its ways out: they are made here, of values that were checked
            known = {key: result[key] for key in ("kernel", "packages", "driver")}
            with bounds.named(self._asked), effort.work():
                result["against_a_boot"] = coherence.against_the_next_boot(known)
        if "cluster" in result:  # a host could name that of others
            result["cluster"] = self._task.args.get("cluster", "")
        return result

    def _sections(self) -> list[str]:
        asked = self._task.args["sections"]
        return asked if isinstance(asked, list) else str(asked).split(",")

    def _wrong(self, result: Said) -> str | None:
        return sections.problem(result, self._sections(), self._task.args)
