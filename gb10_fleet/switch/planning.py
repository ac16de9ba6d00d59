"""The commands that give a port what the fleet needs, and those that take them back. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gb10_fleet.switch.judging import Seen
from gb10_fleet.switch.routeros import NAME, State
from gb10_fleet.switch.settings import Fleet

_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9,.-]{0,1199}")
_FORCED = re.compile(r"qsfp56-dd-\d+-\d+")  # by the name as it comes: a breakout does not negotiate
_NEVER_SAID = {"fec-mode": "auto"}  # what RouterOS leaves out where nobody has set it


@dataclass(frozen=True)
class Change:
    """The settings of one port: what it gets, and what it had."""

    port: str
    new: Mapping[str, str]
    old: Mapping[str, str]

    @property
    def command(self) -> str:
        return _command(self.port, self.new)

    @property
    def back(self) -> str:
        return _command(self.port, self.old)


def _command(port: str, values: Mapping[str, str]) -> str:
    """A line for RouterOS. It addresses the port by its name: ids differ from switch to switch."""
    words = " ".join(f"{key}={value}" for key, value in values.items())
    return f'/interface/ethernet/set [find where name="{port}"] {words}'


def changes(
    fleet: Fleet, state: State, rows: Sequence[Seen], catalog: Mapping[str, Any]
) -> tuple[list[Change], list[str]]:
    """Return what to change port by port, and in words what no plan can change."""
    found, left = [], []
    if not rows:
        left.append("no port with a Spark behind it is known: gb10 switch check says why")
    for row in rows:
        own, default_name = state.ports[row.port].settings, state.ports[row.port].default_name
        new = dict(_wanted(row, fleet, default_name, catalog))
        old = {key: own.get(key, _NEVER_SAID.get(key, "")) for key in new}
        if own.get("auto-negotiation") == "yes" and "speed" not in own:
            old.pop("speed", None)  # it counts only without negotiation
        if not NAME.fullmatch(row.port):
            left.append(f"{row.port!r} has a name that gb10 puts into no command; rename it on the switch")
        elif len({text.partition(" ")[0] for text in row.hosts}) > 1 or not default_name.startswith("qsfp"):
            left.append(f"{row.port} leads to another switch, or is no QSFP port: gb10 leaves it alone")
        elif bad := [key for key, value in old.items() if not _VALUE.fullmatch(value)]:
            left.append(f"{row.port} does not say its {', '.join(bad)}, so nothing could be taken back")
        elif new:
            found.append(Change(row.port, new, old))
        if row.offloaded is False:
            left.append(f"{row.port} is bridged by the CPU: put it into the one bridge that the chip offloads, hw=yes")
    return found, left


def _wanted(row: Seen, fleet: Fleet, default_name: str, catalog: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if row.l2mtu is not None and row.l2mtu < fleet.mtu:
        yield "l2mtu", str(max(catalog["judged_by"]["planned_l2mtu"]["value"], fleet.mtu))
        if row.mtu != fleet.mtu:
            yield "mtu", str(fleet.mtu)
    if row.pause is False and not row.pfc:
        yield "rx-flow-control", "on"
        yield "tx-flow-control", "on"
    if row.gbps is not None and row.gbps < fleet.gbps:
        word = catalog["speed_words"]["value"][str(fleet.gbps)]
        if _FORCED.fullmatch(default_name):
            yield from (("auto-negotiation", "no"), ("speed", word))
        else:
            yield from (("advertise", word), ("fec-mode", "fec91"))
