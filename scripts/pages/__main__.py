"""`python -m scripts.pages`: writes what is generated in docs/, in READMEs of roles and in roles/monitoring/files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.monitoring.rules import figures

from scripts.gates import ROOT
from scripts.pages import answers, facts, findings, markdown, models, monitoring, rules, signs, units, variables


def written() -> dict[Path, str]:
    """Return each file that has generated parts, as it must be."""
    parts: dict[Path, Mapping[str, Iterable[str]]] = {
        signs.PAGE: signs.parts(),
        facts.PAGE: facts.parts(),
        models.PAGE: models.parts(),
        units.PAGE: units.parts(),
        monitoring.PAGE: monitoring.parts(),
        **monitoring.runbooks(),
        **variables.parts(),
    }
    known = _figures()
    parts[findings.PAGE] = findings.parts(known)
    parts[findings.COHERENCE] = {**parts[findings.COHERENCE], "verdicts": findings.verdicts()}
    made = {
        rules.PAGE: rules.page(),
        monitoring.RULES: monitoring.rules_file(),
        answers.PAGE: answers.page(),
        answers.FILE: answers.schema_file(),
    }
    for path in sorted({*parts, *(ROOT / "docs").rglob("*.md")} - {*made}):
        text = path.read_text(encoding="utf-8")
        try:
            for name, lines in parts.get(path, {}).items():
                text = markdown.part(text, name, lines)
            text = markdown.figures(text, known)
        except (KeyError, ValueError) as error:
            raise SystemExit(f"{path}: {error}") from error
        made[path] = text
    return made


def _figures() -> dict[str, object]:
    """Return what a page may name: the figures of health, and a few of other files."""
    ports = {entry["package"]: entry["value"] for entry in catalog.load("monitoring")["stack_ports"]}
    branch = catalog.load("host_sets")["driver_branch"]["value"]
    guard = {
        name: entry["value"] for name, entry in catalog.load("watchdog")["figures"].items() if name.startswith("guard_")
    }
    used = {name: entry["value"] for name, entry in catalog.load("models")["fit"].items() if name.startswith("used_")}
    return {**figures(), **ports, **guard, **used, "driver_branch": branch}


if __name__ == "__main__":
    for path, text in written().items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))
