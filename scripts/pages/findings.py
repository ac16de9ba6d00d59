"""docs/doctor.md: the findings of each topic. roles/coherence/README.md: the table of verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ansible_collections.gb10.fleet.plugins.module_utils.checks import coherence
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor import table as findings
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.host_checks import MENDED_BY_A_MOVE
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from scripts.gates import ROOT
from scripts.pages.markdown import table

PAGE = ROOT / "docs" / "doctor.md"
COHERENCE = ROOT / "roles/coherence/README.md"
_WORDS = {"error": "error", "warn": "warning", "info": "information"}


def parts(figures: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the findings of each topic, with their figures."""
    return {f"findings: {topic}": [*_topic(rows, figures)] for topic, rows in catalog.load("findings").items()}


def _topic(rows: Mapping[str, Mapping[str, str]], figures: Mapping[str, object]) -> Iterator[str]:
    for name, row in rows.items():
        yield from (f"### {name}", f"*{_head(name)}.*")
        yield re.sub(r"{(\w+)}", lambda found: str(figures[found[1]]), row["text"])


def _head(name: str) -> str:
    said = " or ".join(_WORDS[severity] for severity in findings.severities()[name]).capitalize()
    mended = "; a warning in a run that moves the set" if name in MENDED_BY_A_MOVE else ""
    return f"{said}{mended}{', cannot be accepted' if name in findings.never_accepted() else ''}"


def verdicts() -> Iterator[str]:
    """Yield the table of verdicts of the coherence check, by severity and by whether the host counts as coherent."""
    groups: dict[str, list[str]] = {}
    for name, severity in coherence.IDS.items():
        still = "" if severity == "error" else f", and {'still' if name in coherence.HARMLESS else 'not'} coherent"
        if name != "coherent":
            groups.setdefault(f"{_WORDS[severity]}{still}", []).append(f"`{name}`")
    return table(("verdict", "severity"), ((", ".join(names), said) for said, names in groups.items()))
