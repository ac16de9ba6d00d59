# SPDX-License-Identifier: GPL-3.0-or-later
"""The rails: link, PCIe and counters of each RDMA device that has hardware."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading import rdma
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown, quoted

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired

_MOST = 32  # ports; a Spark has four
_LARGEST_COUNT = 2**62
_TRAFFIC = re.compile(r"(port_(rcv|xmit)_(data|packets|wait)|(uni|multi)cast_\w+|rx_\w+_requests|lifespan)\Z")
_PCIE = {
    "width": "current_link_width",
    "width_max": "max_link_width",
    "gigatransfers": "current_link_speed",
    "gigatransfers_max": "max_link_speed",
}


class Pcie(TypedDict):
    width: float | None
    width_max: float | None
    gigatransfers: float | None
    gigatransfers_max: float | None


class Rail(TypedDict):
    hca: str
    port: str
    netdev: str | None
    state: str | None
    carrier: bool | None
    rate_gbps: float | None
    pcie: Pcie
    counters: dict[str, int]
    bonded: NotRequired[bool]  # one device for both ports of an adapter


def read_rails(host: HostReader) -> list[dict[str, Any]]:
    """One entry for each port. What sysfs does not tell is None: a port without a cable has no speed."""
    rails, ports = [], rdma.ports(host.system)
    for port in [port for port in ports if port.hardware][:_MOST]:
        device = f"{port.device}/device"
        netdev = next(iter(host.names(f"{device}/net")), None)
        state = rdma.state(host.system, port)
        rails.append(
            {
                "hca": quoted(port.hca),
                "port": quoted(port.number),
                "netdev": quoted(netdev) if netdev else None,
                "state": quoted(state) if state else None,
                "carrier": _carrier(host, netdev),
                "rate_gbps": leading_number(host.read(f"{port.folder}/rate")),
                "pcie": {name: leading_number(host.read(f"{device}/{file}")) for name, file in _PCIE.items()},
                "counters": _counters(host, port.folder),
                **({"bonded": True} if netdev and host.names(f"/sys/class/net/{netdev}/bonding_slave") else {}),
            }
        )
    if not rails and ports:  # that says nothing of the PCIe bus
        raise Unknown(f"{quoted(ports[0].hca)} and all others in {rdma.FOLDER} are Soft-RoCE, without hardware")
    if not rails:
        raise Unknown(f"there is no RDMA device with hardware in {rdma.FOLDER}")
    return rails


def _carrier(host: HostReader, netdev: str | None) -> bool | None:
    said = host.read(f"/sys/class/net/{netdev}/carrier") if netdev else None
    return {"1": True, "0": False}.get(said or "")


def leading_number(text: str | None) -> float | None:
    """32.0 of `32.0 GT/s PCIe`, 200 of `200 Gb/sec (4X HDR)`; None for `Unknown`."""
    found = re.match(r"(\d{1,6}(?:\.\d{1,3})?)(?: |\Z)", text or "")
    return float(found[1]) if found else None


def _counters(host: HostReader, base: str) -> dict[str, int]:
    """Every counter that is not 0, without those of traffic."""
    found = {}
    for folder in ("counters", "hw_counters"):
        for name in host.names(f"{base}/{folder}"):
            count = None if _TRAFFIC.match(name) else host.number(f"{base}/{folder}/{name}")
            if count and 0 < count < _LARGEST_COUNT:
                found[quoted(name)] = count
    return found
