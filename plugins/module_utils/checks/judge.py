# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All detectors over one reading: findings, and what cannot be told and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.module_utils.checks import (
    gpu_checks,
    line_checks,
    memory_checks,
    part_checks,
)
from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import Patient, Rules
from ansible_collections.gb10.fleet.plugins.module_utils.reading.types import Reading
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding

CHECKS = (
    *(gpu_checks.check_answer, gpu_checks.check_power_fault, gpu_checks.check_throttled),
    *(gpu_checks.check_temperature, gpu_checks.check_zones, gpu_checks.check_hang),
    gpu_checks.check_steps,
    *(memory_checks.check_returned, memory_checks.check_fragmentation, memory_checks.check_pressure),
    *(memory_checks.check_kho, part_checks.check_rails, part_checks.check_rail_errors, part_checks.check_disks),
    *(part_checks.check_functions, part_checks.check_boots, part_checks.check_certificates),
    part_checks.check_stopped,
)
_ORDER = ("error", "warn", "info")


@dataclass(frozen=True)
class Judgement:
    """`unsure`: id of a detector that cannot tell, with its reason."""

    findings: Sequence[Finding]
    unsure: Mapping[str, str]


def judge(host: str, reading: Reading, rules: Rules) -> Judgement:
    """Findings, the worst first."""
    patient = Patient(host, reading, rules)
    said = [each for check in CHECKS for each in check(patient)]
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
