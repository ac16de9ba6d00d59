"""Writes what a Prometheus and a Grafana of yours take: roles/monitoring/files, and the table of docs/monitoring.md."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics.families import FAMILIES
from ansible_collections.gb10.fleet.plugins.plugin_utils.catalog import read
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
_TABLE = re.compile(r"(?<=<!-- metrics -->\n).*?(?=<!-- end -->)", re.DOTALL)


def rules_file() -> str:
    runbooks = on_the_forge(Path("docs/runbooks"), read(ROOT / "galaxy.yml")["repository"], "main")
    made = rules.render(rules.figures(), runbooks)
    return _HEAD + yaml.safe_dump(made, sort_keys=False, width=200)


def table() -> str:
    rows = [f"| `{name}` | {kind} | {about} | {source} |" for name, (kind, about, source) in FAMILIES.items()]
    return "\n".join(["| metric | type | says | source |", "|---|---|---|---|", *rows, ""])


def page(text: str) -> str:
    return _TABLE.sub(lambda _found: table(), text)


def main() -> None:
    (FILES / "gb10-rules.yml").write_text(rules_file(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
