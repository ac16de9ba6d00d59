"""`python -m tests.support.dashboard_picture UPLOT PICTURE`: the dashboard as a picture, for docs/monitoring.md.

Grafana cannot be had here. So the panels of roles/monitoring/files/gb10-dashboard.json are drawn by uPlot, the
library of Grafana's own time series panel (UPLOT: the folder `dist` of its npm package), in a headless Chromium.
Queries, units, legends and places are those of the file. The answers are a real Prometheus' own; its hosts are made up.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.monitored import Spark
from tests.support.prometheus import DASHBOARD, INTERVAL_S, Fleet

HOSTS = ("spark-a", "spark-b", "spark-c")
SPAN_S, FAULT_S, MENDED_S = 240, 100, 180  # what is drawn, and when the power supply of spark-b falls back
SHOWN_ROWS = 34  # of the grid: what asks for a deed, model, GPU
WIDTH, UNIT = 1500, 32
UNITS = {"s": "s", "hertz": "Hz", "watt": "W", "celsius": "°C", "percentunit": "%", "bytes": "B", "bps": "bit/s"}
PAGE = """<!doctype html><meta charset="utf-8"><title>GB10 fleet</title><link rel="stylesheet" href="uPlot.min.css">
<style>body{margin:0;padding:8px;background:#111217;color:#ccccdc;font:13px sans-serif;width:%(width)dpx}
#all{display:grid;grid-template-columns:repeat(24,1fr);grid-auto-rows:%(unit)dpx;gap:6px}
.panel{background:#181b1f;border:1px solid #2c3235;padding:4px 8px;overflow:hidden}.row{font-weight:600;padding:6px}
.title{font-weight:600;font-size:13px}.stat{font-size:44px;text-align:center;padding-top:18px}
.u-legend{font-size:11px;text-align:left}.u-legend .u-value,.u-series:first-child{display:none}
.u-legend .u-label::after{content:none!important}</style>
<div id="all"></div><script src="uPlot.iife.min.js"></script><script>
const panels = %(panels)s, colours = ["#73bf69","#f2cc0c","#5794f2","#ff9830","#b877d9","#f2495c"];
for (const p of panels) {
  const box = document.createElement("div"), title = document.createElement("div");
  box.style.gridColumn = `${p.x + 1} / span ${p.w}`; box.style.gridRow = `${p.y + 1} / span ${p.h}`;
  box.className = p.type === "row" ? "row" : "panel"; title.className = "title"; title.textContent = p.title;
  box.append(title); document.getElementById("all").append(box);
  if (p.type === "stat") {
    const value = document.createElement("div"); value.className = "stat"; value.textContent = p.value;
    value.style.color = p.bad ? "#f2495c" : "#73bf69"; box.append(value);
  }
  if (p.type !== "timeseries") continue;
  const axis = {stroke: "#9fa7b3", grid: {stroke: "#2c3235"}, font: "11px sans-serif"};
  const series = p.names.map((label, n) => ({label, stroke: colours[n %% 6], width: 1.5, points: {show: false}}));
  const tell = v => { const a = Math.abs(v), s = [[1e9,"G"],[1e6,"M"],[1e3,"k"],[1,""]].find(s => a >= s[0]) || [1,""];
    return p.unit === "%%" ? +(100 * v).toFixed(1) + " %%" : +(v / s[0]).toFixed(2) + " " + s[1] + p.unit; };
  new uPlot({width: box.clientWidth - 12, height: box.clientHeight - 62, series: [{}, ...series], cursor: {show: false},
    axes: [axis, {...axis, size: 66, values: (u, ticks) => ticks.map(tell)}]}, p.data, box);
}</script>"""


def shown() -> Iterator[Mapping[str, Any]]:
    """Panels by their place, those in rows too."""
    for panel in DASHBOARD["panels"]:
        yield panel
        yield from panel.get("panels") or ()


def drawn(fleet: Fleet, panel: Mapping[str, Any], end_s: float) -> dict[str, Any]:
    """A panel with the answers to its queries."""
    unit = ((panel.get("fieldConfig") or {}).get("defaults") or {}).get("unit") or ""
    known = {"type": panel["type"], "title": panel["title"], **panel["gridPos"], "unit": UNITS.get(unit, "")}
    if panel["type"] == "stat":
        (target,) = panel["targets"]
        found = fleet.ask(target["expr"].replace("$instance", ".*"))
        value = found[0]["value"][1] if found else "0"
        return {**known, "value": value, "bad": panel["title"] == "Alerts" and value != "0"}
    names, columns = [], []
    times = [round(end_s) - SPAN_S + place for place in range(0, SPAN_S + 1, INTERVAL_S)]
    for target in panel.get("targets", ()):
        for one in series(fleet, target["expr"].replace("$instance", ".*"), times):
            names.append(legend(target.get("legendFormat", ""), one["metric"]))
            values = {round(float(at)): float(value) for at, value in one["values"] if value != "NaN"}
            columns.append([values.get(at) for at in times])
    return {**known, "names": names, "data": [times, *columns]}


def series(fleet: Fleet, expression: str, times: list[int]) -> list[dict[str, Any]]:
    asked = {"query": expression, "start": times[0], "end": times[-1], "step": INTERVAL_S}
    url = f"http://127.0.0.1:{fleet.port}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
    with urllib.request.urlopen(url, timeout=30) as reply:
        found: list[dict[str, Any]] = json.load(reply)["data"]["result"]
        return found


def legend(form: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"{{ *(\w+) *}}", lambda found: labels.get(found[1], ""), form).strip()


def live(fleet: Fleet) -> None:
    """Two hosts serve and one idles; the power supply of one that serves falls back, and is mended."""
    chance, began = random.Random(21), time.monotonic()  # noqa: S311 - no secret
    while (now_s := time.monotonic() - began) < SPAN_S:
        for name, spark in fleet.sparks.items():
            jitter = chance.uniform(-1, 1)
            if name == "spark-c":
                spark.running, spark.rate = 0, 0
                gpu(spark, 208, 4.5 + jitter / 4, 0, 38, 1)
            elif name == "spark-b" and FAULT_S < now_s < MENDED_S:
                spark.rate = round(6 + jitter)
                gpu(spark, 507, 12 + jitter / 2, 96, 52)
            else:
                spark.rate, spark.cache = round(30 + 4 * jitter), 0.4 + jitter / 20
                gpu(spark, round(2410 + 15 * jitter), 85 + 2 * jitter, 96, round(67 + jitter))
        time.sleep(INTERVAL_S)


def gpu(spark: Spark, clock: int, power: float, busy: int, heat: int, reasons: int = 0) -> None:
    """As Spark.gpu, at once: its collector is at work meanwhile."""
    spark.smi["SCENARIOS"]["test"] = (str(clock), f"{power:.2f}", str(busy), "P0", str(heat), reasons)


def main(uplot: Path, picture: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        fleet = Fleet(root, HOSTS)
        try:
            fleet.start(exporter=False)
            live(fleet)
            panels = [drawn(fleet, panel, time.time()) for panel in shown() if panel["gridPos"]["y"] < SHOWN_ROWS]
        finally:
            fleet.stop()
        for file in ("uPlot.iife.min.js", "uPlot.min.css"):
            (root / file).write_bytes((uplot / file).read_bytes())
        page = root / "page.html"
        page.write_text(PAGE % {"width": WIDTH - 16, "unit": UNIT, "panels": json.dumps(panels)}, encoding="utf-8")
        height = SHOWN_ROWS * (UNIT + 6) + 16
        subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=5000",
             f"--window-size={WIDTH},{height}", f"--screenshot={picture.resolve()}", page.as_uri()],
            check=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
