# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role vllm: the services of a host, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import (
    gateway_settings,
    services,
    vllm_budget,
    vllm_ports,
    vllm_service,
    vllm_warm,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm_service import ServicePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import layouts


@dataclass(frozen=True, kw_only=True)
class VllmPlan(RolePlan):
    """How a host serves: its services, each with its own unit, and the folders and programs that they share."""

    services: tuple[ServicePlan, ...]
    folders: tuple[str, ...]  # of models, and those of the host that the containers get beside
    compiles: bool  # whether a service needs the folder of what vLLM compiles
    shelves: tuple[str, ...]  # folders of warm caches
    sums: tuple[str, ...]  # folders of what those are
    secrets_unused: tuple[str, ...]  # files of secrets that no service has use for
    sources: tuple[str, ...] = vllm_service.SOURCES  # of the program that the units run
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
        folders=_once([*(each.files.cache for each in made), *(folder for each in made for folder in each.folders)]),
        compiles=any(each.files.fetch and not each.warm for each in made),
        shelves=tuple(each.warm.shelf for each in made if each.warm),
        sums=tuple(each.warm.sums for each in made if each.warm),
        secrets_unused=tuple(_unused(made)),
        ray=_ray(made),
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


def _ray(made: tuple[ServicePlan, ...]) -> str:
    return next((each.name for each in made if each.by_ray), "")


def _unused(made: tuple[ServicePlan, ...]) -> Iterator[str]:
    for each in made:
        yield from () if each.secrets else (each.env_file,)
        yield from () if each.join_for else (each.join_file,)
    yield from () if _ray(made) else (vllm_service.RAY_TOKEN,)


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


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
