# SPDX-License-Identifier: GPL-3.0-or-later
"""The services of a host, as far as a gateway needs them: from the inventory alone, so that a host may be absent."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.module_utils.reading.model_names import place
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import addresses
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import SettingsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import service_entries, services

_NAME_OF_A_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*\Z")


@dataclass(frozen=True)
class Service:
    """A server on a host, and the name that clients ask for."""

    host: str
    name: str
    model: str
    upstream: str  # address and port on its host
    stem: str = ""  # of its names on its host
    serving: str = ""  # the file that is there while it listens
    entrance: str = ""  # the socket that wakes it, where it sleeps until it is asked
    also: tuple[str, ...] = ()  # further names that clients may ask for
    health: str = "/health"  # of the server itself; the gateway calls it /health for all
    takes_key: bool = True  # whether the host's key is for it

    @property
    def place(self) -> str:
        """The model as a part of a path and as a name in a configuration: the same on every host."""
        return place(self.model)

    @property
    def sound(self) -> bool:
        """Tell whether its names may stand in a configuration file."""
        return all(_NAME_OF_A_MODEL.match(name) for name in (self.model, *self.also))


def of(view: View) -> tuple[Service, ...]:
    """The services that this host offers on its own address; one that spans a cluster is on its first host."""
    return tuple(
        Service(
            view.host,
            each.name,
            each.said.served_name,
            upstream(each.said.vllm_host, each.said.vllm_port),
            each.names.stem,
            each.names.serving,
            each.names.entrance if each.said.vllm_on_demand else "",
            each.said.names[1:],
            each.health,
            service_entries.takes_key(service_entries.of(view.variables).get(each.name, {})),
        )
        for each in declared(view)
        if (each.said.vllm_model or each.kind == services.CONTAINER) and each.view.rank == 0
    )


def declared(view: View) -> tuple[services.Service, ...]:
    """Return what is said of the services of a host. What is wrong with it says the role vllm, of its own host."""
    return _expanded(view) or ()


def wrong(view: View) -> bool:
    """Tell whether the services of a host cannot be told, because of what the role vllm refuses."""
    return _expanded(view) is None


def _expanded(view: View) -> tuple[services.Service, ...] | None:
    if not _has_the_role(view):
        return ()
    try:
        return view.plan(services.expand)
    except SettingsError:
        return None


def upstream(host: str, port: int) -> str:
    """As a proxy writes it. Localhost would be ::1 as well, where vLLM does not listen."""
    return f"{'127.0.0.1' if host == 'localhost' else addresses.in_url(host)}:{port}"


def _has_the_role(view: View) -> bool:
    roles = view.variables.get("gb10_roles")
    return not isinstance(roles, (list, tuple)) or "vllm" in roles
