"""A real Prometheus scrapes faked Sparks through the real collector: each fault fires its alert, and it clears.

One host for each fault, all at once, with an interval of two seconds; so everything takes as long as the slowest alert.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs import planned
from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics.planned import WORK
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import monitoring

from tests.support.attacker import tally
from tests.support.monitored import FAULTS, healthy
from tests.support.ports import free_port
from tests.support.prometheus import DASHBOARD, EXPORTER, PATIENCE_S, Fleet
from tests.support.proofs import facts

pytestmark = pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed")


@pytest.fixture(name="alone")
def fixture_alone(tmp_path: Path) -> Iterator[Fleet]:
    """One host: the collectors of fifty take a core."""
    fleet = Fleet(tmp_path, ("load",))
    try:
        fleet.start(exporter=False)
        yield fleet
    finally:
        fleet.stop()


def test_planned_work_keeps_alerts_waiting_and_what_stays_down_afterwards_is_told(alone: Fleet) -> None:
    """A reboot with its silence, by the program that says so; its service does not come back."""
    fleet, spark = alone, alone.sparks["load"]
    fleet.wait(lambda: bool(fleet.ask("gb10:tokens_per_second")) and not fleet.firing(), fleet.firing)
    folder = spark.root / WORK.lstrip("/")
    folder.mkdir(parents=True)
    asked = {"planned": {"s": 3600, "after_s": 4}}
    planned.begin(folder, "reboot", asked, time.time())
    fleet.wait(lambda: bool(fleet.ask('gb10:planned{instance="load"}')), lambda: "Prometheus does not know")
    FAULTS["Gb10ServiceDown"](spark)
    FAULTS["Gb10HostSilent"](spark)
    silent = 'sum_over_time((up{instance="load"} == bool 0)[1m:1s]) > 12'
    fleet.wait(lambda: bool(fleet.ask(silent)), lambda: fleet.ask('up{instance="load"}'))
    told = 'ALERTS{instance="load",alertstate=~"pending|firing"}'
    assert fleet.ask(told) == fleet.ask(f"max_over_time({told}[1m])") == []

    spark.silent = False
    planned.end(folder, "reboot", asked, time.time())
    fleet.wait(lambda: fleet.firing() == {("load", "Gb10ServiceDown")}, fleet.firing)
    spark.calm()
    fleet.wait(lambda: not fleet.firing(), fleet.firing)


@pytest.fixture(name="fleet", scope="module")
def fixture_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("prometheus"))
    try:
        fleet.start()
        fleet.wait(lambda: len(fleet.ask('up{job="gb10"} == 1')) == len(fleet.sparks), lambda: fleet.ask("up"))
        yield fleet
    finally:
        fleet.stop()


def test_each_fault_fires_its_own_alert_and_it_clears(fleet: Fleet) -> None:
    fleet.wait(lambda: bool(fleet.ask("gb10:tokens_per_second")), lambda: "no recording rule")
    # A reading of a busy machine may come late once; it may not stay.
    fleet.wait(lambda: not fleet.firing(), lambda: f"healthy hosts, and {fleet.firing()}")
    for name, fault in (*FAULTS.items(), *healthy()):
        fault(fleet.sparks[name])
    expected = {(name, name) for name in FAULTS}
    fleet.wait(lambda: fleet.firing() == expected, lambda: f"not the same: {expected ^ fleet.firing()}")
    for spark in fleet.sparks.values():
        spark.calm()
    fleet.wait(lambda: not fleet.firing(), lambda: f"still there {fleet.firing()}")


def is_number(answer: dict[str, Any]) -> bool:
    """An idle host has no latency: NaN."""
    return bool(re.fullmatch(r"-?[0-9.]+(e[+-][0-9]+)?", answer["value"][1]))


def queries() -> list[tuple[str, str]]:
    return [
        (panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())
    ] + [
        (panel["title"], target["expr"])
        for row in DASHBOARD["panels"]
        for panel in row.get("panels") or ()
        for target in panel["targets"]
    ]


def test_every_query_of_every_panel_is_answered(fleet: Fleet) -> None:
    """One test for all: a Prometheus for each would take half a minute."""
    fleet.sparks["capped"].gpu(1300, 85, 96, 70, 0x4)  # a reason, for the panel of reasons
    assert len(queries()) > 25
    for title, expression in queries():
        asked = expression.replace("$instance", ".*")
        assert "$" not in asked, title
        fleet.wait(lambda asked=asked: any(map(is_number, fleet.ask(asked))), lambda title=title: f"{title}: no answer")


@pytest.mark.skipif(not shutil.which(EXPORTER), reason=f"{EXPORTER} is not installed")
def test_node_exporter_hands_on_what_the_collector_writes(fleet: Fleet) -> None:
    """Types and labels as they are, and no error of its own."""
    fleet.wait(lambda: bool(fleet.ask('node_textfile_scrape_error{job="textfile"} == 0')), lambda: fleet.ask("up"))
    assert fleet.ask('gb10_gpu_state{job="textfile",state="ok"}')
    assert fleet.ask('vllm:time_to_first_token_seconds_bucket{job="textfile",service="vllm"}')


def test_a_host_sends_prometheus_nowhere_and_a_page_of_the_web_reads_nothing(tmp_path: Path) -> None:
    """With the files and the flags of the role. A redirect led to loopback of the host that watches."""
    asked: list[str] = []

    class Host(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", "/of-another")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_words: Any) -> None:
            pass

    port, changed = free_port(), {"/etc/prometheus/": f"{tmp_path}/", "/var/lib/prometheus/": f"{tmp_path}/"}
    changed |= {monitoring.PROMETHEUS: f"127.0.0.1:{port}", "interval: 15s": "interval: 1s"}
    with ThreadingHTTPServer(("127.0.0.1", 0), Host) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        own = {"monitoring_enabled": True, "monitoring_server": True, "monitoring_port": server.server_port}
        view = View("spark-a", facts(), own)
        texts = {str(each.get("file")): str(each.get("content")) for each in render("monitoring", view).resources}
        texts["command"] = next(one.command for one in monitoring.plan(view).servers if one.package == "prometheus")
        for old, new in changed.items():
            texts = {name: text.replace(old, new) for name, text in texts.items()}
        for name in ("gb10.yml", "gb10-rules.yml"):
            (tmp_path / name).write_text(texts[f"/etc/prometheus/{name}"])
        running = subprocess.Popen(texts["command"].split(), stderr=subprocess.DEVNULL)
        try:
            until = time.monotonic() + PATIENCE_S
            while asked.count("/metrics") < 3 and time.monotonic() < until:
                time.sleep(0.2)
            page = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            page.request("GET", "/api/v1/labels", headers={"Origin": "https://x.example"})
            allowed = page.getresponse().headers["Access-Control-Allow-Origin"]
            page.close()
        finally:
            running.kill()
            running.wait()
            server.shutdown()
    assert asked.count("/metrics") >= 3
    tally("a host sends Prometheus to another one", len(asked), asked.count("/of-another"))
    tally("a page of the web reads all metrics", 1, allowed is not None)
    assert set(asked) == {"/metrics"} and allowed is None


@pytest.mark.skipif(not shutil.which(EXPORTER), reason=f"{EXPORTER} is not installed")
def test_mounts_of_a_login_do_not_take_its_host_past_what_prometheus_reads(tmp_path: Path) -> None:
    """Any login may make a thousand of them by FUSE, with names of kilobytes; with the command line of the role."""
    proc = tmp_path / "1"
    proc.mkdir()
    rows = [("f" * 1000, f"/home/u/{number}/{'m' * 200}", "fuse.sshfs") for number in range(1000)]
    rows.append(("/dev/a", "/", "ext4"))
    (proc / "mounts").write_text("".join(f"{what} {at} {kind} rw 0 0\n" for what, at, kind in rows))
    # What a newer one reads.
    (proc / "mountinfo").write_text("".join(f"9 1 0:9 / {at} rw - {kind} {what} rw\n" for what, at, kind in rows))
    view, port = View("spark-a", facts(), {"monitoring_enabled": True}), free_port()
    lines = [line for each in render("monitoring", view).resources for line in str(each.get("content")).splitlines()]
    (command,) = (line.partition("=")[2] for line in lines if line.startswith(f"ExecStart=/usr/bin/{EXPORTER} "))
    words = [*command.replace("127.0.0.1:9100", f"127.0.0.1:{port}").split(), f"--path.procfs={tmp_path}"]
    words += ["--collector.disable-defaults", "--collector.filesystem"]
    running = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                door = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
                door.request("GET", "/metrics")
                said = door.getresponse().read()
                break
            assert time.monotonic() < until and running.poll() is None
            time.sleep(0.1)
    finally:
        running.kill()
        running.wait()
    tally("mounts of a login take its host past what Prometheus reads", 1, len(said) > 2**20)
    assert b'fstype="ext4"' in said and b"fuse.sshfs" not in said and len(said) < 2**16
