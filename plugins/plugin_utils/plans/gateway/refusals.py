# SPDX-License-Identifier: GPL-3.0-or-later
"""What speaks against how a gateway is reached. Routers of other hosts ask the same of it first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import addresses
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway.settings import GatewaySettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import settings as vllm_settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_ADDRESS = re.compile(r"([0-9]{1,3}([.][0-9]{1,3}){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\Z")


def of_the_address(settings: GatewaySettings, known: Sequence[VllmSettings]) -> Iterator[str]:
    # As both servers write it: no name, no zone and no network.
    if not (_ADDRESS.match(settings.gateway_address) and addresses.is_address(settings.gateway_address)):
        yield (
            f"gateway_address '{settings.gateway_address}' is no IP address. Name the one that clients of the LAN "
            "reach, for example 192.0.2.11."
        )
    # The firewall opens gateway_port to everybody, so it must be no port at which the hosts of a cluster meet.
    ports = dict.fromkeys(port for vllm in reversed(known) for port in vllm.ports.values())
    taken = [*ports, *vllm_settings.ports_of_ray().values()]
    if not addresses.is_ports(settings.gateway_port) or settings.gateway_port in taken:
        yield (
            f"gateway_port {settings.gateway_port} is no TCP port from 1 to 65535, or one that a service or Ray uses "
            f"({', '.join(map(str, taken))}). Choose another, for example 8443."
        )


def of_the_certificate_name(settings: GatewaySettings) -> Iterator[str]:
    if settings.gateway_certificate_name and not NAME.match(settings.gateway_certificate_name):
        yield (
            f"gateway_certificate_name '{settings.gateway_certificate_name}' is no name of a certificate: letters, "
            "digits and . - only."
        )
