# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GID NCCL picks on a port by itself. Pure."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.module_utils.fabric.gids import Gid


@dataclass(frozen=True)
class Choice:
    """The GID that a consumer would use on one port; ``index`` 0 with no address is 'it has no usable GID'."""

    index: int
    address: str | None
    roce_version: int | None
    reason: str


def nccl_choice(gids: Sequence[Gid], address_range: str | None = None, link_layer: str | None = "Ethernet") -> Choice:
    """Reproduce what NCCL picks with NCCL_IB_GID_INDEX unset (source: NCCL 5067397c, net_ib/connect.cc).

    NCCL walks up from slot 0. It moves to the first IPv4 GID in the range, and from there to an IPv4 GID of RoCE v2 if
    it stands on another version. Empty slots are never candidates. 169.254/16 counts as any IPv4 address: this is why
    a range should be given. A slot whose version cannot be read (another namespace) is reached as an IPv4 address only.
    """
    if link_layer == "InfiniBand":
        return Choice(0, None, None, "InfiniBand, not RoCE: NCCL uses slot 0")
    network = ipaddress.IPv4Network(address_range) if address_range else None
    current = next((gid for gid in gids if gid.index == 0), None)
    for candidate in sorted(gids, key=lambda gid: gid.index):
        if candidate.index == 0 or candidate.ipv4 is None or not _in_range(candidate.ipv4, network):
            continue
        better_version = candidate.roce_version == 2 and current is not None and current.roce_version != 2
        if current is None or current.ipv4 is None or better_version:
            current = candidate
    within = f" in {network}" if network else ""
    if current is None or current.ipv4 is None:
        return Choice(0, None, None, f"no IPv4 GID{within}: NCCL stays at slot 0")
    version = f"RoCE v{current.roce_version}" if current.roce_version else "RoCE version not readable"
    reason = f"lowest IPv4 GID{within}, {version}"
    if not _in_range(current.ipv4, network):
        reason = f"slot 0 is an IPv4 GID outside {network}, and NCCL did not leave it"
    return Choice(current.index, current.ipv4, current.roce_version, reason)


def _in_range(ipv4: str, network: ipaddress.IPv4Network | None) -> bool:
    if network is None:
        return True
    number = int.from_bytes(socket.inet_aton(ipv4), "big")
    return number & int(network.netmask) == int(network.network_address)
