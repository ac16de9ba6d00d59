# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role firewall: which ports are whose, and who comes by which interface from which address."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.host_firewalls import FIREWALLD, UFW
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import addresses, catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import PlanError, RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import planner as fabric
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.planner import FabricPlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.flight_recorder import FlightRecorderSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import router
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import settings as gateway_settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway.settings import GatewaySettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.monitoring_settings import MonitoringSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import services
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import settings as vllm_settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.services import Service
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings

_PORT_FLAG = re.compile(r"(--\S*port)[= ](\S+)")
_PORT_VARIABLE = re.compile(r"VLLM_(.*_)?PORT\Z")
_INTERFACE = re.compile(r"[A-Za-z0-9._-]{1,15}\Z")
_RELOAD = "; `sudo firewall-cmd --reload`"
Ports = Any  # a number, or its digits, or a range of them from low to high


@dataclass(frozen=True)
class FirewallSettings(RoleSettings, role="firewall"):
    """The public variables of the role firewall."""

    firewall_open_ports: tuple[str, ...]
    firewall_clients: tuple[str, ...]
    firewall_allow_host_rules: bool


@dataclass(frozen=True)
class Peer:
    """Another host of the cluster. Its address counts only where it arrives by the interface that leads to it."""

    host: str
    interface: str
    address: str


@dataclass(frozen=True)
class Gateway:
    """A port that is open to all, with limits for each of them."""

    port: int
    lan: str  # the /64 of an address of IPv6 that it listens on, else empty
    rate: int  # new connections a second from one address
    asked: tuple[int, ...]  # the ports of others, which the router here asks


@dataclass(frozen=True)
class Opening:
    """A line that opens something in ufw or firewalld, and the one that takes it back."""

    add: str
    remove: str


@dataclass(frozen=True, kw_only=True)
class FirewallPlan(RolePlan):
    """The TCP ports of a host, by who may reach them.

    What follows from the fabric is empty where the cluster has no plan of it.
    """

    open: tuple[str, ...]  # to everybody
    closed: tuple[str, ...]  # to everybody but the host itself
    guarded: tuple[str, ...]  # to everybody but the host itself and its peers
    own: tuple[str, ...]  # of the guarded: on this host only root's processes speak there
    peers: tuple[Peer, ...] = ()
    apis: tuple[str, ...]  # the ports of the services
    reached: tuple[str, ...]  # those of them that others than the host itself may reach
    clients: tuple[str, ...]  # networks that may reach them
    exporter: int | None  # the port of node_exporter, where it is not on loopback
    watchers: tuple[str, ...]  # networks that may reach it
    gateway: Gateway | None
    ssh: tuple[str, ...]  # the ports of sshd, which are open
    units: tuple[str, ...]  # of what listens
    openings: tuple[Opening, ...] = ()  # with consent


def plan(view: View) -> FirewallPlan:
    """The plan for one host."""
    settings = view.settings(FirewallSettings)
    # A host without any service keeps the ports of `vllm_model` closed all the same.
    served = services.expand(view) or (Service(services.SHORT, view, view, (view.host,)),)
    monitoring = view.settings(MonitoringSettings)
    exporter = monitoring.monitoring_port if monitoring.exposed else None
    of_services = dict.fromkeys(port for each in served for port in _guarded(each))
    recorder = view.settings(FlightRecorderSettings)
    kept = [recorder.flight_recorder_port] if recorder.flight_recorder_enabled else []
    guarded = [*of_services, *kept, *([exporter] if exporter else [])]
    planned = FirewallPlan(
        refusals=_texts(text for each in served for text in _refusals(view, settings, each.said, guarded)),
        open=_texts(_open(view, settings)),
        closed=_texts(_closed()),
        guarded=_texts(port for port in guarded if port not in _closed()),
        own=_texts([*(port for each in served for port in _own(each)), *_own_of_the_fabric(view)]),
        apis=_texts(each.said.vllm_port for each in served),
        reached=_texts(each.said.vllm_port for each in served if _reached(each)),
        clients=settings.firewall_clients if any(map(_reached, served)) else (),
        exporter=exporter,
        watchers=monitoring.monitoring_clients if exporter else (),
        gateway=_gateway(view),
        ssh=_texts(view.facts["ssh_ports"]),
        units=(
            *(each.names.unit for each in served),
            "gb10-gateway.service",
            *(("gb10-recorder-keep.service",) if kept else ()),
        ),
    )
    try:
        joined = view.plan(fabric.plan)
        planned = replace(
            planned,
            joint_refusals=_texts(text for each in served for text in _nobody_asks(each, settings, joined)),
            peers=tuple(_peers(view, joined)),
        )
    except PlanError as error:
        planned = replace(planned, joint_refusals=(str(error),))
    allowed = settings.firewall_allow_host_rules
    return replace(
        planned,
        findings=tuple(_closed_by_others(view, planned, allowed)),
        openings=tuple(_openings(view, planned)) if allowed else (),
    )


def _deny(view: View) -> list[Mapping[str, Any]]:
    return [other for other in view.facts.get("host_firewalls") or [] if other["default"] not in ("accept", "allow")]


def _for_clients(planned: FirewallPlan) -> list[str]:
    gateway = [str(planned.gateway.port)] if planned.gateway else []
    return [*gateway, *(planned.apis if planned.clients else ())]


def _closed_by_others(view: View, planned: FirewallPlan, allowed: bool) -> Iterator[Mapping[str, Any]]:
    """What of ours ufw or firewalld would drop: a packet has to pass all tables."""
    for other in _deny(view):
        ports = [port for port in _for_clients(planned) if not _lets_in(other, port)]
        closed = (peer for peer in _named(planned) if not _lets_in(other, "any", peer.interface, peer.address))
        rails = list(dict.fromkeys(peer.interface for peer in closed))
        if ports or rails:
            what = [*(f"port {port}" for port in ports), *(f"what arrives by {rail}" for rail in rails)]
            lines = "; ".join(f"`sudo {line.add}`" for line in _lines(other["name"], ports, rails))
            by_hand = f"run {lines}{_RELOAD if other['name'] == FIREWALLD else ''}"
            yield {
                "id": "host_firewall",
                "severity": "info" if allowed else "warn",
                "fact": f"{other['name']} is on and drops what no rule of it names ({other['default']}): it would close"
                f" {', '.join(what)}",
                "way_out": "nothing to do: firewall_allow_host_rules is true, and the role adds the lines"
                if allowed
                else f"{by_hand}; or set firewall_allow_host_rules to true, and the role adds these lines",
                "accepted": None,
            }


def _openings(view: View, planned: FirewallPlan) -> Iterator[Opening]:
    """All that ours needs, also what is open: the lines that the role has added would count as no longer wanted."""
    rails = list(dict.fromkeys(peer.interface for peer in _named(planned)))
    for other in _deny(view):
        yield from _lines(other["name"], _for_clients(planned), rails)


def _named(planned: FirewallPlan) -> list[Peer]:
    """Those whose interface may stand in a command: its name is the host's word, and a person may run the line."""
    return [peer for peer in planned.peers if _INTERFACE.match(peer.interface)]


def _lets_in(other: Mapping[str, Any], port: Any, interface: str = "any", address: str | None = None) -> bool:
    """Return whether a rule names the port, on that interface, for everybody or for that address."""
    return any(
        rule["interface"] in ("any", interface)
        and (rule["source"] == "any" or (address is not None and addresses.contains(rule["source"], address)))
        and rule["protocol"] in ("any", "tcp")
        and (rule["ports"] == "any" or (port != "any" and addresses.is_within(port, rule["ports"].split(","))))
        for rule in other["allowed"]
    )


def _lines(name: str, ports: Sequence[str], rails: Sequence[str]) -> Iterator[Opening]:
    if name == UFW:
        for rule in (*(f"{port}/tcp" for port in ports), *(f"in on {rail}" for rail in rails)):
            yield Opening(f"ufw allow {rule}", f"ufw --force delete allow {rule}")
        return
    command = "firewall-cmd --permanent"
    yield from (Opening(f"{command} --add-port={port}/tcp", f"{command} --remove-port={port}/tcp") for port in ports)
    zone = f"{command} --zone=trusted"
    yield from (Opening(f"{zone} --change-interface={rail}", f"{zone} --remove-interface={rail}") for rail in rails)


def _reached(service: Service) -> bool:
    return service.said.exposed and service.view.rank == 0


def _texts(ports: Any) -> tuple[str, ...]:
    """Each once."""
    return tuple(dict.fromkeys(map(str, ports)))


def _open(view: View, settings: FirewallSettings) -> list[Ports]:
    """The way in is open whatever is said, so nobody can lock himself out. So is the gateway, which asks for a key."""
    gateway = _gateway(view)
    return [*view.facts["ssh_ports"], *settings.firewall_open_ports, *([gateway.port] if gateway else [])]


def _gateway(view: View) -> Gateway | None:
    settings = view.settings(GatewaySettings)
    if not gateway_settings.serves(view):
        return None
    rate = catalog.load("gateway")["fleet_rate" if settings.gateway_fleet_key else "source_rate"]["value"]
    lan = addresses.half_of(settings.gateway_address)
    return Gateway(settings.gateway_port, lan, rate, router.asked(view))


def _closed() -> list[Ports]:
    return [entry["value"] for entry in catalog.load("firewall")["guarded"] if not entry.get("peers", True)]


def _guarded(service: Service) -> list[Ports]:
    """Return where the hosts of a cluster meet: ports with a variable, and those that vLLM, Ray and the kernel choose.

    On loopback nobody from outside reaches the API, and its port may be another program's on another address.
    """
    known, vllm, engine = catalog.load("firewall"), service.said, service.engine.name
    open_beyond = vllm.exposed or service.kind == services.CONTAINER  # who knows where another server listens
    return [
        *(entry["value"] for entry in known["guarded"] if entry.get("engine", engine) == engine),
        known["random"]["value"],
        *(vllm.vllm_master_port, vllm.vllm_join_port, vllm.vllm_transfer_port, vllm.vllm_ray_port),
        *_of_ray(),
        *_behind(service),
        *([vllm.vllm_port] if open_beyond else []),
    ]


def _own(service: Service) -> list[Ports]:
    """Return where a cluster meets, on a host of one.

    Other guarded ports may be a user's own, as random ones on loopback.
    """
    hosts, vllm = service.view.size, service.said
    if hosts < 2:
        return [vllm.vllm_transfer_port] if vllm.warm else []
    ports = [port for name, port in vllm.ports_in_use(hosts).items() if name != "vllm_port"]
    return [*ports, *_behind(service), *(_of_ray() if vllm.by_ray else ())]


def _behind(service: Service) -> list[Ports]:
    """The ports behind the meeting port of a cluster, where its engine takes some."""
    first, taken = service.said.vllm_master_port, service.engine.behind
    return [f"{first + 1}-{first + taken}"] if taken and service.view.size > 1 else []


def _own_of_the_fabric(view: View) -> list[Ports]:
    return [entry["value"] for entry in catalog.load("firewall")["guarded"] if entry.get("own") and view.size > 1]


def _of_ray() -> list[Ports]:
    """What every node of Ray listens on; its workers have a range."""
    workers = vllm_settings.workers_of_ray()
    single = [port for name, port in vllm_settings.ports_of_ray().items() if not name.endswith("-worker-port")]
    return [*single, f"{workers[0]}-{workers[-1]}"]


def _peers(view: View, joined: FabricPlan) -> Iterator[Peer]:
    """They come over the rails; in a ring, where not all of them are neighbours, over the management network too."""
    for profile in joined.mine.profiles:
        yield from (Peer(peer.host, profile.netdev, peer.address) for peer in profile.peers)
    if joined.topology == "ring" and joined.mine.control:
        for name, host in joined.hosts.items():
            if name != view.host and host.control:
                yield Peer(name, joined.mine.control.interface, host.control.address)


def _refusals(view: View, settings: FirewallSettings, vllm: VllmSettings, guarded: list[Ports]) -> Iterator[str]:
    strange = [port for port in settings.firewall_open_ports if not addresses.is_ports(port)]
    if strange:
        yield (
            f"firewall_open_ports holds {', '.join(strange)}. Name TCP ports and ranges from low to high, for "
            "example 8080 or 40000-40010."
        )
    monitoring = view.settings(MonitoringSettings)
    others = {
        "gateway_port": view.settings(GatewaySettings).gateway_port,
        "monitoring_port": monitoring.monitoring_port,
    }
    for name, port in {**vllm.ports, **others}.items():
        if not addresses.is_ports(port):
            yield f"{name} is '{port}'. Name a TCP port, from 1 to 65535."
    if vllm.exposed and addresses.is_within(vllm.vllm_port, _closed()):
        yield (
            f"vllm_port {vllm.vllm_port} is closed to everybody but the host itself (catalog/firewall.yml). Choose "
            "another."
        )
    for name, port in _named_to_vllm(vllm).items():
        if not addresses.is_within(port, guarded):
            yield (
                f"{name} has vLLM listen on port {port}, where the whole LAN would reach it. Choose one of those that "
                f"only the cluster reaches, {catalog.load('firewall')['random']['value']} for example, or leave it out."
            )
    watchers = monitoring.monitoring_clients if monitoring.exposed else ()
    for name, clients in (("firewall_clients", settings.firewall_clients), ("monitoring_clients", watchers)):
        if unknown := [client for client in clients if not addresses.is_network(client)]:
            yield (
                f"{name} holds {', '.join(unknown)}. Name networks without host bits, or addresses, for "
                "example 192.0.2.0/24, 192.0.2.7 or 2001:db8::/64."
            )


def _named_to_vllm(vllm: VllmSettings) -> Mapping[str, Any]:
    """The ports that vLLM's own flags and variables name."""
    variables = {str(name): port for name, port in vllm.vllm_environment.items() if _PORT_VARIABLE.match(str(name))}
    return variables | dict(_PORT_FLAG.findall(" ".join(vllm.vllm_extra_args)))


def _nobody_asks(service: Service, settings: FirewallSettings, joined: FabricPlan) -> Iterator[str]:
    """An API beyond the host, on none of its rails, that nobody may reach."""
    vllm = service.said
    on_a_rail = vllm.vllm_host in [profile.address for profile in joined.mine.profiles]
    named = settings.firewall_clients or str(vllm.vllm_port) in map(str, settings.firewall_open_ports)
    if _reached(service) and not on_a_rail and not named:
        yield (
            f"vllm_host {vllm.vllm_host} offers the API beyond this host, and firewall_clients names nobody who may "
            "reach it. Name their networks, for example firewall_clients: [192.0.2.0/24], or keep vllm_host on "
            "127.0.0.1 and let the role gateway stand in front (gateway_address)."
        )
