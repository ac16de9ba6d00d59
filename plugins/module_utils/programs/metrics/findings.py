# SPDX-License-Identifier: GPL-3.0-or-later
"""The findings of `gb10 why`, over what the collector reads and the last samples that it kept.

Both parts keep what they read in a folder of root's that is gone with the boot. The detectors are those of checks/.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import judge
from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import Rules
from ansible_collections.gb10.fleet.plugins.module_utils.reading import journal, kernel_log, running
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Notes

from . import exposition
from .exposition import Samples, sample

if TYPE_CHECKING:  # for types alone, which no program needs
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import Reading

KEPT = "/run/gb10-metrics"
MOST_EVENTS = 50  # of each topic: a login makes events of some of them as often as it likes
_UNREAD = {"processes": None, "disks": None, "boots": None, "events": None, "certificates": None}


def keep(host: HostReader, name: str, what: Any) -> None:
    """Without it the next run knows this one not, and says so."""
    place = Path(host.system.place(KEPT))
    exposition.replace(place / f"{name}.json", json.dumps(what, separators=(",", ":")))


def kept(host: HostReader, name: str, empty: Any) -> Any:
    """What was kept, or `empty` where it is none of ours."""
    try:
        found = json.loads(host.read(f"{KEPT}/{name}.json") or "")
    except (ValueError, RecursionError):
        return empty
    return found if isinstance(found, type(empty)) else empty


def follow(samples: list[dict[str, Any]], seen: dict[str, Any], most: int, gap_s: float) -> list[dict[str, Any]]:
    """The last samples up to this one. What was before a gap in them is left: nobody knows what was in between."""
    found = [seen]
    for before in reversed(samples[-(most - 1) :]):
        try:
            follows = 0 <= found[0]["steady_s"] - before["steady_s"] <= gap_s
        except (KeyError, TypeError):  # kept by another version of this program
            follows = False
        if not follows:
            break
        found.insert(0, before)
    return found


def _topic(event: Mapping[str, Any]) -> Any:
    return kernel_log.topic(event["text"]) or event["kind"]


def of_history(reading: Mapping[str, Any], reasons: Mapping[str, str]) -> dict[str, Any]:
    """What is kept of the slow part: nothing in it grows without end."""
    boots = reading["boots"]
    events = sorted(reading["events"] or (), key=lambda one: float(one["at_s"]))
    young = {
        "boots": None if boots is None else [{**boot, "last_lines": []} for boot in boots[-2:]],
        "events": None if reading["events"] is None else kernel_log.newest(events, _topic, MOST_EVENTS),
    }
    return {**reading, **young, "unknown": dict(reasons)}


def find(host: HostReader, notes: Notes, now: Mapping[str, Any], settings: Mapping[str, Any]) -> Samples:
    """A sample for each finding; of one id the worst. `now`: `samples`, `zones` and `services` of a reading."""
    slow = {**_UNREAD, **kept(host, "history", {})}
    now_s, up_s = host.time_of_day(), notes.read("uptime_s", lambda: running.read_uptime(host))
    boots = slow["boots"]
    if boots and (up_s is None or up_s >= settings["event_s"]):
        boots = boots[-1:]  # how the one before ended is told for a while
    reading = {
        "at_s": now_s,
        "uptime_s": up_s,
        "boot": (running.read_boot_id(host) or "").replace("-", "")[: journal.SHORT_BOOT] or None,
        "kho_off": running.read_kho_off(host),
        "service": None,
        **now,
        **slow,
        "boots": boots,
        "unknown": {**slow.get("unknown", {}), **notes.reasons},
    }
    rules = _rules(settings["rules"])
    try:
        judged = judge("", cast("Reading", reading), rules, settings["spans"])
    except (KeyError, TypeError, IndexError) as error:  # kept by another version of this program
        notes.reasons["findings"] = f"what was kept cannot be read: {error!r}"
        return []
    worst: dict[str, str] = {}
    for finding in judged.findings:
        worst.setdefault(finding.id, finding.severity)
    found: Samples = []
    for id_, severity in worst.items():
        found += sample("gb10_finding", 1, id=id_, severity=severity)
    return found


def _rules(known: Mapping[str, Any]) -> Rules:
    sets = {name: frozenset(known[name]) for name in ("rail_errors", "losses")}
    return Rules(**{**known, **sets}, causes=(), sure=(), step=0)
