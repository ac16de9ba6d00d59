# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is behind each port: all hosts of a cluster call out of their rails at the same time, and listen.

A call is one broadcast frame of the Ethernet type that IEEE 802 sets aside for local experiments. It needs no address
and no profile, so wrong cables are found before anything is changed. A host calls until it has heard everybody whom the
plan puts behind its ports, and a little longer for those that started later, or until time is up.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document

ETHERTYPE = 0x88B5  # IEEE 802, local experimental ethertype 1
MAGIC = b"gb10-rail-neighbours "
CALL_EVERY_S = 0.2
LINGER_S = 2.0
MOST_HEARD = 1024  # ends behind one rail; a switch has some dozens of hosts, each with four
LARGEST_CALL = 1400  # bytes; fits every MTU
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,253}\Z")
_NETDEV = re.compile(r"[A-Za-z0-9_][^/\s]{0,14}\Z")


@dataclass(frozen=True)
class CallingRail:
    """One interface to call out of; `expect` names the hosts that the plan puts behind it."""

    netdev: str
    port: str
    expect: list[str]


@dataclass
class Conversation:
    """What one host has heard so far. Pure: frames and times in, decisions out."""

    token: str
    host: str
    rails: Sequence[CallingRail]
    until: float
    heard: dict[tuple[str, str, str], dict[str, str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)  # of those heard, by rail
    latest: float = 0.0  # when somebody was heard for the first time

    def call(self, rail: CallingRail) -> bytes:
        said = {"token": self.token, "host": self.host, "netdev": rail.netdev, "port": rail.port}
        return MAGIC + json.dumps(said).encode()

    def listen(self, rail: CallingRail, payload: bytes, now: float) -> None:
        """Note who called. Anybody may send such frames: what is not of this run, or is no call, is no news."""
        if not payload.startswith(MAGIC) or len(payload) > LARGEST_CALL:
            return
        said = document(payload[len(MAGIC) :].rstrip(b"\0"))  # short frames are padded with zeros
        if said.get("token") != self.token:
            return
        names = {key: said.get(key) for key in ("host", "netdev", "port")}
        if not all(isinstance(value, str) and _NAME.match(value) for value in names.values()):
            return
        # Twins hear each other through the port that they share; the other port of this host is heard over a cable.
        itself = (names["host"], names["port"]) == (self.host, rail.port)
        key = (rail.netdev, str(names["host"]), str(names["netdev"]))
        if not itself and key not in self.heard and self.counts[rail.netdev] < MOST_HEARD:
            self.counts[rail.netdev] += 1
            self.heard[key] = {
                "netdev": rail.netdev,
                "port": rail.port,
                "host": str(names["host"]),
                "there_netdev": str(names["netdev"]),
                "there_port": str(names["port"]),
            }
            self.latest = now

    def over(self, now: float) -> bool:
        missing = any(
            host not in {entry["host"] for entry in self.heard.values() if entry["netdev"] == rail.netdev}
            for rail in self.rails
            for host in rail.expect
        )
        return now >= self.until or (not missing and now >= self.latest + LINGER_S)

    @property
    def result(self) -> list[dict[str, str]]:
        return [self.heard[key] for key in sorted(self.heard)]


def parse_rails(raw: Sequence[Mapping[str, Any]]) -> list[CallingRail]:
    """Check the arguments and say what is wrong with the first bad one."""
    for number, entry in enumerate(raw):
        if not _NETDEV.match(entry["netdev"]):
            raise ValueError(f"rails[{number}].netdev {entry['netdev']!r} is no name of a network interface")
    return [CallingRail(entry["netdev"], entry["port"], list(entry["expect"])) for entry in raw]


def talk(token: str, host: str, rails: Sequence[CallingRail], seconds: float) -> tuple[list[dict[str, str]], list[str]]:
    """Call and listen on all rails; who was heard, and the rails that cannot carry a frame now."""
    started = time.monotonic()
    conversation = Conversation(token, host, rails, started + seconds, latest=started)
    with contextlib.ExitStack() as stack:
        sockets: dict[socket.socket, CallingRail] = {}
        mute = []
        for rail in rails:
            try:
                own = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETHERTYPE))
                stack.enter_context(own)
                own.bind((rail.netdev, ETHERTYPE))
            except OSError as error:
                if isinstance(error, PermissionError):
                    raise
                mute.append(rail.netdev)
                continue
            sockets[own] = rail
        next_call = started
        while sockets and not conversation.over(now := time.monotonic()):
            if now >= next_call:
                next_call = now + CALL_EVERY_S
                for own, rail in sockets.items():
                    with contextlib.suppress(OSError):  # a link that is down now may be up in a moment
                        own.sendto(conversation.call(rail), (rail.netdev, ETHERTYPE, 0, 0, b"\xff" * 6))
            ready, __, __ = select.select(list(sockets), [], [], max(0.0, next_call - now))
            for own in ready:
                with contextlib.suppress(OSError):
                    conversation.listen(sockets[own], own.recv(2 * LARGEST_CALL), time.monotonic())
    return conversation.result, mute
