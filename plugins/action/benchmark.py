# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of plugin_utils/reports/benchmark.py: runs on the controller and touches no host."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.release import __version__ as ansible_version
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import scan
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import benchmark, draft_figures


class ActionModule(OwnAction):
    """Judge what the load test measured, write it down."""

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        meta = {"gb10_fleet": catalog.collection_version(), "ansible_core": ansible_version}
        directory = Path.cwd() / options["path"]
        try:
            document = benchmark.build(
                options["hosts"],
                meta,
                options["request"],
                catalog.load("thresholds"),
                datetime.now(UTC),
                draft_figures.earlier(directory, benchmark.DOCUMENT, benchmark.SCHEMA_VERSION),
                _clusters(scan.Routes(self), task_vars),
            )
        except (KeyError, TypeError, StopIteration) as error:
            raise AnsibleError(f"hosts: what a host measured is not as documented: {error!r}") from error
        except catalog.CatalogError as error:
            raise AnsibleError(str(error)) from error
        try:
            written = None if self._task.check_mode else benchmark.write(document, directory)
        except OSError as error:
            raise AnsibleError(f"the result cannot be written below {directory}: {error}") from error
        return {
            "changed": False,  # of the fleet; a result is a record, not a state
            "verdict": document["verdict"],
            "good": document["verdict"] in benchmark.GOOD,
            "json": str(written) if written else None,
            "table": benchmark.table(document),
            "msg": "\n".join(benchmark.findings(document)) or "as expected",
        }


def _clusters(routes: scan.Routes, task_vars: dict[str, Any]) -> set[str]:
    """The names of all clusters of the inventory, whatever this run is limited to."""
    found = set()
    for name in task_vars["groups"]["all"]:
        with contextlib.suppress(AnsibleError):  # one whose name nobody can read is nobody's sibling
            found.add(str(routes.value(task_vars["hostvars"].raw_get(name), "gb10_cluster") or name))
    return found
