# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of the doctor's findings: catalog/findings.yml, and the verdicts of the coherence check."""

from __future__ import annotations

from functools import cache
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks import coherence
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

REFUSED = "_refused"  # after the name of a role: what the role's document refuses


@cache
def rows() -> dict[str, dict[str, Any]]:
    """Return each finding by its id."""
    return {id_: row for topic in catalog.load("findings").values() for id_, row in topic.items()}


@cache
def severities() -> dict[str, tuple[str, ...]]:
    """Return the severities that each finding may have, the usual one first."""
    own = {id_: row.get("severity") or coherence.IDS[id_] for id_, row in rows().items()}
    return {id_: (said,) if isinstance(said, str) else tuple(said) for id_, said in own.items()}


@cache
def never_accepted() -> frozenset[str]:
    """Return the findings that no written reason lets pass: the roles refuse the same."""
    return frozenset(id_ for id_, row in rows().items() if row.get("accept") == "never")
