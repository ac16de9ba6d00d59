# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened on a host, in the order of time. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks.order import Span, placed, spans
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_names import SHORT, long_name

if TYPE_CHECKING:  # for types alone, which no program needs
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.apt_history import Change, Package
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.boots import Boot
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.guard_reason import GuardReason
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import Reading
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.kernel_log import Event
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_status import UnitStatus

# Said by the kernel at each boot; only another value than before is news.
CHANGES = {"kernel": "kernel_changed", "firmware": "firmware_changed", "driver": "driver_changed"}
UNCLEAN, CLEAN, BOOT, LAST_LINE, APT, SERVICE = "unclean_end", "shutdown", "boot", "last_line", "apt", "service"
MOVES, MOST = ", ", 5  # of packages in a line, so many
FAILED = "failed"  # the phase of a unit
GUARD = "guard"  # what the host guard wrote down before a boot ended
RECORDED = "recorded"  # by the next host of the cluster: what this one could not write any more


@dataclass(frozen=True)
class Entry:
    """Something that happened; `kind` is a word for programs."""

    at_s: float
    kind: str
    text: str
    key: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "at": utc(self.at_s)}


def utc(at_s: float) -> str:
    try:
        return datetime.fromtimestamp(at_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a host may say anything
        return "an impossible time"


def build(reading: Reading, since_s: float) -> list[Entry]:
    """From the oldest to the newest; nothing older than `since_s`."""
    known, services = spans(reading), reading.get("services") or {SHORT: reading["service"]}
    failures = {(one["key"], one.get("service", SHORT)) for one in reading["events"] or () if one["kind"] == SERVICE}
    found = [
        *(entry for boot in reading["boots"] or () for entry in _boot(boot, known)),
        *_events(placed(reading)),
        *(_apt(change) for change in reading["apt"] or ()),
        *(entry for name, service in services.items() for entry in _failure(failures, name, service)),
        *_guard(reading.get("guard")),
        *(Entry(line["at_s"], RECORDED, line["text"]) for line in reading.get("recorded", ())),
    ]
    told = {(entry.at_s, entry.text) for entry in found if entry.kind != LAST_LINE}
    kept = [entry for entry in found if entry.kind != LAST_LINE or (entry.at_s, entry.text) not in told]
    return sorted((entry for entry in kept if entry.at_s >= since_s), key=lambda entry: entry.at_s)


def _boot(boot: Boot, known: Mapping[str, Span]) -> Iterator[Entry]:
    span = known[boot["boot"]]
    yield Entry(span.began_s, BOOT, f"boot {boot['boot']}", boot["boot"])
    if boot["clean"] is None:
        return
    for line in boot["last_lines"]:
        shift_s = span.began_s - span.first_s if line["at_s"] < span.began_s else 0.0
        yield Entry(line["at_s"] + shift_s, LAST_LINE, line["text"], boot["boot"])
    if boot["clean"]:
        yield Entry(span.ended_s, CLEAN, f"boot {boot['boot']} ended in good order", boot["boot"])
    else:
        text = f"boot {boot['boot']} ended without a shutdown; the journal may lack its last seconds"
        yield Entry(span.ended_s, UNCLEAN, text, boot["boot"])


def _guard(kept: GuardReason | None) -> Iterator[Entry]:
    if kept:
        did = "the host guard ended this boot" if kept["reboots"] else "the host guard saw it"
        yield Entry(
            kept["at_s"], GUARD, f"all tasks waited for memory ({kept['full_percent']:g} %): {did}", kept["boot"]
        )


def _events(events: list[Event]) -> Iterator[Entry]:
    known: dict[str, str] = {}
    for event in events:
        kind, before = event["kind"], known.get(event["kind"])
        if kind not in CHANGES:
            times = f" ({event['count']} times)" if event["count"] > 1 else ""
            yield Entry(event["at_s"], kind, f"{event['text']}{times}", event["key"])
            continue
        known[kind] = event["key"]
        if before is not None and before != event["key"]:
            yield Entry(event["at_s"], CHANGES[kind], f"{kind} {before} became {event['key']}", event["key"])


def _apt(change: Change) -> Entry:
    moves = [_move(package) for package in change["packages"]]
    said = few(moves, change["others"])
    return Entry(change["at_s"], APT, f"{said} ({change['command'] or 'no command'})", MOVES.join(moves))


def few(moves: Sequence[str], others: int = 0) -> str:
    """The first ones, and how many more there are."""
    more = len(moves[MOST:]) + others
    return ", ".join(moves[:MOST]) + (f", and {more} other{'s' if more > 1 else ''}" if more else "")


def _move(package: Package) -> str:
    name, before, after = package["name"], package["before"], package["after"]
    if package["action"] == "remove":
        return f"{name} {before or ''} removed".replace("  ", " ")
    return f"{name} {before} -> {after}" if before else f"{name} {after} installed"


def _failure(told: Set[tuple[str, str]], name: str, service: UnitStatus | None) -> Iterator[Entry]:
    """The last failure that the unit of a service keeps, where the journal does not tell of it (`told`)."""
    if not service:
        return
    verdict, at, text = service["verdict"], service["at"], service["text"]
    if not verdict and service["phase"] == FAILED:
        verdict, at, text = FAILED, service["since"], "it does not say why"
    if not verdict or not at:
        return
    try:
        at_s = datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return
    if (verdict, name) not in told:
        yield Entry(at_s, SERVICE, f"{long_name(name)}: {verdict}: {text}", verdict)
