# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the cables lead where the plan says, and which one to move if not: pure functions of who heard whom."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.addressing import HostFabric

AS_PLANNED, WRONG_CABLE, SILENT = "as_planned", "wrong_cable", "silent"
End = tuple[str, str]  # host and port


def calls(own: HostFabric) -> list[dict[str, Any]]:
    """The rails of one host with those who are expected behind them, as ``rail_neighbours`` takes them."""
    return [
        {
            "netdev": profile.netdev,
            "port": profile.port,
            "expect": list(dict.fromkeys(peer.host for peer in profile.peers)),
        }
        for profile in own.profiles
    ]


def judge(
    profiles: Mapping[str, Sequence[Mapping[str, Any]]], heard: Mapping[str, Sequence[Mapping[str, str]]]
) -> list[dict[str, Any]]:
    """One statement for each port of the plan: ``{host, port, verdict, found, text, way_out}``.

    ``profiles`` and ``heard`` are by host. Of a cable that leads elsewhere one end is right and stays: the one that its
    link names first, p1 in a ring, the first host in a pair. A cable that both its ends heard is told once; where one
    end alone says so, it is followed from there.
    """
    partners = _partners(profiles)
    # A host with a port on a switch hears its own other port there as well.
    on_switch = {host for host, own in profiles.items() if any(each["link"].startswith("switch-") for each in own)}
    found = _found(heard, on_switch)
    statements: list[dict[str, Any]] = []
    told: set[frozenset[End]] = set()
    for end in sorted(partners, key=lambda end: not _is_first(end, partners)):  # stable
        planned = partners[end]
        there = found.get(end, [])
        if any(partner in there for partner in planned):
            statements.append(_statement(end, AS_PLANNED, there, f"leads to {_names(there)}, as planned", ""))
        elif not there and end[0] not in heard:
            continue  # a host that did not listen says nothing of its cables
        elif not there:
            text = f"nobody was heard; planned is {_names(planned)}"
            way_out = "check the cable, and that both ends have power and their interfaces are up"
            statements.append(_statement(end, SILENT, there, text, way_out))
        elif frozenset((end, there[0])) not in told:
            told.add(frozenset((end, there[0])))
            both = end in found.get(there[0], ())
            statements.append(_wrong(end, there, partners) if both else _alone(end, there[0], partners))
    return statements


def wrong(statements: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what is to be moved, for a person to read."""
    return [
        f"{item['host']} {item['port']}: {item['text']}; {item['way_out']}"
        for item in statements
        if item["verdict"] == WRONG_CABLE
    ]


def _partners(profiles: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[End, list[End]]:
    """Whom the plan puts behind each port."""
    partners: dict[End, list[End]] = {}
    for host, own in profiles.items():
        for profile in own:
            here = partners.setdefault((host, profile["port"]), [])
            here += [end for peer in profile["peers"] if (end := (peer["host"], peer["port"])) not in here]
    return partners


def _found(heard: Mapping[str, Sequence[Mapping[str, str]]], on_switch: Container[str]) -> dict[End, list[End]]:
    found: dict[End, list[End]] = {}
    for host, entries in heard.items():
        for entry in entries:
            end = (entry["host"], entry["there_port"])
            there = found.setdefault((host, entry["port"]), [])
            if end not in there and not (end[0] == host and host in on_switch):
                there.append(end)
    return found


def _wrong(end: End, there: Sequence[End], partners: Mapping[End, Sequence[End]]) -> dict[str, Any]:
    stays, moves = _which_moves(end, there[0], partners)
    target = partners[stays][0]
    if moves[0] == target[0]:
        way_out = f"at {moves[0]}, move that end of the cable from {moves[1]} to {target[1]}"
    else:
        way_out = f"pull that cable out of {_name(moves)} and put it into {_name(target)}"
    text = f"the cable leads to {_name(moves)}, and should lead to {_name(target)}"
    return _statement(stays, WRONG_CABLE, [moves], text, way_out)


def _alone(end: End, other: End, partners: Mapping[End, Sequence[End]]) -> dict[str, Any]:
    """One end says so, and the other one does not: nobody is sent there, for a host may name whom it likes."""
    target = partners[end][0]
    text = f"the cable leads to {_name(other)}, as {end[0]} alone says, and should lead to {_name(target)}"
    way_out = f"follow the cable from {_name(end)}, and put its other end into {_name(target)}"
    return _statement(end, WRONG_CABLE, [other], text, way_out)


def _which_moves(end: End, other: End, partners: Mapping[End, Sequence[End]]) -> tuple[End, End]:
    """The end that stays and the end that moves."""
    order = {place: number for number, place in enumerate(partners)}
    if other not in partners:
        return end, other

    def rank(place: End) -> tuple[bool, int]:
        return not _is_first(place, partners), order[place]

    return (end, other) if rank(end) <= rank(other) else (other, end)


def _is_first(end: End, partners: Mapping[End, Sequence[End]]) -> bool:
    """Tell whether the link of this end names it first: p1 leads on in a ring, the first host does in a pair."""
    partner = partners[end][0]
    if end[1] != partner[1]:
        return end[1] > partner[1]
    order = list(partners)
    return partner not in partners or order.index(end) < order.index(partner)


def _statement(end: End, verdict: str, there: Sequence[End], text: str, way_out: str) -> dict[str, Any]:
    found = [{"host": host, "port": port} for host, port in there]
    return {"host": end[0], "port": end[1], "verdict": verdict, "found": found, "text": text, "way_out": way_out}


def _name(end: End) -> str:
    return f"{end[0]} {end[1]}"


def _names(ends: Sequence[End]) -> str:
    return ", ".join(_name(end) for end in ends)
