# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is where: the services of a fleet by host, and what they take of each host's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import ShownWish
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.stop_requests import is_asleep, said_of

Record = dict[str, Any]

GIB = 2**30
COLOURS = 6  # that the page tells apart; a seventh service has the first one's again
# What the evidence keeps of the plan of a service.
_OF_A_SERVICE = ("name", "kind", "unit", "rank", "members", "served_name", "port", "memory_gib")


class State(NamedTuple):
    """The state of a service on a host, and the tone in which it is shown."""

    text: str
    tone: str


def kept(placed: Mapping[str, Any]) -> Record:
    """The part of a host's plan that says what runs there, for the evidence."""
    return {
        "services": [{key: each[key] for key in _OF_A_SERVICE} for each in placed["services"]],
        "reserve_gib": placed["reserve_gib"],
    }


def model(hosts: Mapping[str, Mapping[str, Any]]) -> Record | None:
    """Return what the page shows; None for a fleet with one service, of one host or of one cluster."""
    seen = {(each["name"], tuple(each["members"])) for proof in hosts.values() for each in _placed(proof)}
    if len(seen) < 2:
        return None
    names = list(dict.fromkeys(each["name"] for proof in hosts.values() for each in _placed(proof)))
    colours = {name: f"s{index % COLOURS}" for index, name in enumerate(names)}
    return {
        "hosts": list(hosts),
        "rows": [
            {"name": name, "colour": colours[name], "cells": [_cell(name, proof) for proof in hosts.values()]}
            for name in names
        ],
        "models": list(_models(hosts)),
        "bars": [strip for name, proof in hosts.items() if (strip := _bar(name, proof, colours))],
    }


def _placed(proof: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    services: Sequence[Mapping[str, Any]] = (proof.get("placed") or {}).get("services", ())
    return services


def _cell(name: str, proof: Mapping[str, Any]) -> Record | None:
    service = next((each for each in _placed(proof) if each["name"] == name), None)
    if service is None:
        return None
    state, first = _state(service, proof), service["rank"] == 0
    return {
        **state._asdict(),
        "model": service["served_name"],
        "place": f"port {service['port']}" if first else f"asked on {service['members'][0]}",
    }


def _state(service: Mapping[str, Any], proof: Mapping[str, Any]) -> State:
    """Only the first host of a cluster is asked; the others are a part of its answer."""
    if wish := _wish(service, proof):
        return State(said_of(wish), "plain") if is_asleep(wish) else State("stopped by you", "warn")
    if service["rank"]:
        return State(f"rank {service['rank']}", "plain")
    said = _answer(service, proof)
    if said is None:
        return State("not asked", "warn")
    return State(said["verdict"].replace("_", " "), "ok" if said["verdict"] == "serving" else "bad")


def _models(hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[Record]:
    """Yield who serves what.

    Each name that clients ask for, and the hosts that answer to it, which a router chooses from.
    """
    found: dict[str, list[Record]] = {}
    for host, proof in hosts.items():
        for service in _placed(proof):
            if service["rank"] == 0:
                replica = {"host": host, "address": _address(service, proof), **_state(service, proof)._asdict()}
                found.setdefault(service["served_name"], []).append(replica)
    for name in sorted(found):
        yield {"name": name, "replicas": found[name]}


def _address(service: Mapping[str, Any], proof: Mapping[str, Any]) -> str:
    """Return where clients reach it: the gateway of its host."""
    said = _answer(service, proof)
    gateway = ((said or {}).get("api") or {}).get("gateway")
    return f"{gateway}/v1" if gateway else ""


def _answer(service: Mapping[str, Any], proof: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((each for each in proof["services"] if each.get("service") == service["name"]), None)


def _wish(service: Mapping[str, Any], proof: Mapping[str, Any]) -> ShownWish | None:
    return next((wish for wish in proof["facts"].get("wishes") or () if wish["unit"] == service["unit"]), None)


def _bar(host: str, proof: Mapping[str, Any], colours: Mapping[str, str]) -> Record | None:
    """By the plan: what each service may take, the system's reserve, and the rest. A stopped service takes nothing."""
    total_bytes = proof["facts"].get("memory_bytes")
    if not total_bytes or not proof.get("placed"):
        return None
    total, reserve = total_bytes / GIB, float(proof["placed"]["reserve_gib"])
    runs = [each for each in _placed(proof) if not _wish(each, proof)]
    rest = total - reserve - sum(each["memory_gib"] for each in runs)
    parts = [
        *((each["name"], colours[each["name"]], each["memory_gib"]) for each in runs),
        ("system's reserve", "reserve", reserve),
        *([("not taken", "rest", rest)] if rest > 0 else []),
    ]
    whole = max(total, total - rest)
    return {
        "host": host,
        "total": f"{total:.1f} GiB",
        "over": f"{-rest:.1f} GiB more than the host has" if rest < 0 else None,
        "parts": [
            {"name": name, "colour": colour, "gib": f"{gib:.1f}", "percent": f"{100 * gib / whole:.2f}"}
            for name, colour, gib in parts
        ],
        "stopped": _still(proof, asleep=False),
        "asleep": _still(proof, asleep=True),
    }


def _still(proof: Mapping[str, Any], *, asleep: bool) -> str:
    """Return what takes no memory now: stopped by an operator, or asleep until somebody asks for it."""
    wished = ((each, _wish(each, proof)) for each in _placed(proof))
    chosen = [each for each, wish in wished if wish is not None and is_asleep(wish) is asleep]
    return ", ".join(f"{each['name']} {each['memory_gib']:.1f}" for each in chosen)
