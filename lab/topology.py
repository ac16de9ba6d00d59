"""Which hosts there are, what their interfaces are called, and what is plugged into what. Pure: no I/O.

Addresses are of 198.18.0.0/15, which RFC 2544 sets aside for test benches: nobody's LAN has it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

NETWORK = "198.18.7"
GATEWAY = f"{NETWORK}.1"
SERVER_PORT = 8180
MANAGEMENT = "enP7s7"
PORTS = ("p0", "p1")
# The two functions behind a port, as a Spark names them; both sit on the same cable.
RAILS = {"p0": ("enp1s0f0np0", "enP2p1s0f0np0"), "p1": ("enp1s0f1np1", "enP2p1s0f1np1")}
MAX_MACHINES, MAX_CONTAINERS = 26, 150


@dataclass(frozen=True)
class Nic:
    """One interface of a host: its name inside, the name of its outer end, and its MAC."""

    name: str
    outer: str
    mac: str
    port: str | None  # None: management
    mtu: int


@dataclass(frozen=True)
class Host:
    name: str
    octet: int  # the last one of its management address
    kind: str  # machine | container

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.octet}"

    @property
    def nics(self) -> tuple[Nic, ...]:
        rails = [(netdev, f"{port}{'ab'[twin]}", port) for port in PORTS for twin, netdev in enumerate(RAILS[port])]
        return (
            Nic(MANAGEMENT, f"h{self.octet}-m", self._mac(0), None, 1500),
            *(
                Nic(netdev, f"h{self.octet}-{suffix}", self._mac(index), port, 9000)
                for index, (netdev, suffix, port) in enumerate(rails, start=1)
            ),
        )

    def _mac(self, index: int) -> str:
        return f"02:67:62:10:{self.octet:02x}:{index:02x}"  # 02: locally administered


@dataclass(frozen=True)
class Segment:
    """One cable (two ends) or one switch (any number): what is plugged into it shares a broadcast domain.

    That holds for the twins of a port too: on a Spark both functions hear every broadcast that reaches the port.
    """

    bridge: str
    ends: tuple[tuple[str, str], ...]  # (host, port)
    switch: bool = False


@dataclass(frozen=True)
class Topology:
    name: str
    fabric: str  # none | pair | ring | switch: the inventory's fabric_topology
    hosts: tuple[Host, ...]
    segments: tuple[Segment, ...]
    architecture: str  # Debian's name for it

    def segment_of(self, host: str, port: str) -> Segment | None:
        return next((segment for segment in self.segments if (host, port) in segment.ends), None)


def machines(count: int) -> tuple[Host, ...]:
    return tuple(Host(f"spark-{chr(ord('a') + n)}", 11 + n, "machine") for n in range(count))


def containers(count: int) -> tuple[Host, ...]:
    return tuple(Host(f"spark-{n:02d}", 100 + n, "container") for n in range(1, count + 1))


def topology(name: str, hosts: int = 0, architecture: str = "amd64") -> Topology:
    if name == "single":
        return Topology(name, "none", machines(1), (), architecture)
    if name == "pair":
        cable = Segment("cable1", (("spark-a", "p0"), ("spark-b", "p0")))
        return Topology(name, "pair", machines(2), (cable,), architecture)
    if name == "ring3":
        cables = (("spark-a", "spark-b"), ("spark-b", "spark-c"), ("spark-c", "spark-a"))
        segments = tuple(Segment(f"cable{n}", ((x, "p1"), (y, "p0"))) for n, (x, y) in enumerate(cables, start=1))
        return Topology(name, "ring", machines(3), segments, architecture)
    if name == "switch":
        _between(2, hosts, MAX_MACHINES)
        members = machines(hosts)
        ends = tuple((host.name, "p0") for host in members)
        return Topology(name, "switch", members, (Segment("switch", ends, switch=True),), architecture)
    if name == "fleet":
        _between(1, hosts, MAX_CONTAINERS)
        if architecture != "amd64":
            raise ValueError("a fleet's containers run on this machine's kernel; leave --arch out")
        return Topology(name, "none", containers(hosts), (), architecture)
    raise ValueError(f"unknown topology {name!r}: choose single, pair, ring3, switch or fleet")


def _between(low: int, hosts: int, high: int) -> None:
    if not low <= hosts <= high:
        raise ValueError(f"--hosts {hosts} is out of range: from {low} to {high} hosts")


def carrier(plan: Topology, host: str, port: str, running: Collection[str], cut: Collection[tuple[str, str]]) -> bool:
    """Return whether a port has link: it is plugged in, its cable is whole, and both ends have power."""
    segment = plan.segment_of(host, port)
    if segment is None or host not in running:
        return False
    if segment.switch:
        return (host, port) not in cut
    if any(end in cut for end in segment.ends):
        return False
    return all(end in running for end, _ in segment.ends)
