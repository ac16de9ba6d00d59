# SPDX-License-Identifier: GPL-3.0-or-later
"""A step of an action that gets files of a service: what it asks of the host, and how far the host is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from ansible.errors import AnsibleActionFail
from ansible_collections.gb10.fleet.plugins.module_utils.serving import model_listing
from ansible_collections.gb10.fleet.plugins.module_utils.system.values import Between, Matching
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice, answers, bounds, host
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.long_step import LongStepAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import transfer
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import planner as fabric
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import services

PROGRESS = "/run/gb10-fleet/files/progress.json"
LIMIT_S = 24 * 3600  # of one step: 400 GB over 50 Mb/s take 18 h
OFFER_LIMIT_S = 4 * 3600  # of a daemon that nobody withdraws, because the controller is gone


class Progress(TypedDict):
    """How far a host is. It is told every ten seconds, for a day perhaps: no host fills a screen or a log by it."""

    doing: Annotated[str, Matching(re.compile(r"[^\n]{1,300}\Z"), "a line")]
    done: Annotated[float, Between(0, 2**63)]
    total: Annotated[float, Between(0, 2**63)]
    at: Annotated[float, Between(0, 2**63)]


class FileStepAction(LongStepAction):
    """`module` on the host does the step; `kept` is what its result keeps of the answer."""

    own = ("said", "request", "secret")
    module: str
    kept: tuple[str, ...]
    _last: Mapping[str, Any] | None = None  # how far it was when it was said last

    def _begin(self, task_vars: dict[str, Any], options: dict[str, Any]) -> services.Service:
        """The service whose files they are."""
        own = host.Host(self, task_vars)
        if own.facts is None:
            raise AnsibleActionFail(f"{own.name}: its facts of this run are missing; gb10.fleet.spark_facts gets them")
        self._name, self._vars = own.name, task_vars
        context, __ = own.render([], own.facts)
        self._fabric = context.plan(fabric.plan)
        self._given = documents.plain(options["given"])
        return next(each for each in services.expand(context) if each.name == options["service"])

    def _arguments(self, step: str, request: Mapping[str, Any], secret: str | None) -> dict[str, Any]:
        raise NotImplementedError

    def _short(self, step: str) -> dict[str, Any]:
        return self._answer(self._module(self.module, self._arguments(step, {}, None)))

    def _long(self, step: str, request: Mapping[str, Any], secret: str) -> dict[str, Any]:
        arguments = self._arguments(step, request, secret)
        return self._answer(self._in_background(self.module, arguments, LIMIT_S, self._how_far))

    def _how_far(self) -> str | None:
        now = self._progress()
        text = transfer.progress(self._name, now, self._last) if now else None
        self._last = now or self._last
        return text

    def _progress(self) -> dict[str, Any] | None:
        with bounds.named(self._name):
            done = self._low_level_execute_command(f"cat {PROGRESS}")
        try:
            now = schema.parsed(str(done["stdout"]))
        except (ValueError, RecursionError):  # between two steps there is none
            return None
        return None if schema.problem(now, Progress, "progress") else advice.plain(schema.known(now, Progress))

    def _wrong(self, answer: Mapping[str, Any]) -> str | None:
        """Name the first value that is none of ours: others of the cluster go by it."""
        kind = answers.BY_MODULE[self.module.rpartition(".")[2]]
        wrong = schema.problem(dict(answer), kind, "answer")
        try:
            for part, held in transfer.parts(answer).items() if not wrong else ():
                if part != "image" and held is not None:
                    model_listing.parse_model(held)
        except ValueError as error:
            return f"answer.{part}: {error}"
        return wrong

    def _answer(self, said: Mapping[str, Any]) -> dict[str, Any]:
        answer = {key: said[key] for key in self.kept if key in said}
        if wrong := self._wrong(answer):
            return {"failed": True, "msg": f"{self._name}: {printable(wrong)}; look at what runs on that host"}
        if answer.get("failed"):
            answer["msg"] = f"{self._name}: {answer.get('msg', 'failed without a word')}"
        return answer
