# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GID tables of all RDMA devices, read from sysfs alone.

A GID is the address of a RoCE endpoint; its *index* (slot) in the table of an HCA port is what perftest and NCCL are
told. Slots are filled in the order in which addresses arrived, so the index of an address is a finding, not a constant.
``read_hcas()`` does the reading; everything else here is pure.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

ZERO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
LARGEST_SYSFS_VALUE = 4096
# RoCE headers around a packet, in bytes: mlx5 counts 96, rxe 80 (kernel headers of the two drivers).
ROCE_OVERHEAD = {"mlx5": 96, "rxe": 80}
IB_MTUS = (4096, 2048, 1024, 512, 256)

ReadFile = Callable[[str], Optional[str]]


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


def read_file(path: str) -> str | None:
    """Return the stripped text of a sysfs file, or None if it has no value.

    Whatever error the kernel answers means "absent" to a reader: EINVAL for type and netdev of an empty slot or of a
    netdev in another namespace, ENOENT and EOPNOTSUPP where a driver lacks the attribute.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):  # ValueError: a NUL in a name that came from sysfs
        return None
    try:
        return os.read(descriptor, LARGEST_SYSFS_VALUE).decode("utf-8", "replace").strip()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def read_hcas(sysfs_root: str = "/sys", read: ReadFile = read_file) -> list[HcaPort]:
    """Read every port of every RDMA device in one pass, ordered by device and port. No RDMA at all gives ``[]``."""
    base = f"{sysfs_root}/class/infiniband"
    return [
        _read_port(sysfs_root, f"{base}/{device}", device, port, read)
        for device in sorted(_names(base))
        for port in sorted(_numbers(f"{base}/{device}/ports"))
    ]


def _names(folder: str) -> list[str]:
    try:
        return [entry.name for entry in Path(folder).iterdir()]
    except (OSError, ValueError):
        return []


def _numbers(folder: str) -> Iterator[int]:
    return (int(name) for name in _names(folder) if re.fullmatch(r"[0-9]{1,9}", name))


def _read_port(sysfs_root: str, hca: str, device: str, port: int, read: ReadFile) -> HcaPort:
    base = f"{hca}/ports/{port}"
    indices = sorted(_numbers(f"{base}/gids"))
    table = _read_table(base, indices, read)
    netdevs = tuple(dict.fromkeys(netdev for _index, _gid, _type, netdev in table if netdev))
    netdev = _netdev(hca, netdevs, read)
    net = f"{sysfs_root}/class/net/{netdev or 'absent'}"
    mac = read(f"{net}/address")
    pci = Path(f"{hca}/device").resolve().name
    driver = _link_name(f"{hca}/device/driver") or _link_name(f"{net}/device/driver")
    mtu = _integer(read(f"{net}/mtu"))
    link_layer = read(f"{base}/link_layer")
    return HcaPort(
        device=device,
        port=port,
        netdev=netdev,
        netdevs=netdevs,
        phys_port_name=read(f"{net}/phys_port_name") or None,
        state=_label(read(f"{base}/state")),
        phys_state=_label(read(f"{base}/phys_state")),
        link_layer=link_layer,
        rate_gbps=_rate(read(f"{base}/rate")),
        mtu=mtu,
        ib_mtu=roce_mtu(mtu, "rxe" if read(f"{hca}/parent") else "mlx5") if link_layer == "Ethernet" else None,
        speed_mbps=_positive(_integer(read(f"{net}/speed"))),
        carrier={"1": True, "0": False}.get(read(f"{net}/carrier") or ""),
        driver=driver,
        pci=pci if re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", pci) else None,
        pcie_speed=read(f"{hca}/device/current_link_speed"),
        pcie_max_speed=read(f"{hca}/device/max_link_speed"),
        pcie_width=_positive(_integer(read(f"{hca}/device/current_link_width"))),
        pcie_max_width=_positive(_integer(read(f"{hca}/device/max_link_width"))),
        numa_node=_integer(read(f"{hca}/device/numa_node")),
        fw_ver=read(f"{hca}/fw_ver") or None,
        board_id=read(f"{hca}/board_id") or None,
        node_guid=read(f"{hca}/node_guid"),
        sys_image_guid=read(f"{hca}/sys_image_guid"),
        slots=len(indices),
        gids=tuple(gid for gid in (make_gid(*entry, mac=mac) for entry in table) if gid),
    )


def _read_table(base: str, indices: Sequence[int], read: ReadFile) -> list[tuple[int, str, str | None, str | None]]:
    table = []
    for index in indices:
        gid = read(f"{base}/gids/{index}")
        if gid and gid != ZERO_GID:
            attributes = f"{base}/gid_attrs"
            table.append((index, gid, read(f"{attributes}/types/{index}"), read(f"{attributes}/ndevs/{index}")))
    return table


def _netdev(hca: str, netdevs: Sequence[str], read: ReadFile) -> str | None:
    """The netdev of a port: the owner of its lowest slot, else rxe's parent, else the netdev of the PCI function."""
    if netdevs:
        return netdevs[0]
    below = sorted(_names(f"{hca}/device/net"))
    return read(f"{hca}/parent") or (below[0] if below else None)


def _link_name(path: str) -> str | None:
    return Path(path).resolve().name if Path(path).is_symlink() else None


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
    try:
        parsed = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    if int(parsed) == 0:
        return None
    ipv4 = parsed.ipv4_mapped
    version = re.search(r"v([12])$", type_text or "")
    return Gid(
        index=index,
        gid=parsed.packed.hex(":", 2),  # not .exploded: since Python 3.13 that dots mapped addresses
        address=str(ipv4 or parsed),
        ipv4=str(ipv4) if ipv4 else None,
        roce_version=int(version.group(1)) if version else None,
        netdev=netdev,
        scope=_scope(ipv4 or parsed, mac),
    )


def _scope(address: ipaddress.IPv4Address | ipaddress.IPv6Address, mac: str | None) -> str:
    if mac and address == eui64_address(mac):
        return "default"
    return "link" if address.is_link_local else "global"


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
    reason: str


def nccl_choice(gids: Sequence[Gid], address_range: str | None = None) -> Choice:
    """Reproduce what NCCL picks with NCCL_IB_GID_INDEX unset (source: NCCL 5067397c, net_ib/connect.cc).

    NCCL walks up from slot 0. It moves to the first IPv4 GID in the range, and from there to an IPv4 GID of RoCE v2 if
    it stands on another version. Empty slots are never candidates. 169.254/16 counts as any IPv4 address: this is why
    a range should be given.
    """
    network = ipaddress.ip_network(address_range) if address_range else None
    current = next((gid for gid in gids if gid.index == 0), None)
    for candidate in sorted(gids, key=lambda gid: gid.index):
        if candidate.index == 0 or candidate.ipv4 is None:
            continue
        if network and ipaddress.ip_address(candidate.ipv4) not in network:
            continue
        better_version = candidate.roce_version == 2 and current is not None and current.roce_version != 2
        if current is None or current.ipv4 is None or better_version:
            current = candidate
    within = f" in {network}" if network else ""
    if current is None or current.ipv4 is None:
        return Choice(0, None, f"no IPv4 GID{within}: NCCL stays at slot 0")
    if network and ipaddress.ip_address(current.ipv4) not in network:
        return Choice(
            current.index, current.ipv4, f"slot 0 is an IPv4 GID outside {network}, and NCCL did not leave it"
        )
    return Choice(current.index, current.ipv4, f"lowest IPv4 GID{within}, RoCE v{current.roce_version}")


def find_address(hcas: Sequence[HcaPort], device: str, address: str) -> tuple[HcaPort, Gid] | None:
    """Where an IPv4 address is a RoCE v2 GID of a device."""
    for hca in hcas:
        for gid in hca.gids:
            if hca.device == device and gid.ipv4 == address and gid.roce_version == 2:
                return hca, gid
    return None


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


def twins(hcas: Sequence[HcaPort]) -> dict[str, list[HcaPort]]:
    """The functions behind each physical port, in twin order."""
    ports: dict[str, list[HcaPort]] = {}
    for hca in hcas:
        name = port_name(hca)
        if name:
            ports.setdefault(name, []).append(hca)
    return {name: sorted(ports[name], key=twin_key) for name in sorted(ports)}


def addresses(hca: HcaPort) -> list[str]:
    """The IPv4 addresses among the GIDs of a port, each once, in slot order."""
    return list(dict.fromkeys(gid.ipv4 for gid in hca.gids if gid.ipv4))


def remarks(hcas: Sequence[HcaPort], address_range: str | None = None) -> list[str]:
    """What a person should know about these tables before trusting an index."""
    found = []
    for hca in hcas:
        where = f"{hca.device} port {hca.port} ({hca.netdev or 'no netdev'})"
        usable = [address for address in addresses(hca) if not address.startswith("169.254.")]
        choice = nccl_choice(hca.gids, address_range)
        if hca.link_layer == "Ethernet" and not usable:
            found.append(f"{where}: no IPv4 GID; give the rail its address, NCCL would not use RoCE over it")
        if choice.address and choice.address.startswith("169.254."):
            found.append(
                f"{where}: NCCL would pick {choice.address} (index {choice.index}), a link-local address; "
                "set NCCL_IB_ADDR_RANGE to the subnets of the rails"
            )
        if len(usable) > 1:
            found.append(
                f"{where}: {len(usable)} IPv4 addresses ({', '.join(usable)}); which one is used depends on their order"
            )
        if hca.pcie_width and hca.pcie_max_width and hca.pcie_width < hca.pcie_max_width:
            found.append(
                f"{where}: PCIe link is x{hca.pcie_width} of x{hca.pcie_max_width}, which limits the rail; "
                "update the firmware (fwupdmgr) and power the host off and on"
            )
    for name, functions in twins(hcas).items():
        for subnet in shared_subnets(functions):
            netdevs = " and ".join(hca.netdev or hca.device for hca in functions)
            found.append(
                f"port {name}: {netdevs} both have an address in {subnet}; each rail needs a subnet of its own"
            )
    return found


def shared_subnets(functions: Sequence[HcaPort]) -> list[str]:
    """The subnets that more than one function of a port has an address in.

    sysfs knows no prefix lengths, so /24 is assumed: the default of NCCL_IB_SUBNET_PREFIX_LEN.
    """
    seen: dict[str, set[str]] = {}
    for hca in functions:
        for address in addresses(hca):
            subnet = str(ipaddress.ip_network(f"{address}/24", strict=False))
            seen.setdefault(subnet, set()).add(hca.device)
    return sorted(subnet for subnet, devices in seen.items() if len(devices) > 1)


def describe(hcas: Sequence[HcaPort], address_range: str | None = None) -> dict[str, Any]:
    """Return everything as plain data: ports, gids, twins, NCCL's choice, index by address, remarks and a table."""
    return {
        "present": bool(hcas),
        "ports": [_port_data(hca) for hca in hcas],
        "gids": [{"device": hca.device, "port": hca.port, **vars(gid)} for hca in hcas for gid in hca.gids],
        "twins": [
            {"port": name, "devices": [hca.device for hca in functions], "netdevs": [hca.netdev for hca in functions]}
            for name, functions in twins(hcas).items()
        ],
        "selected": {f"{hca.device}:{hca.port}": _selected(hca, address_range) for hca in hcas},
        "by_address": _by_address(hcas),
        "remarks": remarks(hcas, address_range),
        "stdout_lines": table(hcas),
    }


def _port_data(hca: HcaPort) -> dict[str, Any]:
    data = {name: value for name, value in vars(hca).items() if name != "gids"}
    return {**data, "netdevs": list(hca.netdevs), "port_name": port_name(hca), "addresses": addresses(hca)}


def _selected(hca: HcaPort, address_range: str | None) -> dict[str, Any]:
    unbound = vars(nccl_choice(hca.gids))
    return {"default": unbound, "in_range": vars(nccl_choice(hca.gids, address_range)) if address_range else None}


def _by_address(hcas: Sequence[HcaPort]) -> dict[str, dict[str, dict[str, str | int]]]:
    found: dict[str, dict[str, dict[str, str | int]]] = {}
    for hca in hcas:
        for gid in hca.gids:
            if gid.ipv4 and gid.roce_version:
                entry: dict[str, str | int] = {"device": hca.device, "port": hca.port, "index": gid.index}
                found.setdefault(gid.ipv4, {})[f"v{gid.roce_version}"] = entry
    return found


TABLE = "{:<14} {:>4} {:>5}  {:<39}  {:<15}  {:<3}  {:<7}  {}"


def table(hcas: Sequence[HcaPort]) -> list[str]:
    """The table of the classic tool, with columns that do not move: a dash stands for absent."""
    lines = [TABLE.format("DEV", "PORT", "INDEX", "GID", "IPv4", "VER", "SCOPE", "NETDEV")]
    for hca in hcas:
        for gid in hca.gids:
            version = f"v{gid.roce_version}" if gid.roce_version else "-"
            row = (hca.device, hca.port, gid.index, gid.gid, gid.ipv4 or "-", version, gid.scope, gid.netdev or "-")
            lines.append(TABLE.format(*row))
    return [*lines, f"{len(lines) - 1} GIDs on {len(hcas)} ports"]
