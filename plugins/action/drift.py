# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of hosts/scan.py and reports/drift_report.py: one task asks every host of the play whether it drifted.

The engine plans the manifest that lies on the host, so nothing is rendered and every host gets the same bytes.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.utils.display import Display
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import effort, notify, schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.run import before_forks
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import host, scan, target, transport, verbs
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import drift_report, notify_action


class ActionModule(OwnAction):
    """Scan all hosts, write down what drifted."""

    BYPASS_HOST_LOOP = True

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        for name in ("concurrency", "timeout_s"):
            if options[name] < 1:
                raise AnsibleActionFail(f"{name}: expected 1 or more, found {options[name]}")
        target.refuse_inventory(task_vars)
        started = time.monotonic()
        records, clusters = self._scan(task_vars, options["concurrency"], options["timeout_s"])
        document = drift_report.build(records, clusters, datetime.now(UTC), time.monotonic() - started)
        directory = Path.cwd() / options["path"] / "drift"
        clean = not (document["drifted"] or document["silent"])
        try:
            limit = None if self._task.check_mode else drift_report.write(document, directory)
        except OSError as error:
            raise AnsibleActionFail(f"the result cannot be written below {directory}: {error}") from error
        result = {
            **document,
            "changed": False,
            "failed": not clean and not options["report_only"],
            "limit": str(limit) if limit else None,
            "msg": drift_report.table(document),
            "ansible_stats": drift_report.stats(document),
        }
        if not clean:
            different = [*document["drifted"], *document["silent"]]
            text, file = drift_report.table(document), str(directory / drift_report.DOCUMENT)
            told = notify.event(notify.DRIFT, "found", text, different, file, different)
            result["warnings"] = notify_action.tell(self, task_vars, told)
        if not clean and options["report_only"]:
            result["warnings"].append(drift_report.summary(document))
        return result

    def _scan(
        self, task_vars: dict[str, Any], concurrency: int, timeout_s: int
    ) -> tuple[dict[str, drift_report.Record], dict[str, str]]:
        """What every host of the play said, and the cluster of those that are in one."""
        names: list[str] = list(task_vars["ansible_play_hosts_all"])
        records: dict[str, drift_report.Record] = {}
        clusters: dict[str, str] = {}
        targets: list[scan.Way] = []
        routes = scan.Routes(self)
        # The same for every host. No consents: what needs one is pending in the answer, and drift nevertheless.
        message = transport.Message(verbs.request("drift", check=True))
        for name in names:
            variables = task_vars["hostvars"].raw_get(name)
            try:
                if cluster := routes.value(variables, "gb10_cluster"):
                    clusters[name] = str(cluster)
                targets.append(routes.way(name, variables, transport.command_of(routes, variables), message))
            except AnsibleError as error:
                records[name] = drift_report.silent("error", str(error), "correct the inventory")
        replies = scan.ask(targets, concurrency=concurrency, timeout_s=timeout_s, progress=_progress)
        for reply in replies:
            given = functools.cache(functools.partial(_consented, routes, task_vars["hostvars"].raw_get(reply.host)))
            mine = clusters.get(reply.host, reply.host)
            beside = [clusters.get(name, name) == mine for name in names]
            records[reply.host] = _record(reply, timeout_s, mine, given, sum(beside), not all(beside))
        if records.keys() != set(names):
            raise AnsibleActionFail(f"the scan lost hosts: {sorted(records.keys() ^ set(names))}; this is a defect")
        return {name: records[name] for name in names}, clusters


def _consented(routes: scan.Routes, variables: dict[str, Any], name: str) -> bool:
    """Return whether nobody is asked for a consent: the inventory gives it, or it is none of ours.

    A value that is no yes or no is for the doctor to refuse. The host says the name, and the scan knows no documents: a
    consent of somebody's own role is not looked up here, nor told to a person.
    """
    if name not in host.asked_for():
        return True
    try:
        return host.consent(name, routes.value(variables, name, False))
    except AnsibleError:
        return False


def _record(
    reply: scan.Reply, timeout_s: float, cluster: str, consented: Callable[[str], bool], size: int, others: bool
) -> drift_report.Record:
    try:
        with effort.work():
            try:
                answer = transport.parse(reply.stdout)
            except schema.WrongFact:
                raise
            except ValueError:
                answer = None  # the report says why
            return drift_report.judge(reply, answer, timeout_s, cluster, consented, size, others)
    except (schema.WrongFact, effort.TooMuch) as error:
        return drift_report.garbled(printable(str(error)), cluster)


def _progress(done: int, total: int) -> None:
    Display().display(f"drift: {done} of {total} hosts answered", stderr=True)  # stdout is the callbacks'


before_forks()
