# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses, routes, interfaces and the SSH session of a host."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System
from ansible_collections.gb10.fleet.plugins.module_utils.system.values import Address, Cidr

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired

COMMAND_DEADLINE_S = 5.0
MAX_ANCESTORS = 64
_IP = re.compile(r"[0-9A-Fa-f]{0,4}[.:][0-9A-Fa-f.:]{1,45}\Z")  # of what the session says, enough to hand it to `ip`
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z", re.IGNORECASE)


class Ssh(TypedDict):
    interface: str | None
    way_back: NotRequired[str | None]
    local_address: Address | None
    peer_address: Address | None


class Interface(TypedDict):
    name: str
    mac: str | None
    mtu: int | None
    carrier: bool | None
    operstate: str | None
    driver: str | None
    addresses: list[Cidr]
    phys_port_name: str | None
    phys_switch_id: NotRequired[str | None]
    pci: str | None
    speed_mbps: int | None
    lower: NotRequired[list[str]]


class Hardware(Interface):
    """With what is no fact: whether it has hardware."""

    hardware: bool


class Ipv4Route(TypedDict):
    interface: str | None
    cidr: Cidr


@dataclass(frozen=True)
class Route:
    """What leaves by `interface` (None: it is discarded); `cidr` is `default`, an address or a network."""

    interface: str | None
    cidr: str
    table: str | None  # None is the main one


@dataclass(frozen=True)
class Network:
    """Addresses, routes and the SSH session of one moment.

    `addresses`: by interface, with prefix, IPv4 and IPv6, in the kernel's order: the first is the primary one. Of each,
    whether it is one of IPv6's temporary ones, which the kernel makes up anew every day: no fact, but a session may
    use one. `way_back`: the interface that answers to the peer of the session leave by.
    """

    addresses: Mapping[str, Mapping[str, bool]]
    routes: Sequence[Route]
    session: tuple[str, str] | None
    way_back: str | None

    @property
    def ways_out(self) -> list[str]:
        """Interfaces of default routes, also of one in parts and of a table that only some packets are looked up in."""
        return sorted({route.interface for route in self.routes if route.interface and _leads_out(route.cidr)})

    @property
    def session_interfaces(self) -> list[str]:
        """The interface with our address of the session, and the one that answers leave by: mostly the same one."""
        if self.session is None:
            return []
        names = (interface_of(self.session[1], self.addresses), self.way_back)
        return list(dict.fromkeys(name for name in names if name))


NO_NETWORK = Network({}, (), None, None)


def read_network(system: System) -> Network:
    """All of it from one `ip`: the cost of a probe is counted in processes.

    /proc/net/route has neither the second next hop of a route nor the other tables.
    """
    session = system.once(ssh_session)
    questions = ["address show", "route show table all"]
    # A link-local peer is on every link: its session is known by our own address.
    if session and all(_IP.match(address) for address in session) and not session[0].startswith("fe80:"):
        questions.append("route get {} from {}".format(*session))
    asked = "\n".join([*questions, ""])
    # The last question fails where there is no way to the peer, and then has no answer.
    done = system.run(["ip", "-j", "-batch", "-"], input=asked, timeout=COMMAND_DEADLINE_S)
    try:
        # iproute2 writes a control character of an interface's name as it is; a login at the desktop may make such one.
        links, routes, *way = [json.loads(line, strict=False) for line in done.stdout.split("\n") if line.strip()]
        addresses = {
            link["ifname"]: {
                f"{item['local']}/{item['prefixlen']}": bool(item.get("temporary"))
                for item in link.get("addr_info", [])
                if "local" in item
            }
            for link in links
            if "ifname" in link  # an interface that vanishes meanwhile leaves an empty object
        }
        way_back = way[0][0].get("dev") if way and way[0] else None
        return Network(addresses, tuple(_parse_routes(routes)), session, way_back)
    except (ValueError, TypeError, KeyError, AttributeError):
        words = f"failed: {done.words}" if done.rc else "does not answer with JSON as iproute2 writes it"
        raise HostError(f"`ip -j -batch -` ({'; '.join(questions)}) {words}") from None


def _parse_routes(routes: Sequence[Mapping[str, Any]]) -> Iterator[Route]:
    """Those that packets take to other hosts, one for each next hop, and those that discard packets."""
    for route in routes:
        kind = route.get("type", "unicast")
        if kind in ("unreachable", "blackhole", "prohibit"):
            yield Route(None, route["dst"], route.get("table"))
        elif kind == "unicast":
            hops = route.get("nexthops", [route])
            yield from (Route(hop["dev"], route["dst"], route.get("table")) for hop in hops if "dev" in hop)


def _leads_out(cidr: str) -> bool:
    """A VPN splits the default route in halves, and of IPv6 takes the eighth that is in use (2000::/3)."""
    prefix = cidr.partition("/")[2]
    return cidr == "default" or (prefix.isdigit() and int(prefix) <= (3 if ":" in cidr else 1))


def network_of(host: HostReader) -> Network:
    try:
        return host.system.once(read_network)
    except HostError:
        return NO_NETWORK


def link_name(path: Path) -> str | None:
    """The last component of where a sysfs link points (a driver, a bridge)."""
    try:
        return os.readlink(path).rpartition("/")[2]  # noqa: PTH115  # Path.readlink() would build a path only to split it
    except OSError:
        return None


def _pci_address(device: Path) -> str | None:
    """The PCI function that a sysfs device stands on; virtio devices stand one step above theirs."""
    parts = [part for part in Path(os.path.realpath(device)).parts if _PCI_ADDRESS.match(part)]
    return parts[-1] if parts else None


def read_interfaces(host: HostReader, network: Network) -> list[Hardware]:
    addresses = network.addresses
    interfaces: list[Hardware] = []
    for name in host.names("/sys/class/net"):
        base = f"/sys/class/net/{name}"
        entries = host.names(base)
        if name == "lo" or not entries:  # bonding_masters is a file
            continue
        bridge = "bridge" in entries  # it has a carrier while one of its guests is up
        carrier = host.number(f"{base}/carrier")  # EINVAL, hence None, while the interface is administratively down
        speed = host.number(f"{base}/speed")
        interfaces.append(
            {
                "name": name,
                "mac": host.read(f"{base}/address"),
                "mtu": host.number(f"{base}/mtu"),
                "carrier": None if carrier is None or bridge else carrier == 1,
                "operstate": None if bridge else host.read(f"{base}/operstate"),
                "driver": link_name(host.path(f"{base}/device/driver")),
                "addresses": [cidr for cidr, temporary in addresses.get(name, {}).items() if not temporary],
                "phys_port_name": host.read(f"{base}/phys_port_name"),
                "phys_switch_id": host.read(f"{base}/phys_switch_id"),
                "pci": _pci_address(host.path(f"{base}/device")),
                "speed_mbps": speed if speed and speed > 0 and not bridge else None,  # -1 stands for "unknown"
                "lower": lower_interfaces(name, host.names),
                "hardware": "device" in entries,
            }
        )
    return interfaces


def lasting_interfaces(interfaces: Sequence[Hardware], needed: Collection[str]) -> list[Interface]:
    """Without what comes and goes with containers and virtual machines: the ends of their cables.

    What remains has hardware or stands on it, has an IPv4 address (which a subnet of the fabric could collide with), or
    is needed.
    """
    hardware = {item["name"] for item in interfaces if item["hardware"]}
    lasting = {
        item["name"]
        for item in interfaces
        if item["name"] in hardware | set(needed)
        or hardware & set(item["lower"])
        or any(":" not in cidr for cidr in item["addresses"])
    }
    found: list[Any] = [
        {
            **{key: value for key, value in item.items() if key != "hardware"},
            "lower": [name for name in item["lower"] if name in lasting],
        }
        for item in interfaces
        if item["name"] in lasting
    ]
    return found


def lower_interfaces(name: str, names: Callable[[str], Iterable[str]]) -> list[str]:
    """All that an interface (VLAN, bridge, bond, ...) stands on, down to the hardware; `names` lists a directory."""
    found: list[str] = []
    above = [name]
    while above:
        for entry in names(f"/sys/class/net/{above.pop()}"):
            lower = entry[len("lower_") :] if entry.startswith("lower_") else name
            if lower != name and lower not in found:
                found.append(lower)
                above.append(lower)
    return sorted(found)


def ipv4_routes(network: Network) -> list[Ipv4Route]:
    """IPv4 routes of the main table without the default ones; the kernel lists them in no order."""
    found = {
        (route.interface, route.cidr if "/" in route.cidr else f"{route.cidr}/32")
        for route in network.routes
        if route.table is None and ":" not in route.cidr and route.cidr != "default"
    }
    return [
        {"interface": interface, "cidr": cidr}
        for interface, cidr in sorted(found, key=lambda pair: (pair[0] or "", pair[1]))
    ]


def session_facts(host: HostReader, network: Network) -> Ssh:
    peer, local = host.system.once(ssh_session) or (None, None)
    interface = next(iter(network.session_interfaces), None)
    return {"interface": interface, "way_back": network.way_back, "local_address": local, "peer_address": peer}


def interface_of(address: str | None, addresses: Mapping[str, Iterable[str]]) -> str | None:
    """The interface with this address."""
    owners = (name for name, cidrs in addresses.items() if address in [cidr.partition("/")[0] for cidr in cidrs])
    return next(owners, None)


def ssh_session(system: System) -> tuple[str, str] | None:
    """Both addresses, the peer's and ours, of the SSH session that this process belongs to."""
    words = system.once(session_words)
    return (_plain_address(words[0]), _plain_address(words[2])) if words else None


def session_words(system: System) -> list[str] | None:
    """SSH_CONNECTION: the peer's address and port, and ours.

    sudo clears it, so it is looked for in the environments of the ancestors too.
    """
    process = "self"
    for __ in range(MAX_ANCESTORS):
        for entry in (system.text(f"/proc/{process}/environ") or "").split("\0"):
            words = entry.partition("=")[2].split() if entry.startswith("SSH_CONNECTION=") else ()
            if len(words) == 4:
                return list(words)
        parent = re.search(r"^PPid:\s*(\d+)$", system.text(f"/proc/{process}/status") or "", re.MULTILINE)
        if parent is None or parent[1] == "0":
            return None
        process = parent[1]
    return None


def _plain_address(text: str) -> str:
    """Without zone, and IPv4 out of its IPv6 clothes."""
    address = text.partition("%")[0]
    return address[len("::ffff:") :] if address.startswith("::ffff:") and "." in address else address
