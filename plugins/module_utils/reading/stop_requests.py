# SPDX-License-Identifier: GPL-3.0-or-later
"""Units that stand still because the operator said so, or until a request starts them, of the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_states import inactive_of
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import UTC, Manifest, Wish
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System


class ShownWish(TypedDict):
    unit: str
    who: str
    since: str
    until: str
    shown: str


def read_wishes(host: HostReader) -> list[ShownWish]:
    """With those that are asleep. None of a manifest that nobody can read: the engine says that it is damaged."""
    try:
        known = host.system.once(manifests.load)
        return [*told(known.wishes, host.system.clock.utc()), *asleep(known, host.system)]
    except HostError:
        return []


def in_force(wishes: Mapping[str, Wish], now: str) -> dict[str, Wish]:
    """Those whose time is not over. Times are UTC and of one form, so they compare as text."""
    return {label: wish for label, wish in wishes.items() if not wish.until or now < wish.until}


def told(wishes: Mapping[str, Wish], now: str) -> list[ShownWish]:
    """For people: `shown` is the end as the clock of this host has it, with its zone."""
    return [
        _as_shown(label.partition(":")[2], wish, _shown(wish.until, now))
        for label, wish in in_force(wishes, now).items()
    ]


def asleep(known: Manifest, system: System) -> list[ShownWish]:
    """The units that stand still until a request starts them, in the form of a wish without an end."""
    counting = in_force(known.wishes, system.clock.utc())
    names = [
        str(entry.declared["unit"])
        for label, entry in known.resources.items()
        if entry.declared.get("woken_by") and not entry.orphan and label not in counting
    ]
    still = inactive_of(system, names) if names else ()
    nobody = Wish(manifests.ON_DEMAND, "", "")
    return [_as_shown(name, nobody, "") for name in names if name in still]


def _as_shown(unit: str, wish: Wish, shown: str) -> ShownWish:
    return {"unit": unit, "who": wish.who, "since": wish.since, "until": wish.until, "shown": shown}


def _shown(until: str, now: str) -> str:
    if not until:
        return ""
    end, today = local(until), local(now)
    near = end - today < timedelta(days=1)
    return f"{end:%H:%M} {end.tzname()}" if near else f"{end:%Y-%m-%d %H:%M} {end.tzname()}"


def local(utc: str) -> datetime:
    """In the zone of this host."""
    return datetime.strptime(utc, UTC).replace(tzinfo=timezone.utc).astimezone()
