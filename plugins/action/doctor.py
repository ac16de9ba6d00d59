# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of plugin_utils/findings.py: reads a host through spark_facts, and fails it when something blocks.

A host that cannot be reached becomes a *failed* host with a finding: Ansible's any_errors_fatal stops a run on failed
hosts, but lets it go on (and change the others) past an unreachable one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog, findings

CATALOGS = ("products", "platforms", "security_floors")


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
        host = task_vars["inventory_hostname"]
        try:
            declared = catalog.declared_variables()
            catalogs = {name: catalog.load(name) for name in CATALOGS}
        except catalog.CatalogError as error:
            raise AnsibleError(f"the collection itself is damaged: {error}") from error
        variables, found = self._evaluated(host, task_vars, declared)
        found += _forks(host, task_vars)
        facts, unreadable = self._facts(variables, host, task_vars)
        subject = findings.Subject(
            host,
            facts,
            variables,
            task_vars.get("groups", {}),
            catalogs,
            declared,
            run=task_vars["ansible_play_hosts_all"],
            fleet=_fleet(task_vars) if variables.get("fabric_topology") == "switch" else {},
        )
        found += [unreadable] if unreadable else []
        found += findings.evaluate_variables(subject) if unreadable else findings.evaluate(subject)
        refusal = findings.refusal(found)
        refused = refusal is not None and arguments["refuse"]
        # What is shown of a failure is all of its result: the reason must not drown in facts.
        shown = [finding for finding in found if finding.blocks] if refused else found
        result.update(changed=False, failed=refused, findings=[finding.as_dict() for finding in shown])
        result["msg"] = refusal or f"{host}: nothing blocks ({_count(found)})"
        if facts and not refused:
            result["ansible_facts"] = {"gb10_spark": facts}
        if arguments["refuse"]:
            result["warnings"] = [
                f"{f.host}: {f.id}: {f.fact}" for f in found if f.severity == "warn" and not f.accepted
            ]
        return result

    def _facts(
        self, variables: Mapping[str, Any], host: str, task_vars: dict[str, Any]
    ) -> tuple[dict[str, Any], findings.Finding | None]:
        """The facts of the host, or the finding that explains why there are none."""
        arguments = {"paths": list(findings.own_minimums(variables.get("gb10_minimum_free_gib")))}
        try:
            answer = self._execute_module(
                module_name="gb10.fleet.spark_facts", module_args=arguments, task_vars=task_vars
            )
        except AnsibleError as error:  # connection failures, refused privilege escalation
            return {}, findings.from_failure(host, str(error))
        facts = (answer.get("ansible_facts") or {}).get("gb10_spark")
        if facts:
            return facts, None
        said = (answer.get(key) for key in ("module_stderr", "module_stdout", "msg"))
        return {}, findings.from_failure(host, " ".join(str(text) for text in said if text), answered=True)

    def _evaluated(
        self, host: str, task_vars: Mapping[str, Any], declared: catalog.Declared
    ) -> tuple[dict[str, Any], list[findings.Finding]]:
        """The variables with a prefix of ours, templates rendered; those that do not render become findings."""
        values, failures = {}, []
        names = (name for name in task_vars if str(name).startswith(declared.prefixes))
        for name in sorted(set(names) - set(task_vars.get("ansible_facts", {}))):
            try:
                values[name] = self._templar.template(task_vars[name])
            except AnsibleError as error:
                fact = f"{name} cannot be evaluated: {' '.join(str(error).split())[:300]}"
                failures.append(findings.Finding("bad_variable", "error", host, fact, "correct it in the inventory"))
        return values, failures


def _fleet(task_vars: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What findings wants to know of all hosts of the inventory, whether or not they are part of this run."""
    fleet: dict[str, dict[str, Any]] = {}
    for host in task_vars["groups"].get("all", ()):
        own = fleet[host] = {}
        for name in findings.FLEET_VARIABLES:
            with contextlib.suppress(AnsibleError, KeyError):  # the host's own doctor says what does not render
                own[name] = task_vars["hostvars"][host][name]
    return fleet


def _forks(host: str, task_vars: Mapping[str, Any]) -> list[findings.Finding]:
    """Both ends of a measurement must run at once; said once, by the first host of the play."""
    hosts = task_vars["ansible_play_hosts_all"]
    if host != hosts[0]:
        return []
    clusters = {str(task_vars["hostvars"][name].get("gb10_cluster")) for name in hosts}
    largest = max(len(task_vars["groups"].get(name, ())) for name in clusters)
    forks = int(task_vars["ansible_forks"])
    if forks >= largest:
        return []
    fact = f"forks is {forks}, but the largest cluster has {largest} hosts, which are measured and started together"
    return [findings.Finding("bad_variable", "error", host, fact, f"run with --forks {largest} or more")]


def _count(found: list[findings.Finding]) -> str:
    warnings = sum(finding.severity == "warn" and not finding.accepted for finding in found)
    return f"{warnings} warnings, {sum(finding.accepted is not None for finding in found)} accepted"
