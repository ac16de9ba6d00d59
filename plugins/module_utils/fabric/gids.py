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
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MAPPED = bytes(10) + b"\xff\xff"  # of an IPv4 address, ::ffff:a.b.c.d
ZERO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
LARGEST_SYSFS_VALUE = 4096
# RoCE headers around a packet, in bytes: the kernel's iboe_get_mtu(), which mlx5 uses, counts 96, rxe 80.
ROCE_OVERHEAD = {"mlx5": 96, "rxe": 80}
IB_MTUS = (4096, 2048, 1024, 512, 256)


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
    subnets: tuple[str, ...] = ()  # IPv4, as the routing table has them; sysfs knows no prefix lengths
    member: str | None = None  # the port's own netdev where that is a port of a bond or bridge, and of which
    master: str | None = None


class Sysfs:
    """sysfs below a root; paths are relative to it."""

    def __init__(self, root: str = "/sys") -> None:
        self.root = root

    def read(self, path: str) -> str | None:
        """Return the stripped text of a file, or None if it has no value.

        Any error of the kernel's means "absent": EINVAL for an empty slot or a netdev in another namespace, ENOENT and
        EOPNOTSUPP where a driver lacks the attribute.
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


def read_hcas(sysfs: Sysfs, routes: str = "") -> list[HcaPort]:
    """Read every port of every RDMA device in one pass, ordered by device and port. No RDMA at all gives ``[]``.

    ``routes`` is the text of /proc/net/route.
    """
    subnets = connected(routes)
    base = "class/infiniband"
    return [
        _read_port(sysfs, f"{base}/{device}", device, port, subnets)
        for device in sorted(sysfs.names(base))
        for port in sorted(_numbers(sysfs.names(f"{base}/{device}/ports")))
    ]


def _numbers(names: Sequence[str]) -> Iterator[int]:
    return (int(name) for name in names if name.isascii() and name.isdecimal() and len(name) < 10)


def connected(routes: str) -> dict[str, tuple[str, ...]]:
    """The subnets that each netdev is in: the lines of /proc/net/route without a gateway, numbers as in memory."""
    found: dict[str, list[str]] = {}
    for line in routes.splitlines()[1:]:
        fields = line.split()
        try:
            target, gateway, mask = (int(fields[number], 16).to_bytes(4, sys.byteorder) for number in (1, 2, 7))
            network = ipaddress.IPv4Network((target, str(ipaddress.IPv4Address(mask))))
        except (IndexError, ValueError, OverflowError):
            continue  # no line of this table
        if not any(gateway) and network.prefixlen:
            found.setdefault(fields[0], []).append(str(network))
    return {netdev: tuple(networks) for netdev, networks in found.items()}


def subnet_of(address: str, subnets: Sequence[str]) -> tuple[str, bool]:
    """The narrowest of the subnets that holds an IPv4 address, and True; else its /24, a guess, and False."""
    holding = [net for net in map(ipaddress.IPv4Network, subnets) if ipaddress.IPv4Address(address) in net]
    if holding:
        return str(max(holding, key=lambda net: net.prefixlen)), True
    return str(ipaddress.IPv4Network(f"{address}/24", strict=False)), False


def _read_port(sysfs: Sysfs, hca: str, device: str, port: int, subnets: Mapping[str, tuple[str, ...]]) -> HcaPort:
    base = f"{hca}/ports/{port}"
    indices = sorted(_numbers(sysfs.names(f"{base}/gids")))
    table = _read_table(sysfs, base, indices)
    netdevs = tuple(dict.fromkeys(netdev for _index, _gid, _type, netdev in table if netdev))
    parent = netdev_name(sysfs.read(f"{hca}/parent"))  # of soft-RoCE only
    below = [parent] if parent else sorted(sysfs.names(f"{hca}/device/net"))
    netdev = _netdev(sysfs, below, port, netdevs, bool(table and parent))
    member, master = _master(sysfs, below, netdev)
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
        subnets=tuple(dict.fromkeys(net for name in (netdev, *netdevs) if name for net in subnets.get(name, ()))),
        member=member,
        master=master,
    )


def _read_table(sysfs: Sysfs, base: str, indices: Sequence[int]) -> list[tuple[int, str, str | None, str | None]]:
    table = []
    for index in indices:
        gid = sysfs.read(f"{base}/gids/{index}")
        if gid and gid != ZERO_GID:
            kind = sysfs.read(f"{base}/gid_attrs/types/{index}")
            table.append((index, gid, kind, netdev_name(sysfs.read(f"{base}/gid_attrs/ndevs/{index}"))))
    return table


def netdev_name(text: str | None) -> str | None:
    """A netdev's name as it may stand in a path."""
    return text if text and re.fullmatch(r"[^/\s\0]{1,15}", text) and text not in (".", "..") else None


def _netdev(sysfs: Sysfs, below: Sequence[str], port: int, owners: Sequence[str], used_soft: bool) -> str | None:
    """The netdev of a port: of the owners of its GIDs the one that is the port itself and no VLAN on top of it.

    Where GIDs exist and none of their netdevs can be read or found here, those are in another network namespace. The
    name of rxe's parent can be read nevertheless, but here it may be the name of something else.
    """
    here = [owner for owner in owners if sysfs.names(f"class/net/{owner}")]
    if here:
        return next((owner for owner in here if owner in below), here[0])
    if owners or used_soft:
        return None
    if len(below) > 1:
        below = [name for name in below if sysfs.read(f"class/net/{name}/dev_port") == str(port - 1)]
    return below[0] if len(below) == 1 else None


def _master(sysfs: Sysfs, below: Sequence[str], netdev: str | None) -> tuple[str | None, str | None]:
    """The port's own netdev and the bond or bridge it is a port of; its GIDs may all be in the name of the latter."""
    own = below[0] if netdev not in below and len(below) == 1 else netdev
    master = netdev_name(sysfs.target(f"class/net/{own}/master")) if netdev and own else None
    return (own, master) if master else (None, None)


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
        return gid, ipv4, ipv4, is_link_local(ipv4)
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


def find_address(hcas: Sequence[HcaPort], device: str, address: str) -> tuple[HcaPort, Gid] | None:
    """Where an IPv4 address is a RoCE v2 GID of a device."""
    for hca in hcas:
        gid = roce_v2(hca, address) if hca.device == device else None
        if gid:
            return hca, gid
    return None


def roce_v2(hca: HcaPort, address: str) -> Gid | None:
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


def is_link_local(address: str) -> bool:
    return address.startswith("169.254.")
