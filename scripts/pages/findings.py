"""docs/doctor.md: the line under the name of each finding. roles/coherence/README.md: the table of verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.gb10.fleet.plugins.module_utils.checks import coherence
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.acceptance import IDS, NEVER_ACCEPTED
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.host_checks import MENDED_BY_A_MOVE

from scripts.gates import ROOT
from scripts.pages.markdown import table

PAGE = ROOT / "docs" / "doctor.md"
COHERENCE = ROOT / "roles/coherence/README.md"
_HEAD = re.compile(r"^### (\w+)\n(?:\*.*\*\n)?", re.MULTILINE)
_WORDS = {"error": "error", "warn": "warning", "info": "information"}


def heads(text: str) -> str:
    """Return the page with the severity of each finding, and what else the code says of it."""
    return _HEAD.sub(lambda found: f"### {found[1]}\n*{_head(found[1])}.*\n", text)


def _head(name: str) -> str:
    said = " or ".join(_WORDS[severity] for severity in IDS[name]).capitalize()
    mended = "; a warning in a run that moves the set" if name in MENDED_BY_A_MOVE else ""
    return f"{said}{mended}{', cannot be accepted' if name in NEVER_ACCEPTED else ''}"


def verdicts() -> Iterator[str]:
    """Yield the table of verdicts of the coherence check, by severity and by whether the host counts as coherent."""
    groups: dict[str, list[str]] = {}
    for name, severity in coherence.IDS.items():
        still = "" if severity == "error" else f", and {'still' if name in coherence.HARMLESS else 'not'} coherent"
        if name != "coherent":
            groups.setdefault(f"{_WORDS[severity]}{still}", []).append(f"`{name}`")
    return table(("verdict", "severity"), ((", ".join(names), said) for said, names in groups.items()))
