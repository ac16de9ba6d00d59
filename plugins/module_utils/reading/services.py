# SPDX-License-Identifier: GPL-3.0-or-later
"""The services of a host: what its units, their settings and their own words say of them. Changes nothing."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading import unit_names as units
from ansible_collections.gb10.fleet.plugins.module_utils.reading.memory import hidden, read_memory
from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import ShownWish, read_wishes
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown, document
from ansible_collections.gb10.fleet.plugins.module_utils.system.values import AtMost, Matching, Parsed

LINE = "GB10-SERVICES:"  # all of them behind it, as JSON
_UNITS = "/etc/systemd/system"
_UNIT = re.compile(r"gb10-vllm(?:-([a-z0-9][a-z0-9-]*))?\.service\Z")
_URL = re.compile(r"http://([A-Za-z0-9._-]+|\[[0-9A-Za-z:.%_-]+\]):([0-9]{1,5})\Z")


def _parse_url(text: str) -> None:
    found = _URL.match(text)
    if not found or not 0 < int(found[2]) < 2**16:
        raise ValueError(text)


# A name goes into commands that a person copies, an address into the one of ssh.
_Name = Annotated[str, Matching(re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z"), "the name of a service")]
_URLS = Parsed(_parse_url, "an address")
_Url = Annotated[str, _URLS]
_Unit = Annotated[str, Matching(_UNIT, "a unit of ours")]
_PROPERTIES = "ActiveState,SubState,UnitFileState,StateChangeTimestamp"
_TOOLS = "--tool-call-parser"  # of vLLM and of SGLang
_POLL_S = 1.0
_MOST_MEMBERS = 1000  # of a cluster
RUNS = ("active", "activating", "reloading")  # states of a unit
GIB = 2**30


class Command(TypedDict):
    model: str | None
    served_name: str | None
    port: int | None
    url: _Url | None


class Settings(Command):
    members: Annotated[list[str], AtMost(_MOST_MEMBERS)]
    rank: int
    memory_gib: float | None
    tools: bool  # whether it was told how its model calls them


class Service(Settings):
    name: _Name
    unit: _Unit
    container: str
    status_file: str
    state: str
    enabled: bool
    since: int | None
    phase: str | None
    load_s: float | None
    wish: ShownWish | None


# Of one host; far more than fit into a Spark's memory. `gb10 top` judges each over all looks that are kept of it: 240
# of them, which a line has room for, took 0.2 s of a core for each look.
MOST_SERVICES = units.MOST_SERVICES
Services = Annotated[list[Service], AtMost(MOST_SERVICES)]


class Memory(TypedDict):
    """Bytes of a host. `hidden`: what no account of the kernel has, as the memory that a driver holds for the GPU."""

    total: int
    available: int
    hidden: int


WAYS_OUT = {
    "memory_unknown": "see `free -g` on the host",
    "memory_returned": "",
    "memory_not_returned": "drop the page cache (sudo systemctl start gb10-drop-caches.service); where that brings"
    " nothing back, reboot",
}


class Returned(TypedDict):
    verdict: str
    text: str
    way_out: str


def read(system: System) -> list[Service]:
    """Every service that the role has put on this host, by name."""
    found = [match for name in system.names(_UNITS) if (match := _UNIT.match(name))]
    if not found:
        return []
    shown = [match[0] for match in found]
    argv = ["systemctl", "show", "--timestamp=unix", f"--property={_PROPERTIES}", "--", *shown]
    blocks = system.ask(argv).strip().split("\n\n")
    wishes = {wish["unit"]: wish for wish in read_wishes(HostReader(system=system))}
    live = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks]
    return [_service(system, match[1] or units.SHORT, state, wishes.get(match[0])) for match, state in zip(found, live)]


def main() -> None:
    """Say the services of this host, or why they cannot be read."""
    try:
        said: dict[str, Any] = {"services": read(System())}
    except HostError as error:
        said = {"error": str(error)}
    sys.stdout.write(f"\n{LINE}{json.dumps(said)}\n")
    sys.stdout.flush()


def _service(system: System, name: str, live: Mapping[str, str], wish: ShownWish | None) -> Service:
    said = document(system.text(units.status_of(name)))
    try:
        settings = _settings(document(system.text(units.settings_of(name))))
    except (TypeError, ValueError, KeyError, AttributeError):  # somebody wrote them, and not the role
        settings = _settings({})
    since = live.get("StateChangeTimestamp", "").lstrip("@")
    return {
        "name": name,
        "unit": f"{units.long_name(name)}.service",
        "container": units.long_name(name),
        "status_file": units.status_of(name),
        "state": live.get("ActiveState", ""),
        "enabled": live.get("UnitFileState") == "enabled",
        "since": int(since) if since.isdigit() else None,
        "phase": said.get("phase") if live.get("ActiveState") in ("active", "activating") else None,
        "load_s": load_seconds(said.get("phases")) or _seconds(said.get("load_s")),
        "wish": wish,
        **settings,
    }


def _settings(written: Mapping[str, Any]) -> Settings:
    join, argv = written.get("join") or {}, written.get("argv") or []
    return {
        "members": [str(member["name"]) for member in join.get("members", [])],
        "rank": int(join.get("rank", 0)),
        "memory_gib": written.get("memory_gib"),
        "tools": any(str(word).partition("=")[0] == _TOOLS for word in argv),
        **(_told(written) if "serves" in written else _command(argv)),
    }


def _told(written: Mapping[str, Any]) -> Command:
    """What the settings say of another engine than vLLM. A rank without an API has no port."""
    api = written["api"] or {}
    port = api.get("port")
    url = f"http://{_asked(str(api.get('address', '')))}:{port}"
    return {
        "model": str(written["serves"]["model"]),
        "served_name": str(written["serves"]["name"]),
        "port": port if isinstance(port, int) else None,
        "url": url if _URLS.holds(url) else None,
    }


def load_seconds(phases: Any) -> float | None:
    """Return how long the last load took by the unit's own phases: all but the waiting for others."""
    if not isinstance(phases, dict) or not {"weights", "graphs"} & phases.keys():
        return None
    names = ("starting", "formation", "weights", "graphs")
    return round(sum(float(phases[name]) for name in names if isinstance(phases.get(name), (int, float))), 1)


def _seconds(value: Any) -> float | None:
    """Of the load before the one that is under way."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _command(argv: Sequence[str]) -> Command:
    """Model, served name and port of `vllm serve`; none where it runs something else."""
    words = [str(word) for word in argv]
    found: Command = {"model": None, "served_name": None, "port": None, "url": None}
    if "serve" not in words:
        return found
    words = words[words.index("serve") + 1 :]
    values = dict(zip(words, words[1:]))
    port = values.get("--port", "")
    url = f"http://{_asked(values.get('--host', ''))}:{port}"
    return {
        "model": words[0] if words else None,
        "served_name": values.get("--served-model-name"),
        "port": int(port) if port.isdigit() else None,
        "url": url if _URLS.holds(url) else None,
    }


def _asked(host: str) -> str:
    """Where a server that listens there answers on the host itself."""
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - to compare with
    return f"[{host}]" if ":" in host else host


# -- memory ------------------------------------------------------------------------------------------------------------


def memory(system: System) -> Memory | None:
    """None where the kernel does not tell."""
    try:
        found, __ = read_memory(HostReader(system=system))
    except Unknown:
        return None
    lost = hidden(found)
    if found["available_bytes"] is None or lost is None:
        return None
    return {"total": found["total_bytes"], "available": found["available_bytes"], "hidden": lost}


def judge(before: int | None, after: Memory | None, took_gib: float, others_gib: float, limit_gib: float) -> Returned:
    """Return whether the memory of a service that was stopped is back. Pure.

    `before`: bytes that were available. `others_gib`: what the services that still run may take. What is hidden beyond
    that belongs to nobody.
    """
    if after is None:
        return _verdict("memory_unknown", "the kernel does not say what memory is in use")
    was = f", {before / GIB:.0f} before" if before else ""
    text = f"{after['available'] / GIB:.0f} GiB are available{was}; the service was given {took_gib:.0f}"
    left = after["hidden"] / GIB - others_gib
    if left < limit_gib:
        return _verdict("memory_returned", text)
    return _verdict(
        "memory_not_returned",
        f"{text}; {left:.0f} GiB are in use by nobody",
    )


def _verdict(verdict: str, text: str) -> Returned:
    return {"verdict": verdict, "text": text, "way_out": WAYS_OUT[verdict]}


def returned(
    system: System, before: int | None, took_gib: float, others_gib: float, limit_gib: float, within_s: float
) -> Returned:
    """The verdict as soon as the memory is back, or after that time."""
    end = system.clock.now() + within_s
    while True:
        found = judge(before, memory(system), took_gib, others_gib, limit_gib)
        if found["verdict"] != "memory_not_returned" or system.clock.now() >= end:
            return found
        system.clock.sleep(_POLL_S)


def returned_of(
    system: System,
    found: Sequence[Service],
    name: str,
    before: int | None,
    limit_gib: float,
    within_s: float,
) -> Returned:
    """The verdict on the service of that name among those that were found."""
    of_it = [each["memory_gib"] or 0 for each in found if each["name"] == name]
    others = [each["memory_gib"] or 0 for each in found if each["name"] != name and each["state"] in RUNS]
    return returned(system, before, sum(of_it), sum(others), limit_gib, within_s if of_it else 0)
