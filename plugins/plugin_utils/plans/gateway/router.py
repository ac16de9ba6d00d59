# SPDX-License-Identifier: GPL-3.0-or-later
"""Behind the gateway: which models there are in the fleet, and which replicas of each the router may choose from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import addresses
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import refusals as gateway_refusals
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import services as gateway_services
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import settings as gateway_settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway.services import Service
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway.settings import GatewaySettings

ENTRANCE = "/run/gb10-gateway/router/replicas.sock"  # of this host's own services
_SERVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


@dataclass(frozen=True)
class Replica:
    """A service as the router asks for it: through the entrance of its host's gateway."""

    host: str
    address: str
    name: str = ""  # in the certificate of its gateway; empty: nothing is encrypted
    on_demand: bool = False  # asleep until it is asked

    @property
    def local(self) -> bool:
        return self.address.startswith("unix@")


@dataclass(frozen=True)
class Model:
    """A model that clients ask for by its names, with the services behind it."""

    name: str
    place: str
    replicas: tuple[Replica, ...]
    also: tuple[str, ...] = ()  # further names, and those of its adapters, that each of the services has

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)


def models(view: View) -> tuple[Model, ...]:
    """All models that this gateway offers, by name; one of a single service on its own host needs no router."""
    hosts = [view, *(other for other in _others(view) if gateway_settings.serves(other))]
    services = [service for host in hosts for service in gateway_services.of(host)]
    found: dict[str, list[Service]] = {}
    for service in services:
        found.setdefault(service.model, []).append(service)
    return tuple(
        Model(name, of_it[0].place, tuple(_replica(view, service) for service in of_it), _also(of_it))
        for name, of_it in sorted(found.items())
    )


def _also(services: Sequence[Service]) -> tuple[str, ...]:
    """The further names by which any of the services may be asked: a request goes to one of them."""
    return tuple(name for name in services[0].also if all(name in each.also for each in services))


def routes(view: View) -> bool:
    """Tell whether there is something to choose."""
    several = bool(view.settings(GatewaySettings).gateway_fleet) or len(gateway_services.of(view)) > 1
    return several and gateway_settings.serves(view)


def verifies(offered: Iterable[Model]) -> bool:
    """Tell whether a replica is behind the certificate of another host."""
    return any(replica.name for model in offered for replica in model.replicas)


def routers_of(hosts: Sequence[str], views: Iterable[View]) -> list[str]:
    """The hosts whose routers offer a service of these."""
    routers = (view for view in views if routes(view))
    return [
        view.host
        for view in routers
        if any(replica.host in hosts for model in models(view) for replica in model.replicas)
    ]


def refusals(view: View) -> Iterator[str]:
    """Why the fleet of this gateway cannot be reached, or not be told apart."""
    settings = view.settings(GatewaySettings)
    yield from _of_the_names(view, settings)
    if not settings.gateway_fleet:
        return
    if not settings.gateway_fleet_key:
        yield (
            "gateway_fleet is set and gateway_fleet_key is empty. Give all hosts of the fleet one key, in a file that "
            "Ansible Vault encrypts; `openssl rand -hex 32` makes one."
        )
    for other in _named(view):
        yield from _of_another(view, settings, other)
    offered = models(view)
    if not offered and not any(gateway_services.wrong(each) for each in (view, *_others(view))):
        yield f"gateway_fleet names {', '.join(settings.gateway_fleet)}, and no host of it has a vllm_model."
    if verifies(offered) and not settings.gateway_fleet_ca:
        yield (
            "gateway_fleet is set and gateway_fleet_ca is empty. Name a PEM file on this host with what the "
            "certificates of the other gateways are verified by: their authority, or the certificates themselves."
        )


def _of_the_names(view: View, settings: GatewaySettings) -> Iterator[str]:
    unknown = [name for name in settings.gateway_fleet if name not in view.groups and name not in view.inventory]
    if unknown:
        yield f"gateway_fleet names {', '.join(unknown)}: no host or group of the inventory."
    services = [*gateway_services.of(view), *(each for other in _others(view) for each in gateway_services.of(other))]
    if unsound := sorted({service.model for service in services if not service.sound}):
        yield (
            f"the gateway cannot offer {', '.join(map(repr, unsound))}: a model's name has letters, digits and "
            "._:/@+- only. Set vllm_served_model_name."
        )
    places: dict[str, set[str]] = {}
    for service in services:
        places.setdefault(service.place, set()).add(service.model)
    for alike in (sorted(names) for names in places.values() if len(names) > 1):
        yield f"the gateway cannot tell {' and '.join(alike)} apart. Set vllm_served_model_name of one of them."
    called: dict[str, set[str]] = {}
    for service in services:
        for name in (service.model, *service.also):
            called.setdefault(name, set()).add(service.model)
    for name, of_them in sorted(called.items()):
        if len(of_them) > 1:
            both = " and ".join(sorted(of_them))
            yield f"{both} are both called {name}. Give each its own names in vllm_further_names and vllm_lora."
    seen: set[tuple[str, str]] = set()
    for service in services:
        if (service.host, service.model) in seen:
            yield f"{service.host} has two services that are called {service.model}. Give each its own name."
        seen.add((service.host, service.model))
    if odd := sorted({service.host for service in services if not _SERVER.match(service.host)}):
        yield f"the router cannot name {', '.join(odd)}: a host's name has letters, digits and ._- only."


def _of_another(view: View, settings: GatewaySettings, other: View) -> Iterator[str]:
    """Yield what is wrong with another host's gateway; this host's router would write it down."""
    try:
        theirs = other.settings(GatewaySettings)
    except SettingsError as error:
        yield f"{other.host}: {error}."
        return
    if not gateway_services.of(other):
        return
    if gateway_settings.serves(other):
        known = [each.said for each in gateway_services.declared(other)]
        wrong = (*gateway_refusals.of_the_address(theirs, known), *gateway_refusals.of_the_certificate_name(theirs))
        yield from (f"{other.host}: {text}" for text in wrong)
    if not gateway_settings.serves(other):
        yield (
            f"gateway_fleet names {other.host}, which has no gateway. Set its gateway_address, or leave it out of "
            "gateway_fleet."
        )
    elif theirs.gateway_fleet_key != settings.gateway_fleet_key:
        yield (
            f"gateway_fleet_key of {other.host} is another one than that of {view.host}, so its gateway would refuse "
            "this one. Give both the same."
        )


def _others(view: View) -> list[View]:
    """The other hosts whose services this gateway offers, each once; one that cannot be read is refused."""
    return [other for other in _named(view) if _is_readable(other)]


def asked(view: View) -> tuple[int, ...]:
    """The ports of the gateways that a router on this host asks."""
    return tuple(dict.fromkeys(other.settings(GatewaySettings).gateway_port for other in _others(view)))


def _is_readable(other: View) -> bool:
    try:
        return bool(other.settings(GatewaySettings))
    except SettingsError:
        return False


def _named(view: View) -> list[View]:
    fleet = view.settings(GatewaySettings).gateway_fleet
    names = dict.fromkeys(host for name in fleet for host in view.groups.get(name, (name,)))
    return [view.of(name) for name in names if name != view.host and name in view.inventory]


def _replica(view: View, service: Service) -> Replica:
    if service.host == view.host:
        return Replica(service.host, f"unix@{ENTRANCE}", on_demand=bool(service.entrance))
    theirs = view.of(service.host).settings(GatewaySettings)
    name = "" if theirs.gateway_plain_http else theirs.gateway_certificate_name or service.host
    address = f"{addresses.in_url(theirs.gateway_address)}:{theirs.gateway_port}"
    return Replica(service.host, address, name, bool(service.entrance))
