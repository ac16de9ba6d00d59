# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person should know about the GID tables of a host, and where its declared rails stand. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.fabric.gids import (
    HcaPort,
    addresses,
    is_link_local,
    netdev_name,
    roce_v2,
    subnet_of,
    twins,
)
from ansible_collections.gb10.fleet.plugins.module_utils.fabric.nccl_choice import nccl_choice
from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import RUN_FABRIC
from ansible_collections.gb10.fleet.plugins.module_utils.system.arguments import check_ipv4

# What a port says that has no link, in the words of the kernel (ib_port_state).
NO_LINK = {"DOWN", "INIT", "ARMED", "ACTIVE_DEFER"}
# What a table for people shows where sysfs says nothing.
ABSENT = "absent"


def _transfers(text: str | None) -> float | None:
    """'32.0 GT/s PCIe' -> 32.0."""
    match = re.match(r"(\d{1,6}(?:\.\d{1,6})?) GT/s", text or "")
    return float(match.group(1)) if match else None


@dataclass(frozen=True)
class DeclaredRail:
    """A rail as it is declared: this IPv4 address on this netdev."""

    netdev: str
    address: str


@dataclass(frozen=True)
class RailGid:
    """Where the address of a declared rail stands; absent is None. ``nccl_index`` is what NCCL takes on that port."""

    netdev: str
    address: str
    device: str | None
    port: int | None
    index: int | None
    nccl_index: int | None

    @property
    def agrees(self) -> bool:
        """Return whether NCCL would use the declared address by itself."""
        return self.index is not None and self.index == self.nccl_index


def parse_rails(raw: Mapping[str, Any]) -> list[DeclaredRail]:
    """Check the argument, `{netdev: address}`, and say what is wrong with the first bad entry."""
    rails = [DeclaredRail(str(netdev), str(address)) for netdev, address in raw.items()]
    for rail in rails:
        if netdev_name(rail.netdev) is None:
            raise ValueError(f"rails: {rail.netdev!r} is no name of a network interface")
        check_ipv4(f"rails.{rail.netdev}", rail, ("address",))
    return rails


def find_rail(hcas: Sequence[HcaPort], rail: DeclaredRail, address_range: str | None = None) -> RailGid:
    """The RoCE v2 GID of a declared rail, and whether NCCL comes to the same."""
    hca = next((hca for hca in hcas if rail.netdev in (hca.netdev, *hca.netdevs, hca.member)), None)
    if hca is None:
        return RailGid(rail.netdev, rail.address, None, None, None, None)
    gid = roce_v2(hca, rail.address)
    choice = nccl_choice(hca.gids, address_range, hca.link_layer)
    nccl_index = choice.index if choice.address else None
    return RailGid(rail.netdev, rail.address, hca.device, hca.port, gid.index if gid else None, nccl_index)


_IN_MASTER = "take {member} out of {master} for good (in netplan or nmcli)"
_ADDRESS_RANGE = "set NCCL_IB_ADDR_RANGE to the subnets of the rails"
_NARROW = "update the firmware (fwupdmgr), then shut down and pull the power plug for a minute"
WAYS_OUT = {
    "shared_subnet": "give each rail a subnet of its own",
    "has_master": f"if it shall be a rail, {_IN_MASTER}, then {RUN_FABRIC}",
    "rail_has_master": f"{_IN_MASTER}, then {RUN_FABRIC}; or declare no rail there",
    "no_ipv4": "give the rail its address",
    "link_local_picked": _ADDRESS_RANGE,
    "roce_v1_picked": "take the address off the interface and give it again",
    "several_addresses": "keep the rail's address only, or set NCCL_IB_ADDR_RANGE",
    "other_namespace": "look from the host's network namespace (container: --network host)",
    "narrow_pcie": _NARROW,
    "slow_pcie": _NARROW,
    "rail_absent": "plug the cable in; a ConnectX-7 is not on the bus without one",
    "port_down": "check the cable at both ends and that the peer (or the port of the switch) is on; "
    "`ip link set {netdev} up` if somebody switched it off. With a link it gets its address by itself",
    "address_elsewhere": RUN_FABRIC,
    "address_absent": RUN_FABRIC,
    "other_picked": _ADDRESS_RANGE,
}


@dataclass(frozen=True)
class Remark:
    """What a person should know before trusting an index: a name, where it is, what was seen, and the way out."""

    name: str
    where: str
    text: str
    way_out: str


def remarks(
    hcas: Sequence[HcaPort], address_range: str | None = None, rails: Sequence[DeclaredRail] = ()
) -> list[Remark]:
    """What is suspicious about the tables, by port; then the declared rails; then what only twins show together."""
    found = [remark for hca in hcas for remark in (*_about_gids(hca, address_range), *_about_pcie(hca))]
    for rail in rails:
        found += _about_rail(hcas, rail, find_rail(hcas, rail, address_range))
    for name, functions in twins(hcas):
        netdevs = " and ".join(hca.netdev or hca.device for hca in functions)
        for subnet, known in shared_subnets(functions):
            inside = subnet if known else f"{subnet} (a /24 assumed)"
            text = f"{netdevs} both have an address in {inside}, so traffic of both may take one of them"
            found.append(_remark("shared_subnet", f"port {name}", text))
    return found


def _where(hca: HcaPort) -> str:
    return f"{hca.device} port {hca.port} ({hca.netdev or 'no netdev'})"


def _about_gids(hca: HcaPort, address_range: str | None) -> Iterator[Remark]:
    if hca.link_layer != "Ethernet":
        return
    where = _where(hca)
    usable = [address for address in addresses(hca) if not is_link_local(address)]
    choice = nccl_choice(hca.gids, address_range)
    if not usable and hca.state == "ACTIVE":  # without a link NetworkManager takes the address away; no cable, no news
        text = "no IPv4 GID; NCCL would not use RoCE over it"
        if hca.master:
            way_out = _filled("has_master", member=hca.member, master=hca.master)
            yield Remark("has_master", where, f"{text}; {_in_master(hca)}", way_out)
        else:
            yield _remark("no_ipv4", where, text)
    if choice.address and is_link_local(choice.address):
        text = f"NCCL would pick {choice.address} (index {choice.index}), a link-local address"
        yield _remark("link_local_picked", where, text)
    if choice.address and choice.roce_version == 1:
        text = (
            f"NCCL would pick {choice.address} as RoCE v1 (index {choice.index}); there is no RoCE v2 GID of its kind"
        )
        yield _remark("roce_v1_picked", where, text)
    if len(usable) > 1:
        text = f"{len(usable)} IPv4 addresses ({', '.join(usable)}); which one is used depends on their order"
        yield _remark("several_addresses", where, text)
    hidden = [gid.index for gid in hca.gids if gid.roce_version is None or gid.netdev is None]
    elsewhere = None
    if hidden:
        elsewhere = f"RoCE version or netdev of {len(hidden)} used slots (first: {hidden[0]}) cannot be read"
    elif hca.netdevs and hca.netdev is None:
        elsewhere = f"netdev {hca.netdevs[0]} is not in this network namespace"
    if elsewhere:
        yield _remark("other_namespace", where, elsewhere)


def _remark(name: str, where: str, text: str) -> Remark:
    return Remark(name, where, text, WAYS_OUT[name])


def _filled(way: str, **values: str | None) -> str:
    text = WAYS_OUT[way]
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def _in_master(hca: HcaPort) -> str:
    """What is wrong with the port of a bond or bridge."""
    return f"{hca.member} is a port of {hca.master}, which takes all that arrives there, and the address"


def _about_pcie(hca: HcaPort) -> Iterator[Remark]:
    if hca.pcie_width and hca.pcie_max_width and hca.pcie_width < hca.pcie_max_width:
        text = f"PCIe link is x{hca.pcie_width} of x{hca.pcie_max_width}, which limits the rail"
        yield _remark("narrow_pcie", _where(hca), text)
    speed, most = _transfers(hca.pcie_speed), _transfers(hca.pcie_max_speed)
    if speed and most and speed < most:
        text = f"PCIe link runs at {speed:g} of {most:g} GT/s, which limits the rail"
        yield _remark("slow_pcie", _where(hca), text)


def _about_rail(hcas: Sequence[HcaPort], rail: DeclaredRail, found: RailGid) -> Iterator[Remark]:
    where = f"rail {rail.netdev}"
    hca = next((hca for hca in hcas if (hca.device, hca.port) == (found.device, found.port)), None)
    if hca is None:
        text = "no RDMA device has this netdev"
        yield _remark("rail_absent", where, text)
        return
    if hca.master and rail.netdev == hca.member:
        way_out = _filled("rail_has_master", member=hca.member, master=hca.master)
        yield Remark("has_master", where, _in_master(hca), way_out)
        return
    others = [_where(other) for other in hcas if other is not hca and rail.address in addresses(other)]
    if hca.state in NO_LINK:
        text = f"the port is {hca.state}: {hca.device} has no link"
        yield Remark("port_down", where, text, _filled("port_down", netdev=rail.netdev))
        if not others:
            return
    if found.index is None:
        state = "" if hca.state == "ACTIVE" else f"; the port is {hca.state or ABSENT}"
        stands = f", it stands on {' and '.join(others)}" if others else ""
        text = f"{rail.address} is no RoCE v2 GID of {hca.device}{stands}{state}"
        yield _remark("address_elsewhere" if others else "address_absent", where, text)
    elif not found.agrees:
        text = f"NCCL would pick index {found.nccl_index} of {hca.device}; {rail.address} is at index {found.index}"
        yield _remark("other_picked", where, text)


def shared_subnets(functions: Sequence[HcaPort]) -> list[tuple[str, bool]]:
    """The subnets that more than one function of a port has an address in, and whether their prefix is known.

    Where no route tells it, /24 is assumed: the default of NCCL_IB_SUBNET_PREFIX_LEN.
    """
    seen: dict[str, dict[str, bool]] = {}
    for hca in functions:
        for address in addresses(hca):
            if not is_link_local(address):
                subnet, known = subnet_of(address, hca.subnets)
                seen.setdefault(subnet, {})[hca.device] = known
    return sorted((subnet, all(devices.values())) for subnet, devices in seen.items() if len(devices) > 1)
