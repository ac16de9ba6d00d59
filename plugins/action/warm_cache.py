# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides which host makes the warm cache of a service and which take it, and has it done as models travel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.file_step import OFFER_LIMIT_S, FileStepAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import transfer
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import service as vllm_service
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import warm as vllm_warm
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import warm

ANSWER_S = 300


class ActionModule(FileStepAction):
    """One step of one host."""

    module = "gb10.fleet.warm_cache"
    kept = ("changed", "failed", "msg", "verdict", "key", "why", "cache", "unreachable", "module_stderr")

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        service = self._begin(task_vars, options)
        made = vllm_service.plan(service)
        if made.warm is None:
            return {"changed": False}
        self._plan, self._warm = made, made.warm
        self._port = service.said.vllm_transfer_port
        self._password = transfer.password([*made.warm.hosts, service.name])
        self._source = self._sources().get(self._name, self._name)
        said: dict[str, Any] = getattr(self, f"_{options['step']}")()
        return {"changed": False, **said}

    def _sources(self) -> dict[str, str]:
        """Hosts that no cable joins make their own."""
        joined = self._fabric.topology != "none"
        return warm.sources(self._given if joined else {self._name: self._given.get(self._name) or {}})

    # -- steps

    def _read(self) -> dict[str, Any]:
        return self._short("read")

    def _make(self) -> dict[str, Any]:
        said = self._given.get(self._name) or {}
        if self._source != self._name or said.get("cache") or not said.get("key"):
            return self._told(said)
        if self._task.check_mode:
            return {**said, "changed": True, "msg": f"{self._name}: would make a warm cache, where the memory is free"}
        return self._told(self._long("make", self._request(), ""))

    def _request(self) -> dict[str, Any]:
        plan = self._plan
        return {
            "argv": list(self._warm.argv),
            "container": vllm_warm.CONTAINER,
            "memory_gib": plan.program["memory_gib"],
            "ready_s": plan.ready_timeout,
            "answer_s": ANSWER_S,
            "served_name": plan.served_name,
            "url": plan.url,
            "health": plan.health,
        }

    def _told(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """What it found, and why there is no cache where there is none."""
        why = said.get("why")
        return {**said, **({"msg": f"{self._name}: no warm cache: {why}"} if why else {})}

    def _offer(self) -> dict[str, Any]:
        takers = self._takers(self._name)
        if self._task.check_mode or not takers:
            return {}
        ways = transfer.ways(self._fabric.hosts, self._name)
        request = {
            "ways": [ways[taker] for taker in takers],
            "port": self._port,
            "limit_s": OFFER_LIMIT_S,
        }
        return self._long("offer", request, self._password)

    def _take(self) -> dict[str, Any]:
        if self._name not in self._takers(self._source):
            return {}
        offered, way = self._given[self._source], transfer.ways(self._fabric.hosts, self._source)[self._name]
        text = f"the warm cache ({offered['cache']['size'] / 1e9:.1f} GB) from {self._source}, {way['at']}"
        if self._task.check_mode:
            return {"changed": True, "msg": f"{self._name}: would get {text}"}
        request = {"offered": offered, "address": way["at"], "port": self._port}
        return {"msg": f"{self._name}: got {text}", **self._long("take", request, self._password)}

    def _withdraw(self) -> dict[str, Any]:
        if self._task.check_mode or not self._takers(self._name):
            return {}
        return self._short("withdraw")

    def _takers(self, giver: str) -> list[str]:
        return warm.takers(self._given, giver) if self._fabric.topology != "none" else []

    def _arguments(self, step: str, request: Mapping[str, Any], secret: str | None) -> dict[str, Any]:
        return {"step": step, "said": asdict(self._warm), "request": {**request}, "secret": secret}


host.preload()
