# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What doctor says about a host: a pure function of facts, variables and catalog.

A finding names the host, the fact and the way out. An error stops the run before the first change, unless the operator
accepted its id with a written reason (`gb10_accept`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.acceptance import (
    GATE_ONLY,
    IDS,
    NEVER_ACCEPTED,
    REFUSED,
    accept,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.clock_checks import check_clock, check_time_source
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.fabric_checks import check_rails
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.host_checks import (
    GIB,
    check_apt,
    check_coherence,
    check_disks,
    check_driver,
    check_gpu,
    check_identity,
    check_kernel_parameters,
    check_names,
    check_oom_daemons,
    check_root,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.inventory import check_inventory, own_minimums
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.memory_checks import check_blocks
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.security_floors import FLOOR, check_security_floors
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import FLEET_VARIABLES, Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.vendor_updates import check_vendor_updates
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.wish_check import check_wishes

__all__ = [
    "FLEET_VARIABLES", "GATE_ONLY", "GIB", "IDS", "NEVER_ACCEPTED", "Subject",
    "evaluate_facts", "evaluate_variables", "of_document", "own_minimums", "refusal", "refused", "state_refused",
]  # fmt: skip
CHECKS = (
    *(check_root, check_identity, check_rails, check_disks, check_driver, check_coherence, check_gpu, check_apt),
    *(check_security_floors, check_kernel_parameters, check_oom_daemons, check_clock, check_time_source),
    *(check_names, check_blocks, check_vendor_updates, check_wishes),
)


def evaluate_variables(subject: Subject) -> list[Finding]:
    """What can be said without the facts of the host."""
    return accept(subject, list(check_inventory(subject)))


def evaluate_facts(subject: Subject) -> list[Finding]:
    """What there is to say about a host whose facts could be read."""
    return accept(subject, [finding for check in CHECKS for finding in check(subject)])


def refused(host: str, role: str, text: str) -> Finding:
    """What a role's document refuses, in a text that has the way out in it; no written reason changes it."""
    fact = text.removeprefix(f"{host}: ").removeprefix(f"{host} ")  # the finding names the host
    return Finding(f"{role}{REFUSED}", "error", host, fact, "")


def of_document(host: str, said: Mapping[str, Any]) -> Finding:
    """What a role's document has to say of the host, and what stops nothing."""
    return Finding(said["id"], said["severity"], host, said["fact"], said["way_out"], said["accepted"])


def state_refused(host: str, text: str) -> Finding:
    """What the engine says that would keep it from bringing the host to its state."""
    return Finding("state_refused", "error", host, text, "repair what it names, then run again")


def warnings(findings: Sequence[Finding]) -> list[str]:
    """Say each warning in one line, and what is below its security floor in one for all of it."""
    said = [each for each in findings if each.severity == "warn" and not each.accepted]
    old = [each for each in said if each.id == FLOOR]
    if len(old) < 2:
        return [f"{each.host}: {each.id}: {each.fact}" for each in said]
    names = ", ".join(each.fact.partition(" is ")[0] for each in old)
    summed = (
        f"{old[0].host}: {FLOOR}: {len(old)} components have published vulnerabilities: {names}. "
        "`gb10 doctor -i INVENTORY` says what to set"
    )
    return [*(f"{each.host}: {each.id}: {each.fact}" for each in said if each.id != FLOOR), summed]


def refusal(findings: Sequence[Finding]) -> str | None:
    """Why the run stops, for a person to read; None when nothing blocks."""
    lines = [str(finding) for finding in findings if finding.blocks]
    return "\n".join(["doctor refuses to go on:", *lines]) if lines else None
