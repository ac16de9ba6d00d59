# SPDX-License-Identifier: GPL-3.0-or-later
"""Who gets image and model from where, and how it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import run
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.addressing import HostFabric

_PARTS = ("image", "model", "draft")


def parts(said: Mapping[str, Any]) -> dict[str, Any]:
    """What a host holds, by its parts: image, model, draft model, and each adapter. None is what it lacks."""
    adapters = {f"lora-{number}": each["model"] for number, each in enumerate(said.get("loras") or ())}
    return {**{part: said[part] for part in _PARTS if part in said}, **adapters}


def password(members: Sequence[str]) -> str:
    """Of the daemons of one cluster in this run: a host of another cluster cannot derive it from its own."""
    return run.secret("transfer", *members)


def source(host: str, members: Sequence[str], topology: str, *, fetch: bool) -> str:
    """From whom a host gets its files: from itself (registry and hub), or from the first host of its cluster."""
    return members[0] if fetch and topology != "none" else host


def ways(hosts: Mapping[str, HostFabric], giver: str) -> dict[str, dict[str, str]]:
    """For each other host of a fabric the address of the giver (`at`) and its own (`to`): over a rail, if one joins the
    two.

    In a ring two hosts may have none, and meet as vLLM does.
    """
    found: dict[str, dict[str, str]] = {}
    own = hosts[giver]
    for profile in own.profiles:
        for peer in profile.peers:
            found.setdefault(peer.host, {"at": profile.address, "to": peer.address})
    for host, other in hosts.items():
        if host != giver and own.control and other.control:
            found.setdefault(host, {"at": own.control.address, "to": other.control.address})
    return found


def missing(giver: Mapping[str, Any], taker: Mapping[str, Any]) -> list[str]:
    """Of what the giver has, what the taker has not, or another one of."""
    own, held = parts(taker), {part: thing for part, thing in parts(giver).items() if thing is not None}
    return [
        part
        for part, thing in held.items()
        if _identity(part, thing) != _identity(part, own.get(part)) or _configured_otherwise(thing, own.get(part) or {})
    ]


def _configured_otherwise(giver: Mapping[str, Any], taker: Mapping[str, Any]) -> bool:
    """Return whether both have an image in Docker's classic store, and two of them."""
    told, own = giver.get("configuration"), taker.get("configuration")
    return None not in (told, own) and told != own


def _identity(part: str, thing: Mapping[str, Any] | None) -> Any:
    if thing is None:
        return None
    return thing["fingerprint"] if part == "image" else (thing["commit"], sorted(thing["files"]))


def size(said: Mapping[str, Any], wanted: Sequence[str]) -> int:
    held = parts(said)
    return sum(held[part]["bytes"] for part in wanted)


def progress(host: str, now: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """One line: what a host is doing, how far it is, and how fast it was since the last line. GB are 10^9 bytes."""
    line = f"{host}: {now['doing']}"
    if not now["total"]:
        return line
    line += f": {now['done'] / 1e9:.1f} of {now['total'] / 1e9:.1f} GB"
    if before is None or before["doing"] != now["doing"] or now["at"] <= before["at"]:
        return line
    return f"{line}, {max(0, now['done'] - before['done']) / (now['at'] - before['at']) / 1e9:.2f} GB/s"
