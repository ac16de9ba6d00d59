# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings that an operator has accepted with a written reason (`gb10_accept`)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.table import REFUSED, never_accepted, severities


def accept(subject: Subject, findings: list[Finding]) -> list[Finding]:
    reasons = subject.setting("gb10_accept")
    if not isinstance(reasons, Mapping):
        return findings  # `inventory` says so
    return [
        replace(finding, accepted=str(reasons[finding.id]).strip())
        if finding.id not in never_accepted() and str(reasons.get(finding.id) or "").strip()
        else finding
        for finding in findings
    ]


def check_acceptances(subject: Subject) -> Iterator[Finding]:
    reasons = subject.setting("gb10_accept")
    for id_, reason in reasons.items() if isinstance(reasons, Mapping) else ():
        refusals = {f"{role}{REFUSED}" for role in subject.declared.roles}
        if id_ not in refusals.union(severities()):
            near = difflib.get_close_matches(str(id_), severities(), n=1)
            others = "docs/doctor.md lists the ids; rules of serving go into vllm_accept"
            way_out = f"did you mean {near[0]}?" if near else others
            yield subject.say("bad_variable", f"gb10_accept names {id_}, which is no finding", way_out)
        elif id_ in refusals.union(never_accepted()):
            fact = f"gb10_accept names {id_}, which cannot be accepted"
            yield subject.say("bad_variable", fact, "repair the cause and remove the entry")
        elif not isinstance(reason, str) or not reason.strip():
            yield subject.say("bad_variable", f"gb10_accept.{id_} gives no reason", "write down why it is acceptable")
