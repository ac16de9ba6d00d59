# SPDX-License-Identifier: GPL-3.0-or-later
"""Ping peers over given rails with packets that must not be fragmented, all at once."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Callable

from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import RUN_FABRIC
from ansible_collections.gb10.fleet.plugins.module_utils.system.arguments import check_ipv4, check_ranges
from ansible_collections.gb10.fleet.plugins.module_utils.system.children import Child, Children

INTERVAL_S = 0.2
WAIT_S = 4  # the kernel gives up on ARP after 3 s, and only then says "unreachable"
MARGIN_S = 5
POLL_S = 0.02
LARGEST_PAYLOAD = 65507
LARGEST_QUOTE = 160


@dataclass(frozen=True)
class Ping:
    """One peer over one rail. ``size_bytes`` is the ICMP payload: 8972 fills a packet of MTU 9000."""

    name: str
    interface: str
    source: str
    peer: str
    size_bytes: int
    count: int


def parse_pings(raw: Sequence[Mapping[str, Any]]) -> list[Ping]:
    """Check the arguments and say what is wrong with the first bad one."""
    pings = [Ping(**entry) for entry in raw]
    for number, ping in enumerate(pings):
        where = f"pings[{number}]"
        if not re.fullmatch(r"[A-Za-z0-9_][^/\s]{0,14}", ping.interface):
            raise ValueError(f"{where}.interface {ping.interface!r} is no name of a network interface")
        check_ipv4(where, ping, ("source", "peer"))
        check_ranges(where, ping, (("size_bytes", 0, LARGEST_PAYLOAD), ("count", 1, 100)))
    return pings


def argv(executable: str, ping: Ping) -> list[str]:
    """The command line: one packet more than asked for, because the first may be lost while ARP resolves."""
    fixed = [executable, "-n", "-M", "do", "-i", str(INTERVAL_S), "-W", str(WAIT_S)]
    return [
        *fixed,
        "-c",
        str(ping.count + 1),
        "-s",
        str(ping.size_bytes),
        "-I",
        ping.interface,
        "-I",
        ping.source,
        ping.peer,
    ]


# (text of iputils ping, class, what it means, way out), the specific before the general.
FAULTS = (
    (
        r"SO_BINDTODEVICE[^\n]{0,40}No such device|unknown iface|bind: Cannot assign requested address|invalid source",
        "no_interface",
        "the interface is missing or does not have the source address",
        f"give the rail its address: {RUN_FABRIC}",
    ),
    (
        r"[Mm]essage too long|Frag needed",
        "mtu",
        "the packet is larger than the MTU on the way",
        "set the same MTU (fabric_mtu) on both ends and at least that on the switch",
    ),
    (
        r"Network is unreachable|connect: No route to host",
        "no_route",
        "this host has no route to the peer: the rail's own address or its subnet is missing",
        f"compare `ip -4 address` and `ip -4 route` here with the plan, then {RUN_FABRIC}",
    ),
    (
        r"sendmsg: Operation not permitted|local error: Operation not permitted",
        "firewall",
        "this host's own firewall does not let the ping out",
        "look at `nft list ruleset` on this host, and let ICMP echo pass on the rail",
    ),
    (
        r"Network is down|No buffer space available",
        "link_down",
        "packets do not leave: the interface is down, or its link stands still",
        f"`ip link show` on this host, and the cable; then {RUN_FABRIC}",
    ),
    (
        r"Time to live exceeded",
        "loop",
        "packets go in a circle, and not over the rail",
        "compare `ip -4 route` on both hosts with the plan, and take out the routes that are not of it",
    ),
    (
        r"Destination (?:Host|Net) Unreachable|sendmsg: No route to host",
        "unreachable",
        "nobody answers ARP for the peer on this rail",
        "check the cable, that the peer is up, and that it has this address on the rail at the other end",
    ),
)
# Answers that came and are not right, in iputils' words; the counts alone do not show them.
FLAWS = (
    (
        r"bytes from (\S{1,64}): [^\n]{1,120}\(DIFFERENT ADDRESS!\)",
        "other_address",
        "another address than the peer's answered: {}",
        "see on the peer which interface has the address (`ip -4 address`), and take it off any other one; "
        "see that nothing between translates addresses",
    ),
    (
        r"(wrong data byte[^\n]{0,80}|BAD CHECKSUM|\(truncated\)|, \+\d{1,9} corrupted)",
        "corrupted",
        "answers came back with other bytes than were sent (ping: {})",
        "measure no further: put the cable in anew at both ends, then take another one; see the port's error counters "
        "(`ethtool -S`) and the kernel's log for memory errors on both hosts",
    ),
    (
        r"(\(DUP!\)|\+\d{1,9} duplicates)",
        "duplicates",
        "one packet was answered more than once (ping: {})",
        "see that no other host has the peer's address, and that no loop of cables or bridges joins the rails",
    ),
)
WAYS_OUT = {
    "loss": "check the cable and the error counters of the port",
    "failed": "run ping as root on this host; if it cannot run, reinstall iputils-ping, and give a container the "
    "capability NET_RAW",
    "timeout": "ping the same way with 56 bytes: if that works, the MTU differs on the way; if not, check cable and "
    "addresses",
    "refused_by": "look at the rules at {sender} (`nft list ruleset`), and let ICMP echo pass",
    "refused_there": "look at the rules on the peer (`nft list ruleset`), and let ICMP echo pass",
    "refused_here": "look at the rules on this host (`nft list ruleset`), and let ICMP echo pass",
    "missing_package": "install iputils-ping",
}
# An ICMP error by its sender. It is a firewall's, but for the two of a host that is not there.
REJECTED = re.compile(
    r"From (\S{1,64}?):? icmp_seq=\d{1,9} "
    r"(Destination (?:Host|Net|Port|Protocol) Unreachable|Destination (?:Host|Net) Prohibited|Packet filtered)"
)
TRANSMITTED = re.compile(r"(\d{1,9}) packets transmitted, (\d{1,9}) (?:packets )?received")
ANSWERED = re.compile(r"bytes from [^\n]{1,80}: icmp_seq=(\d{1,9})\b", re.ASCII)
ROUND_TRIP = re.compile(r"= [\d.]{1,16}/([\d.]{1,16})/")


def read_result(ping: Ping, output: str, ended: bool) -> dict[str, Any]:
    """Judge one ping by what it printed; ``rtt_ms`` is the average."""
    counts = TRANSMITTED.search(output)
    sent, received = (int(counts.group(1)), int(counts.group(2))) if counts else (0, 0)
    trip = ROUND_TRIP.search(output)
    # Only the first may be lost, while ARP resolves: one that is lost later was lost on the way.
    answered = {int(number) for number in ANSWERED.findall(output)}
    good = received > ping.count or answered.issuperset(range(2, ping.count + 2))
    fault = _flaw(output) or (None if good else _fault(ping, output, sent, received, ended))
    rtt_ms = float(trip.group(1)) if trip and re.fullmatch(r"\d+(\.\d+)?", trip.group(1)) else None
    return {**asdict(ping), "ok": fault is None, "sent": sent, "received": received, "rtt_ms": rtt_ms, "fault": fault}


def _named(name: str, text: str, way_out: str) -> dict[str, str]:
    return {"name": name, "text": text, "way_out": way_out}


def _flaw(output: str) -> dict[str, str] | None:
    for pattern, name, text, way_out in FLAWS:
        match = re.search(pattern, output)
        if match:
            return _named(name, text.format(match.group(1).strip(" ,()")), way_out)
    return None


def _fault(ping: Ping, output: str, sent: int, received: int, ended: bool) -> dict[str, str]:
    rejected = _rejected(ping, output)
    if rejected:
        return rejected
    for pattern, name, text, way_out in FAULTS:
        if re.search(pattern, output):
            return _named(name, text, way_out)
    if received:
        return _named("loss", f"{received} of {sent} answers came", WAYS_OUT["loss"])
    quote = _last_words(output) if ended else None
    if quote is not None:
        text = f"ping itself failed (its last line: {quote[:LARGEST_QUOTE]!r})"
        return _named("failed", text, WAYS_OUT["failed"])
    text = f"no answer from {ping.peer} to {ping.size_bytes} bytes" + ("" if ended else "; ping itself did not end")
    return _named("timeout", text, WAYS_OUT["timeout"])


def _rejected(ping: Ping, output: str) -> dict[str, str] | None:
    """A firewall that says no, and whose it is. A host that calls itself unreachable has such a rule."""
    for sender, words in REJECTED.findall(output):
        if words in ("Destination Host Unreachable", "Destination Net Unreachable") and sender != ping.peer:
            continue
        whose, way = f"a firewall at {sender}, between the two hosts,", "refused_by"
        if sender == ping.peer:
            whose, way = "the peer's firewall", "refused_there"
        elif sender == ping.source:
            whose, way = "this host's own firewall", "refused_here"
        text = f"{whose} refuses the ping ({words})"
        return _named("firewall", text, WAYS_OUT[way].replace("{sender}", sender))
    return None


def _last_words(output: str) -> str | None:
    """What a ping says that could not run, or could not send; None where it sent and merely heard nothing."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if TRANSMITTED.search(output):
        lines = [line for line in lines if line.startswith("ping: ") and not line.startswith("ping: Warning")]
        return lines[-1] if lines else None
    return lines[-1] if lines else "nothing"


MISSING_PACKAGE = {"name": "missing_package", "text": "ping is not installed", "way_out": WAYS_OUT["missing_package"]}


@contextlib.contextmanager
def started(pings: Sequence[Ping], executable: str | None) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """All pings run at once while the caller does something else; what this yields waits for them, and returns results.

    The slowest possible one bounds the whole.
    """
    if executable is None:
        yield lambda: [{**read_result(ping, "", True), "fault": MISSING_PACKAGE} for ping in pings]
        return
    slowest = max((ping.count for ping in pings), default=0) * (INTERVAL_S + WAIT_S) + MARGIN_S
    until = time.monotonic() + slowest
    with Children() as children:
        running: list[Child] = [children.start(argv(executable, ping)) for ping in pings]

        def results() -> list[dict[str, Any]]:
            while not all(child.finished() for child in running) and time.monotonic() < until:
                time.sleep(POLL_S)
            ended = [child.finished() for child in running]
            for child in running:
                child.close()
            return [read_result(ping, child.output, end) for ping, child, end in zip(pings, running, ended)]

        yield results
