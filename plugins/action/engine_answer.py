# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of the module engine_answer: see plugin_utils/hosts/module_front.py."""

from __future__ import annotations

from typing import Any, TypedDict

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import last_facts
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.long_step import Said
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.module_front import ModuleFront
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import engine

_WAY_OUT = ". Fix: another checkpoint (gb10 plan MODEL names them), or an image whose vLLM takes this one"


class Answer(TypedDict):
    """Its one key; engine.problem judges what is in it."""

    engine: dict[str, object]


class ActionModule(ModuleFront):
    """Ask the vLLM of an image. What it refuses is the message; silence, and where our arithmetic differs, warn."""

    answer = Answer

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> Said:
        result = super()._act(task_vars, options)
        if result.get("verdict") == "no_answer":
            result["warnings"] = [*result.get("warnings", ()), printable(str(result.get("msg")))]
        if said := result.get("engine"):
            asked, flags = str(self._task.args.get("model")), self._task.args.get("flags") or {}
            question = {name: self._task.args.get(name) for name in engine.QUESTION}
            last_facts.keep_answer(self._name, question, said)
            if refusal := engine.refusal(said, asked):
                result["msg"] = printable(refusal) + (_WAY_OUT if said.get("firm") else "")
            else:
                told = engine.unlike(said, asked, str(flags.get("kv_cache_dtype", "auto")))
                result["warnings"] = [*result.get("warnings", ()), *(printable(f"{asked}: {text}") for text in told)]
        return result

    def _wrong(self, result: Said) -> str | None:
        return engine.problem(result.get("engine"))
