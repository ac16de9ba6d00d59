# SPDX-License-Identifier: GPL-3.0-or-later
"""What gb10.fleet.spark_facts answers, by section: every value of it is checked on arrival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.checks.coherence import Verdict
from ansible_collections.gb10.fleet.plugins.module_utils.reading.boots import Line
from ansible_collections.gb10.fleet.plugins.module_utils.reading.driver import Driver
from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import Reading
from ansible_collections.gb10.fleet.plugins.module_utils.reading.services import Memory, Returned, Services
from ansible_collections.gb10.fleet.plugins.module_utils.reading.spark_facts import Facts
from ansible_collections.gb10.fleet.plugins.module_utils.releases.read import Release
from ansible_collections.gb10.fleet.plugins.module_utils.releases.rehearse import Rehearsal
from ansible_collections.gb10.fleet.plugins.module_utils.system.values import KernelRelease, PackageName
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import answer

# Modules of their own before; meta/runtime.yml leads their names here for one release.
FORMER = {
    "health_facts": "health",
    "release_facts": "release",
    "driver_coherence": "coherence",
    "services": "services",
    "recorder_facts": "recorded",
}
NEEDED = {
    "facts": ("ansible_facts",),
    "health": ("health",),
    "release": ("release", "cluster"),
    "coherence": ("coherent", "verdicts", "against_a_boot", "kernel", "packages", "driver", "stdout_lines"),
    "services": ("services", "memory"),
    "recorded": ("recorded",),
}
WITH = {"plan": "rehearsal", "stopped": "returned"}  # an option, and the key that the answer has then


def of(asked: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Return the keys of an answer to these sections. A host may be asked about another one, and for no more."""
    needed = [key for section in asked for key in NEEDED.get(section, ())]
    return [*needed, *(key for option, key in WITH.items() if options.get(option))]


class Spark(TypedDict):
    """Ansible itself puts the interpreter that it found beside ours, and there alone where no facts are asked."""

    gb10_spark: NotRequired[Facts]
    discovered_interpreter_python: NotRequired[str]


class Answer(TypedDict):
    """All sections. `before` is what an earlier version of ours may have written: its reader judges it."""

    ansible_facts: NotRequired[Spark]
    health: NotRequired[Reading]
    release: NotRequired[Release]
    cluster: NotRequired[str]
    rehearsal: NotRequired[Rehearsal]
    coherent: NotRequired[bool]
    verdicts: NotRequired[list[Verdict]]
    against_a_boot: NotRequired[list[Verdict]]
    kernel: NotRequired[KernelRelease]
    packages: NotRequired[dict[PackageName, str]]
    driver: NotRequired[Driver]
    stdout_lines: NotRequired[list[str]]
    services: NotRequired[Services]
    memory: NotRequired[Memory | None]
    returned: NotRequired[Returned]
    recorded: NotRequired[list[Line]]


def problem(said: Mapping[str, Any], asked: Sequence[str], options: Mapping[str, Any]) -> str | None:
    """The first value that is missing or not what it must be, in words; what was not asked for is judged as well."""
    for key in (key for key in of(asked, options) if key not in said):
        return f"answer.{key} is missing"
    if "facts" in asked and isinstance(said["ansible_facts"], Mapping) and "gb10_spark" not in said["ansible_facts"]:
        return "answer.ansible_facts.gb10_spark is missing"
    wrong = schema.problem(said, Answer, "answer")
    return wrong or (answer.excess(said["release"]) if "release" in said else None)
