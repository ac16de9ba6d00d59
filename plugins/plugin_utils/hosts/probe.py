# SPDX-License-Identifier: GPL-3.0-or-later
"""The look at one host: what it is asked, and what its answer means to the doctor.

Between the two lies the call: the action `doctor` makes it for the host of its task, the action `look` for all hosts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible.errors import AnsibleError
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.status import PHASES
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import NO_CONTACT, Finding, from_failure
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor import findings
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import FLEET_VARIABLES, Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, effort
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import counted
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.run import RUN
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host

CATALOGS = (
    *("products", "platforms", "host_sets", "security_floors", "software", "kernel_parameters", "memory", "thresholds"),
)
LOADING = PHASES[: PHASES.index("ready")]  # of a model that serves by itself, if nothing goes wrong
_SHOWN = ("changes", "pending", "orphans")


@dataclass(frozen=True)
class Question:
    """One host before the call. `sound`: documents can be made of its variables."""

    host: host.Host
    subject: Subject
    found: list[Finding]
    sound: bool
    facts: dict[str, Any] | None
    context: View | None
    rendered: list[documents.Rendered]
    request: dict[str, Any]

    def called(self, began: float, ended: float, heard: Mapping[str, Mapping[str, Any]] | None = None) -> Question:
        """With the times of the call, by the clock of this machine, and the facts of hosts asked beside this one."""
        return replace(self, subject=replace(self.subject, call=(began, ended), heard=heard or {}))

    def failure(self, text: str, answered: bool = False) -> Finding:
        """What a call that gave no answer comes down to. A host without a cluster is one of its own."""
        name, members = self.host.name, self.host.members
        others = any(other not in members for other in self.subject.run or ())
        cluster = str(self.subject.setting("gb10_cluster") or name)
        return from_failure(name, text, answered, cluster, len(members), others)


def prepare(own: host.Host, task_vars: Mapping[str, Any], forks: int) -> Question:
    """What speaks against the variables of a host, and the request for the rest."""
    try:
        declared = catalog.declared_variables()
        catalogs = {name: catalog.load(name) for name in CATALOGS}
    except catalog.CatalogError as error:
        raise AnsibleError(f"the collection itself is damaged: {error}") from error
    variables, found = _evaluated(own, task_vars, declared)
    subject = Subject(
        own.name,
        {},
        variables,
        task_vars.get("groups", {}),
        catalogs,
        declared,
        run=task_vars["ansible_play_hosts_all"],
    )
    subject = replace(subject, fleet=_fleet(subject, task_vars))
    found += [*_forks(subject, forks), *findings.evaluate_variables(subject)]
    # Documents are made of variables: of unsound ones they would speak in riddles.
    sound = not any(finding.blocks for finding in found)
    facts, context, rendered = _guess(own) if sound else (None, None, [])
    expect = context.expect if context else {}
    request = own.request(host.documents_of(rendered), check=True, expect=expect)
    return Question(own, subject, found, sound, facts, context, rendered, request)


def _guess(own: host.Host) -> tuple[dict[str, Any] | None, View | None, list[documents.Rendered]]:
    """What follows from what the host said last time; nothing where that ends in an error: the host says it anew."""
    facts = own.last_facts
    if facts is not None:
        with contextlib.suppress(Exception):
            return facts, *own.render(own.roles, facts, looking=True)
    return None, None, []


def again(asked: Question, answer: Mapping[str, Any]) -> Question | None:
    """The question with the documents of what the host has just said of itself; None where it had those already.

    Without it the engine refuses only when the run is on its way.
    """
    facts = answer["facts"]
    if not asked.sound or not facts or not facts["root"] or not (asked.facts is None or answer["stale"]):
        return None
    context, rendered = asked.host.render(asked.host.roles, facts, looking=True)
    sent = host.documents_of(rendered)
    if not sent:
        return None
    request = asked.host.request(sent, check=True, expect=context.expect)
    return replace(asked, facts=facts, context=context, rendered=rendered, request=request)


def judge(
    asked: Question, answer: Mapping[str, Any] | None, failure: Finding | None, *, refuse: bool
) -> dict[str, Any]:
    """The doctor's result for the host that gave this answer, or none, for the reason of `failure`."""
    try:
        with effort.work():
            return _judged(asked, answer, failure, refuse=refuse)
    except effort.TooMuch as error:
        return _judged(asked, None, asked.failure(str(error), answered=True), refuse=refuse)


def _judged(
    asked: Question, answer: Mapping[str, Any] | None, failure: Finding | None, *, refuse: bool
) -> dict[str, Any]:
    own, found = asked.host, list(asked.found)
    facts: dict[str, Any] = answer["facts"] or {} if answer else {}
    unchanged, lacks = False, dict[str, list[str]]()
    if facts:
        found += findings.evaluate_facts(replace(asked.subject, facts=facts))
    if failure is not None:
        found.append(failure)
    if answer and (not facts or facts["root"]):  # without root, the facts say it all
        rendered = _rendered(asked, answer)
        found += _refused(asked, answer, rendered)
        lacks = host.lacking(rendered, answer)
        unchanged = bool(facts) and _unchanged(asked, answer)
    refusal = findings.refusal(found)
    # Ansible's own word for it, in its recap and exit status.
    away = failure is not None and failure.id in NO_CONTACT
    refused = refusal is not None and refuse
    # What is shown of a failure is all of its result: the reason comes first, and no facts.
    found.sort(key=lambda finding: refused and not finding.blocks)
    accepted = sum(finding.accepted is not None for finding in found)
    warnings = sum(finding.severity == "warn" and not finding.accepted for finding in found)
    result: dict[str, Any] = {
        "changed": False,
        "failed": refused and not away,
        "findings": [finding.as_dict() for finding in found],
        **lacks,
        "msg": refusal or f"{own.name}: nothing blocks ({counted(warnings, 'warning')}, {accepted} accepted)",
    }
    if away:
        result["unreachable"] = True
    if answer and facts and not refused:
        # What is planned of a host that we may not see as root would be wrong.
        said = answer if facts["root"] else {key: [] for key in _SHOWN}
        result["ansible_facts"] = {
            **host.said_now(facts),
            "gb10_probe": {
                "run": RUN,
                "unchanged": unchanged,
                "loading": facts.get("model_phase") in LOADING,
                **{key: said[key] for key in _SHOWN},
            },
        }
    if refuse:
        result["warnings"] = findings.warnings(found)
        # Nobody else will say it: the run ends here for a unchanged host.
        if answer and unchanged:
            result["warnings"] += host.warnings(own.name, answer, asked.request["consents"])
    return result


def _rendered(asked: Question, answer: Mapping[str, Any]) -> list[documents.Rendered]:
    """The documents of what the host is; of other facts than last time without another call."""
    if asked.sound and answer["facts"] and (asked.facts is None or answer["stale"]):
        return asked.host.render(asked.host.roles, answer["facts"], looking=True)[1]
    return asked.rendered if answer["facts"] else []


def _refused(asked: Question, answer: Mapping[str, Any], rendered: Sequence[documents.Rendered]) -> list[Finding]:
    """What roles and engine say, and what waiting rails get."""
    name = asked.host.name
    found = [findings.refused(name, role, text) for role, text in told_once(rendered)]
    found += [findings.of_document(name, said) for made in rendered for said in made.findings]
    waits = any(item["consent"] == "docker_allow_restart" for item in answer["pending"])
    found += findings.containers_end(asked.subject, answer["ends"], waits)
    return found + ([findings.state_refused(name, answer["error"]["message"])] if answer["error"] else [])


def told_once(rendered: Sequence[documents.Rendered]) -> Iterator[tuple[str, str]]:
    """Each refusal with its role. What several roles say is of the one whose variable it begins with."""
    roles_of: dict[str, list[str]] = {}
    for made in rendered:
        for text in made.refusals:
            roles_of.setdefault(text, []).append(made.role)
    for text, roles in roles_of.items():
        yield next((role for role in roles if text.startswith(f"{role}_")), roles[0]), text


def _unchanged(asked: Question, answer: Mapping[str, Any]) -> bool:
    """Return whether there is nothing to do, by documents of facts that hold."""
    own = asked.host
    return (
        asked.facts is not None
        and not answer["stale"]
        and not answer["error"]
        and not answer["changes"]
        and bool(answer["recorded"])
        and len(asked.request["documents"]) == len(own.roles)
        and not (answer["orphans"] and own.variables.get("gb10_orphans") == "remove")
    )


def _evaluated(
    own: host.Host, task_vars: Mapping[str, Any], declared: catalog.Declared
) -> tuple[dict[str, Any], list[Finding]]:
    """The variables with a prefix of ours, templates rendered; those that do not render become findings."""
    values, failures = {}, []
    names = (name for name in task_vars if str(name).startswith(declared.prefixes))
    for name in sorted(set(names) - set(task_vars.get("ansible_facts", {})) - catalog.REGISTERED):
        try:  # another role's may hold what only that role gives
            values[name] = own.variables[name] if name in declared.variables else None
        except (AnsibleError, TypeError) as error:
            fact = f"{name} cannot be evaluated: {' '.join(str(error).split())[:300]}"
            failures.append(Finding("bad_variable", "error", own.name, fact, "correct it in the inventory"))
    return values, failures


def _fleet(subject: Subject, task_vars: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the first host of a cluster on a switch wants to know of all hosts, also of those not in this run."""
    fleet: dict[str, dict[str, Any]] = {}
    if subject.topology != "switch" or subject.host not in subject.members[:1]:
        return fleet
    for other in task_vars["groups"].get("all", ()):
        own = fleet[other] = {}
        for name in FLEET_VARIABLES:
            with contextlib.suppress(AnsibleError, KeyError):  # the host's own doctor says what does not render
                own[name] = task_vars["hostvars"][other][name]
    return fleet


def _forks(subject: Subject, forks: int) -> list[Finding]:
    """Both ends of a measurement must run at once; said once, by the first host of the cluster."""
    size = len(subject.members)
    if subject.host not in subject.members[:1] or forks >= size:
        return []
    fact = f"forks is {forks}, but the cluster {subject.setting('gb10_cluster')} has {size} hosts"
    way_out = f"run with --forks {size} or more: they are measured and started together"
    return [subject.say("bad_variable", fact, way_out)]
