# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's wish that a unit stands still, for an evening or until it is taken back.

A wish does not change what a role declares. It is in the manifest beside it, and every run plans the unit as the wish
has it: stopped, and not enabled, so that it stays stopped over a boot. A wish with an end has a timer of systemd's on
the host, which starts the unit again without us and takes itself away. A wish whose time is over does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import (
    Document,
    Outcome,
    apply,
    as_changes,
    make_plan,
    read_states,
    remembered,
    verify,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import Resource
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_resource import File
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.units import STAMPS, Unit
from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import in_force, local, told
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import UTC, Manifest, Wish
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

UNITS = "/etc/systemd/system"
OF_A_LAYOUT = "gb10_layouts"  # whose wish it is that a unit rests from the start
_CLOCK = r"([01]?\d|2[0-3]):([0-5]\d)\Z"
_SPAN = r"\+(?:(\d{1,3})d)?(?:(\d{1,4})h)?(?:(\d{1,5})m)?\Z"
_FORMS = "write 07:00, +2h, +1h30m or 2026-11-24T07:00"

# It needs no program of ours, so it also works where Python or the collection are gone.
_TIMER = """\
# Written by gb10-fleet: ends a wish of the operator, then removes itself. `gb10 start` ends it earlier.
[Unit]
Description=Start {unit} again, as the operator wished

[Timer]
OnCalendar={calendar}
# A host that is off at that time starts it at its next boot.
Persistent=true
AccuracySec=1s

[Install]
WantedBy=timers.target
"""
_SERVICE = """\
# Written by gb10-fleet: what {timer} runs.
[Unit]
Description=Start {unit} again, as the operator wished

[Service]
Type=oneshot
ExecStart=/usr/bin/systemctl --no-reload enable {unit}
ExecStart=-/usr/bin/systemctl reset-failed {unit}
ExecStart=/usr/bin/systemctl --no-block start {unit}
ExecStartPost=/usr/bin/systemctl --no-reload disable {timer}
ExecStartPost=/usr/bin/systemctl stop {timer}
ExecStartPost=/usr/bin/rm -f {files}
# Else systemd goes on with the timer that has gone, and a run would find one to disable.
ExecStartPost=/usr/bin/systemctl daemon-reload
NoNewPrivileges=yes
ProtectHome=yes
PrivateTmp=yes
"""


# -- what a wish means for a plan --------------------------------------------------------------------------------------


def from_the_start(known: Manifest, resources: Iterable[Resource], now: str) -> Manifest:
    """With a wish for each unit that is to rest and was never put on this host: somebody else runs in its place.

    Where no layout has the unit any more, that wish is over. One of a person's is not: it names no layout.
    """
    found = dict(known.wishes)
    for unit in resources:
        if not isinstance(unit, Unit):
            continue
        wish = found.get(unit.label)
        if wish and wish.who == OF_A_LAYOUT and unit.resting is None:
            found[unit.label] = wish._replace(until=wish.since)
        elif not wish and unit.resting and unit.label not in known.resources:
            found[unit.label] = Wish(OF_A_LAYOUT, now, "")
    return known._replace(wishes=found) if found != known.wishes else known


def heeded(resources: Iterable[Resource], wishes: Mapping[str, Wish], now: str) -> tuple[Resource, ...]:
    """The resources as the wishes have them; of a wish that is over, what it may have left goes."""
    counting = in_force(wishes, now)
    declared = tuple(resources)
    closed = {each.woken_by for each in declared if isinstance(each, Unit) and each.label in counting}
    found: list[Resource] = []
    for resource in declared:
        if isinstance(resource, Unit) and resource.name in closed:
            # In front of its unit: what was stopped, no request starts.
            found.append(replace(resource, enabled=False, state="stopped", restart_on=()))
        elif not isinstance(resource, Unit) or resource.label not in wishes:
            found.append(resource)
        elif resource.label in counting:
            found += standing_still(resource, counting[resource.label])
        else:
            found += [*gone(resource), resource]
    return tuple(found)


def standing_still(unit: Unit, wish: Wish) -> list[Resource]:
    """The unit stopped over a boot as well, and the timer that starts it again, or the socket that does so when asked.

    A unit comes after its files.
    """
    still = replace(
        unit, index=unit.index + 1, enabled=False, state="stopped", restart_on=(), reload_on=(), probe=(), consent=None
    )
    if not wish.until:
        return [*gone(unit), still]
    timer, service, stamp = _names(unit)
    calendar = datetime.strptime(wish.until, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    files = f"{UNITS}/{timer} {UNITS}/{service} {stamp}"
    again = unit.woken_by or unit.name
    run = _SERVICE.format(unit=again, timer=timer, files=files)
    when = _TIMER.format(unit=again, calendar=calendar)
    return [
        File(unit.index, f"{UNITS}/{service}", unit.role, content=run.encode()),
        File(unit.index, f"{UNITS}/{timer}", unit.role, content=when.encode()),
        # A timer has read its file when it is started, and a later end is another file.
        Unit(still.index, timer, unit.role, enabled=True, state="started", restart_on=(f"{UNITS}/{timer}",)),
        still,
    ]


def gone(unit: Resource) -> list[Resource]:
    """Without the timer of a wish. The timer stops before its files go, so they have the next place."""
    timer, service, stamp = _names(unit)
    files = (f"{UNITS}/{timer}", f"{UNITS}/{service}", stamp)
    return [
        Unit(unit.index, timer, unit.role, enabled=False, state="stopped", lenient=True),
        *(File(unit.index + 1, path, unit.role, state="absent") for path in files),
    ]


def _names(unit: Resource) -> tuple[str, str, str]:
    stem = f"gb10-wish-{unit.name.rpartition('.')[0]}"
    return f"{stem}.timer", f"{stem}.service", f"{STAMPS}/stamp-{stem}.timer"


def end(text: str, now: str) -> str:
    """When a wish ends, in UTC: a time of the day is the next one on this host. HostError for what is no such time."""
    today = local(now)
    clock, span = re.match(_CLOCK, text), re.match(_SPAN, text)
    if clock:
        moment = _next(today, int(clock[1]), int(clock[2]))
    elif span and any(span.groups()):
        days, hours, minutes = (int(part or 0) for part in span.groups())
        moment = today + timedelta(days=days, hours=hours, minutes=minutes)
    else:
        try:
            moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text).astimezone()
        except (ValueError, OverflowError):
            raise HostError(f"until {text!a}: it is no time; {_FORMS}") from None
    if moment <= today:
        raise HostError(f"until {text}: that is over, for it is {today:%Y-%m-%d %H:%M} {today.tzname()} here")
    try:
        return manifests.moment(moment.astimezone(timezone.utc).strftime(UTC))
    except (ValueError, OverflowError):
        raise HostError(f"until {text!a}: nobody waits that long; {_FORMS}") from None


def _next(today: datetime, hour: int, minute: int) -> datetime:
    """When the clock on the wall is there next: an hour that comes twice counts twice, one that is left out is over."""
    wall = today.replace(tzinfo=None, hour=hour, minute=minute, second=0, microsecond=0)
    walls = [wall + timedelta(days=days) for days in (0, 1, 2)]
    moments = [(each, each.replace(fold=fold).astimezone()) for each in walls for fold in (0, 1)]
    return min(moment for each, moment in moments if moment > today and moment.replace(tzinfo=None) >= each)


# -- to wish -----------------------------------------------------------------------------------------------------------


def stop(system: System, unit: str, who: str, until: str, *, check_mode: bool) -> Outcome:
    """The unit stands still from now on. HostError before the first change, ApplyError after it."""
    known, resource, socket = _declared(system, unit)
    now = system.clock.utc()
    former = in_force(known.wishes, now).get(resource.label)
    wish = Wish(who, former.since if former else now, end(until, now) if until else "")
    # On the disk before the first change: a run that is killed here is ended by the next one.
    wished = known._replace(wishes={**known.wishes, resource.label: wish})
    wanted = heeded([*socket, resource], {resource.label: wish}, now)
    return _done(system, wished, wanted, check_mode=check_mode)


def start(system: System, unit: str, *, check_mode: bool) -> Outcome:
    """The unit is again what its role declares; one that requests start runs at once, too."""
    known, resource, socket = _declared(system, unit)
    # Over, and not forgotten: where this run is killed, the next one takes the timer away.
    over = {label: wish._replace(until=wish.since) for label, wish in known.wishes.items() if label == resource.label}
    known = known._replace(wishes={**known.wishes, **over})
    # What else has changed under it waits for the next run of its role.
    plain = replace(resource, state="started", restart_on=(), reload_on=(), probe=())
    outcome = _done(system, known, [*gone(resource), *socket, plain], check_mode=check_mode)
    if over and not check_mode:
        rest = {label: wish for label, wish in known.wishes.items() if label != resource.label}
        manifests.save(system, known._replace(wishes=rest))
    return outcome


def _declared(system: System, unit: str) -> tuple[Manifest, Unit, list[Resource]]:
    """What its role says of a unit, and of the socket that wakes it where there is one."""
    known = manifests.load(system)
    label = f"{Unit.KIND}:{unit}"
    entry = known.resources.get(label)
    if entry is None or entry.orphan:
        raise HostError(f"{unit}: no role has put this unit on this host; `gb10 ps` lists the services")
    resource = remembered(known, [label], {})[0]
    if not isinstance(resource, Unit) or not (resource.state == "started" or resource.woken_by):
        raise HostError(f"{unit}: its role does not start it, so there is nothing to stop or to start")
    label = f"{Unit.KIND}:{resource.woken_by}"
    return known, resource, remembered(known, [label], {}) if label in known.resources else []


def _done(system: System, manifest: Manifest, resources: Sequence[Resource], *, check_mode: bool) -> Outcome:
    document = Document(tuple(resources), {})
    states = read_states(document, system)
    plan = make_plan(document, states)
    steps = plan.steps
    if not check_mode:
        manifests.save(system, manifest)
        steps = apply(plan, states, system)
        verify(document, steps, system)
    return Outcome(
        as_changes(steps),
        [],
        [step.as_diff() for step in steps],
        [],
        wishes=told(manifest.wishes, system.clock.utc()),
    )
