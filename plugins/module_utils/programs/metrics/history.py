# SPDX-License-Identifier: GPL-3.0-or-later
"""What changes by the hour: the wear of disks, boots, and faults in the journal."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading import (
    boots,
    certificates,
    gpu,
    kernel_log,
    rooms,
    running,
    sensors,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_names import long_name
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Notes, Unknown, text_of

from .exposition import Samples, sample

DAY_S = 86400
WATCHDOG = "/var/lib/gb10-watchdog"
# Lines that tell of a change, and of no fault; and those of the units.
_NO_FAULTS = frozenset({"kernel", "firmware", "driver", kernel_log.SERVICE, kernel_log.SERVES})


def read(host: HostReader, notes: Notes, recent_days: float, event_s: float) -> tuple[Samples, dict[str, Any]]:
    """All metrics of this part, and what a reading of health has of it.

    Of the journal only what is young is read, which costs little.
    """
    now_s, boot_id = host.time_of_day(), running.read_boot_id(host)
    computing = notes.read("processes", lambda: gpu.read_processes(host))
    found = sample("gb10_gpu_processes", None if computing is None else len(computing))
    disks = notes.read("disks", lambda: sensors.read_disks(host, notes.reasons))
    found += of_disks(disks or [])
    known = notes.read("boots", lambda: boots.read_boots(host, boot_id))
    up_s = notes.read("uptime_s", lambda: running.read_uptime(host))
    if known is not None:
        found += of_boots(known, now_s - recent_days * DAY_S, None if up_s is None else round(now_s - up_s))
        if not any(boot["clean"] is None for boot in known):
            notes.reasons["boots"] = "journalctl does not list the boot that runs"
    young = up_s is not None and up_s < event_s
    events = notes.read("events", lambda: kernel_log.read_events(host, None, since_s=now_s - event_s, this_boot=young))
    found += of_events(events or []) + of_space(host, notes) + of_watchdog(host, notes, now_s - event_s)
    ends = notes.read("certificates", lambda: certificates.read_certificates(host))
    space = notes.read("rooms", lambda: rooms.read_rooms(host))
    return found, {
        **{"processes": computing, "disks": disks, "rooms": space},
        **{"boots": known, "events": events, "certificates": ends},
    }


def of_space(host: HostReader, notes: Notes) -> Samples:
    """Of the file system that all of a Spark stands on."""
    stat = notes.read("filesystem", lambda: host.statvfs(str(host.path("/"))))
    free = stat.f_bavail / stat.f_blocks if stat and stat.f_blocks else None
    return sample("gb10_filesystem_free_ratio", free, mount="/")


def of_watchdog(host: HostReader, notes: Notes, since_s: float) -> Samples:
    """For each service that the watchdog looks at."""
    found: Samples = []
    for file in host.names(WATCHDOG):
        name, __, kind = file.rpartition(".")
        if kind == "json" and name and not name.startswith("."):
            young = notes.read(f"watchdog.{name}", partial(_restarts, host, f"{WATCHDOG}/{file}", since_s))
            found += sample("gb10_watchdog_restarts", young, service=long_name(name).removeprefix("gb10-"))
    return found


def _restarts(host: HostReader, path: str, since_s: float) -> int:
    kept = json.loads(text_of(host, path))
    times = kept.get("restarts") if isinstance(kept, dict) else None
    if not isinstance(times, list) or not all(isinstance(at_s, (int, float)) for at_s in times):
        raise Unknown(f"{path} is not the watchdog's")
    return sum(at_s >= since_s for at_s in times)


def of_disks(disks: list[dict[str, Any]]) -> Samples:
    found: Samples = []
    for disk in disks:
        name, spare = disk["disk"], disk["spare_percent"]
        found += sample("gb10_disk_worn_ratio", disk["used_percent"] / 100, disk=name)
        found += sample("gb10_disk_spare_ratio", None if spare is None else spare / 100, disk=name)
        found += sample("gb10_disk_critical_warning", disk["critical_warning"], disk=name)
        found += sample("gb10_disk_media_errors_total", disk["media_errors"], disk=name)
        found += sample("gb10_disk_unsafe_shutdowns_total", disk["unsafe_shutdowns"], disk=name)
    return found


def of_boots(known: list[boots.Boot], since_s: float, booted_s: float | None = None) -> Samples:
    """`clean` is None of the boot that runs. When it began, uptime knows better: the clock may have been set since."""
    recent = [boot for boot in known if boot["last_s"] >= since_s]
    found: Samples = []
    for end, clean in (("clean", True), ("unclean", False)):
        found += sample("gb10_boots", sum(boot["clean"] is clean for boot in recent), end=end)
    for before, boot in zip([None, *known], known):
        if boot["clean"] is None:
            found += sample("gb10_boot_time_seconds", boot["first_s"] if booted_s is None else booted_s)
            found += sample("gb10_boot_former_unclean", before is not None and before["clean"] is False)
    return found


def of_events(events: list[kernel_log.Event]) -> Samples:
    """By kind, and for an Xid by its number. What vLLM's unit says has its own metrics."""
    counts: dict[tuple[str, str | None], int] = {}
    for event in events:
        if event["kind"] not in _NO_FAULTS:
            key = (event["kind"], event["key"] if event["kind"] == "xid" else None)
            counts[key] = counts.get(key, 0) + event["count"]
    found: Samples = []
    for (kind, number), count in counts.items():
        found += sample("gb10_journal_events", count, kind=kind, key=number)
    return found
