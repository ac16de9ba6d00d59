# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of a module that runs on its host: bounds, clean text, and the types of the answer."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice, answers
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.long_step import LongStepAction, Said


class ModuleFront(LongStepAction):
    """Run the module of the same name, as Ansible would, and let through what it may say.

    `answer` is the type of what it answers: each has one, here or in hosts/answers.py. `answers` are its keys.
    """

    _supports_async = True
    _has_options = False  # the module itself judges its arguments
    answer: Any = None
    answers: tuple[str, ...] = ()

    def __init_subclass__(cls, **more: Any) -> None:
        """Find the type of the answer by the name of the module."""
        super().__init_subclass__(**more)
        if cls.answer is None:
            cls.answer = answers.BY_MODULE[cls.__module__.rpartition(".")[2]]
        cls.answers = tuple(cls.answer.__annotations__)

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> Said:
        self._name, self._vars = str(task_vars["inventory_hostname"]), task_vars
        task, limit_s = self._task, self._task.async_val
        only_begun = limit_s and not task.poll
        # Ansible itself would ask how far it is, and take whatever comes.
        if limit_s and task.poll:
            result = self._in_background(task.action, task.args, limit_s, lambda: None)
        else:
            result = self._module(task.action, task.args, background=bool(limit_s))
        if only_begun or any(result.get(word) for word in ("failed", "skipped", "unreachable")):
            for key in self.answers:
                result.pop(key, None)  # that it is none spares no judgement
        elif wrong := self._wrong(result):
            text = f"{self._asked}: {printable(wrong)}; look at what runs on that host, its answer is not ours"
            return {"failed": True, "msg": text}
        else:
            result.update(advice.ours(self._asked, schema.known(result, self.answer)))
        return result

    def _wrong(self, result: Said) -> str | None:
        """Name the first value that is none of ours."""
        return schema.problem(result, self.answer, "answer")
