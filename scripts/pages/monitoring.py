"""What a Prometheus of yours takes (roles/monitoring/files), the tables of docs/monitoring.md, and of each runbook the
head and by what it is judged."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics.families import FAMILIES
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import limits
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.catalog import read
from ansible_collections.gb10.fleet.plugins.plugin_utils.monitoring import rules

from scripts.gates import ROOT
from scripts.links import on_the_forge
from scripts.pages.markdown import table

FILES = ROOT / "roles/monitoring/files"
RULES = FILES / "gb10-rules.yml"
PAGE = ROOT / "docs/monitoring.md"
_HEAD = """\
# yamllint disable
# Written from catalog/monitoring.yml and the limits of health by `python -m scripts.pages`.
---
"""
_LABEL = re.compile(r"{{ \$(?:labels\.)?(\w+) }}")


def rules_file() -> str:
    runbooks = on_the_forge(Path("docs/runbooks"), read(ROOT / "galaxy.yml")["repository"], "main")
    made = rules.render(rules.figures(), runbooks)
    return _HEAD + yaml.safe_dump(made, sort_keys=False, width=200)


def parts() -> dict[str, Iterator[str]]:
    """Return the tables of docs/monitoring.md."""
    alerts = (
        (f"[{entry['value']}](runbooks/{entry['value']}.md)", rules.SEVERITIES[entry["severity"]], _summary(entry))
        for entry in rules.alerts()
    )
    metrics = ((f"`{name}`", kind, about, source) for name, (kind, about, source) in FAMILIES.items())
    return {
        "alerts": table(("alert, and what to do", "severity", "says"), alerts),
        "metrics": table(("metric", "type", "says", "source"), metrics),
    }


def runbooks() -> dict[Path, dict[str, Iterator[str]]]:
    """Return the parts of each page of an alert."""
    made = {rule["alert"]: rule for rule in rules.render(rules.figures(), "")["groups"][1]["rules"]}
    return {
        ROOT / f"docs/runbooks/{entry['value']}.md": {
            "alert": _alert(entry, made[entry["value"]]),
            "expression": _expression(entry, made[entry["value"]]),
        }
        for entry in rules.alerts()
    }


# May it wait until the morning?
_WAITS = {
    "error": "Do not let it wait.",
    "warn": "It may wait until the morning while the service answers.",
    "info": "It may wait.",
    "none": "Nothing is wrong while it fires.",
}


def _alert(entry: Mapping[str, Any], rule: Mapping[str, Any]) -> Iterator[str]:
    held = f"after {rule['for'].removesuffix('s')} s" if "for" in rule else "at once"
    yield f"**{rule['labels']['severity'].capitalize()}**, {held}: {_summary(entry)}. {_WAITS[entry['severity']]}"


def _expression(entry: Mapping[str, Any], rule: Mapping[str, Any]) -> Iterator[str]:
    yield from ("```text", *textwrap.wrap(rule["expr"], 140, break_long_words=False, break_on_hyphens=False), "```")
    yield ""
    yield f"Source: {entry['source']} ({entry['confidence'].replace('_', ' ')}, {entry['date']})."
    yield "The catalog has each figure with its source and date."
    if same := [f"[{name}](../health.md#{name})" for name in entry["findings"] if name in limits.rules().signs]:
        yield from textwrap.wrap(f"`gb10 why` has the same as {', '.join(same)}.", 140, break_on_hyphens=False)


def _summary(entry: Mapping[str, Any]) -> str:
    """Return what the alert says; a label of it in italics."""
    return _LABEL.sub(r"*\1*", entry["summary"])
