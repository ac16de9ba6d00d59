# SPDX-License-Identifier: GPL-3.0-or-later
"""One engine for the state of a host: parse documents, read the host, plan, apply, verify.

The plan is the whole truth: check mode shows it, a real run carries it out in order, and a run has succeeded when a
fresh reading of the host leads to an empty plan. Converge, drift and undo (a module each) give it three documents: what
the roles want, what the manifest says they wanted, and what stood there before.
"""

from __future__ import annotations

import errno
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine import foreign_containers
from ansible_collections.gb10.fleet.plugins.module_utils.engine.kinds import KINDS
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    CONSENT,
    DocumentError,
    Fields,
    Plan,
    Progress,
    Resource,
    Step,
    shown,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import ShownWish
from ansible_collections.gb10.fleet.plugins.module_utils.system import lock
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.manifest import Claim, Manifest, Record
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

_WRITTEN = tuple(name for name, kind in KINDS.items() if kind.declarable)

ROLE = re.compile(r"[a-z][a-z0-9_]*\Z")


@dataclass(frozen=True)
class Document:
    """What is wanted of a host. `consents`: what the operator allows, by the name of the variable.

    `roles` and `claims` are for the manifest; what no role declares, as the way back in an undo, has none.
    """

    resources: tuple[Resource, ...]
    consents: Mapping[str, bool]
    roles: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()

    def of_kind(self, kind: str) -> list[Resource]:
        return [resource for resource in self.resources if kind == resource.KIND]


@dataclass(frozen=True)
class Run:
    """Who works on the host, with which version of the project."""

    name: str
    project: str

    @property
    def rollout(self) -> str:
        """Return the rollout that it is part of, "" without one."""
        found = re.search(lock.ATTEMPT, self.name)
        return found["rollout"] if found else ""


@dataclass(frozen=True)
class Outcome:
    """What a run did or, in check mode, would do.

    `recorded`: there is nothing to do, and the manifest says so as well. Without it a run is due even if `changes` is
    empty, because a host that always was right has no manifest yet.
    """

    changes: list[dict[str, str]]
    pending: list[dict[str, str]]
    diff: list[dict[str, str]]
    orphans: list[dict[str, str]]
    recorded: bool = True
    wishes: list[ShownWish] = field(default_factory=list)  # units that stand still because the operator said so
    ends: list[str] = field(default_factory=list)  # containers of others that end with Docker, or would with consent


class ApplyError(HostError):
    """A step failed; `changes` are those that were made before."""

    def __init__(self, message: str, changes: list[dict[str, str]]) -> None:
        super().__init__(message)
        self.changes = changes


# -- documents ---------------------------------------------------------------------------------------------------------


def parse_documents(documents: Sequence[tuple[Any, Any]], consents: Any) -> Document:
    """The typed documents of (role, resources) as one, or DocumentError with the field that is wrong.

    Looks at nothing but its arguments.
    """
    if not isinstance(consents, dict):
        raise DocumentError("consents: expected a mapping from variable to true or false")
    for name, value in consents.items():
        if not isinstance(name, str) or not CONSENT.match(name) or not isinstance(value, bool):
            raise DocumentError(
                f"consents: expected names of variables with true or false, found {shown(name)}: {shown(value)}"
            )
    roles = [_parse_role(role) for role, _resources in documents]
    ahead: list[_Declared] = []  # of what is behind
    behind: list[_Declared] = []
    for role, resources in documents:
        if roles.count(role) > 1:
            raise DocumentError(f"role: {role} has more than one document")
        where = "resources" if len(documents) == 1 else f"{role}.resources"
        if not isinstance(resources, (list, tuple)):
            raise DocumentError(f"{where}: expected a list")
        declared = [_Declared(role, f"{where}[{i}]", raw, consents) for i, raw in enumerate(resources)]
        _refuse_late_inputs(declared)
        leading = list(itertools.takewhile(lambda item: item.resource.leading, declared))
        ahead += leading
        behind += declared[len(leading) :]
    # The packages of all roles side by side are one transaction of apt.
    ahead.sort(key=lambda declared: declared.resource.leading)
    merged = _merged([*ahead, *behind])
    for index, item in enumerate(merged):
        item.resource = replace(item.resource, index=index, role=item.roles[0])
    return _with_derived(merged, roles, consents)


class _Declared:
    """A resource where a document declares it."""

    def __init__(self, role: str, where: str, raw: Any, consents: Mapping[str, bool]) -> None:
        if not isinstance(raw, dict):
            raise DocumentError(f"{where}: expected a mapping with one of the keys {', '.join(_WRITTEN)}")
        kinds = [name for name in _WRITTEN if name in raw]
        if len(kinds) != 1:
            found = f"found {' and '.join(kinds)}" if kinds else "found none"
            raise DocumentError(f"{where}: expected exactly one of the keys {', '.join(_WRITTEN)}, {found}")
        self.roles = [role]
        self.where = f"{where}.{kinds[0]}"
        self.raw = raw
        self.resource: Resource = KINDS[kinds[0]].parse(0, Fields(raw, where, kinds[0], consents))

    @property
    def claim(self) -> Claim:
        declared = {key: value for key, value in self.raw.items() if value is not None}
        return Claim(self.resource.label, tuple(self.roles), self.resource.claimed(declared))


def _parse_role(role: Any) -> str:
    if not isinstance(role, str) or not ROLE.match(role):
        raise DocumentError(f"role: expected the name of a role (lower case, digits, underscores), found {shown(role)}")
    return role


def _merged(everything: Sequence[_Declared]) -> list[_Declared]:
    """Each resource once. Several roles may say the same of it, and one role must not say it twice."""
    seen: dict[str, _Declared] = {}
    merged = []
    for declared in everything:
        resource = declared.resource
        other = seen.get(resource.label)
        if other is not None and other.resource == resource and declared.roles[0] not in other.roles:
            other.roles += declared.roles
            continue
        for key in resource.identities:
            if key in seen:
                raise DocumentError(
                    f"{declared.where}: {key} is declared by {seen[key].where.rpartition('.')[0]} already"
                )
            seen[key] = declared
        merged.append(declared)
    return merged


def _with_derived(merged: Sequence[_Declared], roles: Sequence[str], consents: Mapping[str, bool]) -> Document:
    """With what nobody has to declare: what makes resources outlast a boot, and what they need in order."""
    resources: list[Resource] = [declared.resource for declared in merged]
    claims = {declared.resource.label: declared for declared in merged}
    derived = []
    for role in roles:
        for item in _persistent(role, [declared.resource for declared in merged if role in declared.roles]):
            if item.resource.label in claims:
                where = claims[item.resource.label].where
                raise DocumentError(f"{where}: this file is written for the role {role} already")
            derived.append(item)
    ordered = sorted([*derived, *merged], key=lambda item: item.resource.index)
    return Document(
        (*resources, *(item.resource for item in derived), *prerequisites(resources)),
        dict(consents),
        tuple(roles),
        tuple(item.claim for item in ordered),
    )


def _persistent(role: str, resources: Sequence[Resource]) -> list[_Declared]:
    """What the kinds add for a role, by its place."""
    added = []
    for name, kind in KINDS.items():
        mine = [resource for resource in resources if name == resource.KIND]
        for index, raw in kind.persist(role, mine) if mine else ():
            item = _Declared(role, role, raw, {})
            item.resource = replace(item.resource, index=index, role=role)
            added.append(item)
    return sorted(added, key=lambda item: item.resource.index)


def prerequisites(resources: Iterable[Resource]) -> list[Resource]:
    """What the host needs in order before these, each once, for the first that says so."""
    needed: dict[str, Resource] = {}
    for resource in resources:
        for item in resource.prerequisites:
            needed.setdefault(item.label, item)
    return list(needed.values())


def _refuse_late_inputs(document: Sequence[_Declared]) -> None:
    """A unit restarts at its own place, so what it reads must have its place before."""
    before = set()
    for declared in document:
        resource = declared.resource
        read = {"restart_on": resource.inputs, "reload_on": resource.read_again, "at_next_start": resource.can_wait}
        for key, labels in read.items():
            for place, label in enumerate(labels):
                if label not in before:
                    where, __, kind = declared.where.rpartition(".")
                    raise DocumentError(f"{where}.{key}[{place}]: {label} is not declared before the {kind}")
        before.add(resource.label)


def remembered(known: Manifest, labels: Collection[str], consents: Mapping[str, bool]) -> list[Resource]:
    """The resources that the manifest says were declared, in the order of work."""
    resources = []
    for label in sorted(labels, key=lambda label: known.resources[label].order):
        entry = known.resources[label]
        kind = next((name for name in _WRITTEN if name in entry.declared), "")
        try:
            if not kind:
                raise DocumentError(f"names none of {', '.join(_WRITTEN)}")
            resource: Resource = KINDS[kind].parse(entry.order, Fields(entry.declared, label, kind, consents))
        except DocumentError as error:
            raise HostError(
                f"{manifests.MANIFEST}: this version of gb10-fleet does not understand what was declared ({error}); run"
                " the roles again, or the version that wrote it"
            ) from None
        resources.append(replace(resource, role=next(iter(entry.roles))))
    return resources


# -- plan and work -----------------------------------------------------------------------------------------------------


def make_plan(document: Document, states: Mapping[str, Any]) -> Plan:
    """The steps from what was read to what is wanted. Pure."""
    plan = Plan(consents=document.consents, document=document.resources)
    for name, kind in KINDS.items():
        if name in states:
            kind.plan(document.of_kind(name), states[name], plan)
    plan.steps.sort(key=lambda step: step.resource.index)  # stable: files that the engine derives come first
    return plan


def read_states(document: Document, system: System) -> dict[str, Any]:
    states = {}
    for name, kind in KINDS.items():
        resources = document.of_kind(name)
        if resources:
            try:
                states[name] = kind.read(system, resources)
            except OSError as error:
                raise HostError(_os_error(name, error)) from None
    return states


def read_again(document: Document, system: System) -> dict[str, Any]:
    system.forget()
    return read_states(document, system)


def apply(plan: Plan, states: Mapping[str, Any], system: System) -> list[Step[Any]]:
    """Carry out the plan; the steps as they came out."""
    progress = Progress()
    at_work: list[Step[Any]] = []
    try:
        for name in states:
            KINDS[name].prepare(system, plan, states[name])
        with foreign_containers.kept(plan, system):
            for name, group in itertools.groupby(plan.steps, key=lambda step: step.resource.KIND):
                at_work = list(group)
                KINDS[name].apply(system, at_work, states[name], progress)
            for kind in KINDS.values():
                kind.settle(system, plan, progress)
        return progress.done
    except HostError as error:
        raise ApplyError(str(error), as_changes(progress.done)) from None
    except OSError as error:
        done = {step.resource.label for step in progress.done}
        failed = [step.resource.label for step in at_work if step.resource.label not in done]
        raise ApplyError(
            _os_error(failed[0] if failed else "between the resources", error), as_changes(progress.done)
        ) from None


def verify(document: Document, done: Sequence[Step[Any]], system: System) -> tuple[dict[str, Any], Plan]:
    """Read again: a run that leaves anything to do has failed, whatever the commands said."""
    try:
        states = read_again(document, system)
        plan = make_plan(document, states)
        for step in plan.steps:
            said = KINDS[step.resource.KIND].explain(system, step)
            raise HostError(f"{step.resource.label}: does not hold, it still needs {step.action} ({step.detail}){said}")
    except HostError as error:
        raise ApplyError(str(error), as_changes(done)) from None
    return states, plan


def as_changes(steps: Iterable[Step[Any]]) -> list[dict[str, str]]:
    return [step.as_change() for step in steps]


def _os_error(where: str, error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    way_out = "; free space (`df -h` and `df -i` say where), then run the same again" if full else ""
    return f"{where}: {error.filename or 'the operating system'}: {error.strerror or error}{way_out}"


def keep(manifest: Manifest, done: Sequence[Step[Any]], system: System) -> None:
    """Write the manifest at the end of a run. Where that fails, the changes were made all the same."""
    try:
        manifests.save(system, manifest)
    except HostError as error:
        raise ApplyError(str(error), as_changes(done)) from None


def records_of(document: Document, states: Mapping[str, Any], labels: Collection[str]) -> dict[str, Record]:
    """Return how these resources stand."""
    return {
        resource.label: KINDS[resource.KIND].record(resource, states[resource.KIND])
        for resource in document.resources
        if resource.label in labels
    }
