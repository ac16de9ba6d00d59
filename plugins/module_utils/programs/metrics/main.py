# SPDX-License-Identifier: GPL-3.0-or-later
"""The collector: one run writes one file for node_exporter. No daemon: a timer starts it, and it ends.

`now` reads what changes by the second, `history` what costs more and changes by the hour. `now` judges both, over its
last samples, by the detectors of `gb10 why`. The role `monitoring` installs this folder, with all that it imports, as
the program of two timers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading import memory, sensors
from ansible_collections.gb10.fleet.plugins.module_utils.reading.sample import read_sample
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Notes

from . import exposition, findings, gateway, history, now, planned, services
from .exposition import Samples, sample

SETTINGS = Path("/etc/gb10-fleet/metrics.json")
FOLDER = Path("/var/lib/gb10-metrics/node-exporter")  # root's own; Debian's beside it belongs to the user prometheus


def collect(part: str, host: HostReader, settings: Mapping[str, Any], fetch: services.Fetch = services.fetch) -> str:
    """The text of one part. Nothing here raises: what cannot be read has no sample, and a line in gb10_unknown."""
    began, notes, of_vllm = _spent(), Notes(), ""
    if part == "now":
        samples, of_vllm = _now(host, notes, settings, fetch)
    else:
        samples, reading = history.read(host, notes, settings["recent_days"], settings["event_s"])
        samples += gateway.of_clients(host, notes, settings["gateway"], settings["every_s"]["history"])
        _keep(host, notes, "history", findings.of_history(reading, notes.reasons))
    for path in notes.reasons:
        samples += sample("gb10_unknown", 1, part=part, path=path)
    samples += sample("gb10_collector_interval_seconds", settings["every_s"][part], part=part)
    return exposition.render(samples + _of_itself(part, host, began)) + of_vllm


def _now(host: HostReader, notes: Notes, settings: Mapping[str, Any], fetch: services.Fetch) -> tuple[Samples, str]:
    seen = {**read_sample(host, notes), "blocks": notes.read("blocks", lambda: memory.read_blocks(host))}
    zones = notes.read("zones", lambda: sensors.read_zones(host))
    errors = settings["rules"]["rail_errors"]
    samples = now.read(host, notes, seen, zones or [], errors)
    wanted = planned.read(host, notes)
    served = services.read(host, notes, dict(settings["vllm_families"]), fetch, wanted.services)
    samples += planned.of_work(host, notes, settings["cluster"]) + gateway.of_router(host, notes)
    samples += services.of_targets(settings["slo"], served.services)
    seen["servings"] = served.servings
    for rail in seen["rails"] or ():  # the other hundred counters tell of no fault
        rail["counters"] = {name: count for name, count in rail["counters"].items() if name in errors}
    most = max(max(counts) for counts in settings["spans"].values())
    last = findings.follow(findings.kept(host, "samples", []), seen, most, settings["gap_s"])
    _keep(host, notes, "samples", last)
    reading = {"samples": last, "zones": zones, "services": served.services}
    return samples + wanted.samples + served.samples + findings.find(host, notes, reading, settings), served.text


def _keep(host: HostReader, notes: Notes, name: str, what: Any) -> None:
    notes.read(f"kept.{name}", lambda: findings.keep(host, name, what))


def _of_itself(part: str, host: HostReader, began: tuple[float, float]) -> Samples:
    passed, used = (after - before for after, before in zip(_spent(), began))
    found = sample("gb10_collector_time_seconds", round(host.time_of_day(), 2), part=part)
    found += sample("gb10_collector_seconds", round(passed, 4), part=part)
    return found + sample("gb10_collector_cpu_seconds", round(used, 4), part=part)


def _spent() -> tuple[float, float]:
    """Seconds that passed, and those of CPU with all commands that have ended."""
    times = os.times()
    return time.monotonic(), times.user + times.system + times.children_user + times.children_system


def main(argv: list[str]) -> int:
    (part,) = argv
    settings = json.loads(SETTINGS.read_text(encoding="utf-8"))
    exposition.replace(FOLDER / f"gb10_{part}.prom", collect(part, HostReader(), settings))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
