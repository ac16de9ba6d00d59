# SPDX-License-Identifier: GPL-3.0-or-later
"""What the services of a host share and may not share: its memory, its ports, and the names that clients ask for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import ports as vllm_ports
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import service_entries, services
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.layouts import Layouts

_GIB = 1024**3
# Services fetch one after the other, so they may offer their files on one port.
_SHARED = "vllm_transfer_port"


def refusals(view: View, plans: Sequence[ServicePlan], sets: Layouts) -> Iterator[str]:
    """Yield what speaks against having all of them on this host. Memory is of those that a layout has together."""
    yield from sets.mistakes
    for running in sets.together([each.name for each in plans]).values():
        yield from _memory(view, [each for each in plans if each.name in running])
    for one, other in combinations(plans, 2):
        yield from _between(one, other)


def reserve_gib() -> float:
    """Return what stays for the system."""
    return float(catalog.load("models")["fit"]["reserve"]["value"])


def _memory(view: View, plans: Sequence[ServicePlan]) -> Iterator[str]:
    """The share of each and the system's reserve are more than the host has: the largest is to give way."""
    total, reserve = view.facts["memory_bytes"] / _GIB, reserve_gib()
    takes = {each.name: max(each.memory_gib, each.held_gib) for each in plans}
    taken = sum(takes.values())
    over = taken + reserve - total
    if over <= 0:
        return
    parts = ", ".join(f"{each.name} {takes[each.name]:.1f}{_source(each)}" for each in plans)
    unsaid = list(_without_a_share(view, plans))
    # Of two that are as large, the one whose entry says no share: it has that of the host's own model.
    largest = max(plans, key=lambda each: (takes[each.name], each.name in unsaid))
    left = math.floor((largest.memory_gib - over) * 10) / 10
    less = f"{math.ceil(over * 10) / 10:.1f} GiB less, {_in_words(largest, left, total)}" if left > 0 else ""
    way_out = f"Give {largest.name} {less}, or move a service to another host." if less else "Move a service away."
    if len(unsaid) > 1:
        way_out = f"Give each of {', '.join(unsaid)} a memory_gib: without one, each takes what a service alone does."
    yield (
        f"its services take {taken:.1f} GiB ({parts}) and the system keeps {reserve:.1f}, but it has {total:.1f} GiB. "
        f"{way_out}"
    )


def _source(service: ServicePlan) -> str:
    """Where more is known than what was asked for: beside its share, the process takes memory of the host."""
    return f" measured on {service.held_on}" if service.held_gib > service.memory_gib else ""


def _without_a_share(view: View, plans: Sequence[ServicePlan]) -> Iterator[str]:
    """The services whose entries do not say what they take."""
    entries = service_entries.of(view.variables)
    for each in plans:
        if each.name in entries and not {"memory_gib", "gpu_memory_utilization"} & entries[each.name].keys():
            yield each.name


def _in_words(service: ServicePlan, left: float, total: float) -> str:
    """The line for the inventory."""
    if service.name == services.SHORT:
        return f"vllm_gpu_memory_utilization: {math.floor(left / total * 100) / 100:.2f}"
    return f"vllm_services.{service.name}.memory_gib: {left:.1f}"


def _between(one: ServicePlan, other: ServicePlan) -> Iterator[str]:
    both = f"{one.name} and {other.name}"
    for name, port in one.ports.items():
        for same in (each for each, taken in other.ports.items() if taken == port and (name, each) != (_SHARED,) * 2):
            what = name if name == same else f"{name} and {same}"
            yield f"{both} both take port {port} ({what}). Give one of them another: {_line(other, same, port + 10)}."
    for name in (each for each in one.names if each in other.names):
        variable = "vllm_served_model_name" if name == other.served_name else "vllm_further_names or vllm_lora"
        yield (
            f"{both} serve the same name, {name}, and clients could not tell them apart. Give one of them "
            f"another: {_line(other, variable, other.name)}."
        )
    if one.by_ray and other.by_ray:
        yield f"{both} run by Ray, whose ports a host has once. Let one of them run by mp (vllm_executor)."


def _line(service: ServicePlan, variable: str, value: object) -> str:
    """Of the inventory, for example."""
    return f"{vllm_ports.line(service, variable)}: {value}"
