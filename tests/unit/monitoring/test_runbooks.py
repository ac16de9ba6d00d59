"""Each alert has a page that begins with what to do, and each detector an alert or a reason why not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.checks import gpu_checks
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

ROOT = Path(__file__).parents[3]
CONTENT = catalog.load("monitoring")
ALERTS = {entry["value"]: entry for entry in CONTENT["alerts"]}
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs/runbooks").glob("*.md")}


def test_each_alert_has_a_page_and_each_page_an_alert() -> None:
    assert sorted(PAGES) == sorted(ALERTS)


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_a_page_says_what_is_wrong_and_names_the_next_step(alert: str) -> None:
    title, about, steps = re.split(
        r"\n\n(?=## Next step\n|(?!#))", PAGES[alert].partition("\n## By what")[0], maxsplit=2
    )
    assert title == f"# {alert}" and len(about) > 60
    numbered = re.findall(r"(?m)^(\d+)\. (.+)", steps)
    assert numbered and [number for number, _text in numbered] == [str(each + 1) for each in range(len(numbered))]
    assert "`" in steps or "cable" in steps or "unplug" in steps, "a command, or a deed of the hands"


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_what_a_page_says_to_type_can_be_typed(alert: str) -> None:
    """Somebody reads it at night: whole commands, with the inventory, and with sudo where only root may."""
    typed = [
        " ".join(span.split())
        for span in re.findall(r"`([^`]+)`", PAGES[alert].partition("## Next step")[2].partition("## By what")[0])
    ]
    ours = [span for span in typed if re.match(r"gb10 (?!plan)", span)]
    assert [span for span in ours if " -i inventory/mine" not in span] == []
    roots = r"(systemctl (start|restart|stop) |nvme |nvidia-smi -(lgc|rgc))"
    assert [span for span in typed if re.match(roots, span)] == [], "sudo is missing"


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_the_page_of_monitoring_leads_to_it(alert: str) -> None:
    assert f"| [{alert}](runbooks/{alert}.md) |" in (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_a_page_leads_to_the_findings_of_its_alert(alert: str) -> None:
    health = (ROOT / "docs/health.md").read_text(encoding="utf-8")
    for finding in re.findall(r"health\.md#(\w+)", PAGES[alert]):
        assert finding in ALERTS[alert]["findings"] and f"### {finding}\n" in health


def findings() -> set[str]:
    """The ids that the detectors give, from their source; those of the log by their severity."""
    found = {f"gpu_{state}" for state in gpu_checks._SILENT_STATES}
    for path in (ROOT / "plugins/plugin_utils/health").glob("*_checks.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                first = node.args[0]
                if node.func.attr in ("error", "warn", "info") and isinstance(first, ast.Constant):
                    found.add(str(first.value))
    assert len(found) > 15
    return found | {"xid_error", "xid_warn", "log_error", "log_warn"}


def test_each_detector_has_an_alert_or_a_reason_why_not() -> None:
    alerted = {finding for entry in ALERTS.values() for finding in entry["findings"]}
    silent = {entry["value"] for entry in CONTENT["no_alert"] if entry["reason"]}
    assert alerted.isdisjoint(silent)
    assert alerted | silent == findings()
