# SPDX-License-Identifier: GPL-3.0-or-later
"""Says what leads on from a plan that does not fit, or that a rule warns of: with the figure, and never in a circle."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import host_count
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, quantization
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Checkpoint, Model

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Plan
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.vllm_cli import Fired

_PAIR = 2  # hosts
_SHARE = "--set gpu-memory-utilization"  # what --service NAME=GIB comes to
_SERVICE = "--service"
_TIGHT, _AS_PLANNED = "utilization_above_085", "what gb10 plan says for the model"  # of catalog/rules.yml


def of(plan: Plan) -> list[str]:
    """Never what was asked: more hosts only where these are too few."""
    if plan.hosts_needed and plan.hosts_needed > plan.hosts:
        cabled = "pair" if plan.hosts_needed == _PAIR else "ring"
        need = f"{host_count(plan.hosts_needed)} of this memory (--hosts {plan.hosts_needed})"
        fits = [f"ask for what fits here: {' or '.join(plan.less)}"] if plan.less else []
        return [*fits, f"{need}, with fabric_topology {cabled} or switch"]
    if plan.less:
        return [f"ask for what fits: {' or '.join(plan.less)}"]
    service = f"{_SERVICE} {plan.given.service}" if plan.given.service_gib else ""
    asked = [service if service and each == _SHARE else each for each in plan.asked]  # nobody typed the share
    return [f"ask for less, or leave it to the plan: {', '.join(asked)}"] if asked else []


@dataclass(frozen=True)
class Wanted:
    """What was asked of the memory."""

    only: str  # a checkpoint or a format
    length: int  # tokens; 0: as many as fit
    requests: int  # 0: the usual
    kv_dtype: str
    share: float  # of the memory; 0: as little as holds it
    load: memory_fit.Load

    def choice(self, model: Model, smallest: float, hosts: int, version: str | None) -> quantization.Choice:
        rest = (self.only, self.length, self.requests, self.kv_dtype, self.share, self.load)
        return quantization.choose(model, smallest, hosts, version, *rest)

    def less(self, found: Plan, smallest: float) -> tuple[str, ...]:
        """For each option that was asked, the most of it that fits beside the others; the least of a share."""

        def fit(other: Wanted) -> memory_fit.Fit | None:
            return other.choice(found.model, smallest, found.hosts, found.version).fit

        said = []
        if self.length and (one := fit(replace(self, length=0))):
            said.append(f"--max-model-len {one.max_model_len}")
        if self.requests > 1 and self.length and (one := fit(replace(self, requests=1))):
            said.append(f"--concurrency {max(1, int(one.sequences))}")
        if self.requests > 1 and not self.length and fit(replace(self, requests=1)):
            few, many = 1, self.requests
            while many - few > 1:
                middle = (few + many) // 2
                few, many = (middle, many) if fit(replace(self, requests=middle)) else (few, middle)
            said.append(f"--concurrency {few}")
        if self.share and (one := fit(replace(self, share=0.0))) and one.utilization > self.share:
            gib, service = (
                math.ceil(one.utilization * one.total),
                found.given.service if found.given.service_gib else "",
            )
            said.append(f"{_SERVICE} {service}={gib}" if service else f"{_SHARE}={one.utilization:.2f}")
        return tuple(said)


def not_circular(found: Plan, rule: Fired) -> Fired:
    """A rule that leads to what a plan says gets that figure; where the plan itself took so much, more hosts."""
    fit, checkpoint = found.fit, found.checkpoint
    if fit is None or checkpoint is None:
        return rule
    holds = math.ceil(fit.needed / fit.total * 100) / 100
    if rule.id == _TIGHT and holds >= found.utilization:
        return replace(rule, way_out=f"nothing less holds it here: {_roomier(found, checkpoint, fit)}")
    return replace(rule, way_out=rule.way_out.replace(_AS_PLANNED, f"{holds:.2f}, which holds this plan"))


def _roomier(found: Plan, checkpoint: Checkpoint, fit: memory_fit.Fit) -> str:
    usual = float(catalog.load("software")["vllm_gpu_memory_utilization"]["value"])
    asked = (fit.max_model_len, fit.concurrency, found.arguments.get("--kv-cache-dtype") or "auto")
    for hosts in range(found.hosts + 1, memory_fit.MOST_HOSTS + 1):
        if memory_fit.fit(found.model, checkpoint, fit.total * memory_fit.GIB, hosts, *asked).utilization <= usual:
            return f"--hosts {hosts}, or nothing else on these"
    return "nothing else on these hosts"
