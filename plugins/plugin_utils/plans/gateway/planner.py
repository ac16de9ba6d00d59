# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role gateway: whom it lets through to which paths, and where it finds vLLM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import addresses, catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import refusals as gateway_refusals
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import router as gateway_router
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import services as gateway_services
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import settings as gateway_settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway.router import Model
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway.services import Service
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway.settings import GatewaySettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import services
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings

_FILE = re.compile(r"(/[A-Za-z0-9_.@+-]+)+\Z")
# What RFC 6750 lets a bearer token be; none of it means anything to a configuration file.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*\Z")
_PATH = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/[a-z0-9_-]+)+\Z")
CERTIFICATE = "/etc/gb10-fleet/gateway.pem"  # of gateway_certificate_text, with its key
ROUTER = "/run/gb10-router/api.sock"  # only NGINX's workers may speak to it
_HEALTH = "/health"  # everybody may ask it, and it has an entry of its own


@dataclass(frozen=True)
class Proxy:
    """A server of this role, and what is taken away where a host is not to have it."""

    package: str
    unit: str
    files: tuple[str, ...]
    secrets: tuple[str, ...]  # files, too


_NGINX = Proxy(
    "nginx",
    "gb10-gateway.service",
    ("/etc/systemd/system/gb10-gateway.service", "/etc/gb10-fleet/gateway.conf"),
    ("/etc/gb10-fleet/gateway-keys.conf", CERTIFICATE),
)
_HAPROXY = Proxy(
    "haproxy",
    "gb10-router.service",
    ("/etc/systemd/system/gb10-router.service", "/etc/gb10-fleet/router.cfg", "/usr/local/sbin/gb10-router"),
    ("/etc/gb10-fleet/router-keys.map",),
)


@dataclass(frozen=True)
class Path:
    """A path that clients may ask for, and how."""

    path: str
    methods: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GatewayPlan(RolePlan):
    """A gateway in front of the head of a cluster, or none."""

    serves: bool
    routes: bool  # whether a router stands behind it
    nginx_is_ours: bool
    haproxy_is_ours: bool
    packages: tuple[str, ...]
    unwanted: tuple[Proxy, ...]  # the router is first: it stands behind the gateway
    address: str  # as NGINX writes it
    lan: str  # its /64 of IPv6, or empty
    upstream: str  # vLLM's address and port, or the router's socket
    serving: str  # the file that is there while vLLM listens, where that is one service
    health: str  # the path there that answers 200 when it serves, or the router's
    certificate: str
    certificate_key: str
    holds_certificate: bool  # whether its text is in the inventory, and the role keeps the file
    certificates: tuple[str, ...]  # what the operator has put on the host
    paths: tuple[Path, ...]
    # What this host offers. Routers, its own and others', reach each at a path of its own.
    services: tuple[Service, ...]
    opens: bool  # whether routers of other hosts may reach them
    models: tuple[Model, ...]  # what this host's own router offers
    sleepers: tuple[Service, ...]  # services here that the first request starts

    @property
    def unwanted_files(self) -> tuple[str, ...]:
        """Those that are no secrets."""
        return tuple(file for proxy in self.unwanted for file in proxy.files)

    @property
    def unwanted_secrets(self) -> tuple[str, ...]:
        return tuple(file for proxy in self.unwanted for file in proxy.secrets)


def plan(view: View) -> GatewayPlan:
    """The plan for one host; a gateway that is not asked for is not judged."""
    settings, vllm = view.settings(GatewaySettings), view.settings(VllmSettings)
    own = gateway_services.of(view)
    known = [*(each.said for each in gateway_services.declared(view)), vllm]
    serves = gateway_settings.serves(view)
    routes = gateway_router.routes(view)
    models = gateway_router.models(view) if routes else ()
    proxies = {_NGINX: serves, _HAPROXY: routes}
    holds = bool(serves and settings.gateway_certificate_text)
    # Where the one service of the host is, or will be.
    only = own[0].upstream if own else gateway_services.upstream(vllm.vllm_host, vllm.vllm_port)
    return GatewayPlan(
        refusals=(*dict.fromkeys(_refusals(settings, known)), *gateway_router.refusals(view)) if serves else (),
        serves=serves,
        routes=routes,
        nginx_is_ours=serves and gateway_settings.is_ours(view, "nginx"),
        haproxy_is_ours=routes and gateway_settings.is_ours(view, "haproxy"),
        packages=tuple(proxy.package for proxy, wanted in proxies.items() if wanted),
        unwanted=tuple(proxy for proxy, wanted in reversed(proxies.items()) if not wanted),
        address=addresses.in_url(settings.gateway_address),
        lan=addresses.half_of(settings.gateway_address),
        upstream=f"unix:{ROUTER}:" if routes else only,
        serving=own[0].serving if own else services.Names(services.SHORT).serving,
        health=own[0].health if own and not routes else _HEALTH,
        certificate=CERTIFICATE if holds else settings.gateway_certificate,
        certificate_key=CERTIFICATE if holds else settings.gateway_certificate_key,
        holds_certificate=holds,
        certificates=tuple(_certificates(settings, models)) if serves else (),
        paths=tuple(_paths(settings)),
        services=own,
        opens=bool(own and settings.gateway_fleet_key),
        models=models,
        sleepers=tuple(each for each in own if each.entrance),
    )


def _certificates(settings: GatewaySettings, models: Sequence[Model]) -> Iterator[str]:
    """Yield what the operator has put on the host."""
    if not settings.gateway_plain_http and not settings.gateway_certificate_text:
        yield from (settings.gateway_certificate, settings.gateway_certificate_key)
    if settings.gateway_fleet_ca and gateway_router.verifies(models):
        yield settings.gateway_fleet_ca


def _paths(settings: GatewaySettings) -> Iterator[Path]:
    words = [entry.split() for entry in settings.gateway_paths if _PATH.match(entry)]
    for path in dict.fromkeys(path for _method, path in words if path != _HEALTH):
        yield Path(path, tuple(method for method, other in words if other == path))


def _refusals(settings: GatewaySettings, known: Sequence[VllmSettings]) -> Iterator[str]:
    yield from gateway_refusals.of_the_address(settings, known)
    yield from _of_the_certificate(settings)
    yield from _of_the_keys(settings)
    yield from _of_the_paths(settings)
    for vllm in known:
        if vllm.exposed:
            yield (
                f"vllm_host is {vllm.vllm_host}, so clients reach vLLM past the gateway. Set it to 127.0.0.1, which is "
                "the default."
            )
        if vllm.vllm_api_key and not _TOKEN.match(vllm.vllm_api_key):
            yield (
                "vllm_api_key has other characters than letters, digits and - . _ ~ + / with = at the end (RFC 6750), "
                "and the gateway has to send it on. `openssl rand -hex 32` makes one."
            )


def _of_the_certificate(settings: GatewaySettings) -> Iterator[str]:
    files = (settings.gateway_certificate, settings.gateway_certificate_key)
    if settings.gateway_fleet_ca and not _FILE.match(settings.gateway_fleet_ca):
        yield f"gateway_fleet_ca '{settings.gateway_fleet_ca}' is no absolute path of letters, digits and _ . @ + -."
    yield from gateway_refusals.of_the_certificate_name(settings)
    text = settings.gateway_certificate_text
    if settings.gateway_plain_http:
        if any(files) or text:
            yield "gateway_plain_http is true and a certificate is named: take one of them away."
        return
    if text and any(files):
        yield "gateway_certificate_text is set and a file of a certificate is named, too: take one of them away."
        return
    if text and not ("BEGIN CERTIFICATE" in text and "PRIVATE KEY" in text):
        yield (
            "gateway_certificate_text is not a certificate with its key: it needs the lines from BEGIN CERTIFICATE and "
            "from BEGIN PRIVATE KEY. `gb10 share NAME` makes one."
        )
    if not all(files) and not text:
        yield (
            "gateway_address is set, and gateway_certificate or gateway_certificate_key is not. `gb10 share NAME` "
            "makes a certificate. Or put one and its key on the host and name both files; or set gateway_plain_http "
            "to true, and everyone on the way can read keys, questions and answers."
        )
    if any(file and not _FILE.match(file) for file in files):
        yield (
            f"gateway_certificate '{files[0]}' or gateway_certificate_key '{files[1]}' is no absolute path of letters, "
            "digits and _ . @ + -."
        )


def _of_the_keys(settings: GatewaySettings) -> Iterator[str]:
    keys = {str(name): str(key) for name, key in settings.gateway_keys.items()}
    fleet = {"gateway_fleet_key": settings.gateway_fleet_key} if settings.gateway_fleet_key else {}
    if not keys:
        yield (
            "gateway_address is set and gateway_keys is empty. Give each client a key by its name, in a file that "
            "Ansible Vault encrypts: {laptop: ...}; `openssl rand -hex 32` makes one."
        )
    strange = [name for name in keys if not gateway_refusals.NAME.match(name)]
    if strange:
        yield f"gateway_keys names {', '.join(strange)}. A name is letters, digits and _ . - ; the log shows it."
    figures = catalog.load("gateway")
    least, most = figures["key_length"]["value"], figures["key_limit"]["value"]
    unfit = [name for name, key in (keys | fleet).items() if not _TOKEN.match(key) or not least <= len(key) <= most]
    if unfit:
        yield (
            f"gateway_keys: the key of {', '.join(unfit)} is shorter than {least} characters or longer than {most}, or "
            "has others than letters, digits and - . _ ~ + / with = at the end (RFC 6750). `openssl rand -hex 32` "
            "makes one."
        )
    if len({*keys.values(), *fleet.values()}) < len(keys | fleet):
        yield ("gateway_keys has the same key twice, so the log could not tell who asked. Give each client its own.")


def _of_the_paths(settings: GatewaySettings) -> Iterator[str]:
    strange = [entry for entry in settings.gateway_paths if not _PATH.match(entry)]
    if strange:
        yield (
            f"gateway_paths holds {', '.join(strange)}. Each is a method and a path of small letters, digits, _ and -, "
            "for example POST /v1/score."
        )
    paths = dict.fromkeys(path for entry in settings.gateway_paths for path in entry.split()[-1:])
    closed = [
        f"{path}, which {entry['reason']}."
        for entry in catalog.load("gateway")["closed"]
        for path in paths
        if re.match(f"({entry['value']})\\Z", path)
    ]
    if closed:
        yield (
            f"gateway_paths opens what no client may reach: {' '.join(closed)} Ask that on the host itself, over SSH."
        )
