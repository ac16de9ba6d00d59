# SPDX-License-Identifier: GPL-3.0-or-later
"""The address plan of a fabric: a pure function of hosts, rails and one network.

``plan()`` takes the facts of every host of the cluster (``gb10_spark`` of the fact module) and gives each host the
profiles of its rails. The rules, so that a person can predict the result:

* a *link* is one cable (or one switch, for all ports of one name); every rail of a link is a subnet of its own;
* subnets are /24, taken from the network in the order of links, then twin index;
* host number i of the cluster (inventory order, from 0) always ends in .(10 + i).

A pair on port ``p0`` with 192.168.100.0/22 so gets 192.168.100.0/24 on the first rail and 192.168.101.0/24 on its twin,
with the hosts at .10 and .11. A ring cables port ``p1`` of each host to port ``p0`` of the next one.
"""

from __future__ import annotations

import ipaddress
import itertools
import shlex
import uuid
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import RAILS_OF_A_PORT, lifelines
from ansible_collections.gb10.fleet.plugins.module_utils.reading.port_owners import NETWORKD
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import PlanError
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.arguments import (
    FIRST_HOST_NUMBER,
    SUBNET_PREFIX,
    check_agreement,
    check_arguments,
    check_network,
    check_ports,
)

# Fixed for ever: NetworkManager recognises a profile by its UUID, so the same rail must always get the same one.
PROFILE_NAMESPACE = uuid.UUID("6f2e1f0a-6f4b-5c0e-9a57-9b1d6a1f3c10")


@dataclass(frozen=True)
class Link:
    """One cable, or one switch, with its ends as (host, port)."""

    name: str
    ends: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Peer:
    """The other end of a rail."""

    host: str
    port: str
    netdev: str
    hca: str
    address: str


@dataclass(frozen=True)
class Profile:
    """The connection wanted on one rail. ``cidr`` is address/prefix, ``mtu`` is that of the netdev in bytes.

    ``gid`` is the address as sysfs shows it in the GID table.
    ``answering`` are the addresses of the peers that have a cable in: they must answer before a change is kept.
    """

    name: str
    uuid: str
    netdev: str
    hca: str
    hca_port: int
    port: str
    twin_index: int
    link: str
    address: str
    prefix: int
    cidr: str
    gid: str
    mtu: int
    peers: tuple[Peer, ...]
    answering: tuple[str, ...] = ()


@dataclass(frozen=True)
class Owner:
    """A file of somebody else that claims a rail. Nobody but a person can switch off a ``lasting`` one."""

    netdev: str
    file: str
    lasting: bool
    text: str
    way_out: str


@dataclass(frozen=True)
class Control:
    """Interface and address at which all hosts of the cluster reach this one."""

    interface: str
    address: str


@dataclass(frozen=True)
class HostFabric:
    """The part of one host. ``waiting`` names the rails that do not have their address and MTU yet."""

    profiles: tuple[Profile, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    control: Control | None = None
    waiting: tuple[str, ...] = ()
    owners: tuple[Owner, ...] = ()


@dataclass(frozen=True)
class ClusterFabric:
    """The fabric of a cluster; ``hosts`` in their order."""

    topology: str
    network: str
    subnets: tuple[str, ...]
    hosts: Mapping[str, HostFabric]


# A link, a twin index, and the rail of each host on it.
Segment = tuple[Link, int, dict[str, Mapping[str, Any]]]


def plan(
    topology: str,
    hosts: Sequence[str],
    facts: Mapping[str, Mapping[str, Any]],
    *,
    ports: Sequence[str] = ("p0",),
    network: str = "192.168.100.0/22",
    mtu: int = 9000,
    settings: Mapping[str, Sequence[Any]] | None = None,
    declared: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
) -> ClusterFabric:
    """The fabric of these hosts; PlanError where the inventory or a machine does not allow one.

    ``ports`` says which ports of a pair or a switch are cabled; a ring always uses p0 and p1.
    ``control`` of a host is on the first rail where the fabric joins everyone with everyone, and on the management
    interface in a ring, whose hosts only see their neighbours.
    ``declared`` are the rails that a host says it has, by port, in the order of twins; they must not contradict facts.
    ``settings`` holds what each host, in the order of ``hosts``, says in the variables that they must agree on.
    """
    check_agreement(hosts, settings or {})
    check_arguments(topology, hosts, facts, mtu)
    if topology == "none":
        return ClusterFabric(topology, network, (), {host: HostFabric() for host in hosts})

    links = _links(topology, hosts, ports)
    facts = {host: _with_declared(host, facts[host], (declared or {}).get(host) or {}) for host in hosts}
    segments = list(_segments(topology, links, facts))
    subnets = _carve(network, len(segments))
    profiles = _profiles(hosts, segments, subnets, mtu)
    for host in hosts:
        _check_host(host, facts[host], profiles[host])
    address_range = str(_smallest_cover(subnets))
    return ClusterFabric(
        topology,
        network,
        tuple(map(str, subnets)),
        {host: _host_fabric(host, topology, facts[host], profiles[host], address_range) for host in hosts},
    )


def _profiles(
    hosts: Sequence[str], segments: Sequence[Segment], subnets: Sequence[ipaddress.IPv4Network], mtu: int
) -> dict[str, list[Profile]]:
    """The profiles of each host, by port and twin."""
    profiles: dict[str, list[Profile]] = {host: [] for host in hosts}
    for (link, twin_index, rails), subnet in zip(segments, subnets, strict=True):
        address = {host: str(subnet[FIRST_HOST_NUMBER + hosts.index(host)]) for host, _port in link.ends}
        for host, port in link.ends:
            rail = rails[host]
            peers = tuple(
                Peer(other, other_port, rails[other]["netdev"], rails[other]["hca"], address[other])
                for other, other_port in link.ends
                if other != host
            )
            profiles[host].append(
                Profile(
                    name=f"gb10-{rail['netdev']}",
                    uuid=str(uuid.uuid5(PROFILE_NAMESPACE, f"{host}/{rail['netdev']}")),
                    netdev=rail["netdev"],
                    hca=rail["hca"],
                    hca_port=rail["hca_port"],
                    port=port,
                    twin_index=twin_index,
                    link=link.name,
                    address=address[host],
                    prefix=SUBNET_PREFIX,
                    cidr=f"{address[host]}/{SUBNET_PREFIX}",
                    gid=_gid(address[host]),
                    mtu=mtu,
                    peers=peers,
                    answering=tuple(peer.address for peer in peers if rails[peer.host].get("carrier") is not False),
                )
            )
    for own in profiles.values():
        own.sort(key=lambda profile: (profile.port, profile.twin_index))
    return profiles


def _host_fabric(
    host: str, topology: str, facts: Mapping[str, Any], profiles: Sequence[Profile], address_range: str
) -> HostFabric:
    control = _control(host, topology, facts, profiles)
    return HostFabric(
        profiles=tuple(profiles),
        environment=_environment(topology, profiles, control.interface, address_range),
        control=control,
        waiting=tuple(_waiting(facts, profiles)),
        owners=tuple(foreign_owners(facts, {profile.netdev: profile.uuid for profile in profiles})),
    )


def _gid(address: str) -> str:
    """As sysfs writes it. `exploded` has a dotted end from Python 3.13 on."""
    return (bytes(10) + b"\xff\xff" + ipaddress.IPv4Address(address).packed).hex(":", 2)


def _links(topology: str, hosts: Sequence[str], ports: Sequence[str]) -> list[Link]:
    if topology == "ring":
        return [_cable((host, "p1"), (hosts[(i + 1) % len(hosts)], "p0")) for i, host in enumerate(hosts)]
    check_ports(ports)
    if topology == "pair":
        return [_cable((hosts[0], port), (hosts[1], port)) for port in ports]
    return [Link(f"switch-{port}", tuple((host, port) for host in hosts)) for port in ports]


def _cable(*ends: tuple[str, str]) -> Link:
    return Link("--".join(f"{host}:{port}" for host, port in ends), ends)


def _segments(topology: str, links: Sequence[Link], facts: Mapping[str, Mapping[str, Any]]) -> Iterator[Segment]:
    """Yield every (link, twin index) with the rail of each host on it."""
    for link in links:
        on_link = {host: _rails_on(host, port, facts[host], topology) for host, port in link.ends}
        (reference_host, reference), *__ = on_link.items()
        for host, rails in on_link.items():
            if rails.keys() != reference.keys():
                raise PlanError(
                    f"{link.name}: {reference_host} has {len(reference)} rail(s) on this link ({_netdevs(reference)}), "
                    f"{host} has {len(rails)} ({_netdevs(rails)}); both functions of a port must be on the bus: "
                    "check `lspci` and the cable, then power the host off and on"
                )
        if len(reference) < RAILS_OF_A_PORT:
            raise PlanError(
                f"{link.name}: {' and '.join(on_link)} have {len(reference)} rail each on this link "
                f"({_netdevs(reference)}), and a port has {RAILS_OF_A_PORT}: both functions must be on the bus: "
                "check `lspci` and the cable, then power the hosts off and on"
            )
        for twin_index in sorted(reference):
            yield link, twin_index, {host: rails[twin_index] for host, rails in on_link.items()}


def _netdevs(rails: Mapping[int, Mapping[str, Any]]) -> str:
    return ", ".join(str(rails[index]["netdev"]) for index in sorted(rails))


def _rails_on(host: str, port: str, facts: Mapping[str, Any], topology: str) -> dict[int, Mapping[str, Any]]:
    every = facts.get("rails") or []
    rails = {int(rail["twin_index"]): rail for rail in every if rail["port"] == port and rail["twin_index"] is not None}
    if len({rail.get("phys_switch_id") for rail in rails.values()}) > 1:
        raise PlanError(
            f"{host} has rails of more than one NIC on port {port} ({_netdevs(rails)}, by phys_switch_id), "
            "which are no twins: name those of the cabled NIC in fabric_rails"
        )
    if not rails:
        known = ", ".join(sorted({str(rail["port"]) for rail in every if rail["port"]})) or "no port at all"
        other = "choose another fabric_topology" if topology == "ring" else "correct fabric_ports"
        raise PlanError(
            f"{host} has no rail on port {port} (it has {known}): the ConnectX-7 is not on the bus "
            f"until a cable is in; plug the cable into {port}, or {other}"
        )
    return rails


def _with_declared(host: str, facts: Mapping[str, Any], declared: Mapping[str, Sequence[str]]) -> Mapping[str, Any]:
    """The facts with the ports of declared rails: what the machine does not tell is taken, what it denies refused."""
    if not declared:
        return facts
    rails = {rail["netdev"]: dict(rail) for rail in facts.get("rails") or []}
    for port, netdevs in declared.items():
        for twin_index, netdev in enumerate(netdevs):
            rail = rails.get(netdev)
            if rail is None:
                there = ", ".join(rails) or "none"
                raise PlanError(f"{host}: fabric_rails names {netdev}, which is no RDMA rail; the host has {there}")
            if rail["port"] not in (None, port):
                raise PlanError(f"{host}: fabric_rails puts {netdev} on {port}, and the machine says {rail['port']}")
            rail.update(port=port, twin_index=twin_index)
        nics = {rails[netdev].get("phys_switch_id") for netdev in netdevs}
        others = [name for name, rail in rails.items() if rail["port"] == port and name not in netdevs]
        for name in others:
            if rails[name].get("phys_switch_id") not in nics:  # the port of that name of another NIC
                rails[name].update(port=None, twin_index=None)
        others = [name for name in others if rails[name]["port"]]
        if others:
            missing = ", ".join(others)
            raise PlanError(f"{host}: fabric_rails leaves out {missing}, which the machine says is on {port}")
    return {**facts, "rails": list(rails.values())}


def _carve(network: str, needed: int) -> list[ipaddress.IPv4Network]:
    whole = check_network(network)
    holds = 2 ** (SUBNET_PREFIX - whole.prefixlen)
    if needed > holds:
        larger = whole.supernet(new_prefix=SUBNET_PREFIX - (needed - 1).bit_length())
        raise PlanError(
            f"fabric_network {network} holds {holds} subnets of /{SUBNET_PREFIX}, this fabric needs {needed} "
            f"(one for every rail of every link): set fabric_network to {larger}"
        )
    return list(itertools.islice(whole.subnets(new_prefix=SUBNET_PREFIX), needed))


def _check_host(host: str, facts: Mapping[str, Any], profiles: Sequence[Profile]) -> None:
    """Refuse a plan that would touch the management path, or that overlaps another address of the host."""
    planned = {profile.netdev: ipaddress.IPv4Interface(profile.cidr).network for profile in profiles}
    carriers = lifelines(facts)
    # Who comes over a rail that is as planned may look at it and prove it.
    for netdev in _waiting(facts, profiles):
        if netdev in carriers:
            raise PlanError(
                f"{host}: {netdev} carries {' and '.join(carriers[netdev])} and shall become a rail; "
                "reach the host over its RJ45 port and remove that route, or leave the port out of fabric_ports"
            )
    for rail in facts["rails"]:
        if rail["netdev"] in planned and rail.get("master"):
            raise PlanError(
                f"{host}: {rail['netdev']} is a port of {rail['master']}, which takes all that arrives there; take it "
                f"out of {rail['master']} for good (in netplan or nmcli), or leave its port out of fabric_ports"
            )
    for text, taken in _taken(facts, planned):
        for netdev, subnet in planned.items():
            if subnet.overlaps(taken):
                raise PlanError(
                    f"{host}: the planned subnet {subnet} of {netdev} overlaps {text}: choose another fabric_network"
                )


def _taken(facts: Mapping[str, Any], planned: Container[str]) -> Iterator[tuple[str, ipaddress.IPv4Network]]:
    """Yield what is reached by other ways than the rails.

    A rail of the same subnet would draw that traffic to itself.
    """
    interfaces = [item for item in facts.get("interfaces") or [] if item["name"] not in planned]
    routes = [route for route in facts.get("routes") or [] if route["interface"] not in planned]
    cidrs = [(f"{cidr} of {item['name']}", cidr) for item in interfaces for cidr in item.get("addresses") or []]
    for route in routes:
        through = f"through {route['interface']}" if route["interface"] else "that discards packets (`ip route`)"
        cidrs.append((f"the route to {route['cidr']} {through}", route["cidr"]))
    ssh = facts.get("ssh") or {}
    peer = ssh.get("peer_address")
    # UNKNOWN says sshd where the session comes over no network socket.
    if peer and peer != "UNKNOWN" and ssh.get("interface") not in planned:
        cidrs.append((f"{peer}, from where this very SSH session comes", peer))
    for text, cidr in cidrs:
        network = ipaddress.ip_interface(cidr).network
        # A VPN splits the default route in halves; those are as general as the default route itself.
        if isinstance(network, ipaddress.IPv4Network) and network.prefixlen > 1:
            yield text, network


def _waiting(facts: Mapping[str, Any], profiles: Sequence[Profile]) -> list[str]:
    rails = {rail["netdev"]: rail for rail in facts["rails"]}
    return [profile.netdev for profile in profiles if not _is_live(rails[profile.netdev], profile)]


def _is_live(rail: Mapping[str, Any], profile: Profile) -> bool:
    addresses = [cidr for cidr in rail.get("addresses") or [] if ":" not in cidr]
    return addresses == [profile.cidr] and rail.get("mtu") == profile.mtu


def foreign_owners(facts: Mapping[str, Any], ours: Mapping[str, str]) -> list[Owner]:
    """Files that claim a rail beside our profile; `ours` is `{netdev: UUID}`."""
    return [
        Owner(
            netdev=owner["interface"],
            file=owner["file"],
            lasting=owner["renderer"] == NETWORKD,
            text=f"{owner['interface']} belongs to {owner['file']} already ({_through(owner)})",
            way_out=_rid_of(owner),
        )
        for owner in facts.get("port_owners") or []
        if owner["interface"] in ours and owner["uuid"] != ours[owner["interface"]]
    ]


def _through(owner: Mapping[str, Any]) -> str:
    if _is_networkds_own(owner):
        return "systemd-networkd"
    return f"the profile {owner['name']!r}" if owner["name"] else f"netplan, for {owner['renderer']}"


def _is_networkds_own(owner: Mapping[str, Any]) -> bool:
    return bool(owner["renderer"] == NETWORKD and owner["file"].endswith(".network"))


def _rid_of(owner: Mapping[str, Any]) -> str:
    """To delete the file is not enough: what was made of it stays in force until its service is told."""
    if _is_networkds_own(owner):
        return (
            f"let systemd-networkd leave {owner['interface']} alone: write the lines `[Match]`,"
            f" `Name={shlex.quote(owner['interface'])}`, `[Link]`, `Unmanaged=yes` into"
            f" /etc/systemd/network/00-{owner['interface']}.network, and run `sudo networkctl reload`, which takes its"
            " address off"
        )
    if owner["name"]:  # another profile may have it, too, and nmcli deletes both
        profile = ("uuid", owner["uuid"]) if owner["uuid"] else (owner["name"],)
        by_hand = f"`sudo nmcli connection delete {shlex.join(profile)}`"
    else:
        by_hand = (
            f"take {owner['interface']} out of {owner['file']}, then reboot (`netplan apply` may take down the"
            " connection that you come by)"
        )
    switched_off = "set fabric_replace_foreign to true, which switches it off"
    return by_hand if owner["renderer"] == NETWORKD else f"{by_hand}, or {switched_off}"


def _control(host: str, topology: str, facts: Mapping[str, Any], profiles: Sequence[Profile]) -> Control:
    if topology != "ring":
        return Control(profiles[0].netdev, profiles[0].address)
    names = [(facts.get("ssh") or {}).get("interface"), *(facts.get("default_route_interfaces") or [])]
    for interface in facts.get("interfaces") or []:
        if interface["name"] not in names:
            continue
        for cidr in interface.get("addresses") or []:
            address = ipaddress.ip_interface(cidr)
            if address.version == 4:
                return Control(interface["name"], str(address.ip))
    raise PlanError(
        f"{host} has no management interface with an IPv4 address "
        "(neither the SSH session nor a default route names one): "
        "hosts of a ring that are not neighbours can only meet there"
    )


def _environment(topology: str, profiles: Sequence[Profile], control: str, address_range: str) -> dict[str, str]:
    """Environment of NCCL, Gloo and UCX.

    No NCCL_IB_GID_INDEX: the index depends on the order in which addresses arrived on each host, while the address
    range selects the same GID on all of them. ``=`` before the HCA list makes NCCL match names exactly.
    """
    environment = {
        "NCCL_IB_HCA": "=" + ",".join(f"{profile.hca}:{profile.hca_port}" for profile in profiles),
        "NCCL_IB_ADDR_RANGE": address_range,
        "NCCL_SOCKET_IFNAME": f"={control}",
        "GLOO_SOCKET_IFNAME": control,
        "UCX_NET_DEVICES": control,
    }
    if topology != "pair":
        # Not every rail reaches every peer's rail: NCCL must only connect GIDs that share a subnet.
        environment["NCCL_IB_SUBNET_AWARE_ROUTING"] = "1"
    if topology == "ring":
        # Rails of one host lead to different neighbours, so they must not be fused into one logical NIC.
        environment["NCCL_IB_MERGE_NICS"] = "0"
        # At this level alone it says that it takes a rail for another one; its other parts say no more than else.
        environment |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "NET"}
    return environment


def _smallest_cover(subnets: Sequence[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    cover = subnets[0]
    while not all(subnet.subnet_of(cover) for subnet in subnets):
        cover = cover.supernet()
    return cover
