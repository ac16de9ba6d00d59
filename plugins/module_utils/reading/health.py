# SPDX-License-Identifier: GPL-3.0-or-later
"""How a host is, read in one call: some samples of what changes by the second, and the history that the host keeps.

Nothing here raises: what cannot be read is None, and `unknown` has the reason under the path of the value.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Callable, Optional, Protocol, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading import (
    apt_history,
    boots,
    certificates,
    gpu,
    guard_reason,
    journal,
    kernel_log,
    memory,
    planned_rails,
    rooms,
    running,
    sensors,
    wanted_units,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading import serving as service
from ansible_collections.gb10.fleet.plugins.module_utils.reading import unit_names as units
from ansible_collections.gb10.fleet.plugins.module_utils.reading.apt_history import Change
from ansible_collections.gb10.fleet.plugins.module_utils.reading.boots import MOST_BOOTS, Boot, Line
from ansible_collections.gb10.fleet.plugins.module_utils.reading.certificates import Certificate
from ansible_collections.gb10.fleet.plugins.module_utils.reading.gpu import Gpu, Process
from ansible_collections.gb10.fleet.plugins.module_utils.reading.guard_reason import GuardReason
from ansible_collections.gb10.fleet.plugins.module_utils.reading.kernel_log import Event
from ansible_collections.gb10.fleet.plugins.module_utils.reading.memory import Memory, MemoryBlocks, Pressures
from ansible_collections.gb10.fleet.plugins.module_utils.reading.rail_counters import Rail
from ansible_collections.gb10.fleet.plugins.module_utils.reading.rooms import Room
from ansible_collections.gb10.fleet.plugins.module_utils.reading.running import Clock
from ansible_collections.gb10.fleet.plugins.module_utils.reading.sample import read_sample
from ansible_collections.gb10.fleet.plugins.module_utils.reading.sensors import Disk, Sensor, Zone
from ansible_collections.gb10.fleet.plugins.module_utils.reading.serving import Serving
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_status import UnitStatus, parse_status
from ansible_collections.gb10.fleet.plugins.module_utils.reading.wanted_units import StoppedUnit
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Notes, quoted, text_of
from ansible_collections.gb10.fleet.plugins.module_utils.system.values import AtMost, Filled

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired

SCHEMA_VERSION = 1
LOCK_UNIT = "/etc/systemd/system/gb10-clock-lock.service"
_LOCK = re.compile(r"^ExecStart=\S+/gb10-clock-lock \d{1,5} (\d{1,5})$", re.MULTILINE)
Asks = dict[str, Optional[service.Ask]]
Make = Callable[[HostReader, str], service.Ask]
Seen = Callable[[dict[str, Any]], None]


class Sample(TypedDict):
    at_s: float
    steady_s: NotRequired[float]  # by a clock that nobody sets
    gpu: Gpu | None
    serving: Serving | None
    # Of several services, by name.
    servings: NotRequired[Annotated[dict[str, Serving | None], AtMost(units.MOST_SERVICES)]]
    memory: Memory | None
    blocks: MemoryBlocks | None
    pressure: Pressures
    rails: list[Rail] | None


class Told(TypedDict):
    products: NotRequired[int]
    seconds: NotRequired[float]
    teraflops: NotRequired[float]


class Load(TypedDict):
    state: str
    reason: str | None
    image: str | None
    told: Told


class Reading(TypedDict):
    schema_version: int
    at_s: float
    uptime_s: float | None
    boot: str | None
    kernel: str | None
    kho_off: bool | None
    firmware: str | None
    clock: Clock
    samples: Annotated[list[Sample], Filled()]
    processes: list[Process] | None
    zones: list[Zone] | None
    hwmon: list[Sensor] | None
    disks: list[Disk] | None
    oom_kills: int | None
    service: UnitStatus | None
    services: NotRequired[Annotated[dict[str, UnitStatus | None], AtMost(units.MOST_SERVICES)]]  # of several, by name
    boots: Annotated[list[Boot], AtMost(MOST_BOOTS)] | None
    events: list[Event] | None
    apt: list[Change] | None
    unknown: dict[str, str]
    rooms: NotRequired[Annotated[list[Room], AtMost(rooms.MOST)] | None]
    stopped: NotRequired[list[StoppedUnit] | None]
    certificates: NotRequired[list[Certificate] | None]
    guard: NotRequired[GuardReason | None]
    planned_rails: NotRequired[list[str] | None]  # network devices; null where nothing is planned at all
    recorded: NotRequired[list[Line]]
    load: NotRequired[Load]
    clock_lock_mhz: NotRequired[float | None]  # the highest clock that our own role allows; null where it holds none


class OwnLoad(Protocol):
    """A load of ours that runs while samples are taken: programs/load_run.py."""

    def begin(self, before: dict[str, Any]) -> None: ...
    def watch(self, sample: dict[str, Any]) -> None: ...
    def end(self) -> None: ...
    def as_dict(self) -> dict[str, Any]: ...


def collect(
    host: HostReader,
    samples: int = 1,
    every_s: float = 1.0,
    server: Make = service.asker,
    loaded: OwnLoad | None = None,
) -> dict[str, Any]:
    """The whole reading; docs/health.md lists the keys. With `loaded` the samples are those of a load of ours."""
    notes = Notes()
    now_s = host.time_of_day()
    uptime_s = notes.read("uptime_s", lambda: running.read_uptime(host))
    boot_id = running.read_boot_id(host)
    booted_s = None if uptime_s is None else now_s - uptime_s
    several = _several(host)
    asks = _askers(host, notes, several, server)
    taken = _under(loaded, host, notes, samples, every_s, asks)
    return {
        "schema_version": SCHEMA_VERSION,
        "at_s": round(now_s, 2),
        "uptime_s": uptime_s,
        "boot": (boot_id or "").replace("-", "")[: journal.SHORT_BOOT] or None,
        "kernel": quoted(running.read_kernel(host) or "") or None,
        "kho_off": running.read_kho_off(host),
        "firmware": quoted(host.read("/sys/class/dmi/id/bios_version") or "") or None,
        "clock_lock_mhz": _clock_lock(host),
        "clock": running.read_clock(host),
        "samples": taken,
        **({"load": loaded.as_dict()} if loaded else {}),
        "processes": notes.read("processes", lambda: gpu.read_processes(host)),
        "zones": notes.read("zones", lambda: sensors.read_zones(host)),
        "hwmon": notes.read("hwmon", lambda: sensors.read_hwmon(host)),
        "disks": notes.read("disks", lambda: sensors.read_disks(host, notes.reasons)),
        "rooms": notes.read("rooms", lambda: rooms.read_rooms(host)),
        "oom_kills": notes.read("oom_kills", lambda: memory.read_oom_kills(host)),
        "service": None if several else _status(host, notes, units.SHORT, "service"),
        **({"services": {name: _status(host, notes, name, f"services.{name}") for name in several}} if several else {}),
        "stopped": notes.read("stopped", lambda: wanted_units.read_stopped(host)),
        "boots": notes.read("boots", lambda: boots.read_boots(host, boot_id)),
        "events": notes.read("events", lambda: kernel_log.read_events(host, booted_s)),
        "apt": notes.read("apt", lambda: apt_history.read_apt_history(host)),
        "guard": notes.read("guard", lambda: guard_reason.read_guard_reason(host)),
        "planned_rails": notes.read("planned_rails", lambda: planned_rails.read_planned_rails(host)),
        "certificates": notes.read("certificates", lambda: certificates.read_certificates(host)),
        "unknown": notes.reasons,
    }


def _clock_lock(host: HostReader) -> float | None:
    """The highest clock that the role clock_lock allows, as its unit has it; None where there is none."""
    found = _LOCK.search(host.read(LOCK_UNIT) or "")
    return float(found[1]) if found else None


def _several(host: HostReader) -> list[str]:
    """The services of the host by name; nothing where that of vllm_model is the only one."""
    names = units.installed(host)
    return [] if names == [units.SHORT] else names


def _status(host: HostReader, notes: Notes, name: str, where: str) -> dict[str, Any] | None:
    path = units.status_of(name)
    return notes.part(where, lambda: parse_status(text_of(host, path), path))


def _askers(host: HostReader, notes: Notes, several: list[str], server: Make) -> Asks:
    """Return how to ask each server, by the path of its values; None where nobody can."""
    paths = {f"servings.{name}": name for name in several} or {"serving": units.SHORT}
    return {path: notes.read(path, partial(server, host, name)) for path, name in paths.items()}


def _under(
    loaded: OwnLoad | None, host: HostReader, notes: Notes, count: int, every_s: float, asks: Asks
) -> list[dict[str, Any]]:
    """The samples, under a load of ours where one is wished for and may be."""
    if loaded is None:
        return _samples(host, notes, count, every_s, asks)
    try:
        loaded.begin(_sample(host, notes, asks))
        return _samples(host, notes, count, every_s, asks, loaded.watch)
    finally:
        loaded.end()


def _samples(
    host: HostReader, notes: Notes, count: int, every_s: float, asks: Asks, seen: Seen = lambda _sample: None
) -> list[dict[str, Any]]:
    """Where several say why a value is missing, the last one counts."""
    taken: list[dict[str, Any]] = []
    for left in range(count, 0, -1):
        began = host.system.clock.now()
        taken.append(_sample(host, notes, asks))
        seen(taken[-1])
        if (taken[-1]["gpu"] or {}).get("state") == "silent":
            break  # each more would take as long again
        if left > 1:
            host.system.clock.sleep(max(0.0, every_s - (host.system.clock.now() - began)))
    return taken


def _sample(host: HostReader, notes: Notes, asks: Asks) -> dict[str, Any]:
    counted = {
        path: notes.read(path, partial(service.read_serving, ask)) if ask else None for path, ask in asks.items()
    }
    servings = {path.partition(".")[2]: values for path, values in counted.items() if path != "serving"}
    return {
        **read_sample(host, notes),
        "serving": counted.get("serving"),
        **({"servings": servings} if servings else {}),
        "blocks": notes.read("blocks", lambda: memory.read_blocks(host)),
    }
