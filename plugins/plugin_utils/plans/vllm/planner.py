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
    """The services of a host, each with its own unit, and the folders and programs that they share."""

    services: tuple[ServicePlan, ...]
    folders: tuple[Folder, ...]
    programs: tuple[Program, ...]
    unused: tuple[Unused, ...]  # files that no service needs
    ray: str  # the service that runs by Ray
    sleepers: tuple[ServicePlan, ...]  # services that the first request starts
    resting: tuple[str, ...]  # services that only another layout than the first has
    laid_out: tuple[str, ...]  # services that a layout has
    reserve_gib: float  # of the memory, which stays for the system


def plan(view: View) -> VllmPlan:
    """The plan for one host."""
    expanded = services.expand(view)
    plans = tuple(vllm_service.plan(each) for each in expanded)
    said = view.variables.get("gb10_layouts")
    sets = layouts.of_host(said, services.declared_names(view) if said else None)
    return VllmPlan(
        refusals=(
            *_named(plans, "refusals"),
            *vllm_ports.refusals(view, plans),
            *(sets.mistakes if _only_short(plans) else vllm_budget.refusals(view, plans, sets)),
            *_never_asked(view, plans),
            *_called_alike(plans),
            *vllm_warm.shared(expanded),
        ),
        joint_refusals=tuple(_named(plans, "joint_refusals")),
        findings=tuple(_findings(plans)),
        services=plans,
        folders=tuple(vllm_shared.folders(plans)),
        programs=tuple(vllm_shared.programs(plans)),
        unused=tuple(vllm_shared.unused(plans)),
        ray=vllm_shared.by_ray(plans),
        sleepers=tuple(each for each in plans if each.on_demand),
        resting=tuple(sets.resting([each.name for each in plans])),
        laid_out=tuple(each.name for each in plans if each.name in sets.chosen()),
        reserve_gib=vllm_budget.reserve_gib(),
    )


def _called_alike(plans: tuple[ServicePlan, ...]) -> Iterator[str]:
    """A host calls an image by the beginning of its digest, and another one that begins so would be taken for it."""
    images: dict[str, str] = {}
    for each in plans:
        first = images.setdefault(each.image_name, each.files.image)
        if first != each.files.image and first.partition("@")[2] != (each.files.image.partition("@")[2] or None):
            yield (
                f"{each.name}: its image {each.files.image} would be called as {first} on the host "
                f"({each.image_name}). Take another build of one of the two."
            )


def _never_asked(view: View, plans: tuple[ServicePlan, ...]) -> Iterator[str]:
    """Services that a request is to start, and none could."""
    for each in plans:
        if not each.on_demand:
            continue
        where = "vllm_on_demand" if _only_short(plans) else f"{each.name}: on_demand"
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


def _only_short(plans: tuple[ServicePlan, ...]) -> bool:
    return [each.name for each in plans] == [services.SHORT]


def _named(plans: tuple[ServicePlan, ...], which: str) -> Iterator[str]:
    """Yield what speaks against each service, with its name where there is more than the one of `vllm_model`."""
    for each in plans:
        texts = getattr(each, which)
        yield from texts if _only_short(plans) else (f"{each.name}: {text}" for text in texts)


def _findings(plans: tuple[ServicePlan, ...]) -> Iterator[Mapping[str, Any]]:
    for each in plans:
        for finding in each.findings:
            yield finding if _only_short(plans) else {**finding, "fact": f"{each.name}: {finding['fact']}"}
