# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of plugin_utils/findings.py: looks at a host in one call, and fails it when something blocks.

A host that cannot be reached becomes a *failed* host with a finding: Ansible's any_errors_fatal stops a run on failed
hosts, but lets it go on (and change the others) past an unreachable one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog, documents, findings, host, transport

CATALOGS = ("products", "platforms", "security_floors")


@dataclass
class Look:
    """What one call told: the facts, what is left to do, and what speaks against it."""

    facts: dict[str, Any] = field(default_factory=dict)
    found: list[findings.Finding] = field(default_factory=list)
    settled: bool = False
    answer: dict[str, Any] = field(default_factory=lambda: {"changes": [], "pending": [], "orphans": []})


class ActionModule(ActionBase):
    """Judge one host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(  # type: ignore[no-untyped-call]
            argument_spec={"refuse": {"type": "bool", "default": True}}
        )
        task_vars = task_vars or {}
        name = task_vars["inventory_hostname"]
        try:
            declared = catalog.declared_variables()
            catalogs = {name: catalog.load(name) for name in CATALOGS}
        except catalog.CatalogError as error:
            raise AnsibleError(f"the collection itself is damaged: {error}") from error
        own = host.Host(self, task_vars)
        variables, found = _evaluated(own, task_vars, declared)
        subject = findings.Subject(
            name,
            {},
            variables,
            task_vars.get("groups", {}),
            catalogs,
            declared,
            run=task_vars["ansible_play_hosts_all"],
        )
        subject = replace(subject, fleet=_fleet(subject, task_vars))
        found += [*_forks(subject, task_vars), *findings.evaluate_variables(subject)]
        # Documents are made of variables: of unsound ones they would speak in riddles.
        look = _look(own, sound=not any(finding.blocks for finding in found))
        if look.facts:
            found += findings.evaluate_facts(replace(subject, facts=look.facts))
        found += look.found
        refusal = findings.refusal(found)
        refused = refusal is not None and arguments["refuse"]
        # What is shown of a failure is all of its result: the reason must not drown in facts.
        shown = [finding for finding in found if finding.blocks] if refused else found
        result.update(changed=False, failed=refused, findings=[finding.as_dict() for finding in shown])
        result["msg"] = refusal or f"{name}: nothing blocks ({_count(found)})"
        if look.facts and not refused:
            look_fact = {key: look.answer[key] for key in ("changes", "pending", "orphans")}
            result["ansible_facts"] = {
                **host.said_now(look.facts),
                "gb10_look": {"run": host.RUN, "settled": look.settled, **look_fact},
            }
        if arguments["refuse"]:
            result["warnings"] = [
                f"{f.host}: {f.id}: {f.fact}" for f in found if f.severity == "warn" and not f.accepted
            ]
            # Nobody else will say it: the run ends here for a settled host.
            result["warnings"] += host.warnings(name, look.answer) if look.settled else []
        return result


def _look(own: host.Host, sound: bool) -> Look:
    """The one call. Where the facts are not those of last time, what they refuse is found out without another."""
    facts = own.last_facts if sound else None
    rendered: list[documents.Rendered] = []
    context: documents.Context | None = None
    expect: dict[str, str] = {}
    if facts is not None:
        context, rendered = own.render(own.roles, facts, looking=True)
        expect = context.expect
    sent = host.documents_of(rendered)
    try:
        answer = own.converge(sent, check=True, expect=expect)
    except transport.NoAnswer as error:
        return Look(found=[findings.from_failure(own.name, error.said, answered=True)])
    except AnsibleError as error:  # connection failures, refused privilege escalation
        return Look(found=[findings.from_failure(own.name, str(error))])
    refused = [findings.state_refused(own.name, answer["error"]["message"])] if answer["error"] else []
    if not answer["facts"]:
        return Look(found=refused)
    if not answer["facts"]["root"]:
        return Look(answer["facts"])  # which say it all
    if sound and (facts is None or answer["stale"]):
        context, rendered = own.render(own.roles, answer["facts"], looking=True)
    found = [findings.refused(own.name, made.role, text) for made in rendered for text in made.refusals]
    if context is not None and "fabric" in own.roles and context.fabric.coming:
        found.append(findings.planned(own.name, context.fabric.coming))
    settled = (
        facts is not None
        and not answer["stale"]
        and not answer["error"]
        and not answer["changes"]
        and answer["recorded"]
        and len(sent) == len(own.roles)
        and not (answer["orphans"] and own.variables.get("gb10_orphans") == "remove")
    )
    return Look(answer["facts"], found + refused, settled, answer)


def _evaluated(
    own: host.Host, task_vars: Mapping[str, Any], declared: catalog.Declared
) -> tuple[dict[str, Any], list[findings.Finding]]:
    """The variables with a prefix of ours, templates rendered; those that do not render become findings."""
    values, failures = {}, []
    names = (name for name in task_vars if str(name).startswith(declared.prefixes))
    for name in sorted(set(names) - set(task_vars.get("ansible_facts", {}))):
        try:
            values[name] = own.variables[name]
        except (AnsibleError, TypeError) as error:
            fact = f"{name} cannot be evaluated: {' '.join(str(error).split())[:300]}"
            failures.append(findings.Finding("bad_variable", "error", own.name, fact, "correct it in the inventory"))
    return values, failures


def _fleet(subject: findings.Subject, task_vars: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the first host of a cluster on a switch wants to know of all hosts, also of those not in this run."""
    fleet: dict[str, dict[str, Any]] = {}
    if subject.topology != "switch" or subject.host not in subject.members[:1]:
        return fleet
    for other in task_vars["groups"].get("all", ()):
        own = fleet[other] = {}
        for name in findings.FLEET_VARIABLES:
            with contextlib.suppress(AnsibleError, KeyError):  # the host's own doctor says what does not render
                own[name] = task_vars["hostvars"][other][name]
    return fleet


def _forks(subject: findings.Subject, task_vars: Mapping[str, Any]) -> list[findings.Finding]:
    """Both ends of a measurement must run at once; said once, by the first host of the cluster."""
    forks, size = int(task_vars["ansible_forks"]), len(subject.members)
    if subject.host not in subject.members[:1] or forks >= size:
        return []
    fact = f"forks is {forks}, but the cluster {subject.setting('gb10_cluster')} has {size} hosts"
    way_out = f"run with --forks {size} or more: they are measured and started together"
    return [findings.Finding("bad_variable", "error", subject.host, fact, way_out)]


def _count(found: list[findings.Finding]) -> str:
    warnings = sum(finding.severity == "warn" and not finding.accepted for finding in found)
    return f"{warnings} warnings, {sum(finding.accepted is not None for finding in found)} accepted"


host.preload()
