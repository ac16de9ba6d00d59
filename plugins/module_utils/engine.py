# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One engine for the state of a host: parse a document, read the host, plan, apply, verify.

The plan is the whole truth: check mode shows it, a real run carries it out in the order of the document, and a run
has succeeded when a fresh reading of the host leads to an empty plan.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.resources.common import (
    CONSENT,
    DocumentError,
    Fields,
    Kind,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.resources.dpkg import Dpkg, DpkgKind
from ansible_collections.gb10.fleet.plugins.module_utils.resources.files import FileKind
from ansible_collections.gb10.fleet.plugins.module_utils.resources.holds import HoldKind
from ansible_collections.gb10.fleet.plugins.module_utils.resources.kernel import ModuleKind, SysctlKind, persistence
from ansible_collections.gb10.fleet.plugins.module_utils.resources.packages import PackageKind
from ansible_collections.gb10.fleet.plugins.module_utils.resources.profiles import Profile, ProfileKind
from ansible_collections.gb10.fleet.plugins.module_utils.resources.units import Unit, UnitKind, settle_unit_files
from ansible_collections.gb10.fleet.plugins.module_utils.system import HostError, System

# In the order of planning: a kind may look at the steps of those before it. The order of work is the document's.
_KINDS: tuple[Kind[Any, Any], ...] = (
    FileKind(),
    DpkgKind(),
    PackageKind(),
    HoldKind(),
    ModuleKind(),
    SysctlKind(),
    ProfileKind(),
    UnitKind(),
)
KINDS: Mapping[str, Kind[Any, Any]] = {kind.name: kind for kind in _KINDS}

_WRITTEN = tuple(name for name in KINDS if name != Dpkg.KIND)  # kinds that a document may name
# A pin of this very document must not decide how an interrupted installation is completed.
_BEFORE_ALL = -1

_ROLE = re.compile(r"[a-z][a-z0-9_]*\Z")


@dataclass(frozen=True)
class Document:
    """What one role wants of a host. `consents`: what the operator allows, by the name of the variable."""

    role: str
    resources: tuple[Resource, ...]
    consents: Mapping[str, bool]

    def of_kind(self, kind: str) -> list[Resource]:
        return [resource for resource in self.resources if kind == resource.KIND]


@dataclass(frozen=True)
class Outcome:
    """What a run did or, in check mode, would do. `facts` tells of the packages and units that the document names."""

    changes: list[dict[str, str]]
    pending: list[dict[str, str]]
    diff: list[dict[str, str]]
    facts: dict[str, dict[str, str]]


class ApplyError(HostError):
    """A step failed; `changes` are those that were made before."""

    def __init__(self, message: str, changes: list[dict[str, str]]) -> None:
        super().__init__(message)
        self.changes = changes


def parse_document(role: Any, resources: Any, consents: Any) -> Document:
    """The typed document, or DocumentError with the field that is wrong. Looks at nothing but its arguments."""
    if not isinstance(role, str) or not _ROLE.match(role):
        raise DocumentError(f"role: expected the name of a role (lower case, digits, underscores), found {role!a}")
    if not isinstance(consents, dict):
        raise DocumentError("consents: expected a mapping from variable to true or false")
    for name, value in consents.items():
        if not isinstance(name, str) or not CONSENT.match(name) or not isinstance(value, bool):
            raise DocumentError(f"consents: expected names of variables with true or false, found {name!a}: {value!a}")
    if not isinstance(resources, (list, tuple)):
        raise DocumentError("resources: expected a list")
    parsed = [_parse_resource(index, raw, consents) for index, raw in enumerate(resources)]
    derived: list[Resource] = list(persistence(role, parsed))
    if any(resource.KIND in ("package", "hold") for resource in parsed):
        derived.append(Dpkg(_BEFORE_ALL, "database"))
    everything = [*parsed, *derived]
    _refuse_duplicates(everything)
    _refuse_late_inputs(parsed)
    return Document(role, tuple(everything), dict(consents))


def converge(document: Document, system: System, *, check_mode: bool) -> Outcome:
    """Bring the host to the state of the document. HostError before the first change, ApplyError after it."""
    states = _read(document, system)
    plan = make_plan(document, states)
    steps = plan.steps
    if steps and not check_mode:
        steps = _apply(plan, states, system)
        system.forget()
        states = _verify(document, steps, system)
    return Outcome(
        changes=[step.as_change() for step in steps],
        pending=[pending.as_result() for pending in plan.pending],
        diff=[step.as_diff() for step in steps],
        facts=_facts(document, states),
    )


def make_plan(document: Document, states: Mapping[str, Any]) -> Plan:
    """The steps from what was read to what is wanted. Pure."""
    plan = Plan(consents=document.consents, document=document.resources)
    for name, kind in KINDS.items():
        if name in states:
            kind.plan(document.of_kind(name), states[name], plan)
    plan.steps.sort(key=lambda step: step.resource.index)  # stable: files that the engine derives come first
    return plan


def _read(document: Document, system: System) -> dict[str, Any]:
    states = {}
    for name, kind in KINDS.items():
        resources = document.of_kind(name)
        if resources:
            try:
                states[name] = kind.read(system, resources)
            except OSError as error:
                raise HostError(_os_error(name, error)) from None
    return states


def _apply(plan: Plan, states: Mapping[str, Any], system: System) -> list[Step[Any]]:
    """Carry out the plan; the steps as they came out."""
    progress = Progress()
    current = ""
    try:
        for name in states:
            KINDS[name].prepare(system, plan, states[name])
        for name, group in itertools.groupby(plan.steps, key=lambda step: step.resource.KIND):
            steps = list(group)
            current = steps[0].resource.label
            KINDS[name].apply(system, steps, states[name], progress)
        settle_unit_files(system, progress)
        return progress.done
    except HostError as error:
        raise ApplyError(str(error), [step.as_change() for step in progress.done]) from None
    except OSError as error:
        raise ApplyError(_os_error(current, error), [step.as_change() for step in progress.done]) from None


def _verify(document: Document, done: Sequence[Step[Any]], system: System) -> dict[str, Any]:
    """Read again: a run that leaves anything to do has failed, whatever the commands said."""
    changes = [step.as_change() for step in done]
    try:
        states = _read(document, system)
        left = make_plan(document, states).steps
        for step in left:
            said = KINDS[step.resource.KIND].explain(system, step)
            raise HostError(f"{step.resource.label}: does not hold, it still needs {step.action} ({step.detail}){said}")
    except HostError as error:
        raise ApplyError(str(error), changes) from None
    return states


def _facts(document: Document, states: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    facts: dict[str, dict[str, str]] = {}
    if "package" in states:
        installed = states["package"].database.installed
        names = [resource.name for resource in document.of_kind("package")]
        facts["packages"] = {name: installed[name].version for name in names if name in installed}
    if "unit" in states:
        facts["units"] = {name: live.active for name, live in states["unit"].live.items()}
    return facts


def _parse_resource(index: int, raw: Any, consents: Mapping[str, bool]) -> Resource:
    where = f"resources[{index}]"
    if not isinstance(raw, dict):
        raise DocumentError(f"{where}: expected a mapping with one of the keys {', '.join(_WRITTEN)}")
    kinds = [name for name in _WRITTEN if name in raw]
    if len(kinds) != 1:
        found = f"found {' and '.join(kinds)}" if kinds else "found none"
        raise DocumentError(f"{where}: expected exactly one of the keys {', '.join(_WRITTEN)}, {found}")
    resource: Resource = KINDS[kinds[0]].parse(index, Fields(raw, where, kinds[0], consents))
    return resource


def _refuse_duplicates(resources: Sequence[Resource]) -> None:
    seen: dict[str, int] = {}
    for resource in resources:
        keys = [resource.label]
        if isinstance(resource, Profile):
            keys += [f"uuid {resource.uuid}", f"interface {resource.interface}"]
        for key in keys:
            if key in seen:
                raise DocumentError(
                    f"resources[{resource.index}].{resource.KIND}: {key} is declared by resources[{seen[key]}] already"
                )
            seen[key] = resource.index


def _refuse_late_inputs(resources: Sequence[Resource]) -> None:
    """A unit restarts at its own place, so what it reads must have its place before."""
    places = {resource.label: resource.index for resource in resources}
    for unit in resources:
        if not isinstance(unit, Unit):
            continue
        for place, label in enumerate(unit.inputs):
            if places.get(label, unit.index) >= unit.index:
                raise DocumentError(
                    f"resources[{unit.index}].restart_on[{place}]: {label} is not declared before the unit"
                )


def _os_error(where: str, error: OSError) -> str:
    return f"{where}: {error.filename or 'the operating system'}: {error.strerror or error}"
