# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GID tables of all RDMA devices, read from sysfs alone.

A GID is the address of a RoCE endpoint; its *index* (slot) in the table of an HCA port is what perftest and NCCL are
told. Slots are filled in the order in which addresses arrived, so the index of an address is a finding, not a constant.
``Sysfs`` does the reading; everything else here is pure. What the kernel does not say is None, never a guess.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.arguments import check_ipv4
from ansible_collections.gb10.fleet.plugins.module_utils.facts.readings import RUN_FABRIC

MAPPED = bytes(10) + b"\xff\xff"  # of an IPv4 address, ::ffff:a.b.c.d
ZERO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
LARGEST_SYSFS_VALUE = 4096
# RoCE headers around a packet, in bytes: the kernel's iboe_get_mtu(), which mlx5 uses, counts 96, rxe 80.
ROCE_OVERHEAD = {"mlx5": 96, "rxe": 80}
IB_MTUS = (4096, 2048, 1024, 512, 256)
# What a table for people shows where sysfs says nothing.
ABSENT = "absent"


@dataclass(frozen=True)
class Gid:
    """One used slot of a GID table. ``ipv4`` is set for ``::ffff:a.b.c.d`` only; ``roce_version`` is 1, 2 or None."""

    index: int
    gid: str
    address: str
    ipv4: str | None
    roce_version: int | None
    netdev: str | None
    scope: str  # "global", "link" (fe80::/64 and 169.254/16) or "default" (the EUI-64 GID of the port itself)


@dataclass(frozen=True)
class HcaPort:
    """One port of one RDMA device, with the netdev beneath it. Rates are in Gb/s, MTUs in bytes; absent is None."""

    device: str
    port: int
    netdev: str | None
    netdevs: tuple[str, ...]
    phys_port_name: str | None
    phys_switch_id: str | None
    state: str | None
    phys_state: str | None
    link_layer: str | None
    rate_gbps: float | None
    mtu: int | None
    ib_mtu: int | None
    speed_mbps: int | None
    carrier: bool | None
    driver: str | None
    pci: str | None
    pcie_speed: str | None
    pcie_max_speed: str | None
    pcie_width: int | None
    pcie_max_width: int | None
    numa_node: int | None
    fw_ver: str | None
    board_id: str | None
    node_guid: str | None
    sys_image_guid: str | None
    slots: int
    gids: tuple[Gid, ...] = field(repr=False)


class Sysfs:
    """sysfs below a root; paths are relative to it."""

    def __init__(self, root: str = "/sys") -> None:
        self.root = root

    def read(self, path: str) -> str | None:
        """Return the stripped text of a file, or None if it has no value.

        Whatever error the kernel answers means "absent" to a reader: EINVAL for type and netdev of an empty slot or of
        a netdev in another namespace, ENOENT and EOPNOTSUPP where a driver lacks the attribute.
        """
        try:
            descriptor = os.open(f"{self.root}/{path}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError):  # ValueError: a NUL in a name that came from sysfs
            return None
        try:
            return os.read(descriptor, LARGEST_SYSFS_VALUE).decode("utf-8", "replace").strip()
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def names(self, path: str) -> list[str]:
        """What stands in a folder; nothing if there is no such folder."""
        try:
            with os.scandir(f"{self.root}/{path}") as entries:
                return [entry.name for entry in entries]
        except (OSError, ValueError):
            return []

    def target(self, path: str) -> str | None:
        """The name of what a link points to."""
        try:
            return Path(self.root, path).readlink().name
        except (OSError, ValueError):
            return None


def read_hcas(sysfs: Sysfs) -> list[HcaPort]:
    """Read every port of every RDMA device in one pass, ordered by device and port. No RDMA at all gives ``[]``."""
    base = "class/infiniband"
    return [
        _read_port(sysfs, f"{base}/{device}", device, port)
        for device in sorted(sysfs.names(base))
        for port in sorted(_numbers(sysfs.names(f"{base}/{device}/ports")))
    ]


def _numbers(names: Sequence[str]) -> Iterator[int]:
    return (int(name) for name in names if name.isascii() and name.isdecimal() and len(name) < 10)


def _read_port(sysfs: Sysfs, hca: str, device: str, port: int) -> HcaPort:
    base = f"{hca}/ports/{port}"
    indices = sorted(_numbers(sysfs.names(f"{base}/gids")))
    table = _read_table(sysfs, base, indices)
    netdevs = tuple(dict.fromkeys(netdev for _index, _gid, _type, netdev in table if netdev))
    parent = _netdev_name(sysfs.read(f"{hca}/parent"))  # of soft-RoCE only
    netdev = _netdev(sysfs, hca, port, netdevs, parent, bool(table))
    pci = sysfs.target(f"{hca}/device") or ""

    def of_hca(name: str) -> str | None:
        return sysfs.read(f"{hca}/{name}") or None

    def of_port(name: str) -> str | None:
        return sysfs.read(f"{base}/{name}") or None

    def of_netdev(name: str) -> str | None:
        return sysfs.read(f"class/net/{netdev}/{name}") or None if netdev else None

    mtu = _integer(of_netdev("mtu"))
    mac = of_netdev("address")
    link_layer = of_port("link_layer")
    return HcaPort(
        device=device,
        port=port,
        netdev=netdev,
        netdevs=netdevs,
        phys_port_name=of_netdev("phys_port_name"),
        phys_switch_id=of_netdev("phys_switch_id"),
        state=_label(of_port("state")),
        phys_state=_label(of_port("phys_state")),
        link_layer=link_layer,
        rate_gbps=_rate(of_port("rate")),
        mtu=mtu,
        ib_mtu=roce_mtu(mtu, "rxe" if parent else "mlx5") if link_layer == "Ethernet" else None,
        speed_mbps=_positive(_integer(of_netdev("speed"))),
        carrier={"1": True, "0": False}.get(of_netdev("carrier") or ""),
        driver=sysfs.target(f"{hca}/device/driver") or sysfs.target(f"class/net/{netdev}/device/driver"),
        pci=pci if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", pci) else None,
        pcie_speed=of_hca("device/current_link_speed"),
        pcie_max_speed=of_hca("device/max_link_speed"),
        pcie_width=_positive(_integer(of_hca("device/current_link_width"))),
        pcie_max_width=_positive(_integer(of_hca("device/max_link_width"))),
        numa_node=_integer(of_hca("device/numa_node")),
        fw_ver=of_hca("fw_ver"),
        board_id=of_hca("board_id"),
        node_guid=of_hca("node_guid"),
        sys_image_guid=of_hca("sys_image_guid"),
        slots=len(indices),
        gids=tuple(gid for gid in (make_gid(*entry, mac=mac) for entry in table) if gid),
    )


def _read_table(sysfs: Sysfs, base: str, indices: Sequence[int]) -> list[tuple[int, str, str | None, str | None]]:
    table = []
    for index in indices:
        gid = sysfs.read(f"{base}/gids/{index}")
        if gid and gid != ZERO_GID:
            kind = sysfs.read(f"{base}/gid_attrs/types/{index}")
            table.append((index, gid, kind, _netdev_name(sysfs.read(f"{base}/gid_attrs/ndevs/{index}"))))
    return table


def _netdev_name(text: str | None) -> str | None:
    """A netdev's name as it may stand in a path."""
    return text if text and re.fullmatch(r"[^/\s\0]{1,15}", text) and text not in (".", "..") else None


def _netdev(sysfs: Sysfs, hca: str, port: int, owners: Sequence[str], parent: str | None, used: bool) -> str | None:
    """The netdev of a port: of the owners of its GIDs the one that is the port itself and no VLAN on top of it.

    Where GIDs exist and none of their netdevs can be read or found here, those are in another network namespace. The
    name of rxe's parent can be read nevertheless, but here it may be the name of something else.
    """
    below = [parent] if parent else sorted(sysfs.names(f"{hca}/device/net"))
    here = [owner for owner in owners if sysfs.names(f"class/net/{owner}")]
    if here:
        return next((owner for owner in here if owner in below), here[0])
    if owners or (used and parent):
        return None
    if len(below) > 1:
        below = [name for name in below if sysfs.read(f"class/net/{name}/dev_port") == str(port - 1)]
    return below[0] if len(below) == 1 else None


def _label(text: str | None) -> str | None:
    """'4: ACTIVE' -> 'ACTIVE'."""
    return text.rpartition(":")[2].strip() if text else None


def _rate(text: str | None) -> float | None:
    """'200 Gb/sec (4X HDR)' -> 200.0."""
    match = re.match(r"(\d{1,6}(?:\.\d{1,6})?) Gb/sec", text or "")
    return float(match.group(1)) if match else None


def _integer(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?\d{1,12}", text) else None


def _positive(number: int | None) -> int | None:
    return number if number is not None and number > 0 else None


def _transfers(text: str | None) -> float | None:
    """'32.0 GT/s PCIe' -> 32.0."""
    match = re.match(r"(\d{1,6}(?:\.\d{1,6})?) GT/s", text or "")
    return float(match.group(1)) if match else None


def roce_mtu(netdev_mtu: int | None, driver: str) -> int | None:
    """The RoCE path MTU (256 to 4096 bytes) that fits into the MTU of a netdev: 9000 -> 4096, 1500 -> 1024."""
    room = (netdev_mtu or 0) - ROCE_OVERHEAD[driver]
    return next((mtu for mtu in IB_MTUS if mtu <= room), None)


def make_gid(index: int, text: str, type_text: str | None, netdev: str | None, mac: str | None = None) -> Gid | None:
    """Build a Gid from the texts of one slot; None for an empty slot or something that is no GID."""
    parsed = _parse(text)
    if parsed is None:
        return None
    gid, address, ipv4, link_local = parsed
    version = re.search(r"v([12])$", type_text or "")
    default = mac is not None and gid == _default_gid(mac)
    return Gid(
        index=index,
        gid=gid,
        address=address,
        ipv4=ipv4,
        roce_version=int(version.group(1)) if version else None,
        netdev=netdev,
        scope="default" if default else "link" if link_local else "global",
    )


@functools.lru_cache(maxsize=4096)  # most GIDs stand in two slots, as v1 and as v2
def _parse(text: str) -> tuple[str, str, str | None, bool] | None:
    """GID in full form, address as people write it, its IPv4 if it is a mapped one, and whether it is link-local."""
    try:
        raw = socket.inet_pton(socket.AF_INET6, text)  # ipaddress needs 20 times as long, and rxe has 1024 slots
    except (OSError, ValueError):
        return None
    if not any(raw):
        return None
    gid = raw.hex(":", 2)
    if raw.startswith(MAPPED):
        ipv4 = socket.inet_ntoa(raw[12:])
        return gid, ipv4, ipv4, _is_link_local(ipv4)
    address = ipaddress.IPv6Address(raw)
    return gid, str(address), None, address.is_link_local


@functools.lru_cache(maxsize=256)
def _default_gid(mac: str) -> str | None:
    address = eui64_address(mac)
    return address.packed.hex(":", 2) if address else None


def forget() -> None:
    """Empty the caches, for those who measure."""
    _parse.cache_clear()
    _default_gid.cache_clear()


def eui64_address(mac: str) -> ipaddress.IPv6Address | None:
    """The fe80::/64 address that the kernel derives from a MAC: the GID a port has before it has any address."""
    if not re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", mac):
        return None
    octets = bytes.fromhex(mac.replace(":", ""))
    host = bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]
    return ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + host)


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
    reason = f"lowest IPv4 GID{within}, {_version(current.roce_version)}"
    if not _in_range(current.ipv4, network):
        reason = f"slot 0 is an IPv4 GID outside {network}, and NCCL did not leave it"
    return Choice(current.index, current.ipv4, current.roce_version, reason)


def _in_range(ipv4: str, network: ipaddress.IPv4Network | None) -> bool:
    if network is None:
        return True
    number = int.from_bytes(socket.inet_aton(ipv4), "big")
    return number & int(network.netmask) == int(network.network_address)


def _version(number: int | None) -> str:
    return f"RoCE v{number}" if number else "RoCE version not readable"


def find_address(hcas: Sequence[HcaPort], device: str, address: str) -> tuple[HcaPort, Gid] | None:
    """Where an IPv4 address is a RoCE v2 GID of a device."""
    for hca in hcas:
        gid = _roce_v2(hca, address) if hca.device == device else None
        if gid:
            return hca, gid
    return None


def _roce_v2(hca: HcaPort, address: str) -> Gid | None:
    return next((gid for gid in hca.gids if gid.ipv4 == address and gid.roce_version == 2), None)


def port_name(hca: HcaPort) -> str | None:
    """The physical port: ``phys_port_name``, else the ``np<N>`` suffix that systemd's naming scheme makes of it."""
    suffix = re.search(r"np(\d+)$", hca.netdev or "")
    return hca.phys_port_name or (f"p{suffix.group(1)}" if suffix else None)


def twin_key(hca: HcaPort) -> tuple[int, str]:
    """Sorts the two functions of a port: by PCI domain, else by the domain in the name (enp1... before enP2p1...)."""
    if hca.pci:
        return int(hca.pci.split(":")[0], 16), hca.pci
    domain = re.match(r"enP(\d{1,9})p", hca.netdev or "")
    return int(domain.group(1)) if domain else 0, hca.netdev or hca.device


def twins(hcas: Sequence[HcaPort]) -> list[tuple[str, list[HcaPort]]]:
    """The functions behind each physical port, in twin order: same port name and, where that is the NIC's own word,
    same NIC (``phys_switch_id``, else ``sys_image_guid``, which soft-RoCE has one of for each netdev)."""
    ports: dict[tuple[str, str], list[HcaPort]] = {}
    for hca in hcas:
        name = port_name(hca)
        if name:
            nic = hca.phys_switch_id or (hca.sys_image_guid if hca.phys_port_name else None)
            ports.setdefault((name, nic or ""), []).append(hca)
    return [(name, sorted(ports[name, nic], key=twin_key)) for name, nic in sorted(ports)]


def addresses(hca: HcaPort) -> list[str]:
    """The IPv4 addresses among the GIDs of a port, each once, in slot order."""
    return list(dict.fromkeys(gid.ipv4 for gid in hca.gids if gid.ipv4))


@dataclass(frozen=True)
class Rail:
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
        """Whether NCCL would use the declared address by itself."""
        return self.index is not None and self.index == self.nccl_index


def parse_rails(raw: Mapping[str, Any]) -> list[Rail]:
    """Check the argument, `{netdev: address}`, and say what is wrong with the first bad entry."""
    rails = [Rail(str(netdev), str(address)) for netdev, address in raw.items()]
    for rail in rails:
        if _netdev_name(rail.netdev) is None:
            raise ValueError(f"rails: {rail.netdev!r} is no name of a network interface")
        check_ipv4(f"rails.{rail.netdev}", rail, ("address",))
    return rails


def find_rail(hcas: Sequence[HcaPort], rail: Rail, address_range: str | None = None) -> RailGid:
    """The RoCE v2 GID of a declared rail, and whether NCCL comes to the same."""
    hca = next((hca for hca in hcas if rail.netdev in (hca.netdev, *hca.netdevs)), None)
    if hca is None:
        return RailGid(rail.netdev, rail.address, None, None, None, None)
    gid = _roce_v2(hca, rail.address)
    choice = nccl_choice(hca.gids, address_range, hca.link_layer)
    nccl_index = choice.index if choice.address else None
    return RailGid(rail.netdev, rail.address, hca.device, hca.port, gid.index if gid else None, nccl_index)


@dataclass(frozen=True)
class Remark:
    """What a person should know before trusting an index: a name, where it is, what was seen, and the way out."""

    name: str
    where: str
    text: str
    way_out: str


def remarks(hcas: Sequence[HcaPort], address_range: str | None = None, rails: Sequence[Rail] = ()) -> list[Remark]:
    """What is suspicious about the tables, by port; then the declared rails; then what only twins show together."""
    found = [remark for hca in hcas for remark in (*_about_gids(hca, address_range), *_about_pcie(hca))]
    for rail in rails:
        found += _about_rail(hcas, rail, find_rail(hcas, rail, address_range))
    for name, functions in twins(hcas):
        netdevs = " and ".join(hca.netdev or hca.device for hca in functions)
        for subnet in shared_subnets(functions):
            text = (
                f"{netdevs} both have an address in {subnet} (a /24 assumed), so traffic of both may take one of them"
            )
            found.append(Remark("shared_subnet", f"port {name}", text, "give each rail a subnet of its own"))
    return found


def _where(hca: HcaPort) -> str:
    return f"{hca.device} port {hca.port} ({hca.netdev or 'no netdev'})"


def _about_gids(hca: HcaPort, address_range: str | None) -> Iterator[Remark]:
    if hca.link_layer != "Ethernet":
        return
    where = _where(hca)
    usable = [address for address in addresses(hca) if not _is_link_local(address)]
    choice = nccl_choice(hca.gids, address_range)
    if not usable and hca.state == "ACTIVE":  # without a link NetworkManager takes the address away; no cable, no news
        text = "no IPv4 GID; NCCL would not use RoCE over it"
        yield Remark("no_ipv4", where, text, "give the rail its address")
    if choice.address and _is_link_local(choice.address):
        text = f"NCCL would pick {choice.address} (index {choice.index}), a link-local address"
        yield Remark("link_local_picked", where, text, "set NCCL_IB_ADDR_RANGE to the subnets of the rails")
    if choice.address and choice.roce_version == 1:
        text = (
            f"NCCL would pick {choice.address} as RoCE v1 (index {choice.index}); there is no RoCE v2 GID of its kind"
        )
        yield Remark("roce_v1_picked", where, text, "take the address off the interface and give it again")
    if len(usable) > 1:
        text = f"{len(usable)} IPv4 addresses ({', '.join(usable)}); which one is used depends on their order"
        yield Remark("several_addresses", where, text, "keep the rail's address only, or set NCCL_IB_ADDR_RANGE")
    hidden = [gid.index for gid in hca.gids if gid.roce_version is None or gid.netdev is None]
    elsewhere = None
    if hidden:
        elsewhere = f"RoCE version or netdev of {len(hidden)} used slots (first: {hidden[0]}) cannot be read"
    elif hca.netdevs and hca.netdev is None:
        elsewhere = f"netdev {hca.netdevs[0]} is not in this network namespace"
    if elsewhere:
        way_out = "look from the host's network namespace (container: --network host)"
        yield Remark("other_namespace", where, elsewhere, way_out)


def _about_pcie(hca: HcaPort) -> Iterator[Remark]:
    way_out = "update the firmware (fwupdmgr), then shut down and pull the power plug for a minute"
    if hca.pcie_width and hca.pcie_max_width and hca.pcie_width < hca.pcie_max_width:
        text = f"PCIe link is x{hca.pcie_width} of x{hca.pcie_max_width}, which limits the rail"
        yield Remark("narrow_pcie", _where(hca), text, way_out)
    speed, most = _transfers(hca.pcie_speed), _transfers(hca.pcie_max_speed)
    if speed and most and speed < most:
        text = f"PCIe link runs at {speed:g} of {most:g} GT/s, which limits the rail"
        yield Remark("slow_pcie", _where(hca), text, way_out)


def _about_rail(hcas: Sequence[HcaPort], rail: Rail, found: RailGid) -> Iterator[Remark]:
    where = f"rail {rail.netdev}"
    hca = next((hca for hca in hcas if (hca.device, hca.port) == (found.device, found.port)), None)
    if hca is None:
        text = "no RDMA device has this netdev"
        yield Remark("rail_absent", where, text, "plug the cable in; a ConnectX-7 is not on the bus without one")
        return
    if found.index is None:
        others = [_where(other) for other in hcas if other is not hca and rail.address in addresses(other)]
        state = "" if hca.state == "ACTIVE" else f"; the port is {hca.state or ABSENT}"
        stands = f", it stands on {' and '.join(others)}" if others else ""
        text = f"{rail.address} is no RoCE v2 GID of {hca.device}{stands}{state}"
        yield Remark("address_elsewhere" if others else "address_absent", where, text, RUN_FABRIC)
    elif not found.agrees:
        text = f"NCCL would pick index {found.nccl_index} of {hca.device}; {rail.address} is at index {found.index}"
        yield Remark("other_picked", where, text, "set NCCL_IB_ADDR_RANGE to the subnets of the rails")


def _is_link_local(address: str) -> bool:
    return address.startswith("169.254.")


def shared_subnets(functions: Sequence[HcaPort]) -> list[str]:
    """The subnets that more than one function of a port has an address in.

    sysfs knows no prefix lengths, so /24 is assumed: the default of NCCL_IB_SUBNET_PREFIX_LEN.
    """
    seen: dict[str, set[str]] = {}
    for hca in functions:
        for address in addresses(hca):
            if not _is_link_local(address):
                subnet = address.rpartition(".")[0] + ".0/24"
                seen.setdefault(subnet, set()).add(hca.device)
    return sorted(subnet for subnet, devices in seen.items() if len(devices) > 1)


def describe(hcas: Sequence[HcaPort], address_range: str | None = None, rails: Sequence[Rail] = ()) -> dict[str, Any]:
    """Return everything as plain data: ports, gids, twins, NCCL's choice, declared rails, remarks, and a table."""
    behind = twins(hcas)
    ports = [_port_data(hca, behind) for hca in hcas]
    selected = {f"{hca.device}:{hca.port}": _selected(hca, address_range) for hca in hcas}
    found = remarks(hcas, address_range, rails)
    located = [find_rail(hcas, rail, address_range) for rail in rails]
    return {
        "present": bool(hcas),
        "ports": ports,
        "gids": [{"device": hca.device, "port": hca.port, **vars(gid)} for hca in hcas for gid in hca.gids],
        "twins": [
            {"port": name, "devices": [hca.device for hca in functions], "netdevs": [hca.netdev for hca in functions]}
            for name, functions in behind
        ],
        "selected": selected,
        "rails": [{**vars(rail), "agrees": rail.agrees} for rail in located],
        "by_address": _by_address(hcas),
        "remarks": [vars(remark) for remark in found],
        "stdout_lines": [*table(hcas), *_port_table(ports, selected), *_remark_lines(found)],
    }


def _port_data(hca: HcaPort, behind: Sequence[tuple[str, list[HcaPort]]]) -> dict[str, Any]:
    data = {name: value for name, value in vars(hca).items() if name != "gids"}
    rail = twin = None
    for name, functions in behind:
        if hca in functions:
            rail = f"{name}/{functions.index(hca)}"
            others = [other.device for other in functions if other is not hca]
            twin = others[0] if len(others) == 1 else None
    more = {"port_name": port_name(hca), "rail": rail, "twin": twin, "addresses": addresses(hca)}
    return {**data, "netdevs": list(hca.netdevs), **more}


def _selected(hca: HcaPort, address_range: str | None) -> dict[str, Any]:
    unbound = vars(nccl_choice(hca.gids, None, hca.link_layer))
    bound = vars(nccl_choice(hca.gids, address_range, hca.link_layer)) if address_range else None
    return {"default": unbound, "in_range": bound}


def _by_address(hcas: Sequence[HcaPort]) -> dict[str, dict[str, dict[str, str | int]]]:
    found: dict[str, dict[str, dict[str, str | int]]] = {}
    for hca in hcas:
        for gid in hca.gids:
            if gid.ipv4 and gid.roce_version:
                entry: dict[str, str | int] = {"device": hca.device, "port": hca.port, "index": gid.index}
                found.setdefault(gid.ipv4, {})[f"v{gid.roce_version}"] = entry
    return found


TABLE = "{:<14} {:>4} {:>5}  {:<39}  {:<15}  {:<6}  {:<7}  {}"
PORT_TABLE = "{:<14} {:>4}  {:<15}  {:<6}  {:<7}  {:>8}  {:>6}  {:>8}  {:<12}  {}"


def table(hcas: Sequence[HcaPort]) -> list[str]:
    """The table of the classic tool, with columns that do not move. A dash: this GID is no IPv4 address."""
    lines = [TABLE.format("DEV", "PORT", "INDEX", "GID", "IPv4", "VER", "SCOPE", "NETDEV")]
    for hca in hcas:
        for gid in hca.gids:
            version = f"v{gid.roce_version}" if gid.roce_version else ABSENT
            row = (hca.device, hca.port, gid.index, gid.gid, gid.ipv4 or "-", version, gid.scope, gid.netdev or ABSENT)
            lines.append(TABLE.format(*row))
    return [*lines, f"{len(lines) - 1} GIDs on {len(hcas)} ports"]


def _port_table(ports: Sequence[Mapping[str, Any]], selected: Mapping[str, Any]) -> Iterator[str]:
    """A line for each port, with the index that NCCL would take; Gb/s, bytes, PCIe lanes of maximum."""
    if ports:
        yield ""
        yield PORT_TABLE.format(
            "DEV", "PORT", "NETDEV", "RAIL", "STATE", "Gb/s", "MTU", "ROCE-MTU", "PCIE", "NCCL TAKES"
        )
    for port in ports:
        choices = selected[f"{port['device']}:{port['port']}"]
        choice = choices["in_range"] or choices["default"]
        lanes = [f"x{width}" if width else ABSENT for width in (port["pcie_width"], port["pcie_max_width"])]
        shown = [
            ABSENT if value is None else value
            for value in (port["netdev"], port["rail"], port["state"], port["rate_gbps"], port["mtu"], port["ib_mtu"])
        ]
        pcie = ABSENT if lanes == [ABSENT, ABSENT] else " of ".join(lanes)
        takes = f"index {choice['index']}, {choice['address']}" if choice["address"] else "no IPv4 GID"
        yield PORT_TABLE.format(port["device"], port["port"], *shown, pcie, takes)


def _remark_lines(found: Sequence[Remark]) -> list[str]:
    lines = [f"! {remark.where}: {remark.text}; {remark.way_out}" for remark in found]
    return ["", *lines] if lines else []
