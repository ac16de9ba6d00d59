"""Writes what a Prometheus and a Grafana of yours take: roles/monitoring/files, and tables of docs/monitoring.md."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics.families import FAMILIES
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.catalog import load, read
from ansible_collections.gb10.fleet.plugins.plugin_utils.monitoring import rules

from scripts.gates import ROOT
from scripts.links import on_the_forge

FILES = ROOT / "roles/monitoring/files"
PAGE = ROOT / "docs/monitoring.md"
_HEAD = """\
# yamllint disable
# Written from catalog/monitoring.yml and the limits of health by `python -m scripts.monitoring_files`.
---
"""
_TABLE = r"(?<=<!-- {} -->\n).*?(?=<!-- end -->)"
_LABEL = re.compile(r"{{ \$labels\.(\w+) }}")


def rules_file() -> str:
    runbooks = on_the_forge(Path("docs/runbooks"), read(ROOT / "galaxy.yml")["repository"], "main")
    made = rules.render(rules.figures(), runbooks)
    return _HEAD + yaml.safe_dump(made, sort_keys=False, width=200)


def table() -> str:
    rows = [f"| `{name}` | {kind} | {about} | {source} |" for name, (kind, about, source) in FAMILIES.items()]
    return "\n".join(["| metric | type | says | source |", "|---|---|---|---|", *rows, ""])


def alerts() -> str:
    """A label of the alert in italics."""
    rows = [
        (entry["value"], rules.SEVERITIES[entry["severity"]], _LABEL.sub(r"*\1*", entry["summary"]))
        for entry in load("monitoring")["alerts"]
    ]
    lines = [f"| [{name}](runbooks/{name}.md) | {severity} | {says} |" for name, severity, says in rows]
    return "\n".join(["| alert, and what to do | severity | says |", "|---|---|---|", *lines, ""])


def page(text: str) -> str:
    for name, made in (("metrics", table()), ("alerts", alerts())):
        text = re.sub(_TABLE.format(name), made.replace("\\", r"\\"), text, count=1, flags=re.DOTALL)
    return text


def main() -> None:
    (FILES / "gb10-rules.yml").write_text(rules_file(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
