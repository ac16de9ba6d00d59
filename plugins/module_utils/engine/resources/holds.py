# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds: packages that apt must not move. The same bit as `apt-mark hold`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    COMES_BACK,
    GIVES_WAY,
    Fields,
    Kind,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.dpkg import PACKAGE, in_order, run_locked
from ansible_collections.gb10.fleet.plugins.module_utils.reading.dpkg import Database, read_database
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

_EXPRESSION = re.compile(r"(?!.*(\{\{|\{%))[ -~]+\Z")


@dataclass(frozen=True)
class Hold(Resource):
    """One package by its name, or with `match` all installed packages that match and are not in `exclude`.

    Of these, what matches `free` shall be free: one resource for both, so that an undo knows how all of them were.
    `former` is an undo: what was held before, by name; one that it does not name came later and is freed. It comes in
    two parts, because packages move in between: `part` is what it sees to, the free ones or the held ones.
    """

    KIND = "hold"

    state: str = "held"
    match: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    former: Mapping[str, bool] | None = None
    part: str = ""

    @property
    def stage(self) -> int:
        return COMES_BACK if self.part == "held" else GIVES_WAY

    @property
    def prerequisites(self) -> tuple[Resource, ...]:
        return (in_order(self.role),)

    def holds(self, name: str) -> bool:
        """What a covered package shall be."""
        if self.former is not None:
            return self.former.get(name, False)
        return self.state == "held" and not any(re.search(pattern, name) for pattern in self.free)

    def frees(self, name: str) -> bool:
        return bool(self.covers([name])) and not self.holds(name)

    def covers(self, names: Iterable[str]) -> list[str]:
        if not self.match:
            return [name for name in names if name == self.name]
        # A host has thousands of packages: `re.search` would look each pattern up for each of them.
        wanted = [re.compile(pattern).search for pattern in self.match]
        others = [re.compile(pattern).search for pattern in self.exclude]
        return sorted(
            name for name in names if any(found(name) for found in wanted) and not any(found(name) for found in others)
        )


class HoldKind(Kind[Hold, Database]):
    name = Hold.KIND

    def parse(self, index: int, fields: Fields) -> Hold:
        resource = Hold(
            index=index,
            name=fields.name(PACKAGE, "the name of a package, or of a set with match"),
            state=fields.choice("state", ("held", "free"), "held"),
            match=_patterns("match", fields),
            exclude=_patterns("except", fields),
            free=_patterns("free", fields),
        )
        if fields.has("match") and not resource.match:
            raise fields.fail("match", "expected at least one regular expression")
        for key, given in (("except", resource.exclude), ("free", resource.free)):
            if given and not resource.match:
                raise fields.fail(key, "needs match")
        fields.finish()
        return resource

    def read(self, system: System, resources: Sequence[Hold]) -> Database:
        return system.once(read_database)

    def plan(self, resources: Sequence[Hold], state: Database, plan: Plan) -> None:
        names = plan.prediction.packages if plan.prediction else frozenset(state.installed)
        certain = plan.prediction is None or plan.prediction.complete
        sets = [resource.covers(names) for resource in resources]
        _refuse_two_wishes(resources, sets)
        for resource, covered in zip(resources, sets):
            if not covered and certain and resource.state == "held" and resource.former is None:
                raise HostError(f"{resource.label}: {_nothing(resource)}")
            wrong = _wrong(resource, covered, state)
            _refuse_later_packages(resource, wrong, state, plan)
            if wrong or not (covered or certain or resource.former is not None):
                plan.steps.append(
                    Step(resource, _action(resource, wrong), ", ".join(wrong) or "what is then installed")
                )

    def apply(self, system: System, steps: Sequence[Step[Hold]], state: Database, progress: Progress) -> None:
        # Asked again: packages installed earlier in this run may have brought names that nobody could predict.
        database = system.once(read_database)
        selections = []
        told = []
        for step in steps:
            covered = step.resource.covers(database.installed)
            wrong = _wrong(step.resource, covered, database)
            selections += [f"{name} {'hold' if step.resource.holds(name) else 'install'}\n" for name in wrong]
            told.append(replace(step, detail=", ".join(wrong)))
        done = run_locked(system, ["dpkg", "--set-selections"], stdin="".join(selections))
        if done.rc != 0:
            raise HostError(f"{steps[0].resource.label}: dpkg --set-selections failed: {done.words}")
        system.forget()
        progress.done.extend(told)

    def record(self, resource: Hold, state: Database) -> dict[str, Any]:
        return {name: state.installed[name].held for name in resource.covers(state.installed)}

    def restore(self, resource: Hold, record: Mapping[str, Any]) -> list[Resource]:
        return [replace(resource, former=dict(record), part=part) for part in ("free", "held")]

    def untouched(self, resource: Hold, left: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
        """Packages of a set come and go with the host; one that is new is free."""
        return all(held == left.get(name, False) for name, held in live.items())


def _wrong(resource: Hold, covered: Sequence[str], database: Database) -> list[str]:
    """The covered packages whose hold is not as wanted; one that is about to be installed has none yet."""
    held = {name for name, package in database.installed.items() if package.held}
    wrong = [name for name in covered if (name in held) != resource.holds(name)]
    return [name for name in wrong if resource.part in ("", "held" if resource.holds(name) else "free")]


def _refuse_two_wishes(resources: Sequence[Hold], sets: Iterable[Sequence[str]]) -> None:
    """A package cannot be held and free; of an undo each record is about its own time. `sets`: what each covers."""
    wishes: dict[str, Hold] = {}
    for resource, covered in zip(resources, sets):
        for name in covered if resource.former is None else ():
            other = wishes.setdefault(name, resource)
            if other.state != resource.state:
                raise HostError(
                    f"{resource.label}: {name} shall be {resource.state}, and {other.state} by {other.label}; let one"
                    " of them leave it out"
                )


def _refuse_later_packages(resource: Hold, wrong: Sequence[str], database: Database, plan: Plan) -> None:
    """dpkg forgets the hold of what is not installed, so a package has to come before its hold."""
    installs = {step.resource.name: step.resource.index for step in plan.steps if step.action == "install"}
    too_early = not any(index < resource.index for index in installs.values())
    for name in wrong:
        if name not in database.installed and (too_early or installs.get(name, -1) > resource.index):
            raise HostError(
                f"{resource.label}: {name} is installed later in the document, and only an installed package can be"
                " held; declare the package before the hold"
            )


def _action(resource: Hold, wrong: Sequence[str]) -> str:
    if resource.former is not None:
        return "restore"
    return "hold" if any(map(resource.holds, wrong)) or (resource.state == "held" and not wrong) else "free"


def _nothing(resource: Hold) -> str:
    if resource.match:
        return f"no installed package matches {' or '.join(resource.match)}; correct the expressions"
    return "the package is not installed; install it first, or name another one"


def _patterns(key: str, fields: Fields) -> tuple[str, ...]:
    patterns = fields.lines(key, _EXPRESSION, "a regular expression")
    for place, pattern in enumerate(patterns):
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise fields.fail(f"{key}[{place}]", f"is no regular expression: {error}") from None
    return patterns
