"""Readings of a host's health: a healthy Spark, and what a test changes of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import Reading
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.limits import rules

NOW = 1_795_420_800.0  # 2026-11-23, some time of the day
BOOT, FORMER = "b00700000002", "b00700000001"
MIB, GIB = 2**20, 2**30
RULES = rules()

Record = dict[str, Any]


def problem(record: object) -> str | None:
    """Say what of a reading the controller would refuse."""
    return schema.problem(record, Reading, "health")


def gpu(clock: float | None = 208, power: float | None = 4.5, busy: float | None = 0, **more: Any) -> Record:
    """Idle, if nothing else is said."""
    reasons = ["gpu_idle"] if not busy else []
    own = {
        "state": "ok", "name": "NVIDIA GB10", "driver": "580.142", "pstate": "P0" if busy else "P8",
        "temperature_c": 40.0, "tlimit_c": None, "power_w": power, "clock_mhz": clock, "clock_max_mhz": 3003.0,
        "utilization_percent": busy, "reasons": reasons,
    }  # fmt: skip
    return {**own, **more}


def silent(state: str) -> Record:
    return {**dict.fromkeys(gpu()), "state": state}


def serving(running: float = 0, tokens: float = 1000) -> Record:
    return {"running": running, "waiting": 0.0, "generated_tokens": tokens, "prompt_tokens": 5000.0}


MEMORY: Record = {
    "total_bytes": 121 * GIB, "free_bytes": 100 * GIB, "available_bytes": 110 * GIB, "buffers_bytes": GIB,
    "cached_bytes": 10 * GIB, "anonymous_bytes": 6 * GIB, "shared_bytes": 0, "slab_bytes": 2 * GIB,
    "stack_bytes": 0, "tables_bytes": 0, "percpu_bytes": 0, "huge_bytes": 0, "cma_total_bytes": 0, "cma_free_bytes": 0,
}  # fmt: skip
QUIET = {"some": {"avg10": 0.0, "avg60": 0.0, "avg300": 0.0}, "full": {"avg10": 0.0, "avg60": 0.0, "avg300": 0.0}}


def rail(**more: Any) -> Record:
    pcie = {"width": 4.0, "width_max": 4.0, "gigatransfers": 32.0, "gigatransfers_max": 32.0, **more.pop("pcie", {})}
    own = {
        "hca": "rocep1s0f0", "port": "1", "netdev": "enp1s0f0np0", "state": "ACTIVE", "carrier": True,
        "rate_gbps": 200.0, "pcie": pcie, "counters": {"out_of_sequence": 7},
    }  # fmt: skip
    return {**own, **more}


def sample(at_s: float = NOW, **more: Any) -> Record:
    own = {
        "at_s": at_s, "gpu": gpu(), "serving": None, "memory": copy.deepcopy(MEMORY),
        "blocks": {"free_bytes": 100 * GIB, "large_bytes": 40 * GIB},
        "pressure": {"cpu": QUIET, "memory": QUIET, "io": QUIET}, "rails": [rail()],
    }  # fmt: skip
    return {**own, **more}


def reading(samples: Sequence[Record] | None = None, **more: Any) -> Record:
    """With two samples of an idle host, if none are given."""
    own = {
        "schema_version": 1, "at_s": NOW, "uptime_s": 3600.0, "boot": BOOT, "kernel": "6.17.0-1014-nvidia",
        "kho_off": False, "firmware": "5.36", "clock": {"epoch_s": NOW, "source": "chrony", "synchronized": None},
        "samples": list(samples) if samples else [sample(NOW - 1), sample()], "processes": [],
        "zones": [{"zone": "thermal_zone0", "type": "acpitz", "temperature_c": 52.0, "critical_c": None}],
        "hwmon": [], "disks": [disk()], "oom_kills": 0, "service": None,
        "boots": [boot(FORMER, NOW - 90000, NOW - 3700, clean=True), boot(BOOT, NOW - 3600, NOW)],
        "events": [], "apt": [], "unknown": {},
    }  # fmt: skip
    return {**own, **more}


def disk(**more: Any) -> Record:
    own = {
        "disk": "nvme0", "model": "made up", "used_percent": 1, "spare_percent": 100, "spare_least_percent": 10,
        "critical_warning": 0, "media_errors": 0, "unsafe_shutdowns": 3, "power_cycles": 40,
    }  # fmt: skip
    return {**own, **more}


def room(path: str, free_gib: float, mount: str = "/", size_gib: float = 916) -> Record:
    return {"path": path, "mount": mount, "size_bytes": int(size_gib * GIB), "free_bytes": int(free_gib * GIB)}


def boot(name: str, first_s: float, last_s: float, *, clean: bool | None = None, lines: Sequence[str] = ()) -> Record:
    last = [{"at_s": last_s - 1, "text": line} for line in lines]
    return {"boot": name, "first_s": first_s, "last_s": last_s, "clean": clean, "last_lines": last}


def event(kind: str, at_s: float, key: str = "", text: str = "", of_boot: str = BOOT, count: int = 1) -> Record:
    told = text or f"{kind} {key}".strip()
    return {"at_s": at_s, "last_s": at_s, "count": count, "boot": of_boot, "kind": kind, "key": key, "text": told}


def upgrade(at_s: float, name: str, before: str, after: str) -> Record:
    package = {"name": name, "action": "upgrade", "before": before, "after": after}
    return {"at_s": at_s, "command": "apt upgrade", "packages": [package], "others": 3}
