# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring a host to what its roles declare, and write down what was put there, so that it can be taken back.

The manifest is opened before the first change and closed after the last, so a kill at any instruction loses nothing:
the next run ends with the same host and the same manifest as an undisturbed one.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine import foreign_containers, guard, undo, wishes
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import (
    ApplyError,
    Document,
    Outcome,
    Run,
    apply,
    as_changes,
    keep,
    make_plan,
    read_again,
    read_states,
    records_of,
    verify,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.kinds import KINDS
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import Plan, Resource, Step
from ansible_collections.gb10.fleet.plugins.module_utils.reading import stop_requests
from ansible_collections.gb10.fleet.plugins.module_utils.system import folders
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import Manifest, Owner
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import TEMPORARY_PREFIX, HostError, System


def converge(
    document: Document, system: System, run: Run, *, check_mode: bool, removes: Collection[str] = ()
) -> Outcome:
    """Bring the host to the state of the document. HostError before the first change, ApplyError after it.

    `removes`: the roles whose orphans are taken back.
    """
    now = system.clock.utc()
    known = wishes.from_the_start(system.once(manifests.load), document.resources, now)
    document = replace(document, resources=wishes.heeded(document.resources, known.wishes, now))
    orphans = manifests.orphans(known, document.claims, document.roles)
    removed: list[Step[Any]] = []
    going = [label for role, label in orphans if role in removes]
    if going:
        make_plan(document, read_states(document, system))  # nothing is taken away for documents that cannot be had
        removed, known = undo.take_back(
            known, document.roles, going, document.consents, system, run, check_mode=check_mode
        )
        orphans = [(role, label) for role, label in orphans if label not in going]
        system.forget()
    known = known._replace(wishes=stop_requests.in_force(known.wishes, now))
    try:
        steps, plan, ends, recorded = _converge(document, known, system, run, check_mode=check_mode)
    except HostError as error:
        made = error.changes if isinstance(error, ApplyError) else []
        if isinstance(error, ApplyError) or (removed and not check_mode):
            raise ApplyError(str(error), [*as_changes(removed), *made]) from None
        raise
    steps = [*removed, *steps]
    return Outcome(
        changes=as_changes(steps),
        pending=[pending.as_result() for pending in plan.pending],
        diff=[step.as_diff() for step in steps],
        orphans=[{"role": role, "resource": label} for role, label in orphans],
        recorded=recorded and not (removed and check_mode),
        wishes=stop_requests.told(known.wishes, now),
        ends=ends,
    )


def _converge(
    document: Document, known: Manifest, system: System, run: Run, *, check_mode: bool
) -> tuple[list[Step[Any]], Plan, list[str], bool]:
    """The steps, what is pending, the containers of others that end, and whether the manifest is up to date."""
    states = read_states(document, system)
    plan = make_plan(document, states)
    steps, ends = plan.steps, foreign_containers.ended(plan, system)
    owner = Owner(run.project, system.clock.utc())
    fresh = [claim.label for claim in document.claims if claim.label not in known.resources]
    touched = {step.resource.label for step in steps}
    declared = manifests.declare(
        known, document.claims, document.roles, records_of(document, states, fresh), owner, touched, run.rollout
    )
    if check_mode:
        return steps, plan, ends, not steps and _closed(declared, document, states, plan, system) == known
    if known.unfinished is not None:
        _sweep(document, system)
    if steps:
        declared = _opened(declared, document, states, plan, run, system)
        manifests.save(system, declared)
        try:
            steps = apply(plan, states, system)
            states, plan = verify(document, steps, system)
        except ApplyError as error:
            if system.guard is not None:  # what stands above the rails failed, and nobody will confirm them
                error = ApplyError(f"{error}; {guard.gone_back(system)}", error.changes)
            # It is we who left the host as it is now, so that can be undone.
            with contextlib.suppress(HostError, OSError):
                states = read_again(document, system)
                manifests.save(system, _closed(declared, document, states, plan, system))
            raise error from None
    waiting = [] if system.confirms else _unconfirmed(known, document, plan)
    unproven: HostError | None = None
    if system.guard is not None:
        # As after a kill, until the change is confirmed: what stands may be taken back behind our back.
        waiting += [step.resource for step in steps if KINDS[step.resource.KIND].proven]
    elif waiting:
        try:
            for name, kind in KINDS.items():
                if mine := [resource for resource in waiting if name == resource.KIND]:
                    kind.prove(system, mine)
            waiting = []
        except HostError as error:
            unproven = error
    closed = _closed(declared, document, states, plan, system)
    if waiting:
        changes = {item.label: {"left": None} for item in waiting if item.label in closed.resources}
        closed = manifests.ended(manifests.amended(closed._replace(unfinished=declared.unfinished), changes))
    if steps or closed != known:
        keep(closed, steps, system)
    if unproven is not None:
        words = f"{unproven}; it was changed by a run that could not confirm it, and counts as done when this holds"
        raise ApplyError(words, as_changes(steps)) if steps else HostError(words)
    return steps, plan, ends, True


def _unconfirmed(known: Manifest, document: Document, plan: Plan) -> list[Resource]:
    """What is as declared, but whose change nobody has seen to work: the host was restarted in between.

    What was armed for them was lost with /run, so the proof is all that can be had, and it is owed.
    """
    open_labels = {label for label, entry in known.resources.items() if entry.left is None}
    open_labels -= {item.resource.label for item in plan.pending}
    return [item for item in document.resources if KINDS[item.KIND].proven and item.label in open_labels]


def _opened(
    declared: Manifest, document: Document, states: Mapping[str, Any], plan: Plan, run: Run, system: System
) -> Manifest:
    """As it has to lie on the disk before the first change of a run."""
    labels = {claim.label for claim in document.claims}
    records = records_of(document, states, labels)
    touched = {step.resource.label for step in plan.steps}
    # What a step changes, and what stands as we left it, for a step may change that as well: a package starts a unit.
    # What somebody else has changed, and no step puts right, keeps the record that shows it. What has to be proven is
    # only changed by its own step, and without a record that is still owed.
    proven = {resource.label for resource in document.resources if KINDS[resource.KIND].proven}
    changes: dict[str, dict[str, Any]] = {
        label: {"left": None}
        for label in labels
        if label in touched or (declared.resources[label].left == records[label] and label not in proven)
    }
    for resource in document.resources:
        if resource.label in touched & labels:
            entry = declared.resources[resource.label]
            # What has only ever waited for consent was somebody else's to change until now.
            former = records[resource.label] if entry.pending and entry.left == entry.before else entry.before
            kind = KINDS[resource.KIND]
            changes[resource.label]["before"] = kind.before(resource, former, states[resource.KIND])
    for step in plan.steps:
        if step.resource.own_path and step.action != "remove" and step.resource.label in labels:
            made = _missing_parents(step.resource.own_path, system)
            parents = dict.fromkeys([*declared.resources[step.resource.label].parents, *made])
            changes[step.resource.label]["parents"] = tuple(parents)
    noted = None
    for name, kind in KINDS.items():
        found = kind.noted(system, [step for step in plan.steps if name == step.resource.KIND])
        noted = noted if found is None else found
    return manifests.begun(manifests.amended(declared, changes), run.name, system.clock.utc(), noted, ())


def _closed(declared: Manifest, document: Document, states: Mapping[str, Any], plan: Plan, system: System) -> Manifest:
    """As a run leaves it that has come to its end."""
    open_labels = [claim.label for claim in document.claims if declared.resources[claim.label].left is None]
    records = records_of(document, states, open_labels)
    waiting: dict[str, list[str]] = {}
    for pending in plan.pending:
        if pending.action != "restart":  # that is owed until the unit has a new invocation, which needs no run of ours
            waiting.setdefault(pending.resource.label, []).append(pending.action)
    changes: dict[str, dict[str, Any]] = {}
    for claim in document.claims:
        changes[claim.label] = {"pending": tuple(waiting.get(claim.label, ()))}
        if claim.label in records:
            changes[claim.label]["left"] = records[claim.label]
    unfinished = declared.unfinished
    if unfinished is not None and unfinished.installed is not None:
        for label, brought in _brought(declared, unfinished.installed, system):
            all_of_it = dict.fromkeys([*declared.resources[label].brought, *brought])
            changes.setdefault(label, {})["brought"] = tuple(all_of_it)
    return manifests.ended(manifests.amended(declared, changes))


def _brought(declared: Manifest, noted: Sequence[str], system: System) -> Iterator[tuple[str, Sequence[str]]]:
    """(label, the names of what came along with it in this run)"""
    for kind_name, kind in KINDS.items():
        names = [label.partition(":")[2] for label in declared.resources if label.startswith(f"{kind_name}:")]
        for name, brought in kind.brought(system, noted, names).items():
            yield f"{kind_name}:{name}", brought


def _missing_parents(path: str, system: System) -> list[str]:
    """The directories that have to be made for a file, the innermost first."""
    missing = []
    parent = posixpath.dirname(path)
    while parent != "/" and not system.path(parent).exists():
        missing.append(parent)
        parent = posixpath.dirname(parent)
    return missing


def _sweep(document: Document, system: System) -> None:
    """Remove the unfinished files of a killed run, also beside those that need no other now."""
    for own_path in filter(None, (resource.own_path for resource in document.resources)):
        with contextlib.suppress(OSError, HostError), system.folder_of(own_path) as parent:
            folders.remove_file(TEMPORARY_PREFIX + posixpath.basename(own_path), parent)
