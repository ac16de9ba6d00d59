# SPDX-License-Identifier: GPL-3.0-or-later
"""What a fabric is planned from: topology, hosts, ports, network and MTU. PlanError names what allows no plan."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import PlanError

TOPOLOGIES = ("none", "pair", "ring", "switch")
SUBNET_PREFIX = 24
FIRST_HOST_NUMBER = 10
MAX_HOSTS = 254 - FIRST_HOST_NUMBER + 1
MTU_RANGE = (1500, 9216)
# Addresses that no interface of a fabric may have (RFC 6890, RFC 5771).
RESERVED = {
    "0.0.0.0/8": "the host itself",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local addresses",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "nobody",
}


def check_agreement(hosts: Sequence[str], settings: Mapping[str, Sequence[Any]]) -> None:
    for name, values in settings.items():
        if any(value != values[0] for value in values):
            said = ", ".join(f"{value!r} ({host})" for host, value in zip(hosts, values, strict=True))
            raise PlanError(
                f"the hosts of one cluster must agree on {name}, and it is {said}: set it once, on the group"
            )


def check_arguments(topology: str, hosts: Sequence[str], facts: Mapping[str, Any], mtu: int) -> None:
    if topology not in TOPOLOGIES:
        raise PlanError(f"fabric_topology {topology!r} is not one of {', '.join(TOPOLOGIES)}")
    if len(set(hosts)) != len(hosts):
        raise PlanError(f"the cluster lists a host twice: {', '.join(hosts)}")
    wanted = {"pair": (2, 2), "ring": (3, MAX_HOSTS), "switch": (2, MAX_HOSTS)}.get(topology)
    if wanted and not wanted[0] <= len(hosts) <= wanted[1]:
        need = "exactly 2" if topology == "pair" else f"{wanted[0]} to {wanted[1]}"
        raise PlanError(
            f"fabric_topology {topology} needs {need} hosts, the cluster has {len(hosts)} "
            f"({', '.join(hosts) or 'none'}): "
            "correct the group in the inventory or choose another fabric_topology"
        )
    check_mtu(mtu)
    missing = [host for host in hosts if host not in facts] if topology != "none" else []
    if missing:
        raise PlanError(
            f"no facts of {', '.join(missing)}: a fabric is planned from all hosts of the cluster, run without --limit"
        )


def check_mtu(mtu: int) -> None:
    least, most = MTU_RANGE
    if not least <= mtu <= most:
        raise PlanError(f"fabric_mtu {mtu} is not between {least} and {most} bytes; measured choice for RoCE: 9000")


def check_ports(ports: Sequence[str]) -> None:
    if not ports or len(set(ports)) != len(ports):
        raise PlanError(f"fabric_ports must name each cabled port once, for example [p0]; it is {list(ports)}")


def check_network(network: str) -> ipaddress.IPv4Network:
    """The network that rails are addressed from; the text of a refusal has a value that would do, where one is near."""
    try:
        whole = ipaddress.IPv4Network(network, strict=False)
    except ValueError as error:
        raise PlanError(
            f"fabric_network {network!r} is not an IPv4 network such as 192.168.100.0/22: {error}"
        ) from error
    if whole.prefixlen > SUBNET_PREFIX:
        raise PlanError(
            f"fabric_network {network} is smaller than one /{SUBNET_PREFIX}, and every rail of a link needs one"
        )
    if ipaddress.IPv4Interface(network).ip != whole.network_address:
        raise PlanError(
            f"fabric_network {network!r} is not an IPv4 network such as 192.168.100.0/22, for it has host bits set: "
            f"did you mean {whole}?"
        )
    for taken, use in RESERVED.items():
        if whole.overlaps(ipaddress.IPv4Network(taken)):
            raise PlanError(
                f"fabric_network {network} overlaps {taken}, which is for {use}: choose a private network such as "
                "192.168.100.0/22"
            )
    return whole


# What each variable is judged by on its own, with the type that it must have for that.
CHECKS: Mapping[str, tuple[type | tuple[type, ...], Callable[[Any], object]]] = {
    "fabric_network": (str, check_network),
    "fabric_mtu": (int, check_mtu),
    "fabric_ports": ((list, tuple), check_ports),
}


def mistakes(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield what no plan takes of these variables, a text for each.

    A value of another type than declared is not judged.
    """
    for name, value in settings.items():
        kind, check = CHECKS[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            continue
        try:
            check(value)
        except PlanError as error:
            yield str(error)
