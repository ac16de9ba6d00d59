"""A real Prometheus with the alerts and the dashboard of the role monitoring."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics import exposition
from ansible_collections.gb10.fleet.plugins.plugin_utils.monitoring import rules

from tests.support.monitored import FAULTS, Spark, healthy
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "roles/monitoring/files/gb10-dashboard.json").read_text())
PATIENCE_S = 120  # until something that should come counts as missing; nothing waits so long that comes
INTERVAL_S = 2
# A machine that is busy may read late: only then has the collector stopped.
QUICK = rules.figures(
    interval_s=INTERVAL_S,
    history_s=8,
    window_s=8,
    hang_s=4,
    settled_s=4,
    missed=8,
    slo_long_s=12,
    slo_short_s=8,
    gateway_s=12,
)
COLLECTED = {**QUICK, "hang_s": 2}  # the collector runs twice in an interval, so its samples are nearer
EXPORTER = "prometheus-node-exporter"


def asked(port: int, expression: str) -> list[dict[str, Any]]:
    """The answer of Prometheus, which must understand the question."""
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=30) as reply:
        found: list[dict[str, Any]] = json.load(reply)["data"]["result"]
        return found


class Fleet:
    """The hosts, their exporter, and a Prometheus that asks them."""

    def __init__(self, root: Path, names: Sequence[str] = ()) -> None:
        self.root = root
        names = names or [*FAULTS, *(name for name, _fault in healthy())]
        self.sparks = {name: Spark(root / "hosts" / name, name, COLLECTED) for name in names}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.port, self.exporter_port = free_port(), free_port()
        self.over = threading.Event()
        self.texts = {name: spark.text(time.time()) for name, spark in self.sparks.items()}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        for work in (self.server.serve_forever, self._collect):
            threading.Thread(target=work, daemon=True).start()

    def _collect(self) -> None:
        """One host after the other: the simulated nvidia-smi prints."""
        while not self.over.wait(INTERVAL_S / 2):
            for name, spark in self.sparks.items():
                self.texts[name] = spark.text(time.time())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        sparks, texts = self.sparks, self.texts

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.rpartition("/")[2]
                body = texts[name].encode()
                self.send_response(503 if sparks[name].silent else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_words: Any) -> None:
                pass

        return Handler

    def start(self, *, exporter: bool = True) -> None:
        self._write("rules.yml", rules.render(QUICK, "https://example.com"))
        address = f"127.0.0.1:{self.server.server_port}"
        targets = [
            {"targets": [address], "labels": {"instance": name, "__metrics_path__": f"/{name}"}} for name in self.sparks
        ]
        textfile = {"targets": [f"127.0.0.1:{self.exporter_port}"]}
        config = {
            "global": {"scrape_interval": f"{INTERVAL_S}s", "scrape_timeout": f"{INTERVAL_S}s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {"job_name": "gb10", "static_configs": targets},
                *([{"job_name": "textfile", "static_configs": [textfile]}] if exporter else []),
            ],
        }
        self._write("prometheus.yml", config)
        self._run("prometheus", f"--config.file={self.root}/prometheus.yml", f"--storage.tsdb.path={self.root}/data",
                  f"--web.listen-address=127.0.0.1:{self.port}")  # fmt: skip
        for part, text in next(iter(self.sparks.values())).written.items():
            exposition.replace(self.root / f"text/gb10_{part}.prom", text)
        if exporter and shutil.which(EXPORTER):
            self._run(EXPORTER, "--collector.disable-defaults", "--collector.textfile",
                      f"--collector.textfile.directory={self.root}/text",
                      f"--web.listen-address=127.0.0.1:{self.exporter_port}")  # fmt: skip

    def _write(self, name: str, content: Any) -> None:
        (self.root / "text").mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(yaml.safe_dump(content))

    def _run(self, *argv: str) -> None:
        with (self.root / f"{argv[0]}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(argv, stdout=log, stderr=log))

    def stop(self) -> None:
        self.over.set()
        self.server.shutdown()
        for process in self.processes:
            process.kill()
            process.wait()

    def ask(self, expression: str) -> list[dict[str, Any]]:
        return asked(self.port, expression)

    def firing(self) -> set[tuple[str, str]]:
        """Host and alert; the exporter's file is written once, and may well be old."""
        found = [each["metric"] for each in self.ask('ALERTS{alertstate="firing"}')]
        return {(each["instance"], each["alertname"]) for each in found if each["instance"] in self.sparks}

    def wait(self, true: Callable[[], bool], what: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                if true():
                    return
            except OSError:  # it is not up yet
                pass
            time.sleep(0.5)
        pytest.fail(f"after {PATIENCE_S} s: {what()}")
