"""The rules of Prometheus: rendered from the catalog, accepted by promtool, and each alert at its time."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.monitoring import rules

from scripts import monitoring_files
from tests.support.monitored import FAULTS, Spark, healthy, samples

ROOT = Path(__file__).parents[3]
RULES = ROOT / "roles/monitoring/files/gb10-rules.yml"
ALERTS = {entry["value"]: entry for entry in catalog.load("monitoring")["alerts"]}
KNOWN = rules.figures()
CALM = 8  # readings before a fault
PROMTOOL = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed (package prometheus)")


def test_the_file_is_what_the_catalog_says() -> None:
    assert RULES.read_text() == monitoring_files.rules_file(), "run python -m scripts.monitoring_files"


def test_another_limit_is_another_rule() -> None:
    (rule,) = [
        rule
        for group in rules.render(rules.figures(gpu_hot_c=77), "x")["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "Gb10GpuHot"
    ]
    assert ">= 77" in rule["expr"] and rule["for"] == "75s"


def test_a_name_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(KeyError):
        rules.render({"interval_s": 15}, "x")


@PROMTOOL
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


def history(tmp_path: Path, fault: Callable[[Spark], None], ticks: tuple[int, int, int]) -> dict[str, list[str]]:
    """What Prometheus scrapes of a host: healthy, then with a fault, then healthy again."""
    spark, found = Spark(tmp_path, "spark-a"), dict[str, dict[int, str]]()
    interval = KNOWN["interval_s"]
    for tick in range(sum(ticks)):
        if tick == ticks[0]:
            fault(spark)
        if tick == ticks[0] + ticks[1]:
            spark.calm()
        # The clock of promtool begins at 0, and a reading is never older than the boot.
        text = "" if spark.silent else spark.text(tick * interval + 1)
        said = {"up": 0.0 if spark.silent else 1.0, **samples(text)}
        for series, value in said.items():
            found.setdefault(series, {})[tick] = f"{value:.15g}"
    return {series: [_value(at, tick) for tick in range(sum(ticks))] for series, at in found.items()}


def _value(at: dict[int, str], tick: int) -> str:
    """A series that ends is marked by Prometheus at the next scrape."""
    return at.get(tick) or ("stale" if tick - 1 in at else "_")


def promtool(tmp_path: Path, tests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "test.yml"
    content = {"rule_files": [str(RULES)], "evaluation_interval": f"{KNOWN['interval_s']}s", "tests": tests}
    file.write_text(yaml.safe_dump(content))
    return subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)


def group(series: dict[str, list[str]], expected: dict[int, list[str]]) -> dict[str, Any]:
    """`expected`: what fires at a reading, each alert by its name."""
    interval = KNOWN["interval_s"]
    labelled = []
    for name, values in series.items():
        own, _, labels = name.partition("{")
        job = 'instance="spark-a",job="gb10"'
        labelled.append(
            {"series": f"{own}{{{job},{labels}" if labels else f"{own}{{{job}}}", "values": " ".join(values)}
        )
    tests = [
        {"expr": "count by (alertname) (ALERTS{alertstate='firing'})", "eval_time": f"{tick * interval}s",
         "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names]}
        for tick, names in expected.items()
    ]  # fmt: skip
    return {"interval": f"{interval}s", "input_series": labelled, "promql_expr_test": tests}


def test_every_alert_has_a_fault() -> None:
    assert sorted(FAULTS) == sorted(ALERTS)


@PROMTOOL
@pytest.mark.parametrize("alert", sorted(FAULTS))
def test_a_fault_fires_its_alert_within_two_intervals_and_clears(alert: str, tmp_path: Path) -> None:
    """Two intervals after the time that its expression must hold; nothing else fires, before, then or after."""
    held = int(rules.hold_s(ALERTS[alert], KNOWN) / KNOWN["interval_s"])
    blind = 5 if alert == "Gb10CollectorStopped" else 0  # so many readings are missing until it is certain
    blind = 4 if alert == "Gb10EngineHung" else blind  # tokens are counted over a minute
    begin, fires = CALM, CALM + held + blind + 2
    ends = fires + 1
    cleared = ends + (KNOWN["history_s"] // KNOWN["interval_s"] if alert == "Gb10RailErrors" else 0) + 2
    series = history(tmp_path, FAULTS[alert], (CALM, ends - CALM, cleared + 1 - ends))
    early = {tick: [] for tick in range(begin + held)} if held else {begin - 1: []}
    done = promtool(tmp_path, [group(series, {**early, fires: [alert], cleared: []})])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@PROMTOOL
@pytest.mark.parametrize(("state", "fault"), list(healthy()), ids=[name for name, _fault in healthy()])
def test_a_sound_host_raises_nothing(state: str, fault: Callable[[Spark], None], tmp_path: Path) -> None:
    series = history(tmp_path, fault, (2, 46, 2))
    done = promtool(tmp_path, [group(series, {tick: [] for tick in range(50)})])
    assert done.returncode == 0, f"{state}: {done.stdout[-3000:]}"
