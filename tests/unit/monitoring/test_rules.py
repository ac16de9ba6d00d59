"""The rules of Prometheus: rendered from the catalog, accepted by promtool, and each alert at its time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics import planned
from ansible_collections.gb10.fleet.plugins.plugin_utils.monitoring import rules

from tests.support.attacker import tally
from tests.support.monitored import COMPLETE, FAULTS, Spark, healthy, samples

ROOT = Path(__file__).parents[3]
RULES = ROOT / "roles/monitoring/files/gb10-rules.yml"
ALERTS = {entry["value"]: entry for entry in rules.alerts()}
KNOWN = rules.figures()
FORMER = ROOT / "tests/fixtures/monitoring/former-rules.yml"
MEDIANS = ("Gb10PowerFault", "Gb10GpuClockLow", "Gb10GpuThrottled", "Gb10GpuHot")
ONE = "topk by (instance) (50, max without (alertname, severity)"  # of the series of a host
RECORDS = [entry["record"] for entry in rules.render(KNOWN, "x")["groups"][0]["rules"]]
CALM = 8  # readings before a fault
# Where it is to be there, its absence is a failure and no skip.
PROMTOOL = pytest.mark.skipif(
    not shutil.which("promtool") and not os.environ.get("CI"), reason="promtool is not installed (package prometheus)"
)


def rule(alert: str, **limits: Any) -> dict[str, Any]:
    (found,) = [
        rule
        for group in rules.render(rules.figures(**limits), "x")["groups"]
        for rule in group["rules"]
        if rule.get("alert") == alert
    ]
    return dict(found)


def test_another_limit_is_another_rule_or_another_setting_of_the_collector() -> None:
    assert "> 0.77" in rule("Gb10CacheFull", cache_full=0.77)["expr"]
    assert rules.collector(rules.figures(gpu_hot_c=77), "spark-a")["rules"]["limits"]["gpu_hot_c"] == 77


@pytest.mark.parametrize(
    ("alert", "expression"),
    [
        ("Gb10SocHot", f'{ONE} (gb10_finding{{id="soc_hot", severity!="info"}} == 1))'),
        ("Gb10RailSlowLink", f'{ONE} (gb10_finding{{id="rail_slow_link"}} == 1)) unless on (instance) gb10:planned'),
        ("Gb10XidError", f'{ONE} (gb10_finding{{id=~"xid_.+", severity="error"}} == 1))'),
    ],
)
def test_a_finding_makes_its_alert(alert: str, expression: str) -> None:
    assert rule(alert)["expr"] == expression


def test_a_name_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(KeyError):
        rules.render({"interval_s": 15}, "x")


@PROMTOOL
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


def history(
    tmp_path: Path, fault: Callable[[Spark], None], ticks: tuple[int, int, int], works_until: int = 0
) -> dict[str, list[str]]:
    """What Prometheus scrapes of a host: healthy, then with a fault, then healthy again.

    `works_until`: the reading at which planned work on it ends by itself.
    """
    spark, found = Spark(tmp_path, "spark-a"), dict[str, dict[int, str]]()
    interval = KNOWN["interval_s"]
    if works_until:
        spark.write(f"{planned.WORK}/reboot", str(works_until * interval))
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


def promtool(tmp_path: Path, tests: list[dict[str, Any]], *more: Path) -> subprocess.CompletedProcess[str]:
    """Ours, and those of `more`; it lives for a second, so it collects no garbage."""
    file = tmp_path / "test.yml"
    content = {
        "rule_files": [str(RULES), *map(str, more)],
        "evaluation_interval": f"{KNOWN['interval_s']}s",
        "tests": tests,
    }
    file.write_text(yaml.safe_dump(content))
    argv, environment = ["promtool", "test", "rules", file], {**os.environ, "GOGC": "off"}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


FIRING = "count by (alertname) (ALERTS{alertstate='firing', alertname!~'Former.*|Gb10Heartbeat'})"
# What fires by the finding of the collector and did not by the former PromQL, or the other way round.
FOUND = "|".join(
    rule["alert"].removeprefix("Former")
    for rule in yaml.safe_load(FORMER.read_text(encoding="utf-8"))["groups"][0]["rules"]
    if "alert" in rule
)
NEW = f"count by (alertname) (ALERTS{{alertstate='firing', alertname=~'{FOUND}'}})"
OLD = (
    "count by (alertname) (label_replace(ALERTS{alertstate='firing', alertname=~'Former.*'},"
    " 'alertname', '$1', 'alertname', 'Former(.*)'))"
)
DIFFERENCE = f"count by (alertname) (({NEW} unless on (alertname) {OLD}) or ({OLD} unless on (alertname) {NEW}))"
# Readings after the fault began, and after it ended, in which the two differ, and why. All others are the same second.
DIFFERENT = {
    **{name: (range(0), range(2), "a median of five readings turns in the third one") for name in MEDIANS},
    "Gb10EngineHung": (range(13, 15), range(0), "the last token is known, and is not looked for over a minute"),
}


Expected = dict[int, list[str]]  # each alert by its name, at a reading


def group(
    series: dict[str, list[str]], expected: Expected, asked: str = FIRING, differs: Expected | None = None
) -> dict[str, Any]:
    """`differs`: what DIFFERENCE finds. In one group with what fires: promtool evaluates all rules for each group."""
    interval = KNOWN["interval_s"]
    labelled = []
    for name, values in series.items():
        own, _, labels = name.partition("{")
        job = 'instance="spark-a",job="gb10"'
        whole = name if "instance=" in labels else f"{own}{{{job},{labels}" if labels else f"{own}{{{job}}}"
        labelled.append({"series": whole, "values": " ".join(values)})
    tests = [
        {"expr": expression, "eval_time": f"{tick * interval}s",
         "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names]}
        for expression, found in ((asked, expected), (DIFFERENCE, differs or {}))
        for tick, names in found.items()
    ]  # fmt: skip
    return {"interval": f"{interval}s", "input_series": labelled, "promql_expr_test": tests}


# So many readings pass until it is certain: one of the collector is missing, a median turns, a span is without a token.
BLIND = {"Gb10CollectorStopped": 5, "Gb10EngineHung": 13, "Gb10SloSlow": 20, **dict.fromkeys(MEDIANS, 2)}
# So many pass until a window of five minutes has enough good requests again.
LAG = {"Gb10RailErrors": KNOWN["history_s"] // KNOWN["interval_s"], "Gb10SloSlow": 8, "Gb10SloErrors": 20,
       "Gb10GatewayErrors": KNOWN["gateway_s"] // KNOWN["interval_s"]}  # fmt: skip
# What was answered within planned work is no fault afterwards.
LOOKS_BACK = {"Gb10GatewayErrors": KNOWN["gateway_s"]}
ALWAYS = "Gb10Heartbeat"
RULES_FAIL = "Gb10RuleFailed"  # of Prometheus, and of no host
CHURNS = "Gb10SeriesWithoutEnd"  # what Prometheus counts of an answer


def test_every_alert_has_a_fault() -> None:
    """That of a sign has the sign's example, which the collector finds (test_metrics.py)."""
    of_prometheus = {name for name, entry in ALERTS.items() if "expr" in entry}
    assert of_prometheus <= {*FAULTS, ALWAYS, RULES_FAIL, CHURNS} <= {*ALERTS}, "FAULTS of tests/support/monitored.py"


@PROMTOOL
@pytest.mark.parametrize("alert", sorted(FAULTS))
def test_a_fault_fires_its_alert_within_two_intervals_and_clears(alert: str, tmp_path: Path) -> None:
    """Two intervals after the time that its expression must hold; nothing else fires, before, then or after.

    By a finding it fires in the same second as by the former PromQL, but for what is DIFFERENT.
    """
    held = int(rules.hold_s(ALERTS[alert], KNOWN) / KNOWN["interval_s"])
    blind = BLIND.get(alert, 0)
    begin, fires = CALM, CALM + held + blind + 2
    ends = fires + 1 + (4 if alert == "Gb10EngineHung" else 0)  # until the former one fires, too
    cleared = ends + LAG.get(alert, 0) + 2
    series = history(tmp_path, FAULTS[alert], (CALM, ends - CALM, cleared + 1 - ends))
    early = {tick: [] for tick in range(begin + held)} if held else {begin - 1: []}
    began, ended, _why = DIFFERENT.get(alert, (range(0), range(0), ""))
    other = {*(begin + at for at in began), *(ends + at for at in ended)}
    differs = {tick: [alert] if tick in other else [] for tick in range(cleared + 1)}
    fired = group(series, {**early, fires: [alert], cleared: []}, differs=differs)
    done = promtool(tmp_path, [fired], FORMER)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@PROMTOOL
def test_no_host_silences_an_alert_of_another(tmp_path: Path) -> None:
    """Hostile hosts have each of their series for each severity, so that two alerts of one would be alike.

    promtool fails where a rule ends by that: then Prometheus tells nobody of any host.
    """
    calm, silent = history(tmp_path / "spark-a", FAULTS["Gb10HostSilent"], (2, 8, 0)), dict[str, list[str]]()
    for alert in ("Gb10HostSilent", "Gb10PowerFault", "Gb10ServiceFailing", "Gb10SloErrors", "Gb10RouterNoReplica"):
        for name, values in history(tmp_path / alert, FAULTS[alert], (2, BLIND.get(alert, 0) + 8, 0)).items():
            family, _, labels = name.partition("{")
            kept = re.sub(r',?(?:severity|host)="[^"]*"', "", labels.removesuffix("}")).strip(",")
            for severity, other in product(("error", "warn"), "ab"):
                more = f'instance="{alert}",job="gb10",severity="{severity}",alertname="{severity}",host="{other}"'
                silent[f"{family}{{{more}{kept and ','}{kept}}}"] = values
                if family == "gb10_service_wanted":  # of a model that is asleep
                    silent[f'{family}{{{more},model="m",service="asleep"}}'] = ["0"] * len(values)
    for record, label, other in product(
        RECORDS, ("severity", "host", "cluster"), "ab"
    ):  # as if Prometheus had made them
        silent[f'{record}{{instance="evil",job="gb10",{label}="{other}"}}'] = ["1"] * 10
    asked = FIRING.replace("ALERTS{", "ALERTS{instance='spark-a', ")
    done = promtool(tmp_path, [group(calm | silent, {9: ["Gb10HostSilent"]}, asked)])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@PROMTOOL
def test_a_host_raises_an_alert_a_few_times_and_keeps_nobody_elses(tmp_path: Path) -> None:
    """A host invents findings; those of the others are told beside it."""
    flood = {f'gb10_finding{{instance="evil",job="gb10",id="log_{n}",severity="error"}}': ["1"] * 4 for n in range(500)}
    sound = {'gb10_finding{instance="spark-b",job="gb10",id="log_x",severity="error"}': ["1"] * 4}
    told = group(flood | sound, {}, "")
    asked = "count by (instance) (ALERTS{alertname='Gb10LogError', alertstate='firing'})"
    wanted = [{"labels": '{instance="evil"}', "value": 50}, {"labels": '{instance="spark-b"}', "value": 1}]
    told["promql_expr_test"] = [{"expr": asked, "eval_time": "45s", "exp_samples": wanted}]
    done = promtool(tmp_path, [told])
    tally("a host raises thousands of alerts", 500, int(done.returncode != 0))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@PROMTOOL
@pytest.mark.parametrize(("job", "fires"), [("prometheus", [RULES_FAIL]), ("gb10", [])])
def test_a_rule_that_fails_is_told_and_no_host_says_so(job: str, fires: list[str], tmp_path: Path) -> None:
    name = f'prometheus_rule_evaluation_failures_total{{instance="prometheus",job="{job}",rule_group="g"}}'
    series = {name: [*["0"] * CALM, *map(str, range(1, 80))]}
    done = promtool(tmp_path, [group(series, {CALM - 1: [], CALM + 3: fires})])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@PROMTOOL
@pytest.mark.parametrize(
    ("added", "fires"),
    [
        ([10_000] * 60, [CHURNS]),  # all that one answer may have, new each time: 1.8 KB of memory each, for hours
        ([2_000, *[0] * 59], []),  # a boot
        ([2_000, 0, 0, 0, 0, 0] * 10, []),  # a host that comes and goes
        ([40] * 60, []),  # a model with many clients
    ],
)
def test_series_without_end_are_told_while_prometheus_lives(added: list[int], fires: list[str], tmp_path: Path) -> None:
    """Of a host of 20,000 new series in each answer Prometheus had 8 GB after an hour, and took the model's memory."""
    series = {"scrape_series_added": ["0"] * CALM + [str(count) for count in added]}
    done = promtool(tmp_path, [group(series, {CALM - 1: [], CALM + 30: fires})])
    tally("a host fills the memory of another with series", 1, int(done.returncode != 0))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_each_alert_is_one_whatever_labels_a_host_invents() -> None:
    found = rules.render(KNOWN, "x")["groups"][1]["rules"]
    assert [one["alert"] for one in found if not one["expr"].startswith(f"{ONE} (")] == []
    # What is compared by some labels has one series of each at its right side.
    sides = [side for one in found for side in re.findall(r"[<>=*/+-] on \([^)]*\) (.{12})", one["expr"])]
    assert sides == ["max by (inst"] * 4


@PROMTOOL
@pytest.mark.parametrize(("state", "fault"), list(healthy()), ids=[name for name, _fault in healthy()])
def test_a_sound_host_raises_nothing(state: str, fault: Callable[[Spark], None], tmp_path: Path) -> None:
    series = history(tmp_path, fault, (2, 46, 2))
    silent = {tick: list[str]() for tick in range(50)}
    done = promtool(tmp_path, [group(series, silent, differs=silent)], FORMER)
    assert done.returncode == 0, f"{state}: {done.stdout[-3000:]}"


@PROMTOOL
@pytest.mark.parametrize("case", sorted(COMPLETE))
def test_a_fault_that_takes_its_series_along_fires_until_it_is_mended(case: str, tmp_path: Path) -> None:
    alert, fault = COMPLETE[case]
    lasts = 30
    series = history(tmp_path, fault, (CALM, lasts, 3))
    held = int(rules.hold_s(ALERTS[alert], KNOWN) / KNOWN["interval_s"])
    fires = {CALM + tick: [alert] if tick >= held else [] for tick in range(lasts)}
    done = promtool(tmp_path, [group(series, {**fires, CALM + lasts + 1: []})])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@PROMTOOL
@pytest.mark.parametrize("alert", sorted(FAULTS))
def test_planned_work_keeps_an_alert_waiting_until_its_end_and_never_one_of_safety(alert: str, tmp_path: Path) -> None:
    """The work is forgotten: its end is a time, and then the fault is told."""
    held = int(rules.hold_s(ALERTS[alert], KNOWN) / KNOWN["interval_s"])
    fires = CALM + held + BLIND.get(alert, 0) + 2
    ends = fires + 3
    told = ends + held + 3 + int(LOOKS_BACK.get(alert, 0) / KNOWN["interval_s"])
    series = history(tmp_path, FAULTS[alert], (CALM, told + 1 - CALM, 0), works_until=ends)
    waits = "planned" in ALERTS[alert]
    silent = {tick: list[str]() for tick in range(CALM, ends)} if waits else {fires: [alert]}
    done = promtool(tmp_path, [group(series, {**silent, told: [alert]})])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@PROMTOOL
@pytest.mark.parametrize("worked_on", ["spark-b", "spark-c"])
def test_a_router_waits_for_a_replica_on_a_host_that_is_worked_on(worked_on: str, tmp_path: Path) -> None:
    """Of no cluster of its own: the replica of spark-b alone answers for the model, and that host is down."""
    series = history(tmp_path, lambda spark: None, (CALM + 12, 0, 0))
    series['gb10_router_replica_up{model="m",host="spark-b",address="192.0.2.2"}'] = ["0"] * (CALM + 12)
    said = f'instance="{worked_on}",cluster="{worked_on}",job="gb10"'
    series[f"gb10_planned_until_seconds{{{said}}}"] = [*["3600"] * CALM, "stale"]
    fires = [] if worked_on == "spark-b" else ["Gb10RouterNoReplica"]
    done = promtool(tmp_path, [group(series, {CALM + 10: fires})])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@PROMTOOL
@pytest.mark.parametrize(
    ("cluster", "until_s", "fires"),
    [("spark-a", 3600, False), ("another", 3600, True), ("spark-a", 0, True), ("spark-a", 10**6, True)],
    ids=["of its cluster", "of another", "it is over", "far too long to be true"],
)
def test_work_on_a_host_that_is_down_keeps_the_alerts_of_its_cluster_waiting(
    cluster: str, until_s: int, fires: bool, tmp_path: Path
) -> None:
    """spark-b says that it is worked on, and goes down: its last word counts. The rail of spark-a goes with it."""
    lasts = 30
    series = history(tmp_path, FAULTS["Gb10RailDown"], (CALM, lasts, 0))
    said = f'{{instance="spark-b",job="gb10",cluster="{cluster}"}}'
    series[f"gb10_planned_until_seconds{said}"] = [*[str(until_s)] * CALM, "stale"]
    series['up{instance="spark-b",job="gb10"}'] = [*["1"] * CALM, *["0"] * lasts]
    theirs = [] if 0 < until_s < 10**6 else ["Gb10HostSilent"]  # whatever their cluster is
    own = ["Gb10RailDown"] if fires else []
    done = promtool(tmp_path, [group(series, {CALM + 6: sorted([*own, *theirs])})])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_what_is_about_safety_never_waits() -> None:
    safe = {"GpuHot", "SocHot", "GpuThrottled", "PowerFault", "DiskFull", "DiskWorn", "LogError", "XidError", "Kho"}
    assert [name for name in sorted(safe) if "planned" in ALERTS[f"Gb10{name}"]] == []
    assert {entry["planned"] for entry in ALERTS.values() if "planned" in entry} == {"waits"}


@PROMTOOL
def test_the_heartbeat_comes_as_long_as_prometheus_asks_somebody(tmp_path: Path) -> None:
    beats = "count by (alertname) (ALERTS{alertstate='firing', alertname='Gb10Heartbeat'})"
    series = {"up": ["0"] * 4 + ["stale"]}
    done = promtool(tmp_path, [group(series, {0: [ALWAYS], 3: [ALWAYS], 5: []}, beats)])
    assert done.returncode == 0, done.stdout[-3000:]
