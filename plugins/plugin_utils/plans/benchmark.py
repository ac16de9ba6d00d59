# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role benchmark: which loads the served model gets, and what cannot be measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import PlanError, RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import waits
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import service as vllm_service
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import services
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import lora


@dataclass(frozen=True)
class BenchmarkSettings(RoleSettings, role="benchmark"):
    """The public variables of the role benchmark."""

    benchmark_service: str
    benchmark_concurrency: tuple[int, ...]
    benchmark_prompts: int
    benchmark_input_tokens: int
    benchmark_output_tokens: int
    benchmark_timeout: int

    @property
    def shared_tokens(self) -> int:
        """The part of each prompt that all prompts of a step have in common."""
        return self.benchmark_input_tokens // 2


@dataclass(frozen=True)
class Load:
    """One step, as the module serving_load takes it. The seed is missing: it is new each time, or the prompts would all
    be in the cache already."""

    model: str
    served_name: str
    url: str
    requests: int
    concurrency: int
    input_tokens: int
    shared_tokens: int
    output_tokens: int
    timeout_s: int
    container: str
    serve_args: tuple[str, ...]


@dataclass(frozen=True)
class Watch:
    """Readings of the GPU meanwhile: what counts as busy, how many, and in which time."""

    busy_percent: float
    readings: int
    within_s: int


@dataclass(frozen=True, kw_only=True)
class BenchmarkPlan(RolePlan):
    """``service``, ``unit``, ``members`` and ``rank`` are of the service that is measured. ``loads`` are the steps in
    their order, ``request`` is what all of them share, and ``wait_s`` is how long Ansible waits for one. ``conditions``
    are noted beside each figure, which is worth nothing without them."""

    service: str
    unit: str
    served_name: str
    members: tuple[str, ...]
    rank: int
    loads: tuple[Load, ...]
    watch: Watch
    wait_s: int
    request: Mapping[str, int]
    conditions: Mapping[str, Any]


def plan(view: View) -> BenchmarkPlan:
    """The plan for one host. The first host of a cluster puts the load, the others read their GPU."""
    settings = view.settings(BenchmarkSettings)
    of_host, wanted = services.expand(view), settings.benchmark_service
    measured = next((each for each in of_host if wanted in ("", each.name)), None)  # else the first one
    if measured is None:
        names = ", ".join(each.name for each in of_host) or "none"
        raise PlanError(
            f"benchmark_service is {settings.benchmark_service!r}, and the services of {view.host} are: {names}"
        )
    model, planned = measured.planned.settings, vllm_service.plan(measured)
    limits = catalog.load("thresholds")["benchmark"]
    within_s = limits["busy_within_s"]["value"]
    return BenchmarkPlan(
        refusals=tuple(_refusals(view, settings, model)),
        service=planned.name,
        unit=planned.unit.removesuffix(".service"),
        served_name=planned.served_name,
        members=planned.members,
        rank=planned.rank,
        loads=tuple(_load(settings, model, planned, at_once) for at_once in settings.benchmark_concurrency),
        watch=Watch(limits["busy_percent"]["value"], limits["busy_readings"]["value"] * 2, within_s),
        wait_s=settings.benchmark_timeout + within_s,
        request={
            "prompts": settings.benchmark_prompts,
            "input_tokens": settings.benchmark_input_tokens,
            "shared_tokens": settings.shared_tokens,
            "output_tokens": settings.benchmark_output_tokens,
        },
        conditions={
            "model": model.vllm_model,
            "served_name": model.served_name,
            "image": model.vllm_image,
            "args": (*lora.words(model.adapters), *model.vllm_extra_args),
            "speculative": model.drafting,
            "environment": model.vllm_environment,
            "max_model_len": model.vllm_max_model_len,
            "gpu_memory_utilization": model.vllm_gpu_memory_utilization,
        },
    )


def _load(settings: BenchmarkSettings, model: VllmSettings, planned: ServicePlan, at_once: int) -> Load:
    return Load(
        model=model.vllm_model,
        served_name=model.served_name,
        url=planned.url,
        requests=at_once * settings.benchmark_prompts,
        concurrency=at_once,
        input_tokens=settings.benchmark_input_tokens,
        shared_tokens=settings.shared_tokens,
        output_tokens=settings.benchmark_output_tokens,
        timeout_s=settings.benchmark_timeout,
        container=planned.container,
        serve_args=model.vllm_extra_args,
    )


def _refusals(view: View, settings: BenchmarkSettings, model: VllmSettings) -> Iterator[str]:
    """Yield what cannot be measured, each with its way out."""
    if "vllm" not in view.variables.get("gb10_roles", catalog.ROLES):
        yield "gb10_roles has no vllm: it serves no model; leave it out with --limit"
    at_once, given, asked = (
        settings.benchmark_concurrency,
        settings.benchmark_input_tokens,
        settings.benchmark_output_tokens,
    )
    if min(at_once, default=0) < 1:
        yield f"benchmark_concurrency is {list(at_once)}; name at least one number of requests, each at least 1"
    if settings.benchmark_prompts < 1:
        yield f"benchmark_prompts is {settings.benchmark_prompts}; it must be at least 1"
    if given < 2:
        yield f"benchmark_input_tokens is {given}; it must be at least 2"
    if asked < 2:
        yield f"benchmark_output_tokens is {asked}; it must be at least 2: the speed is that between two tokens"
    if settings.benchmark_timeout < 1:
        yield f"benchmark_timeout is {settings.benchmark_timeout}; it must be at least 1"
    yield from waits.too_long(benchmark_timeout=settings.benchmark_timeout)
    if 0 < model.vllm_max_model_len < given + asked:
        longest = model.vllm_max_model_len
        yield f"benchmark_input_tokens and benchmark_output_tokens are more than vllm_max_model_len, {longest}"
