# SPDX-License-Identifier: GPL-3.0-or-later
"""How a host is at this moment, for `gb10 status` and `gb10 top`: one line of JSON for each look.

The controller sends this file with what it imports (plugin_utils/health/carried.py). What a look leaves out, journal,
disks and apt's history, is null in it: `gb10 why` reads that.
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading import counters as metrics
from ansible_collections.gb10.fleet.plugins.module_utils.reading import running, sensors
from ansible_collections.gb10.fleet.plugins.module_utils.reading.sample import read_sample
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_status import READY, parse_status
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Notes, Unknown, quoted

LINE = "GB10-GLANCE:"  # a look behind it, as JSON
DEADLINE_S = 2.0  # of a server that is asked for its counters
AGAIN_S = 1.0  # after which a single look at a server that works is followed by another: what it does in a second
Ask = Callable[[metrics.Service, float], metrics.Counters]


def look(host: HostReader, ask: Ask = metrics.ask) -> dict[str, Any]:
    """`reading` as the section health of gb10.fleet.spark_facts, with one sample; `services` each with its counters."""
    notes = Notes()
    now_s = round(host.time_of_day(), 2)
    reading = {
        "schema_version": 1,
        "at_s": now_s,
        "uptime_s": notes.read("uptime_s", lambda: running.read_uptime(host)),
        "boot": None,
        "kernel": quoted(running.read_kernel(host) or "") or None,
        "kho_off": running.read_kho_off(host),
        "firmware": None,
        "clock": {"epoch_s": now_s, "source": None, "synchronized": None},
        "samples": [{**read_sample(host, notes), "at_s": now_s}],
        "zones": notes.read("zones", lambda: sensors.read_zones(host)),
        **dict.fromkeys(("processes", "hwmon", "disks", "oom_kills", "service", "boots", "events", "apt")),
        "unknown": notes.reasons,
    }
    services = metrics.services(host.system.place("/"))
    return {"reading": reading, "services": [_service(host, one, ask) for one in services]}


def _service(host: HostReader, service: metrics.Service, ask: Ask) -> dict[str, Any]:
    """Its unit's own words, and what its server counts; `problem` says why there are no counters."""
    try:
        status, _reasons = parse_status(host.read(service.status) or "", service.status)
    except Unknown:
        status = {}
    words = {name: status.get(name) for name in ("phase", "since", "verdict")}
    counters, problem = None, None
    if service.port is not None and words["phase"] == READY:  # before and afterwards any user may have the port
        try:
            counters = ask(service, DEADLINE_S)
        except (OSError, ValueError) as error:
            problem = metrics.reason(error)
    times = {"at_s": round(host.time_of_day(), 2), "steady_s": round(host.system.clock.now(), 2)}
    return {"name": service.name, **times, **words, "counters": counters, "problem": problem}


def main(every_s: float) -> None:
    """Look at this host: once, if `every_s` is 0; else for as long as somebody listens."""
    if every_s:
        gc.enable()  # who looks for long collects; a single look ends before that pays
    host = HostReader()
    while True:
        began = time.monotonic()
        seen = look(host)
        _say(seen)
        if not every_s:
            if any((service["counters"] or {}).get("running") for service in seen["services"]):
                time.sleep(AGAIN_S)
                _say(look(host))
            break
        left_s = max(0.0, every_s - (time.monotonic() - began))
        if select.select([0], [], [], left_s)[0] and not os.read(0, 1):
            break  # the controller is gone
    os._exit(0)  # a tidy end takes as long as a look


def _say(seen: dict[str, Any]) -> None:
    try:
        sys.stdout.write(f"\n{LINE}{json.dumps(seen)}\n")
        sys.stdout.flush()
    except OSError:  # nobody listens
        os._exit(0)
