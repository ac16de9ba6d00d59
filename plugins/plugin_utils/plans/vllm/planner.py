# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role vllm: the services of a host, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import settings as gateway_settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import budget as vllm_budget
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import ports as vllm_ports
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import service as vllm_service
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import services
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import shared as vllm_shared
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import warm as vllm_warm
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.shared import Folder, Program, Unused
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import layouts


@dataclass(frozen=True, kw_only=True)
class VllmPlan(RolePlan):
    """How a host serves: its services, each with its own unit, and the folders and programs that they share."""

    services: tuple[ServicePlan, ...]
    folders: tuple[Folder, ...]
    programs: tuple[Program, ...]
    unused: tuple[Unused, ...]  # files that no service needs
    ray: str  # the service that runs by Ray
    sleepers: tuple[ServicePlan, ...]  # services that the first request starts
    resting: tuple[str, ...]  # services that only another layout than the first has
    reserve_gib: float  # of the memory, which stays for the system


def plan(view: View) -> VllmPlan:
    """The plan for one host."""
    expanded = services.expand(view)
    made = tuple(vllm_service.plan(each) for each in expanded)
    said = view.variables.get("gb10_layouts")
    sets = layouts.of_host(said, services.declared_names(view) if said else None)
    return VllmPlan(
        refusals=(
            *_named(made, "refusals"),
            *vllm_ports.refusals(view, made),
            *(sets.mistakes if _only_short(made) else vllm_budget.refusals(view, made, sets)),
            *_never_asked(view, made),
            *vllm_warm.shared(expanded),
        ),
        joint_refusals=tuple(_named(made, "joint_refusals")),
        findings=tuple(_findings(made)),
        services=made,
        folders=tuple(vllm_shared.folders(made)),
        programs=tuple(vllm_shared.programs(made)),
        unused=tuple(vllm_shared.unused(made)),
        ray=vllm_shared.by_ray(made),
        sleepers=tuple(each for each in made if each.on_demand),
        resting=tuple(sets.resting([each.name for each in made])),
        reserve_gib=vllm_budget.reserve_gib(),
    )


def _never_asked(view: View, made: tuple[ServicePlan, ...]) -> Iterator[str]:
    """Services that a request is to start, and none could."""
    for each in made:
        if not each.on_demand:
            continue
        where = "vllm_on_demand" if _only_short(made) else f"{each.name}: on_demand"
        if len(each.members) > 1:
            yield (
                f"{where} is true, and it spans {', '.join(each.members)}: a request reaches one host, and a cluster "
                "starts as a whole. Let it run always, or set its span to host."
            )
        elif not gateway_settings.serves(view):
            yield (
                f"{where} is true, and this host has no gateway, through which a request would start it. Set "
                "gateway_address, or let it run always."
            )


def _only_short(made: tuple[ServicePlan, ...]) -> bool:
    return [each.name for each in made] == [services.SHORT]


def _named(made: tuple[ServicePlan, ...], which: str) -> Iterator[str]:
    """What speaks against each service, with its name where there is more than the one of `vllm_model`."""
    for each in made:
        texts = getattr(each, which)
        yield from texts if _only_short(made) else (f"{each.name}: {text}" for text in texts)


def _findings(made: tuple[ServicePlan, ...]) -> Iterator[Mapping[str, Any]]:
    for each in made:
        for finding in each.findings:
            yield finding if _only_short(made) else {**finding, "fact": f"{each.name}: {finding['fact']}"}
