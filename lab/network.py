"""The lab's wires. They all lie in a network namespace of their own, `gb10-lab`: a bridge for management, one per cable
or switch, taps of machines and veth pairs of containers.

This machine sees one interface of it, `gb10lab0`, and its own firewall, forwarding and Docker have no say over what
passes inside: netfilter on a bridge loses Soft-RoCE's packets. Nothing is forwarded or translated; a lab host reaches
this machine's address on the management network and no further.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from pathlib import Path

from lab.shell import run
from lab.topology import GATEWAY, Host, Topology

NAMESPACE = "gb10-lab"
UPLINK = "gb10lab0"
MANAGEMENT_BRIDGE = "management"
NETNS = Path("/run/netns")
IP = ["ip", "-n", NAMESPACE]


def bridge_commands(bridge: str, mtu: int) -> list[str]:
    """`ip -batch` lines for one bridge: plain wire, no spanning tree, no addresses of its own."""
    return [
        f"link add {bridge} mtu {mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
        f"link set {bridge} addrgenmode none",
        f"link set {bridge} up",
    ]


def host_commands(plan: Topology, host: Host) -> list[str]:
    """`ip -batch` lines for the outer ends of a host's interfaces.

    A container gets management only: without RDMA its rails would be mere pretence. Its network namespace is made here
    and outlives it, as a machine's cables outlive a boot.
    """
    lines = []
    for nic in host.nics:
        segment = plan.segment_of(host.name, nic.port) if nic.port else None
        bridge = MANAGEMENT_BRIDGE if nic.port is None else segment.bridge if segment else None
        if host.kind == "machine":
            lines.append(f"tuntap add dev {nic.outer} mode tap")
        elif nic.port is None:
            inner = f"peer name {nic.name} address {nic.mac} netns {container_namespace(host)}"
            lines.append(f"link add {nic.outer} type veth {inner}")
        else:
            continue
        lines.append(f"link set {nic.outer} mtu {nic.mtu} addrgenmode none")
        if bridge:
            lines.append(f"link set {nic.outer} master {bridge}")
        lines.append(f"link set {nic.outer} up")
    return lines


def container_namespace(host: Host) -> str:
    return f"gb10-{host.name}"


def inside(argv: list[str]) -> list[str]:
    """The same command, run where the taps are."""
    return ["ip", "netns", "exec", NAMESPACE, *argv]


def prepare(plan: Topology, fresh: Iterable[Host]) -> None:
    """Makes what is missing. Hosts in `fresh` do not run: what is left under their names is replaced."""
    fresh = list(fresh)
    if not _has_uplink() or not (NETNS / NAMESPACE).exists():
        clear()
        _make_namespace()
    existing = {link["ifname"] for link in json.loads(run([*IP, "-j", "link", "show"]))}
    _batch(f"link delete {nic.outer}" for host in fresh for nic in host.nics if nic.outer in existing)
    for host in fresh:
        if host.kind == "container":
            space = container_namespace(host)
            if (NETNS / space).exists():
                run(["ip", "netns", "delete", space])
            run(["ip", "netns", "add", space])
    bridges = [segment.bridge for segment in plan.segments if segment.bridge not in existing]
    _batch(line for bridge in bridges for line in bridge_commands(bridge, 9000))
    _batch(line for host in fresh for line in host_commands(plan, host))


def clear() -> None:
    if _has_uplink():
        run(["ip", "link", "delete", UPLINK])
    for space in sorted(NETNS.glob("gb10-*")):
        run(["ip", "netns", "delete", space.name])


def _has_uplink() -> bool:
    return UPLINK in {name for _, name in socket.if_nameindex()}


def _make_namespace() -> None:
    run(["ip", "netns", "add", NAMESPACE])
    run(["ip", "link", "add", UPLINK, "type", "veth", "peer", "name", "uplink", "netns", NAMESPACE])
    run(["ip", "address", "add", f"{GATEWAY}/24", "dev", UPLINK])
    run(["ip", "link", "set", UPLINK, "up"])
    bridge = bridge_commands(MANAGEMENT_BRIDGE, 1500)
    _batch([*bridge, f"link set uplink master {MANAGEMENT_BRIDGE}", "link set uplink up"])
    # Off in this namespace only; the files are missing where nothing has loaded br_netfilter.
    knobs = "/proc/sys/net/bridge/bridge-nf-call-*tables"
    run(inside(["sh", "-c", f"for knob in {knobs}; do [ ! -e $knob ] || echo 0 >$knob; done"]))


def _batch(lines: Iterable[str]) -> None:
    if text := "".join(f"{line}\n" for line in lines):
        run([*IP, "-batch", "-"], stdin=text)
