# SPDX-License-Identifier: GPL-3.0-or-later
"""TCP ports that other parts of ours have on a host, so no service can.

What services take from each other is in budget.py. gateway_port is judged by the gateway, which knows all hosts
that its router asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.flight_recorder import FlightRecorderSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import settings as gateway_settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.monitoring_settings import MonitoringSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import services
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import settings as vllm_settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan

_FIRST = 8000  # where services of a host usually begin


def refusals(view: View, plans: Sequence[ServicePlan]) -> Iterator[str]:
    """Yield what speaks against the ports of the services, with the owner of each."""
    parts = dict(_parts(view))
    for each in plans:
        yield from (
            f"{line(each, variable)} is {port}, which {parts[port]} has on this host. Choose another, such as "
            f"{_free(plans, parts)}."
            for variable, port in each.ports.items()
            if port in parts
        )
    yield from _of_ray(plans)


def line(service: ServicePlan, variable: str) -> str:
    """A variable of a service, as the inventory has it."""
    if service.name == services.SHORT:
        return variable
    return f"vllm_services.{service.name}.{variable.removeprefix('vllm_')}"


def _parts(view: View) -> Iterator[tuple[int, str]]:
    monitoring, recorder = view.settings(MonitoringSettings), view.settings(FlightRecorderSettings)
    if monitoring.monitoring_enabled:
        yield monitoring.monitoring_port, "node_exporter (monitoring_port)"
        yield from _of_the_stack(monitoring)
    if recorder.flight_recorder_enabled and view.size > 1:
        yield recorder.flight_recorder_port, "the flight recorder (flight_recorder_port)"
    if gateway_settings.serves(view) and not gateway_settings.is_ours(view, "nginx"):
        yield catalog.load("gateway")["packaged_port"]["value"], "the NGINX that was there before the gateway"


def _of_the_stack(settings: MonitoringSettings) -> Iterator[tuple[int, str]]:
    for entry in catalog.load("monitoring")["stack_ports"] if settings.monitoring_server else ():
        if entry["package"] != "grafana" or settings.monitoring_grafana:
            yield entry["value"], f"{entry['meaning']} (monitoring_server)"


def _of_ray(plans: Sequence[ServicePlan]) -> Iterator[str]:
    """Ray's own ports, which another service of the host takes; its own service is judged by itself."""
    own, workers = set(vllm_settings.ports_of_ray().values()), vllm_settings.workers_of_ray()
    for ray in [each for each in plans if each.by_ray][:1]:
        yield from (
            f"{line(each, variable)} is {port}, which Ray of {ray.name} has on this host. Choose another."
            for each in plans
            for variable, port in each.ports.items()
            if each.name != ray.name and (port in own or port in workers)
        )


def _free(plans: Sequence[ServicePlan], parts: Mapping[int, str]) -> int:
    taken = {*parts, *(port for each in plans for port in each.ports.values())}
    return next(port for port in count(_FIRST) if port not in taken)
