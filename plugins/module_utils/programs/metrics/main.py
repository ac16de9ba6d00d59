# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collector: one run writes one file for node_exporter. No daemon: a timer starts it, and it ends.

`now` reads what changes by the second, `history` what costs more and changes by the hour. The role `monitoring`
installs this folder, with the readers of module_utils/health that it needs, as the program of two timers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Notes

from . import exposition, history, now, services
from .exposition import Samples, sample

SETTINGS = Path("/etc/gb10-fleet/metrics.json")
FOLDER = Path("/var/lib/prometheus/node-exporter")  # where Debian's node_exporter reads


def collect(part: str, host: HostReader, settings: Mapping[str, Any], fetch: services.Fetch = services.fetch) -> str:
    """The text of one part. Nothing here raises: what cannot be read has no sample, and a line in gb10_unknown."""
    began, notes, of_vllm = _spent(), Notes(), ""
    if part == "now":
        samples = now.read(host, notes, settings["rail_errors"])
        own, of_vllm = services.read(host, notes, dict(settings["vllm_families"]), fetch)
        samples += own
    else:
        samples = history.read(host, notes, settings["recent_days"], settings["event_s"])
    for path in notes.reasons:
        samples += sample("gb10_unknown", 1, part=part, path=path)
    return exposition.render(samples + _of_itself(part, host, began)) + of_vllm


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
    sys.exit(main(sys.argv[1:]))
