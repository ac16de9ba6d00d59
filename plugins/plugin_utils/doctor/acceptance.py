# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ids of findings, and which of them an operator may accept with a written reason (`gb10_accept`)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ansible_collections.gb10.fleet.plugins.module_utils.checks import coherence as judgement
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject

# Verdicts that are no findings: that all is well, and what only the gate on the host asks (`apt-cache policy`).
GATE_ONLY = ("coherent", "candidate_not_580", "candidates_unknown")
# With the severities that a finding can have. docs/doctor.md shows them.
IDS = {
    **dict.fromkeys(
        ("unreachable", "host_key", "permission", "unreadable", "no_sudo", "not_a_spark", "os", "architecture",
         "no_rdma", "no_rail", "rail_is_management", "disk_full", "unknown_variable", "bad_variable",
         "cluster_members", "driver_branch",
         "same_machine", "apt_sources_conflict", "state_refused"),
        ("error",),
    ),
    **dict.fromkeys(
        ("slow_link", "machine_id_copied", "clock_differs", "clock_free", "apt_lock", "dpkg_interrupted",
         "security_floor", "memory_fragmented", "upgrade_at_boot", "kernel_parameter", "kho_on", "oom_daemon"),
        ("warn",),
    ),
    **dict.fromkeys(
        ("foreign_variables", "dashboard_update", "stopped_by_wish", "asleep", "fabric_plan"), ("info",)
    ),
    **dict.fromkeys(("no_carrier", "gpu_absent"), ("error", "warn")),
    "unknown_model": ("warn", "info"),
    **{id_: (severity,) for id_, severity in judgement.IDS.items() if id_ not in GATE_ONLY},
}  # fmt: skip
REFUSED = "_refused"  # after the name of a role: what the role's document refuses
# No written reason makes a host reachable, a value readable or a rail exist.
NEVER_ACCEPTED = frozenset(
    {
        "unreachable", "host_key", "permission", "unreadable", "no_sudo", "bad_variable", "state_refused",
        # The roles refuse these too.
        "no_driver", "driver_branch", "no_rdma", "no_rail", "rail_is_management", "cluster_members",
        "same_machine",
    }
)  # fmt: skip


def accept(subject: Subject, findings: list[Finding]) -> list[Finding]:
    reasons = subject.setting("gb10_accept")
    if not isinstance(reasons, Mapping):
        return findings  # `inventory` says so
    return [
        replace(finding, accepted=str(reasons[finding.id]).strip())
        if finding.id not in NEVER_ACCEPTED and str(reasons.get(finding.id) or "").strip()
        else finding
        for finding in findings
    ]


def check_acceptances(subject: Subject) -> Iterator[Finding]:
    reasons = subject.setting("gb10_accept")
    for id_, reason in reasons.items() if isinstance(reasons, Mapping) else ():
        refusals = {f"{role}{REFUSED}" for role in subject.declared.roles}
        if id_ not in refusals.union(IDS):
            near = difflib.get_close_matches(str(id_), IDS, n=1)
            others = "docs/doctor.md lists the ids; rules of serving go into vllm_accept"
            way_out = f"did you mean {near[0]}?" if near else others
            yield subject.error("bad_variable", f"gb10_accept names {id_}, which is no finding", way_out)
        elif id_ in refusals.union(NEVER_ACCEPTED):
            fact = f"gb10_accept names {id_}, which cannot be accepted"
            yield subject.error("bad_variable", fact, "repair the cause and remove the entry")
        elif not isinstance(reason, str) or not reason.strip():
            yield subject.error("bad_variable", f"gb10_accept.{id_} gives no reason", "write down why it is acceptable")
