# SPDX-License-Identifier: GPL-3.0-or-later
"""Where events stand: by their boot, and by how far into it, whatever the clock on the wall said at first. Pure.

A host without a battery for its clock begins each boot at some old time, until NTP answers. Then its clock jumps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # for types alone, which no program needs
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import Reading
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.kernel_log import Event


END_S = 1.0  # between the end of a boot and the next one, where no clock tells


class Span(NamedTuple):
    """Of a boot: when it began by its own clock, and when it must have begun and ended, where that clock was wrong."""

    first_s: float
    began_s: float
    ended_s: float


def spans(reading: Reading) -> dict[str, Span]:
    """By boot. A boot that never got the time is placed behind the one before it, as the journal has them."""
    found: dict[str, Span] = {}
    up_s, now_s, before_s = reading["uptime_s"], reading["at_s"], 0.0
    if reading["boot"] is not None and up_s is not None:
        found[reading["boot"]] = Span(0.0, now_s - up_s, now_s)  # where nothing lists the boots
    for boot in reading["boots"] or ():
        first_s, last_s = boot["first_s"], boot["last_s"]
        began_s = first_s
        if boot["clean"] is None and up_s is not None:
            began_s = now_s - up_s
        elif first_s < before_s:
            began_s = before_s + END_S
        ended_s = last_s if last_s >= began_s else began_s + last_s - first_s
        found[boot["boot"]] = Span(first_s, began_s, ended_s)
        before_s = max(before_s, ended_s)
    return found


def placed(reading: Reading) -> list[Event]:
    """The events of a reading, in the order in which they were."""
    known = spans(reading)
    found: list[Event] = []
    for event in reading["events"] or ():
        first_s, began_s, _ended_s = known.get(event["boot"], Span(0.0, 0.0, 0.0))
        shift_s = began_s - first_s if first_s <= event["at_s"] < began_s and first_s else 0.0
        if not first_s and event["at_s"] < began_s:
            shift_s = began_s - event["at_s"]
        end_s = event["last_s"] + (shift_s if event["last_s"] < began_s else 0.0)
        found.append({**event, "at_s": event["at_s"] + shift_s, "last_s": end_s})
    return sorted(found, key=lambda event: event["at_s"])


def shutdowns(reading: Reading) -> dict[str, float]:
    """When each boot ended that ended in good order."""
    known = spans(reading)
    return {boot["boot"]: known[boot["boot"]].ended_s for boot in reading["boots"] or () if boot["clean"] is True}
