# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of Prometheus and what the collector goes by, from catalog/monitoring.yml and the limits of the detectors.

An alert without an expression is one for its findings: the collector judges, and Prometheus waits and tells. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import OTHERS
from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import SLOWED
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, limits

# The words of alerts that people route by, for those of findings.
SEVERITIES = {"error": "critical", "warn": "warning", "info": "info", "none": "none"}
# The labels that an alert sets itself. A host with two series that differ in them alone would end the rule, and so the
# alert of all hosts.
_ONE = "max without (alertname, severity)"
_NAME = re.compile(r"<([a-z_]+)>")
_GROUP = re.compile(r"(xid|log)_(?:error|warn)\Z")  # all Xids or lines of a severity


def figures(**others: Any) -> dict[str, Any]:
    """All that an expression may name; `others` replace some."""
    rules = limits.rules()
    own = {name: entry["value"] for name, entry in catalog.load("monitoring")["figures"].items()}
    return {**rules.limits, **own, "slowed": "|".join(sorted(SLOWED)), **others}


def collector(known: Mapping[str, Any], cluster: str, slo: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Settings of the collector; `cluster`: who waits while it is worked on; `slo`: what services are held to.

    Of signs and Xids only what decides travels: a metric has no words.
    """
    rules, interval_s = limits.rules(), known["interval_s"]

    def readings(seconds: str, more: int) -> int:
        return math.ceil(float(known[seconds]) / float(interval_s)) + more

    decides = ("severity", "needs", "needs_one", "against", "least")
    return {
        "recent_days": known["recent_days"],
        "event_s": known["event_s"],
        "planned": {"s": known["planned_s"], "after_s": known["planned_after_s"]},
        "gateway": {"clients": known["client_most"], "lines": known["gateway_lines"]},
        "cluster": cluster,
        "slo": dict(slo or {}),
        "vllm_families": catalog.load("monitoring")["vllm_families"]["value"],
        "every_s": {"now": interval_s, "history": known["history_s"]},
        "gap_s": known["missed"] * interval_s,
        "spans": {
            OTHERS: [known["busy_readings"]],
            "check_power_fault": [known["busy_readings"], readings("burst_s", 1)],
            "check_hang": [readings("hang_s", 2)],  # two, for a timer may be early
            "check_rail_errors": [readings("history_s", 1)],
        },
        "rules": {
            "limits": {name: known[name] for name in rules.limits},
            "rail_errors": sorted(rules.rail_errors),
            "losses": sorted(rules.losses),
            "displays": [],
            "places": {},
            "signs": {
                name: {"way_out": "", "meaning": "", **{key: sign[key] for key in decides if key in sign}}
                for name, sign in rules.signs.items()
            },
            "xids": {
                number: {"severity": xid["severity"], "meaning": "", **({"actions": {}} if "actions" in xid else {})}
                for number, xid in rules.xids.items()
            },
        },
    }


def render(known: Mapping[str, Any], runbooks: str) -> dict[str, Any]:
    """Groups of rules as Prometheus reads them; `runbooks`: where the pages of the alerts are."""
    content, interval = catalog.load("monitoring"), f"{known['interval_s']}s"
    records = [{"record": entry["value"], "expr": _filled(entry["expr"], known)} for entry in content["records"]]
    made = [_alert(entry, known, runbooks) for entry in alerts()]
    return {
        "groups": [
            {"name": "gb10-records", "interval": interval, "rules": records},
            {"name": "gb10-alerts", "interval": interval, "rules": made},
        ]
    }


def alerts() -> list[Mapping[str, Any]]:
    """Return each alert of catalog/monitoring.yml, and those of signs, named as their sign."""
    rules = limits.rules()
    of_signs = [
        {**sign, "findings": [name], "value": f"Gb10{name.title().replace('_', '')}", **sign["alert"],
         "source": sign["source"].format_map(rules.limits)}
        for name, sign in rules.signs.items() if "alert" in sign
    ]  # fmt: skip
    return [*catalog.load("monitoring")["alerts"], *of_signs]


def hold_s(entry: Mapping[str, Any], known: Mapping[str, Any]) -> float:
    """Return how long an alert's expression must hold."""
    if "hold" in entry:
        return float(known[entry["hold"]])
    return float(_filled(str(entry.get("readings", 0)), known)) * float(known["interval_s"])


def _alert(entry: Mapping[str, Any], known: Mapping[str, Any], runbooks: str) -> dict[str, Any]:
    held = hold_s(entry, known)
    asked = _filled(entry["expr"], known) if "expr" in entry else found(entry)
    asked = f"topk by (instance) ({known['alerts_most']}, {_ONE} ({asked}))"
    return {
        "alert": entry["value"],
        "expr": f"{asked} unless on (instance) gb10:planned" if entry.get("planned") else asked,
        **({"for": f"{held:g}s"} if held else {}),
        "labels": {"severity": SEVERITIES[entry["severity"]]},
        "annotations": {
            "summary": f"{{{{ $labels.instance }}}}: {entry['summary']}",
            "value": "{{ $value }}",
            "runbook_url": f"{runbooks}/{entry['value']}.md",
        },
    }


def found(entry: Mapping[str, Any]) -> str:
    """The findings of an alert; what a detector takes for information is none, unless the alert is information."""
    groups = {_GROUP.match(id_)[1] for id_ in entry["findings"] if _GROUP.match(id_)}  # type: ignore[index]
    ids = "|".join([f"{group}_.+" for group in sorted(groups)] or entry["findings"])
    named = f'id=~"{ids}"' if groups or len(entry["findings"]) > 1 else f'id="{ids}"'
    severity = {"info": "", "warn": ', severity!="info"', "error": ', severity!="info"'}[entry["severity"]]
    if groups:  # an alert for each severity
        severity = f', severity="{entry["severity"]}"'
    return f"gb10_finding{{{named}{severity}}} == 1"


def _filled(text: str, known: Mapping[str, Any]) -> str:
    """A name that nobody knows is a KeyError: a test renders all of them."""
    return _NAME.sub(lambda found: str(known[found[1]]), text)
