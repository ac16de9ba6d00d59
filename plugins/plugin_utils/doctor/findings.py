# SPDX-License-Identifier: GPL-3.0-or-later
"""What doctor says about a host: a pure function of facts, variables and catalog.

A finding names the host, the fact and the way out. An error stops the run before the first change, unless the operator
accepted its id with a written reason (`gb10_accept`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor import (
    fabric_checks,
    host_checks,
    security_floors,
    vendor_updates,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.acceptance import accept
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.inventory import check_inventory
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.security_floors import FLOOR, components
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.table import REFUSED, severities

CHECKS = (
    *(*host_checks.CHECKS, *fabric_checks.CHECKS, *security_floors.CHECKS, *host_checks.OF_NOW),
    *(*vendor_updates.CHECKS, host_checks.check_wishes),
)


def evaluate_variables(subject: Subject) -> list[Finding]:
    """What can be said without the facts of the host."""
    return accept(subject, list(check_inventory(subject)))


def evaluate_facts(subject: Subject) -> list[Finding]:
    """What there is to say about a host whose facts could be read."""
    return accept(subject, [finding for check in CHECKS for finding in check(subject)])


# A planner says fact and way out in one text: the way out begins with `Fix:`, or else with what to do.
_FIX = re.compile(r"[.;:]? Fix: ")
WAY_OUT = re.compile(
    r"[.;:,] (?=`|did you mean|"
    r"(?:Add|Begin|Boot|Check|Choose|Correct|Free|Give|If|Install|Keep|Leave|Let|Make|Move|Name|Plug|Put|Reach|Remove"
    r"|Rename|Run|Say|Set|Take|To|Use|Wait|Write) )",
    re.IGNORECASE,
)


def refused(host: str, role: str, text: str) -> Finding:
    """What a role's document refuses; no written reason changes it."""
    text = text.removeprefix(f"{host}: ").removeprefix(f"{host} ")  # the finding names the host
    fact, *ways = (_FIX if _FIX.search(text) else WAY_OUT).split(text, maxsplit=1)
    way_out = ways[0][0].lower() + ways[0][1:].removesuffix(".") if ways else "correct what it names, then run again"
    return Finding(f"{role}{REFUSED}", "error", host, fact.removesuffix("."), way_out)


def of_document(host: str, said: Mapping[str, Any]) -> Finding:
    """What a role's document has to say of the host, and what stops nothing."""
    return Finding(said["id"], said["severity"], host, said["fact"], said["way_out"], said["accepted"])


def state_refused(host: str, text: str) -> Finding:
    """What the engine says that would keep it from bringing the host to its state."""
    return Finding(
        "state_refused", severities()["state_refused"][0], host, text, "repair what it names, then run again"
    )


def containers_end(subject: Subject, names: Sequence[str], waits: bool) -> list[Finding]:
    """Name the containers of others that end with Docker: in this run, or once the operator consents."""
    if not names:
        return []
    fact = f"{'to restart' if waits else 'this run restarts'} Docker, which ends {', '.join(names)}"
    way_out = "end them in good order first if they keep in memory what you need; they are started again behind it" + (
        "; nothing of it happens without docker_allow_restart: true" if waits else ""
    )
    return accept(subject, [subject.say("containers_end", fact, way_out)])


def warnings(findings: Sequence[Finding]) -> list[str]:
    """Say each warning in one line, and what is below its security floor in one for all of it."""
    said = [each for each in findings if each.severity == "warn" and not each.accepted]
    old = [each for each in said if each.id == FLOOR]
    if len(old) < 2:
        return [f"{each.host}: {each.id}: {each.fact}" for each in said]
    names = components(each.fact for each in old)
    summed = (
        f"{old[0].host}: {FLOOR}: {len(old)} components have published vulnerabilities: {names}. "
        "`gb10 doctor -i INVENTORY` says what to set"
    )
    return [*(f"{each.host}: {each.id}: {each.fact}" for each in said if each.id != FLOOR), summed]


def refusal(findings: Sequence[Finding]) -> str | None:
    """Return why the run stops, for a person to read; None when nothing blocks."""
    lines = [str(finding) for finding in findings if finding.blocks]
    return "\n".join(["doctor refuses to go on:", *lines]) if lines else None
