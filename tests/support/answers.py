"""Sound answers of a host, and the same with one value changed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tests.support.proofs import facts

# What the engine says where nothing is to be said: every answer has all of these keys.
EMPTY: dict[str, Any] = {
    "facts": None, "stale": [], "changes": [], "pending": [], "orphans": [], "diff": [], "wishes": [], "ends": [],
    "known": True, "recorded": True, "guard": None, "error": None, "subprocesses": 0,
}  # fmt: skip
GONE = object()
MORE = {
    "routes": [{"interface": "enP7s7", "cidr": "192.0.2.0/24"}],
    "port_owners": [
        {"interface": "enp1s0f0np0", "file": "/x", "name": "x", "uuid": None, "renderer": "netplan"},
        {"interface": "enp1s0f0np0", "file": "/y", "name": "y", "uuid": None, "renderer": None},
    ],
    "apt_preferences": [{"file": "/x", "package": "nvidia-*", "pin": "version 1", "priority": 1001}],
    "apt_sources": {
        "entries": [{"file": "/x", "uri": "http://x", "suite": "y", "components": ["main"], "signed_by": None}],
        "conflicts": [{"uri": "http://x", "suite": "y", "files": ["/x"], "signed_by": ["/y"]}],
        "offered": ["docker-ce"],
    },
    "memory_available_bytes": 2**36,
    "clock": {"epoch_s": 1.5e9, "source": "systemd-timesyncd", "synchronized": True},
    "machine_digest": "0123456789abcdef",
    "engine_answers": [
        {
            "question": {"images": ["x"], "model": "o/m", "revision": "main", "flags": {"trust_remote_code": True}},
            "said": {"model": "o/m", "seconds": 7.5, "refusal": "x", "firm": True, "layers": [{"kind": "x"}]},
        }
    ],
    "join_key": {"for": "x", "sha256": "y"},
    "join_keys": {"chat": {"for": "x", "sha256": "y"}},
    "model_phase": "weights",
    "wishes": [{"unit": "gb10-vllm.service", "who": "x", "since": "y", "until": "", "shown": ""}],
}


def sound_facts() -> dict[str, Any]:
    known = {**facts(), **MORE}
    known["driver"] = {**known["driver"], "pins": [{"file": "/x", "problem": "y"}], "unheld": ["x"]}
    return known


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in it."""
    if way:
        yield way
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*way, key))
    elif isinstance(value, list):
        for number, item in enumerate(value[:2]):
            yield from places(item, (*way, number))


def altered(known: dict[str, Any], way: tuple[Any, ...], wrong: Any) -> dict[str, Any]:
    """The same with one value changed. What is on the way to it is copied, all else is shared."""
    known = {**known}
    inner: Any = known
    for step in way[:-1]:
        inner[step] = copy.copy(inner[step])
        inner = inner[step]
    if wrong is GONE:
        del inner[way[-1]]
    else:
        inner[way[-1]] = wrong
    return known
