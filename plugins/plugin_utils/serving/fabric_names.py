# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of interfaces, adapters and addresses that somebody pinned by hand for NCCL and Gloo, against the host's facts.

The role knows them of each host, and a variable by hand goes before it: one for all hosts is right on one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import some

_EXACT = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_ADDRESS, _SOCKET, _HCA = "VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"
NAMES = (*_EXACT, _SOCKET, _HCA, _ADDRESS)


def objections(by_hand: Mapping[str, Any], facts: Mapping[str, Any], host: str) -> dict[str, str]:
    """What speaks against them, by kind: `absent`, `empty` or `idle`."""
    said = {name: str(by_hand[name]).strip() for name in NAMES if name in by_hand}
    if not said:
        return {}
    found = {
        "empty": [f"{name} is empty, which hides what the role says" for name, value in said.items() if not value],
        "absent": list(_absent({name: value for name, value in said.items() if value}, facts, host)),
        "idle": list(_idle(said.get(_HCA, ""), facts, host)),
    }
    return {kind: ", ".join(texts) for kind, texts in found.items() if texts}


def _absent(said: Mapping[str, str], facts: Mapping[str, Any], host: str) -> Iterator[str]:
    there = {each["name"]: each["addresses"] for each in facts["interfaces"]}
    for name in _EXACT:
        missing = [word for word in said.get(name, "").split(",") if word and word not in there]
        if missing:
            yield f"{name} names {some(missing)}, which {host} does not have"
    if _SOCKET in said and not any(_takes(said[_SOCKET], each) for each in there):
        yield f"{_SOCKET} {said[_SOCKET]} takes no interface of {host}"
    adapters = [each["hca"] for each in facts["rails"]]
    if adapters and _HCA in said and not any(_takes(said[_HCA], each) for each in adapters):
        yield f"{_HCA} {said[_HCA]} takes none of {some(sorted(adapters))} of {host}"
    addresses = {cidr.partition("/")[0] for each in there.values() for cidr in each}
    if _ADDRESS in said and said[_ADDRESS] not in addresses:
        yield f"{_ADDRESS} {said[_ADDRESS]} is no address of {host}"


def _idle(said: str, facts: Mapping[str, Any], host: str) -> Iterator[str]:
    """Rails with a cable that the list leaves out, where it takes others."""
    cabled = [each["hca"] for each in facts["rails"] if each["carrier"]]
    left = [each for each in cabled if said and not _takes(said, each)]
    if left and len(left) < len(cabled):
        yield f"{_HCA} {said} leaves {some(sorted(left))} of {host} without work"


def _takes(said: str, name: str) -> bool:
    """Return whether NCCL's list takes that name: beginnings of names, `=` for whole ones, `^` for all but these."""
    without = said.startswith("^")
    rest = said.removeprefix("^")
    words = [word.partition(":")[0] for word in rest.removeprefix("=").split(",") if word]
    found = name in words if rest.startswith("=") else any(name.startswith(word) for word in words)
    return found is not without
