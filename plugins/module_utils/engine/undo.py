# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back: the manifest read backwards, as one document for the engine.

Everything that speaks against it is said before anything changes. An undo that was killed is taken up by the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine import foreign_containers, wishes
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import (
    ApplyError,
    Document,
    Outcome,
    Run,
    apply,
    as_changes,
    keep,
    make_plan,
    prerequisites,
    read_again,
    read_states,
    records_of,
    remembered,
    verify,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.kinds import KINDS
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import Resource, Step
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.files import gone_again
from ansible_collections.gb10.fleet.plugins.module_utils.system import consent
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import Entry, Manifest
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System


def undo(
    system: System,
    run: Run,
    roles: Collection[str] | None,
    consents: Mapping[str, bool],
    *,
    known_roles: Collection[str] = (),
    of: str | None = None,
    check_mode: bool,
) -> Outcome:
    """Back to what stood there before the roles (None: all of them). HostError before the first change.

    `known_roles`: those that exist although none of their resources may stand on this host. `of`: only if all of them
    came with this rollout, for the manifest does not know what stood there between two.
    """
    known = manifests.load(system)
    applied = {role for entry in known.resources.values() for role in entry.roles}
    if roles is None:
        roles = applied
    if unknown := sorted(set(roles).difference(applied, known_roles)):
        names = [*known_roles, *sorted(applied.difference(known_roles))]
        raise HostError(
            f"no role is called {', '.join(unknown)}: there are {', '.join(names) or 'none'};"
            " for a role of your own, --limit names the hosts that have it" + "".join(_parts(known, unknown))
        )
    labels = [label for label, entry in known.resources.items() if entry.roles.keys() <= set(roles)]
    _refuse_older([known.resources[label] for label in labels], of)
    steps, _rest = take_back(known, roles, labels, consents, system, run, check_mode=check_mode)
    return Outcome(as_changes(steps), [], [step.as_diff() for step in steps], [])


def _refuse_older(entries: Sequence[Entry], of: str | None) -> None:
    """Of a rollback: what a role looked like between two runs is written nowhere."""
    if of and (older := {role for entry in entries if entry.came != of for role in entry.roles}):
        raise HostError(
            f"{', '.join(sorted(older))}: the manifest does not say that {of} brought it, and knows only what stood "
            "before us. Put the inventory back as it was, and roll it out"
        )


def _parts(known: Manifest, unknown: Collection[str]) -> Iterator[str]:
    """Who names a service means its unit, which has no undo of its own."""
    for label, entry in known.resources.items():
        if any(label.startswith("unit:") and label.endswith(f"-{name}.service") for name in unknown):
            yield (
                f"; {label} is a part of {', '.join(sorted(entry.roles))}, which goes back as a whole: for this part"
                " alone take it out of the inventory and run site"
            )


def take_back(
    known: Manifest,
    roles: Collection[str],
    labels: Sequence[str],
    consents: Mapping[str, bool],
    system: System,
    run: Run,
    *,
    check_mode: bool,
) -> tuple[list[Step[Any]], Manifest]:
    """The steps back, and the manifest without what they took back."""
    declared = remembered(known, labels, consents)
    _refuse_changed(known, declared, system)
    document = Document(tuple(_way_back(known, declared, system)), consents)
    states = read_states(document, system)
    plan = make_plan(document, states)
    if plan.pending:
        asked: dict[str, list[str]] = {}
        for item in plan.pending:
            asked.setdefault(item.consent, []).append(f"{item.action} {item.resource.label}")
        words = "; ".join(f"{name}, to {', '.join(what)}" for name, what in asked.items())
        ends = foreign_containers.ended(plan, system)
        words += f", which ends {', '.join(ends)}" if ends else ""
        raise HostError(f"the way back needs your consent ({words}): {consent.give(*asked)}; nothing was changed")
    rest = manifests.ended(manifests.without(known, roles, labels))
    if check_mode:
        return plan.steps, rest
    steps = plan.steps
    if steps:
        opened = manifests.amended(known, {label: {"left": None} for label in labels})
        manifests.save(system, manifests.begun(opened, run.name, system.clock.utc(), None, labels))
        steps = apply(plan, states, system)
        steps += _clear_rooms(document, steps, system)
        verify(document, steps, system)
    if rest != known:
        keep(rest, steps, system)
    return steps, rest


def _refuse_changed(known: Manifest, declared: Sequence[Resource], system: System) -> None:
    """What somebody changed after us is not ours to take away."""
    in_hand = known.unfinished.undoing if known.unfinished is not None else ()
    document = Document(wishes.heeded(declared, known.wishes, system.clock.utc()), {})
    states = read_states(document, system)
    records = records_of(document, states, {resource.label for resource in declared})
    changed = []
    for resource in (each for each in document.resources if each.label in known.resources):
        label, kind = resource.label, KINDS[resource.KIND]
        entry, live = known.resources[label], records[label]
        if entry.left is None:
            ours = kind.stands_unproven(resource, states[resource.KIND])
            if label not in in_hand and not entry.orphan and not ours:
                raise HostError(
                    f"{label}: the last run of its role did not come to its end; run the role again, then undo"
                )
        elif live != manifests.stood(entry) and not kind.untouched(resource, entry.left, live):
            changed.append(f"{label} ({manifests.differences(entry.left, live)})")
    if changed:
        raise HostError(
            f"changed since we left it: {'; '.join(changed)}. Nothing was undone: look at it, then put it by hand as"
            f" we left it or as it stood before us ({manifests.MANIFEST} shows both), and undo after that; what drift"
            " shows as well, a run of the role puts right"
        )


def _way_back(known: Manifest, declared: Sequence[Resource], system: System) -> list[Resource]:
    """The resources whose desired state is what stood there before, in the order of undoing: the last one first.

    But each has its stage: a unit, for example, stops before anything is taken from under it.
    """
    formers: list[Resource] = []
    unwanted = _unwanted(known, [resource.label for resource in declared], system)
    rooms = _rooms(known, declared)
    for resource in reversed(declared):
        entry, kind = known.resources[resource.label], KINDS[resource.KIND]
        formers += [former for former in kind.restore(resource, entry.before) if former.label not in unwanted]
        formers += rooms.get(resource.label, ())
        formers += wishes.gone(resource) if resource.label in known.wishes else ()
        for name in entry.brought:
            formers += kind.without(resource, name) if f"{resource.KIND}:{name}" in unwanted else ()
    formers.sort(key=lambda former: former.stage)
    once: dict[tuple[str, int], Resource] = {}  # a resource may have two parts, each with a stage of its own
    for former in formers:
        once.setdefault((former.label, former.stage), former)
    ordered = [replace(former, index=index) for index, former in enumerate(once.values())]
    return [*prerequisites(ordered), *ordered]


def _rooms(known: Manifest, declared: Sequence[Resource]) -> dict[str, list[Resource]]:
    """{file: the directories that were made for it, as they go after it}; of several files, after the last to go."""
    owners: dict[str, Resource] = {}
    for resource in reversed(declared):
        owners.update(dict.fromkeys(known.resources[resource.label].parents, resource))
    rooms: dict[str, list[Resource]] = {}
    for path in sorted(owners, key=len, reverse=True):
        for room in gone_again(path, owners[path].role):
            if room.label not in {resource.label for resource in declared}:
                rooms.setdefault(owners[path].label, []).append(room)
    return rooms


def _unwanted(known: Manifest, labels: Collection[str], system: System) -> set[str]:
    """The labels of what came along with these, and that nobody wants besides."""
    unwanted = set()
    for name, kind in KINDS.items():
        taken: dict[str, Entry] = {}
        staying: dict[str, Entry] = {}
        for label, entry in known.resources.items():
            if label.startswith(f"{name}:"):
                (taken if label in labels else staying)[label.partition(":")[2]] = entry
        unwanted |= {f"{name}:{other}" for other in kind.unwanted(system, taken, staying)}
    return unwanted


def _clear_rooms(document: Document, done: Sequence[Step[Any]], system: System) -> list[Step[Any]]:
    """Remove the directories of ours that only the packages' removal has emptied."""
    try:
        states = read_again(document, system)
        plan = make_plan(document, states)
        plan.steps[:] = [step for step in plan.steps if step.resource.own_path and step.action == "remove"]
        return apply(plan, states, system) if plan.steps else []
    except HostError as error:
        made = error.changes if isinstance(error, ApplyError) else []
        raise ApplyError(str(error), [*as_changes(done), *made]) from None
