# SPDX-License-Identifier: GPL-3.0-or-later
"""The rails of a host: its RDMA devices, each joined to its netdev."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading.network import Interface, link_name
from ansible_collections.gb10.fleet.plugins.module_utils.reading.rdma import Port, ports, state
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.values import Cidr

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired


class Rail(TypedDict):
    netdev: str
    hca: str
    hca_port: int | None
    port: str | None
    twin_index: int | None
    carrier: bool | None
    mtu: int | None
    driver: str | None
    pci: str | None
    phys_switch_id: NotRequired[str | None]
    addresses: list[Cidr]
    state: str | None
    master: NotRequired[str | None]


def read_rails(host: HostReader, interfaces: Sequence[Interface]) -> list[Rail]:
    """RDMA devices joined to their netdevs, sorted by port and twin."""
    by_name = {interface["name"]: interface for interface in interfaces}
    rails: list[Rail] = []
    # Those with hardware first: a Soft-RoCE device on the same netdev (`rdma link add`) is no rail beside them.
    for port in sorted(ports(host.system), key=lambda port: not port.hardware):
        interface = by_name.pop(_rail_netdev(host, port) or "", None)
        if interface is None:
            continue
        rails.append(
            {
                "netdev": interface["name"],
                "hca": port.hca,
                "hca_port": int(port.number) if port.number.isdigit() else None,
                "port": port_of(interface["name"], interface["phys_port_name"]),
                "twin_index": None,
                "master": link_name(host.path(f"/sys/class/net/{interface['name']}/master")),
                "carrier": interface["carrier"],
                "mtu": interface["mtu"],
                "driver": interface["driver"],
                "pci": interface["pci"],
                "phys_switch_id": interface["phys_switch_id"],
                "addresses": interface["addresses"],
                "state": state(host.system, port),
            }
        )
    return number_twins(rails)


def _rail_netdev(host: HostReader, port: Port) -> str | None:
    """The netdev of an RDMA port: by its GID table, else (still empty) by its parent, else by its PCI function."""
    slots = f"{port.folder}/gid_attrs/ndevs"
    tabled = [netdev for netdev in (host.read(f"{slots}/{slot}") for slot in host.names(slots)) if netdev]
    # A VLAN's GIDs sit in its parent's table, under the VLAN's name: the rail is the one without a dot.
    physical = next((netdev for netdev in tabled if "." not in netdev), None)
    return physical or host.read(f"{port.device}/parent") or next(iter(host.names(f"{port.device}/device/net")), None)


def port_of(netdev: str, phys_port_name: str | None) -> str | None:
    """The physical port (`p0`, `p1`) of a netdev: as its driver says, else the suffix that systemd derived from it."""
    if phys_port_name and re.match(r"^p\d+$", phys_port_name):
        return phys_port_name
    suffix = re.search(r"n(p\d+)$", netdev)
    return suffix[1] if suffix else None


def number_twins(rails: list[Rail]) -> list[Rail]:
    """Sort rails by port, and number the functions that share one by PCI domain, else by the domain in their name."""

    def order(rail: Rail) -> tuple[bool, str, int, int, str]:
        domain = int(rail["pci"].partition(":")[0], 16) if rail["pci"] else 0
        named = re.match(r"^enP(\d+)p", rail["netdev"])  # enp1s0f0np0 is domain 0, enP2p1s0f0np0 domain 2
        return rail["port"] is None, rail["port"] or "", domain, int(named[1]) if named else 0, rail["netdev"]

    seen: dict[str | None, int] = {}
    numbered: list[Rail] = []
    for rail in sorted(rails, key=order):
        index = seen[rail["port"]] = seen.get(rail["port"], -1) + 1
        numbered.append({**rail, "twin_index": None if rail["port"] is None else index})
    return numbered
