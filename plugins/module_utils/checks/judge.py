# SPDX-License-Identifier: GPL-3.0-or-later
"""All detectors over one reading: findings, and what cannot be told and why. Pure.

A sampler keeps more samples than a detector wants to see at once. `spans` names by its function how many of the last
ones it sees; where it cannot tell from these, it is asked again over the next number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ansible_collections.gb10.fleet.plugins.module_utils.checks import (
    gpu_checks,
    line_checks,
    memory_checks,
    part_checks,
)
from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import Patient, Rules, Said, Unsure
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding

if TYPE_CHECKING:  # for types alone, which no program needs
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import Reading

CHECKS = (*gpu_checks.CHECKS, *memory_checks.CHECKS, *part_checks.CHECKS)
_ORDER = ("error", "warn", "info")


@dataclass(frozen=True)
class Judgement:
    """`unsure`: id of a detector that cannot tell, with its reason."""

    findings: Sequence[Finding]
    unsure: Mapping[str, str]


Check = Callable[[Patient], Iterator[Said]]
OTHERS = "others"  # how many samples a detector sees that has no number of its own


def judge(host: str, reading: Reading, rules: Rules, spans: Mapping[str, Sequence[int]] | None = None) -> Judgement:
    """Findings, the worst first. Without `spans` each detector sees all samples."""
    patient = Patient(host, reading, rules)

    @cache
    def seen(count: int) -> Patient:
        return Patient(host, {**reading, "samples": reading["samples"][-count:]}, rules)

    said: list[Said] = []
    for check in CHECKS:
        looks = [patient] if spans is None else map(seen, spans.get(check.__name__, spans[OTHERS]))
        said += _first_sure(check, looks)
    said += line_checks.check_lines(patient, {each.id for each in said if isinstance(each, Finding)})
    found = [each for each in said if isinstance(each, Finding)]
    unsure: dict[str, str] = {}
    for each in said:
        if not isinstance(each, Finding):  # a detector may say it of several services
            unsure[each.id] = f"{unsure[each.id]}; {each.reason}" if each.id in unsure else each.reason
    return Judgement(
        sorted(found, key=lambda finding: _ORDER.index(finding.severity)),
        unsure,
    )


def _first_sure(check: Check, looks: Iterable[Patient]) -> list[Said]:
    """What a detector says of the first look from which it can tell, else of the last one."""
    said: list[Said] = []
    for look in looks:
        said = list(check(look))
        if not any(isinstance(each, Unsure) for each in said):
            break
    return said
