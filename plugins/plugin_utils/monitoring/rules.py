# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of Prometheus, from catalog/monitoring.yml and the limits of the detectors. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks import gpu_checks, patient
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

# The words of alerts that people route by, for those of findings.
SEVERITIES = {"error": "critical", "warn": "warning", "info": "info"}
_NAME = re.compile(r"<([a-z_]+)>")


def figures(**others: Any) -> dict[str, Any]:
    """All that an expression may name; `others` replace some."""
    rules = patient.rules()
    own = {name: entry["value"] for name, entry in catalog.load("monitoring")["figures"].items()}
    lists = {
        "slowed": gpu_checks.SLOWED,
        "xids_error": [number for number, xid in rules.xids.items() if xid["severity"] == "error"],
        "xids_info": [number for number, xid in rules.xids.items() if xid["severity"] == "info"],
        "events_error": [kind for kind, event in rules.events.items() if event["severity"] == "error"],
        "events_warn": [kind for kind, event in rules.events.items() if event["severity"] == "warn" and kind != "xid"],
    }
    return {**rules.limits, **own, **{name: "|".join(sorted(words)) for name, words in lists.items()}, **others}


def render(known: Mapping[str, Any], runbooks: str) -> dict[str, Any]:
    """Groups of rules as Prometheus reads them; `runbooks`: where the pages of the alerts are."""
    content, interval = catalog.load("monitoring"), f"{known['interval_s']}s"
    records = [{"record": entry["value"], "expr": _filled(entry["expr"], known)} for entry in content["records"]]
    alerts = [_alert(entry, known, runbooks) for entry in content["alerts"]]
    return {
        "groups": [
            {"name": "gb10-records", "interval": interval, "rules": records},
            {"name": "gb10-alerts", "interval": interval, "rules": alerts},
        ]
    }


def hold_s(entry: Mapping[str, Any], known: Mapping[str, Any]) -> float:
    """How long an alert's expression must hold."""
    if "hold" in entry:
        return float(known[entry["hold"]])
    return float(_filled(str(entry.get("readings", 0)), known)) * float(known["interval_s"])


def _alert(entry: Mapping[str, Any], known: Mapping[str, Any], runbooks: str) -> dict[str, Any]:
    held = hold_s(entry, known)
    return {
        "alert": entry["value"],
        "expr": _filled(entry["expr"], known),
        **({"for": f"{held:g}s"} if held else {}),
        "labels": {"severity": SEVERITIES[entry["severity"]]},
        "annotations": {
            "summary": f"{{{{ $labels.instance }}}}: {entry['summary']}",
            "runbook_url": f"{runbooks}/{entry['value']}.md",
        },
    }


def _filled(text: str, known: Mapping[str, Any]) -> str:
    """A name that nobody knows is a KeyError: a test renders all of them."""
    return _NAME.sub(lambda found: str(known[found[1]]), text)
