# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of plugin_utils/reports: runs on the controller and touches no host."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.release import __version__ as ansible_version
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, notify
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.own_action import OwnAction
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import evidence as release_evidence
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import evidence_files, judge, notify_action, since


class ActionModule(OwnAction):
    """Judge what was measured, write it down."""

    def _act(self, task_vars: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        meta = {"gb10_fleet": catalog.collection_version(), "ansible_core": ansible_version, **options["meta"]}
        now = datetime.now(UTC)
        releases = release_evidence.told(
            {name: proof.get("release") for name, proof in options["hosts"].items()}, catalog.load("releases")
        )
        proofs = {name: {**proof, "release": releases.get(name)} for name, proof in options["hosts"].items()}
        try:
            document = judge.build(proofs, meta, catalog.load("thresholds"), now)
        except (KeyError, TypeError) as error:
            raise AnsibleError(f"hosts: the proof of a host is not as documented: {error!r}") from error
        except catalog.CatalogError as error:
            raise AnsibleError(str(error)) from error
        directory = Path.cwd() / options["path"]
        document["since"] = _since(evidence_files.before(directory), document)
        try:
            written = None if self._task.check_mode else evidence_files.write(document, directory)
        except OSError as error:
            raise AnsibleError(f"the evidence cannot be written below {directory}: {error}") from error
        result = {
            "changed": False,  # of the fleet; evidence is a record, not a state
            "verdict": document["verdict"],
            "reasons": document["reasons"],
            "directory": str(written) if written else None,
            "page": str(written / evidence_files.PAGE) if written else None,
            "json": str(written / evidence_files.DOCUMENT) if written else None,
            "msg": evidence_files.summary(document),
        }
        if document["verdict"] != judge.HEALTHY:
            hosts = sorted(document["hosts"])
            bad = [each["name"] for each in document["clusters"] if each["verdict"] != judge.HEALTHY]
            told = notify.event(notify.PROOF, document["verdict"], result["msg"], hosts, result["page"], bad)
            result["warnings"] = notify_action.tell(self, task_vars, told)
        if written:  # a job of AWX keeps these as its artifacts, and throws the project's folder away
            result["ansible_stats"] = evidence_files.stats(document)
        return result


def _since(before: Mapping[str, Any] | None, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """A proof of an earlier version, or of nobody, is none to compare with: what was measured counts without it."""
    with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):
        if before is not None and since.same_fleet(before, document):
            return since.compare(before, document)
    return None
