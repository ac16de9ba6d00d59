# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that somebody else writes: they have to be there when everything above them is done."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    Fields,
    Kind,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_fields import parse_path
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.file_resource import File
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

_SENTENCE = re.compile(r"(?!.*(\{\{|\{%))[!-~][ -~]+\Z")
_TEXT = re.compile(r"(?!.*(\{\{|\{%))[!-~]+\Z")
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.\\@-]*\.service\Z")
_WRITER_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Expected(Resource):
    """A file that somebody else writes, for example a unit of the document. It goes by the name of a file."""

    KIND = "expected"

    otherwise: str = ""  # what it means that the file is missing, and the way out
    contains: str = ""  # what stands in a file that is up to date
    written_by: str = ""  # the oneshot service that writes it
    beforehand: bool = False  # nothing in the document brings it

    @property
    def label(self) -> str:
        return f"{File.KIND}:{self.name}"


class ExpectedKind(Kind[Expected, Mapping[str, "str | None"]]):
    """Planned last, because everything earlier in the document may bring the file."""

    name = Expected.KIND
    declarable = False

    def parse(self, index: int, fields: Fields) -> Expected:
        raise fields.fail(self.name, "is not a resource of a document; it is a file with state expected")

    def read(self, system: System, resources: Sequence[Expected]) -> dict[str, str | None]:
        return {resource.name: system.text(resource.name) for resource in resources}

    def plan(self, resources: Sequence[Expected], state: Mapping[str, str | None], plan: Plan) -> None:
        for resource in resources:
            content = state[resource.name]
            if content is not None and resource.contains in content:
                continue
            problem = "is missing" if content is None else f"is out of date: {resource.contains} is not in it"
            earlier = any(step.resource.index < resource.index for step in plan.steps)
            if resource.written_by:
                plan.steps.append(Step(resource, "refresh", f"{problem}; {resource.written_by} writes it"))
            elif resource.beforehand or not earlier:
                raise HostError(f"{resource.label}: {problem}; {resource.otherwise}")

    def apply(
        self, system: System, steps: Sequence[Step[Expected]], state: Mapping[str, str | None], progress: Progress
    ) -> None:
        for step in steps:
            resource = step.resource
            # Whatever came earlier in this run may have brought it, and another start would only cost time.
            content = system.text(resource.name)
            if content is None or resource.contains not in content:
                # One that was started too often of late would refuse for a while, although its inputs are right now.
                system.run(["systemctl", "reset-failed", resource.written_by])
                # A restart: one that is just running may have begun before the change that makes it necessary.
                done = system.run(["systemctl", "restart", resource.written_by], timeout=_WRITER_TIMEOUT_S)
                if done.rc != 0:
                    raise HostError(
                        f"{resource.label}: systemctl restart {resource.written_by} failed: {done.words};"
                        f" {resource.otherwise}"
                    )
            progress.done.append(step)

    def explain(self, system: System, step: Step[Expected]) -> str:
        return f"; {step.resource.otherwise}"

    def record(self, resource: Expected, state: Mapping[str, str | None]) -> dict[str, Any]:
        return {}

    def restore(self, resource: Expected, record: Mapping[str, Any]) -> list[Resource]:
        return []


def parse_expected(index: int, fields: Fields) -> Expected:
    name = parse_path(fields)
    otherwise = fields.line("otherwise", "", _SENTENCE, "a sentence: what it means that the file is missing")
    if not otherwise:
        raise fields.fail("otherwise", "say what it means that the file is missing, and the way out")
    contains = fields.line("contains", "", _TEXT, "text without spaces")
    written_by = fields.line("written_by", "", _SERVICE, "the full name of a service")
    beforehand = bool(fields.flag("beforehand"))
    fields.finish()
    return Expected(index, name, otherwise=otherwise, contains=contains, written_by=written_by, beforehand=beforehand)
