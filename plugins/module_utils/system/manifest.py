# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest of a host: what we put there, what stood there before, and by which role and version.

It is the base of drift and undo, so it has to be true also after a kill at any instruction. A run *opens* it before its
first change: how every new resource stands is on the disk by then, and what the run may touch has no `left` any more.
It *closes* it after the last one. A record of how things stood before is never overwritten.

Everything here is pure, except load and save.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import MAXYEAR, datetime
from typing import Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.system.system import TEMPORARY_PREFIX, HostError, System

STATE_DIRECTORY = "/var/lib/gb10-fleet"
MANIFEST = f"{STATE_DIRECTORY}/manifest.json"
FORMAT = 1
UTC = "%Y-%m-%dT%H:%M:%SZ"
ON_DEMAND = "on_demand"  # where a wish says whose it is: nobody's, the unit is asleep until a request starts it

Record = Mapping[str, Any]


class Owner(NamedTuple):
    """A role that declares a resource: by which version of the project, and when it last changed (UTC)."""

    project: str
    applied: str


class Entry(NamedTuple):
    """One resource. `order` is its place among all: who came later is undone first. `came`: with which rollout."""

    roles: Mapping[str, Owner]
    declared: Mapping[str, Any]  # as in the document; of a secret content the digest
    before: Record  # at our first contact
    left: Record | None  # at the end of the last run; None: a run has not ended
    brought: tuple[str, ...]  # packages that came along with this one
    parents: tuple[str, ...]  # directories that were made for this file
    pending: tuple[str, ...]  # actions that wait for consent
    order: int
    orphan: bool  # its role no longer declares it
    came: str = ""


class Unfinished(NamedTuple):
    """A run that has begun to change the host.

    `installed`: the packages before it; None if it was to install none. `undoing`: what it was about to take back.
    """

    run: str
    since: str
    installed: tuple[str, ...] | None
    undoing: tuple[str, ...]


class Wish(NamedTuple):
    """The operator's word that a unit stands still. Times are UTC; an empty `until` is until it is taken back."""

    who: str
    since: str
    until: str


class Manifest(NamedTuple):
    """`wishes`: by the label of the unit, which is one of the resources."""

    resources: Mapping[str, Entry] = {}
    unfinished: Unfinished | None = None
    wishes: Mapping[str, Wish] = {}


class Claim(NamedTuple):
    """What a run's documents say of one resource."""

    label: str
    roles: tuple[str, ...]
    declared: Mapping[str, Any]


# -- on the disk -------------------------------------------------------------------------------------------------------


def load(system: System) -> Manifest:
    """The manifest of this host; empty where there is none."""
    try:
        text = system.path(MANIFEST).read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return Manifest()
    except OSError as error:
        raise HostError(f"{MANIFEST} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _damaged("it is not UTF-8") from None
    return parse(text)


def changed_ns(system: System) -> int:
    """When it was written last; 0 where there is none."""
    try:
        return system.path(MANIFEST).stat().st_mtime_ns
    except OSError:
        return 0


def save(system: System, manifest: Manifest) -> None:
    """Write it as a whole; the last resource takes the file and its directory along."""
    try:
        directory = system.private_directory(STATE_DIRECTORY)
        if manifest.resources:
            system.write(MANIFEST, serialise(manifest).encode(), mode=0o600)
            return
        system.path(MANIFEST).unlink(missing_ok=True)
    except OSError as error:
        raise HostError(
            f"{MANIFEST} cannot be written: {error.strerror}; make room or repair the file system, then run again"
        ) from None
    for name in system.names(STATE_DIRECTORY):
        # What is owed to nothing, and what a killed write left.
        if name == "owed-restarts.json" or name.startswith(TEMPORARY_PREFIX):
            (directory / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # somebody else's file is in it
        directory.rmdir()


def parse(text: str) -> Manifest:
    try:
        raw = json.loads(text)
        if raw["format"] != FORMAT:
            raise HostError(
                f"{MANIFEST} has format {raw['format']!a}, and this version of gb10-fleet knows {FORMAT}: run the"
                " version that wrote it, or a later one"
            )
        manifest = Manifest(
            {_text(label): _entry(entry) for label, entry in raw["resources"].items()},
            None if raw["unfinished"] is None else _unfinished(raw["unfinished"]),
            {_text(label): _wish(wish) for label, wish in raw.get("wishes", {}).items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(f"{type(error).__name__}: {error}") from None
    return manifest


def serialise(manifest: Manifest) -> str:
    entries = sorted(manifest.resources.items(), key=lambda item: item[1].order)
    raw = {
        "format": FORMAT,
        "resources": {
            label: {**entry._asdict(), "roles": {role: owner._asdict() for role, owner in entry.roles.items()}}
            for label, entry in entries
        },
        "unfinished": manifest.unfinished and manifest.unfinished._asdict(),
    }
    if manifest.wishes:
        raw["wishes"] = {label: wish._asdict() for label, wish in manifest.wishes.items()}
    return json.dumps(raw, indent=1) + "\n"


def _damaged(what: str) -> HostError:
    # Not begun anew by ourselves: what stood on the host before us is written nowhere else.
    return HostError(
        f"{MANIFEST} is damaged ({what[:200]}): bring it back from a backup of the host; or move it away, and undo will"
        " lead back to how the host stands today"
    )


def _entry(raw: Mapping[str, Any]) -> Entry:
    return Entry(
        roles={_text(role): Owner(_text(o["project"]), _text(o["applied"])) for role, o in raw["roles"].items()},
        declared=_mapping(raw["declared"]),
        before=_mapping(raw["before"]),
        left=None if raw["left"] is None else _mapping(raw["left"]),
        brought=_texts(raw["brought"]),
        parents=_texts(raw["parents"]),
        pending=_texts(raw["pending"]),
        order=int(raw["order"]),
        orphan=bool(raw["orphan"]),
        came=_text(raw.get("came", "")),
    )


def _unfinished(raw: Mapping[str, Any]) -> Unfinished:
    installed = raw["installed"]
    return Unfinished(
        _text(raw["run"]),
        _text(raw["since"]),
        None if installed is None else _texts(installed),
        _texts(raw["undoing"]),
    )


def _wish(raw: Mapping[str, Any]) -> Wish:
    until = _text(raw["until"])
    return Wish(_text(raw["who"]), moment(_text(raw["since"])), until and moment(until))


def moment(text: str) -> str:
    """A time of a wish, UTC and of one form; ValueError for another one, or one that some zone could not show."""
    found = datetime.strptime(text, UTC)
    if not 1970 <= found.year < MAXYEAR or found.strftime(UTC) != text:
        raise ValueError(f"{text!a} is no time")
    return text


def _text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise TypeError(f"expected text, found {type(raw).__name__}")
    return raw


def _texts(raw: Any) -> tuple[str, ...]:
    if not isinstance(raw, list):
        raise TypeError(f"expected a list, found {type(raw).__name__}")
    return tuple(_text(item) for item in raw)


def _mapping(raw: Any) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise TypeError(f"expected a mapping, found {type(raw).__name__}")
    return raw


# -- what a run makes of it --------------------------------------------------------------------------------------------


def orphans(manifest: Manifest, claims: Iterable[Claim], sent: Collection[str]) -> list[tuple[str, str]]:
    """(role, label) of what a role whose document was sent declares no longer, and no other role does."""
    wanted = {claim.label for claim in claims}
    return [
        (next(iter(entry.roles)), label)
        for label, entry in manifest.resources.items()
        if label not in wanted and entry.roles.keys() <= set(sent)
    ]


def declare(
    manifest: Manifest,
    claims: Sequence[Claim],
    sent: Collection[str],
    new: Mapping[str, Record],
    owner: Owner,
    touched: Collection[str] = (),
    rollout: str = "",
) -> Manifest:
    """With what the documents say. `new`: how that stands which is not in it yet; `touched`: what the run changes.

    `rollout`: the one that this run is part of, where it is.
    """
    entries = dict(manifest.resources)
    wanted = {claim.label for claim in claims}
    abandoned = {label for _role, label in orphans(manifest, claims, sent)}
    for label, entry in manifest.resources.items():
        others = {role: other for role, other in entry.roles.items() if role not in sent}
        if label in abandoned:
            entries[label] = entry._replace(orphan=True)
        elif label not in wanted:  # whoever else declares it keeps it
            entries[label] = entry._replace(roles=others)
    place = 1 + max((entry.order for entry in entries.values()), default=-1)
    for label, roles, declared in claims:
        known = entries.get(label)
        if known is None:
            owners = dict.fromkeys(roles, owner)
            entries[label] = Entry(owners, declared, new[label], None, (), (), (), place, orphan=False, came=rollout)
            place += 1
            continue
        renewed = label in touched or known.declared != declared
        others = {role: other for role, other in known.roles.items() if role not in sent}
        owners = {role: owner if renewed else known.roles.get(role, owner) for role in roles}
        entries[label] = known._replace(roles={**others, **owners}, declared=declared, orphan=False)
    return manifest._replace(resources=entries)


def amended(manifest: Manifest, changes: Mapping[str, Mapping[str, Any]]) -> Manifest:
    """With some fields of some entries replaced."""
    entries = {label: entry._replace(**changes.get(label, {})) for label, entry in manifest.resources.items()}
    return manifest._replace(resources=entries)


def begun(
    manifest: Manifest, run: str, since: str, installed: Iterable[str] | None, undoing: Iterable[str]
) -> Manifest:
    """Marked as in the hands of a run. What an earlier one noted, and never came to tidy up, still counts."""
    former = manifest.unfinished
    first = former.installed if former is not None and former.installed is not None else installed
    pending = [*(former.undoing if former is not None else ()), *undoing]
    return manifest._replace(
        unfinished=Unfinished(
            run, since, None if first is None else tuple(sorted(first)), tuple(dict.fromkeys(pending))
        )
    )


def ended(manifest: Manifest) -> Manifest:
    """No longer in the hands of a run, unless some entry still waits for one to end; for an orphan none ever will."""
    if manifest.unfinished is None:
        return manifest
    waiting = {label for label, entry in manifest.resources.items() if entry.left is None and not entry.orphan}
    undoing = tuple(label for label in manifest.unfinished.undoing if label in waiting)
    return manifest._replace(unfinished=manifest.unfinished._replace(undoing=undoing) if waiting else None)


def without(manifest: Manifest, roles: Collection[str], labels: Collection[str]) -> Manifest:
    """Without these entries; what others declare as well stays, and is no longer the roles'."""
    entries = {}
    for label, entry in manifest.resources.items():
        if label not in labels:
            others = {role: owner for role, owner in entry.roles.items() if role not in roles}
            entries[label] = entry._replace(roles=others) if others else entry
    wishes = {label: wish for label, wish in manifest.wishes.items() if label in entries}
    return manifest._replace(resources=entries, wishes=wishes)


def stood(entry: Entry) -> Record:
    """Return how a resource stood before us, without the notes on what is ours of it."""
    return {key: value for key, value in entry.before.items() if key != "ours"}


def differences(left: Record, live: Record) -> str:
    """What somebody changed between two records, in words; contents are named and not shown."""
    words = []
    for key in dict.fromkeys([*left, *live]):
        before, now = left.get(key), live.get(key)
        if before != now:
            hidden = key in ("content", "content_base64", "sha256")
            words.append(key if hidden else f"{key} {_shown(before)} -> {_shown(now)}")
    return ", ".join(dict.fromkeys(words))


def _shown(value: Any) -> str:
    return "absent" if value is None else ascii(value)[:80].strip("'")
