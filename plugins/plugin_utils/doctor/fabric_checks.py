# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor says of the fabric: its variables, the rails of the host and its cables."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import RAILS_OF_A_PORT, lifelines
from ansible_collections.gb10.fleet.plugins.module_utils.system import arguments
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import PORTS, Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.fabric import verdicts
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import arguments as fabric_arguments

SEE_FABRIC = "correct it in the inventory; roles/fabric/README.md says what is allowed"


def check_settings(subject: Subject) -> Iterator[Finding]:
    """What is inside the variables of the fabric: else the plan or the proof would trip over it, much later."""
    # A ring is cabled on both ports, whatever fabric_ports says.
    idle = () if subject.topology in ("pair", "switch") else ("fabric_ports",)
    planned = {name: subject.setting(name) for name in fabric_arguments.CHECKS if name not in idle}
    for text in fabric_arguments.mistakes(planned):
        yield subject.say("bad_variable", text, SEE_FABRIC)
    thresholds = subject.mapping("fabric_thresholds")
    try:
        if thresholds:
            verdicts.thresholds_from(subject.catalog["thresholds"], thresholds)
    except verdicts.ThresholdError as error:
        yield subject.say("bad_variable", str(error), SEE_FABRIC)
    yield from _test_settings(subject)
    yield from _declared_rails(subject)


def _test_settings(subject: Subject) -> Iterator[Finding]:
    ranges = {name: (least, most) for name, least, most in arguments.MEASURING}
    # An end has to meet the other one first, and the module ends all of it at its deadline.
    ranges["duration_s"] = (ranges["duration_s"][0], arguments.DEADLINE_S - arguments.PAIRING_TIMEOUT_S - 1)
    for name, value in subject.mapping("fabric_test").items():
        if name not in ranges:
            near = difflib.get_close_matches(str(name), ranges, n=1)
            way_out = f"did you mean {near[0]}?" if near else f"there are {', '.join(ranges)}"
            yield subject.say("bad_variable", f"fabric_test names {name}, which is no option of the test", way_out)
            continue
        least, most = ranges[name]
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            fact = f"fabric_test.{name} is {value!r}, which is no whole number from {least} to {most}"
            yield subject.say("bad_variable", fact, SEE_FABRIC)


def _declared_rails(subject: Subject) -> Iterator[Finding]:
    example = "write {p0: [enp1s0f0np0, enP2p1s0f0np0]}, with the interfaces of this host"
    for port, netdevs in subject.mapping("fabric_rails").items():
        if port not in PORTS:
            fact = f"fabric_rails names the port {port!r}, and a Spark has {' and '.join(PORTS)}"
            yield subject.say("bad_variable", fact, example)
        elif not _are_twins(netdevs):
            fact = f"fabric_rails.{port} is {netdevs!r}, and must be a list of {RAILS_OF_A_PORT} interfaces, the twins"
            yield subject.say("bad_variable", fact, example)


def _are_twins(netdevs: Any) -> bool:
    is_list = isinstance(netdevs, (list, tuple)) and all(isinstance(netdev, str) for netdev in netdevs)
    return is_list and len(netdevs) == len(set(netdevs)) == RAILS_OF_A_PORT


def check_rails(subject: Subject) -> Iterator[Finding]:
    if not subject.ports:
        return
    rails, ports = subject.facts["rails"], " and ".join(subject.ports)
    if not rails:
        yield subject.say(
            "no_rdma",
            f"there is no RDMA device with a netdev, and the topology {subject.topology} needs rails on {ports}",
            "put the cable in on both ends (the ConnectX-7 is not on the PCIe bus until a cable is in) and wait 20 s;"
            " if it stays away, power off, unplug the brick for 60 s, start with the cable in",
        )
        return
    # The plan refuses what contradicts the machine.
    declared = {port: own for port, own in subject.mapping("fabric_rails").items() if _are_twins(own)}
    for port in subject.ports:
        own = [rail for rail in rails if rail["port"] == port or rail["netdev"] in declared.get(port, ())]
        if not own:
            there = ", ".join(f"{rail['netdev']} ({rail['port'] or 'no port'})" for rail in rails)
            yield subject.say(
                "no_rail",
                f"no RDMA device belongs to port {port}, which the topology {subject.topology} needs; there is {there}",
                f"put the cable {_cable(subject, port)} into that port, or "
                + ("choose another fabric_topology" if subject.topology == "ring" else "correct fabric_ports")
                + " (p0 is the QSFP port beside the RJ45 socket)",
            )
        elif len(own) < RAILS_OF_A_PORT:
            here = own[0]["netdev"]
            yield subject.say(
                "no_rail",
                f"port {port} has only one of its {RAILS_OF_A_PORT} rails, {here}; {_twin(here)} is not there, "
                "so the port would carry half of what it can",
                "both PCIe functions of a port must be on the bus (lspci): power off, unplug the brick for 60 s, start "
                "with the cable in",
            )
        yield from _carrier(subject, port, own)
        yield from _link_rate(subject, port, own)
        yield from _management(subject, port, own)


def _twin(netdev: str) -> str:
    """The other rail of a port. Of the two PCIe functions of a GB10's port the second is in domain 2."""
    name = re.fullmatch(r"en(P2)?(p\w+)", netdev)
    return f"its twin {'en' if name[1] else 'enP2'}{name[2]}" if name else "its twin"


def _carrier(subject: Subject, port: str, rails: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    dark = [rail["netdev"] for rail in rails if rail["carrier"] is False]
    down = [rail["netdev"] for rail in rails if rail["carrier"] is None]
    if dark:
        way_out = f"check the cable {_cable(subject, port)}: seated on both ends, the other end powered on"
        spare = next((name for name in _lit(subject.facts) if name not in subject.ports), None)
        if spare:
            way_out = f"port {spare} has a link: {_move(subject, port, spare)}; else {way_out}"
        yield subject.say("no_carrier", f"no carrier on port {port} ({', '.join(dark)})", way_out)
    if down:
        yield subject.say(
            "no_carrier",
            f"carrier unknown on port {port} ({', '.join(down)}): the interface is administratively down",
            f"ip link set {shlex.quote(down[0])} up shows whether the cable {_cable(subject, port)} is in",
            "warn",
        )


def _lit(facts: Mapping[str, Any]) -> list[str]:
    """Return the ports that have a link."""
    return [rail["port"] for rail in facts.get("rails", ()) if rail["port"] and rail["carrier"]]


def _move(subject: Subject, port: str, spare: str) -> str:
    """Return what to do about a cable in the other port: fabric_ports is of the cluster, and a cable of one host."""
    move = f"move the cable to {port} on this host"
    others = [subject.heard[host] for host in subject.members if host != subject.host and host in subject.heard]
    if any(spare not in _lit(facts) for facts in others):
        return move
    return f"{move}, or, if it is in {spare} on each host of the cluster, set fabric_ports: [{spare}] for all of them"


def _link_rate(subject: Subject, port: str, rails: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """A port that links below its rate is known before anything is measured; None: the driver does not tell."""
    try:
        full = verdicts.thresholds_from(subject.catalog["thresholds"], subject.mapping("fabric_thresholds"))[
            "link_gbps"
        ]
    except verdicts.ThresholdError:
        return  # `check_settings` says so
    rates = _rates(subject.facts, {rail["netdev"] for rail in rails})
    if not rates or min(rates.values()) >= full:
        return
    links = ", ".join(f"{netdev} at {gbps:g} Gb/s" for netdev, gbps in rates.items())
    yield subject.say(
        "slow_link",
        f"port {port} links below {full:g} Gb/s: {links}{_far_rates(subject, port)}",
        verdicts.way_to_full_rate(full, min(rates.values())),
    )


def _far_rates(subject: Subject, port: str) -> str:
    """At what rate the other end of the cable links, if its host was asked too."""
    host, far_port = _other_end(subject, port) or ("", "")
    facts = subject.heard.get(host, {})
    netdevs = {rail["netdev"] for rail in facts.get("rails", ()) if rail["port"] == far_port}
    links = ", ".join(f"{netdev} at {gbps:g} Gb/s" for netdev, gbps in _rates(facts, netdevs).items())
    return f"; at the other end {host} {far_port}: {links}" if links else ""


def _rates(facts: Mapping[str, Any], netdevs: Container[str]) -> dict[str, float]:
    """The link rates of interfaces in Gb/s, where they have a link and the driver tells."""
    return {
        interface["name"]: interface["speed_mbps"] / 1000
        for interface in facts.get("interfaces", ())
        if interface["name"] in netdevs and interface["speed_mbps"]
    }


def _cable(subject: Subject, port: str) -> str:
    """Return which cable hangs on this port, by the topology."""
    other = _other_end(subject, port)
    return f"between {subject.host} {port} and {' '.join(other) if other else 'the switch'}"


def _other_end(subject: Subject, port: str) -> tuple[str, str] | None:
    """Host and port at the other end of a cable; hosts of a ring are joined p1 to p0 in inventory order."""
    members = list(subject.members)
    if subject.host in members and subject.topology == "pair" and len(members) == 2:
        return members[1 - members.index(subject.host)], port
    if subject.host in members and subject.topology == "ring":
        step, other_port = (1, "p0") if port == "p1" else (-1, "p1")
        return members[(members.index(subject.host) + step) % len(members)], other_port
    return None


def _management(subject: Subject, port: str, rails: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    carriers = lifelines(subject.facts)
    for rail in rails:
        roles = carriers.get(rail["netdev"])
        if roles:
            yield subject.say(
                "rail_is_management",
                f"{rail['netdev']} of port {port} carries {' and '.join(roles)}; as a rail it would cut us off",
                "manage the host over the RJ45 socket or Wi-Fi (ansible_host, and the default route there)",
            )


CHECKS = (check_rails,)
