# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of the role gateway, which the firewall reads too: it lets everybody reach the gateway's port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import services as gateway_services


@dataclass(frozen=True)
class GatewaySettings(RoleSettings, role="gateway"):
    """The public variables of the role gateway."""

    gateway_address: str
    gateway_port: int
    gateway_certificate: str
    gateway_certificate_key: str
    gateway_certificate_text: str
    gateway_plain_http: bool
    gateway_keys: Mapping[Any, Any]
    gateway_paths: tuple[str, ...]
    gateway_fleet: tuple[str, ...]
    gateway_fleet_key: str
    gateway_fleet_ca: str
    gateway_certificate_name: str


def serves(view: View) -> bool:
    """Tell whether a host has a gateway. The API is on the head of a cluster, and the gateway beside it.

    Another host of a cluster has one for its own services, where a router of the fleet asks for them.
    """
    settings = view.settings(GatewaySettings)
    asked = view.rank == 0 or bool(settings.gateway_fleet_key and gateway_services.of(view))
    return settings.gateway_address != "" and asked


def is_ours(view: View, package: str) -> bool:
    """The package starts a server of its own; that of NGINX with a page for everyone on port 80.

    Where we bring the package, that one never starts, not even while it is installed; where somebody else brought it,
    it is theirs.
    """
    return package not in view.facts["packages"] or package in view.facts["installed_by_us"]
