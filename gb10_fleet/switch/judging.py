"""What a switch and its hosts say, compared with what the fleet needs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from gb10_fleet.switch.routeros import Port, State
from gb10_fleet.switch.settings import Fleet, Rail

_SENT = ("tx-unicast", "tx-multicast", "tx-broadcast")
_ACCOUNT = "give the account of gb10_switch.user the policies read and api"


@dataclass(frozen=True)
class Verdict:
    """One statement; severity is error, warn or info."""

    id: str
    severity: str
    where: str
    fact: str
    way_out: str


@dataclass(frozen=True)
class Seen:
    """A port between Sparks. The last four are of the time between two readings; None: unknown."""

    port: str
    hosts: list[str]
    gbps: float | None
    mtu: int | None
    l2mtu: int | None
    pause: bool | None
    pfc: str | None
    ecn: bool | None
    offloaded: bool | None
    sent: int | None
    dropped: int | None
    paused: int | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class SwitchName(TypedDict):
    """A switch, as it calls itself."""

    name: str
    model: str
    version: str


class SwitchRail(TypedDict):
    """A cabled rail, as its host says; `risen`: error counters, by how much."""

    host: str
    netdev: str
    port: str
    mac: str
    mtu: int | None
    gbps: float | None
    carrier: bool | None
    lldp: str | None
    risen: dict[str, int] | None


def where(fleet: Fleet, state: State) -> tuple[dict[str, list[Rail]], list[Rail]]:
    """Return the rails behind each port, by the MAC table or else by LLDP, and those behind none."""
    ports: dict[str, list[Rail]] = {}
    lost = []
    for rail in fleet.rails:
        heard = [name for name, names in state.neighbours.items() if rail.host in names]
        # A MAC is what a host says of itself: where another one says the same, it is nobody's.
        mac = "" if _also(fleet, rail) else rail.mac
        port = state.macs.get(mac) or (heard[0] if len(heard) == 1 else "")
        if port in state.ports:
            ports.setdefault(port, []).append(rail)
        else:
            lost.append(rail)
    return ports, lost


def _also(fleet: Fleet, rail: Rail) -> list[str]:
    """The other hosts that say they have its MAC."""
    return sorted({one.host for one in fleet.rails if rail.mac and one.mac == rail.mac} - {rail.host})


def of_hosts(fleet: Fleet, ecn: Sequence[str]) -> Iterator[Verdict]:
    """What the hosts alone can tell. `ecn`: counters of the catalog."""
    if not fleet.rails:
        yield Verdict("no_rails", "warn", ", ".join(fleet.hosts), "no cabled rail was read", "gb10 doctor says why")
    for rail in fleet.rails:
        if rail.carrier is False:
            yield Verdict("no_link", "warn", rail.where, "it has no link", "look at both ends of its cable")
            continue
        if rail.mtu is not None and rail.mtu != fleet.mtu:
            fact = f"its MTU is {rail.mtu}, and fabric_mtu is {fleet.mtu}"
            yield Verdict("host_mtu", "warn", rail.where, fact, "gb10 site sets it")
        if rail.gbps is not None and rail.gbps < fleet.gbps:
            fact = f"it links at {rail.gbps:g} Gb/s, and {fleet.gbps} are wanted"
            yield Verdict("slow_link", "warn", rail.where, fact, "gb10 switch plan, or gb10_switch.speed_gbps: 100")
        if rail.risen is None:
            yield Verdict("unknown", "warn", rail.where, "its error counters were not read twice", "gb10 why says why")
            continue
        told = {
            name: f"{name} by {last - first} ({(last - first) / max(rail.seconds, 1):.2g} a second)"
            for name, (first, last) in rail.risen.items()
        }
        if marks := [told.pop(name) for name in ecn if name in told]:
            fact = f"the switch marked packets, and senders slowed down: {', '.join(marks)}"
            yield Verdict(
                "marked", "info", rail.where, fact, "nothing to do: that is how ECN keeps packets from being dropped"
            )
        if told:
            way_out = "compare pause, PFC and MTU of the switch with those of the hosts; seat the cable anew"
            yield Verdict(
                "resends", "warn", rail.where, f"its error counters rose: {', '.join(told.values())}", way_out
            )


def of_switch(fleet: Fleet, before: State, now: State, limits: Mapping[str, Any]) -> tuple[list[Seen], list[Verdict]]:
    """What the switch says in two readings. `limits` is `judged_by` of the catalog."""
    ports, lost = where(fleet, now)
    unread = {name: why for state in (before, now) for name, why in state.unknown.items()}
    found = [
        Verdict("unknown", "warn", now.name, f"{name} was refused: {why}", _ACCOUNT) for name, why in unread.items()
    ]
    for rail in lost:
        if also := _also(fleet, rail):
            fact = f"{', '.join(also)} says that it has the same MAC, {rail.mac}, so neither port is known"
            way_out = "compare ip link on these hosts; --limit leaves out the one that is wrong"
            found.append(Verdict("same_mac", "warn", rail.where, fact, way_out))
            continue
        fact = f"no port of {now.name} has learned {rail.mac or 'its MAC, which is not known'}"
        way_out = "have it send (gb10 switch check --load), or look whether its cable leads to another switch"
        found.append(Verdict("unknown_port", "warn", rail.where, fact, way_out))
    rows = []
    for name, rails in sorted(ports.items()):
        port = now.ports[name]
        row = _seen(port, rails, before.ports.get(name), now)
        rows.append(row)
        found += [
            *_settings(row, fleet),
            *_class(row, port, before.ports.get(name), now, limits),
            *_loss(row, port, limits),
        ]
    if rows and not any((row.sent or 0) >= limits["least_packets"]["value"] for row in rows):
        text = "too little was sent between the two readings to judge what was lost"
        found.append(Verdict("no_load", "info", now.name, text, "gb10 switch check --load"))
    used = {port for port in now.macs.values() if port not in ports}
    for name in sorted(used & now.ports.keys()):
        if now.ports[name].offloaded is False:
            fact = "what is behind it is bridged by the switch's CPU, as a NAS at an RJ45 port of a CRS804 is"
            found.append(Verdict("in_software", "warn", name, fact, "keep traffic of the fabric off it"))
    return rows, found


def _seen(port: Port, rails: Sequence[Rail], before: Port | None, now: State) -> Seen:
    sent = [_risen(port, before, name) for name in _SENT]
    # A port that has dropped nothing does not have the counter at all.
    dropped = _risen(port, before, "tx-drop", absent=0 if sent[0] is not None else None)
    pfc = now.classes.get(port.pfc) if port.pfc else None
    return Seen(
        port.name,
        sorted({f"{rail.host} {rail.port}" for rail in rails}),
        port.gbps,
        port.number("mtu"),
        port.number("l2mtu"),
        port.pauses,
        port.pfc,
        None if now.ecn is None else (pfc or 0) in now.ecn,
        port.offloaded,
        None if None in sent else sum(filter(None, sent)),
        dropped,
        _risen(port, before, "rx-pause"),
    )


def _risen(port: Port, before: Port | None, name: str, absent: int | None = None) -> int | None:
    """None where it was not read twice, or began anew in between."""
    first = before.counters.get(name, absent) if before else None
    last = port.counters.get(name, absent)
    return last - first if first is not None and last is not None and last >= first else None


def _settings(row: Seen, fleet: Fleet) -> Iterator[Verdict]:
    plan = "gb10 switch plan prints how to set it"
    if len({text.partition(" ")[0] for text in row.hosts}) > 1:
        fact = f"{', '.join(row.hosts)} are behind this one port"
        yield Verdict("shared_port", "warn", row.port, fact, "another switch is in between: check that one, too")
    if row.l2mtu is None:
        yield Verdict("unknown", "warn", row.port, "it does not say its L2MTU", "look at it on the switch")
    elif row.l2mtu < fleet.mtu:
        fact = f"its L2MTU is {row.l2mtu}, and packets of the rails have {fleet.mtu}: they are dropped"
        yield Verdict("small_mtu", "error", row.port, fact, plan)
    if row.gbps is None:
        yield Verdict("unknown", "warn", row.port, "it does not say its speed", "look at it on the switch")
    elif row.gbps < fleet.gbps:
        fact = f"it links at {row.gbps:g} Gb/s, and {fleet.gbps} are wanted"
        yield Verdict("slow_port", "warn", row.port, fact, f"{plan}; or say gb10_switch.speed_gbps: 100")
    if not row.pause and not row.pfc:
        known = row.pause is not None and row.pfc is not None
        fact = (
            "neither pause in both directions nor PFC is on" if known else "it does not say whether pause or PFC is on"
        )
        yield Verdict("no_pause" if known else "unknown", "warn", row.port, fact, plan)
    if row.offloaded is False:
        fact = "the switch's CPU bridges it, at a fortieth of the speed: its chip offloads one bridge"
        way_out = "have all ports of the fabric in the one bridge, with hw=yes"
        yield Verdict("in_software", "error", row.port, fact, way_out)


def _class(row: Seen, port: Port, before: Port | None, now: State, limits: Mapping[str, Any]) -> Iterator[Verdict]:
    """PFC protects one class: whether the traffic is in it."""
    if not row.pfc or row.pause:
        return
    number = now.classes.get(row.pfc)
    sent = _risen(port, before, f"tx-queue{number}-packet", absent=0)
    enough = (row.sent or 0) >= limits["least_packets"]["value"]
    if port.trusts is False or (enough and not sent):
        fact = f"PFC is on for class {number}, and what it sent was in another one"
        way_out = "mark RoCE on the hosts (NCCL_IB_TC=106), and have the port trust layer 3"
        yield Verdict("pfc_of_another_class", "warn", row.port, fact, way_out)


def _loss(row: Seen, port: Port, limits: Mapping[str, Any]) -> Iterator[Verdict]:
    """By share, not by count; what was lost before the first reading is history."""
    most, least = (limits[name]["value"] for name in ("drops_per_million", "least_packets"))
    if row.sent is None or row.dropped is None:
        yield Verdict("unknown", "warn", row.port, "what it sent and dropped was not read twice", "run the same again")
    elif row.sent >= least and (share := _share(row.dropped, row.sent)) > most:
        fact = f"it dropped {row.dropped} packets of {row.sent} meanwhile: {share:.3g} in a million"
        yield Verdict("drops", "warn", row.port, fact, "gb10 switch plan: MTU and pause; then measure again")
    total = sum(port.counters.get(name, 0) for name in _SENT)
    if total >= least and (share := _share(port.counters.get("tx-drop", 0), total)) > most:
        fact = f"since its counters began it dropped {share:.3g} packets in a million"
        yield Verdict("dropped_before", "info", row.port, fact, "nothing to do while it drops no more")


def _share(dropped: int, sent: int) -> float:
    return 1e6 * dropped / (sent + dropped) if sent + dropped else 0.0
