# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lines of the journal come to, by the table of signs: a line alone may be one that healthy hosts have."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import Patient, Said, Unsure
from ansible_collections.gb10.fleet.plugins.module_utils.reading.kernel_lines import SHARE
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding

if TYPE_CHECKING:  # for types alone, which no program needs
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.kernel_log import Event

MANY, SHUTDOWN, BACK, ASLEEP, AWAY = "many", "shutdown", "back", "asleep", "away"
_ASKS = re.compile(r" to 0x[0-9a-fA-F]{1,16} \(([^()]{0,100})\)")
NOTHING = "None"
_TRIES = "still trying"  # a mount that never gives up
_DOMAIN = re.compile(r"\w+ ([0-9a-f]{4}):")


def check_lines(patient: Patient, seen: Set[str]) -> Iterator[Said]:
    """One finding for each kind of line, and for each number of Xid. `seen`: ids of what the other detectors found."""
    if patient.reading["events"] is None:
        yield Unsure("log", patient.why("events"))
        if kills := patient.reading.get("oom_kills"):
            fact = f"since the boot the kernel killed for memory, {kills} times; no journal tells what it killed"
            yield patient.say("log_oom_kill", f"{fact}, or whether it was at a container's own limit")
        return
    groups: dict[tuple[str, str], list[Event]] = {}
    for event in patient.events:
        if f"log_{event['kind']}" in patient.rules.signs:
            groups.setdefault((event["kind"], event["key"] if event["kind"] == "xid" else ""), []).append(event)
    beside = {*seen, *(f"log_{kind}" for kind, _number in groups)}
    for (kind, number), events in groups.items():
        yield _said(patient, kind, number, events, beside)


def _said(patient: Patient, kind: str, number: str, events: Sequence[Event], beside: Set[str]) -> Finding:
    sign = patient.rules.signs[f"log_{kind}"]
    xid: Mapping[str, Any] = patient.rules.xids.get(number, {}) if kind == "xid" else {}
    severity, meaning = xid.get("severity", sign["severity"]), xid.get("meaning", sign["meaning"])
    if not _holds(patient, sign, events, beside):
        severity = "info"
    count, last = sum(event["count"] for event in events), events[-1]
    times = "once" if count == 1 else f"{count} times"
    place = pci_place(patient, last)
    meaning += f" ({place})" if place else ""
    fact = f"{meaning}, {times} in {patient.limit('recent_days')} days, last: {last['text']}"
    id_, way_out = (f"xid_{number}", sign["way_out"]) if kind == "xid" else (f"log_{kind}", sign["way_out"])
    if "actions" in xid:
        fact, severity, way_out = _asked(patient, last, fact, severity, xid["actions"], way_out)
    if kind == "cable_removed" and patient.linked:
        fact, way_out = f"{fact}: each rail has its link now", "nothing to do"
    if kind == "cable_plugged" and not patient.of_this_boot(last):
        fact, way_out = f"{fact}: the host has booted since", "nothing to do"
    return Finding(id_, severity, patient.host, fact, way_out.format_map(patient.rules.limits))


def pci_place(patient: Patient, event: Event) -> str:
    """Return what is at the place on PCIe of which an error tells, where that is known."""
    found = _DOMAIN.match(event["text"]) if event["kind"] == "pcie_error" else None
    return patient.rules.places.get(found[1], "") if found else ""


def _holds(patient: Patient, sign: Mapping[str, Any], events: Sequence[Event], beside: Set[str]) -> bool:
    """Return whether what the sign needs is there, and nothing that speaks against it."""
    known = set(beside)
    if "least" in sign and _most(events, patient.limit("many_s")) >= patient.limit(sign["least"]):
        known.add(MANY)
    if all(_at_shutdown(patient, event) for event in events):
        known.add(SHUTDOWN)
    if all(_is_back(patient, event) for event in {event["key"]: event for event in events}.values()):
        known.add(BACK)
    # A CPU that stands still waits for no file server.
    waits = all(" blocked " in event["text"] for event in events)
    if waits and all(_while_away(patient, one["boot"], one[at]) for one in events for at in ("at_s", "last_s")):
        known.add(AWAY)
    if any(_ended_asleep(patient, event) for event in {event["boot"]: event for event in events}.values()):
        known.add(ASLEEP)
    some = sign.get("needs_one", ())
    met = all(word in known for word in sign.get("needs", ())) and (not some or any(word in known for word in some))
    return met and not any(word in known for word in sign.get("against", ()))


def _at_shutdown(patient: Patient, event: Event) -> bool:
    """Return whether it came shortly before its boot ended in good order."""
    ended_s = patient.shutdowns.get(event["boot"])
    return ended_s is not None and ended_s - event["at_s"] <= patient.limit("shutdown_s")


def _ended_asleep(patient: Patient, last: Event) -> bool:
    """Return whether a boot ended without a shutdown after it had said that it goes to sleep, and nothing of a wake."""
    unclean = {boot["boot"] for boot in patient.reading["boots"] or () if boot["clean"] is False}
    return last["boot"] in unclean and last["key"].endswith("entry")


def _while_away(patient: Patient, boot: str, at_s: float) -> bool:
    """Return whether a file server did not answer then: by its last line before that, or by one right behind it."""
    near = patient.limit("away_s")
    shares = [event for event in patient.events if (event["kind"], event["boot"]) == (SHARE, boot)]
    last = {event["key"]: event for event in shares if event["at_s"] <= at_s + near}
    return any(event["last_s"] >= at_s - near or event["text"].endswith(_TRIES) for event in last.values())


def _is_back(patient: Patient, last: Event) -> bool:
    """Return whether a server answers again. A mount that gives up says nothing of that: then an hour is enough."""
    tries = last["text"].endswith(_TRIES)
    over = patient.reading["at_s"] - last["last_s"] > patient.limit("many_s")
    return last["text"].endswith(" OK") or not patient.of_this_boot(last) or (over and not tries)


def _most(events: Sequence[Event], within_s: float) -> float:
    """The most lines of one boot within that time. An event may be many lines, and long: then it counts in part."""
    most, near, count = 0.0, deque[tuple[str, float, float]](), 0.0
    for event in sorted(events, key=lambda event: (event["boot"], event["at_s"])):
        part = event["count"] * within_s / max(within_s, event["last_s"] - event["at_s"])
        near.append((event["boot"], event["at_s"], part))
        count += part
        while near[0][0] != event["boot"] or event["at_s"] - near[0][1] > within_s:
            count -= near.popleft()[2]
        most = max(most, count)
    return most


def _asked(
    patient: Patient, last: Event, fact: str, severity: str, actions: Mapping[str, str], way_out: str
) -> tuple[str, str, str]:
    """What a GPU asks for in the words of its line; nothing any more where it said so, or the host has booted since."""
    found = _ASKS.search(last["text"])
    wish = found[1] if found else ""
    if wish == NOTHING:
        return f"{fact}: it asks for nothing any more", "info", "nothing to do"
    if not patient.of_this_boot(last):
        return f"{fact}: the host has booted since", "info", "nothing to do"
    return fact, severity, actions.get(wish, way_out)
