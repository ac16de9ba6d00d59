# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan of a model says of a service where the inventory says nothing: `vllm_flags: plan`.

Only what every controller knows alike counts: the catalog, and a file of facts that the inventory names. What lies in a
cache of this machine or on the host would change a service between two runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import (
    draft_wish,
    models,
    plan_lines,
    serving_plan,
    serving_rules,
    vllm_cli,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import known
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Plan

NONE = "none"  # of vllm_flags
_SHARE, _CONTEXT, _TENSOR = "--gpu-memory-utilization", "--max-model-len", "--tensor-parallel-size"


@dataclass(frozen=True)
class Added:
    """A flag of vLLM or a variable of its environment that nobody set."""

    text: str
    because: str


@dataclass(frozen=True)
class Planned:
    """The settings of a service, with what was added."""

    settings: VllmSettings
    added: tuple[Added, ...] = ()


def of(view: View) -> Planned:
    """Fill the settings of a service on this host."""
    settings = view.settings(VllmSettings)
    version = serving_rules.version_in(settings.vllm_image, settings.vllm_version)
    # A router knows other hosts by their variables alone; of an unknown version nobody knows the flags.
    if settings.vllm_flags == NONE or not view.own_facts or version is None:
        return Planned(settings)
    facts, flags = _facts(settings), _said(view, settings, version)
    if facts is None and models.find(settings.vllm_model) is None:
        return Planned(settings)
    smallest = min(serving_rules.memory(facts) for facts in view.cluster_facts.values())
    asked = (settings.vllm_model, settings.vllm_image, version, smallest, view.size, settings.vllm_executor)
    plan = _plan(*asked, tuple(flags.items()), facts)
    return _filled(settings, plan, flags) if plan and plan.checkpoint else Planned(settings)


def _facts(settings: VllmSettings) -> ModelFacts | None:
    """Those that the inventory names. A file that cannot be read is refused elsewhere."""
    try:
        named = settings.vllm_model_facts
        return known.here(settings.vllm_model, settings.vllm_model_revision, named) if named else None
    except FactsError:
        return None


def _said(view: View, settings: VllmSettings, version: str) -> dict[str, str]:
    """Return what the inventory says, by the flags of vLLM."""
    values = vllm_cli.words(version, tuple(map(str, settings.vllm_extra_args))).values
    flags = {flag: (said or [""])[-1] for flag, said in values.items()}
    if settings.vllm_max_model_len:
        flags[_CONTEXT] = "auto" if settings.vllm_max_model_len < 0 else str(settings.vllm_max_model_len)
    if "vllm_gpu_memory_utilization" in view.variables:
        flags[_SHARE] = str(settings.vllm_gpu_memory_utilization)
    if settings.vllm_tensor_parallel_size:
        flags[_TENSOR] = str(settings.vllm_tensor_parallel_size)
    if settings.adapters:
        flags["--enable-lora"] = ""
    if settings.speculative:
        flags[draft_wish.FLAG] = settings.speculative.config()
    return flags


@cache
def _plan(
    model: str,
    image: str,
    version: str,
    smallest: float,
    hosts: int,
    executor: str,
    flags: tuple[tuple[str, str], ...],
    facts: ModelFacts | None,
) -> Plan | None:
    """The plan of this checkpoint; what is wrong with the flags, or with a name without weights, is said elsewhere."""
    try:
        return serving_plan.plan(
            model,
            [smallest] * hosts,
            image,
            version,
            only="" if facts else model,
            settings=dict(flags),
            executor=executor,
            judge=lambda *__: (),
            facts=facts,
        )
    except serving_plan.PlanError:
        return None


def _filled(settings: VllmSettings, plan: Plan, flags: Mapping[str, str]) -> Planned:
    variables = plan_lines.variables(plan)
    rest = {flag: value for flag, value in plan_lines.unnamed(plan.arguments).items() if flag not in flags}
    environment = {name: value for name, value in plan.environment.items() if not name.startswith("RAY_")}
    own: dict[str, Any] = {
        "vllm_extra_args": (*settings.vllm_extra_args, *plan_lines.words(rest)),
        "vllm_environment": {**environment, **settings.vllm_environment},
    }
    shown: dict[str, str | None] = {}
    for flag, name in ((_CONTEXT, "vllm_max_model_len"), (_SHARE, "vllm_gpu_memory_utilization")):
        if flag not in flags:
            own[name], shown[flag] = variables[name], str(variables[name])
    if _TENSOR not in flags and "vllm_tensor_parallel_size" in variables:
        own["vllm_tensor_parallel_size"] = variables["vllm_tensor_parallel_size"]
        shown[_TENSOR] = str(own["vllm_tensor_parallel_size"])
    shown |= rest | {name: value for name, value in environment.items() if name not in settings.vllm_environment}
    added = (Added(" ".join((name, value) if value else (name,)), plan.because[name]) for name, value in shown.items())
    return Planned(replace(settings, **own), tuple(added))
