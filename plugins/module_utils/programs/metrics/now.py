# SPDX-License-Identifier: GPL-3.0-or-later
"""What changes by the second: GPU, temperatures, memory, rails."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading import gpu, memory, sensors
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Notes

from .exposition import Samples, sample

_GPU = {
    "temperature_c": ("gb10_gpu_temperature_celsius", 1),
    "tlimit_c": ("gb10_gpu_temperature_margin_celsius", 1),
    "power_w": ("gb10_gpu_power_watts", 1),
    "clock_mhz": ("gb10_gpu_clock_hertz", 10**6),
    "clock_max_mhz": ("gb10_gpu_clock_max_hertz", 10**6),
    "utilization_percent": ("gb10_gpu_utilization_ratio", 0.01),
}
_MEMORY = ("total", "free", "available", "cached", "cma_total", "cma_free")
_RAIL = {
    "width": ("gb10_rail_pcie_lanes", 1),
    "gigatransfers": ("gb10_rail_pcie_transfers_per_second", 10**9),
    "gigatransfers_max": ("gb10_rail_pcie_transfers_max_per_second", 10**9),
}


def read(
    host: HostReader, notes: Notes, seen: Mapping[str, Any], zones: list[sensors.Zone], rail_errors: Collection[str]
) -> Samples:
    """All metrics of this part. `seen`: the sample; `rail_errors`: the counters that tell of a fault."""
    found = of_gpu(seen["gpu"] or {})
    found += of_zones(zones)
    found += of_sensors(notes.read("hwmon", lambda: sensors.read_hwmon(host)) or [])
    found += of_memory(seen["memory"] or {})
    blocks = seen["blocks"] or {}
    found += sample("gb10_memory_blocks_free_bytes", blocks.get("free_bytes"))
    found += sample("gb10_memory_blocks_large_bytes", blocks.get("large_bytes"))
    for resource, read in seen["pressure"].items():
        found += of_pressure(resource, read or {})
    kills = notes.read("oom_kills", lambda: memory.read_oom_kills(host))
    found += sample("gb10_oom_kills_total", kills)
    return found + of_rails(seen["rails"] or [], rail_errors)


def of_gpu(read: Mapping[str, Any]) -> Samples:
    if not read:
        return []
    found = sample("gb10_gpu_state", 1, state=read["state"])
    for key, (name, factor) in _GPU.items():
        found += sample(name, None if read[key] is None else read[key] * factor)
    if read["reasons"] is not None:
        for reason in sorted({*gpu.REASONS.values(), *read["reasons"]}):
            found += sample("gb10_gpu_event_reason", reason in read["reasons"], reason=reason)
    return found


def of_zones(zones: list[sensors.Zone]) -> Samples:
    found: Samples = []
    for zone in zones:
        labels = {"zone": zone["zone"], "type": zone["type"]}
        found += sample("gb10_thermal_zone_celsius", zone["temperature_c"], **labels)
        found += sample("gb10_thermal_zone_critical_celsius", zone["critical_c"], **labels)
    return found


def of_sensors(read: list[sensors.Sensor]) -> Samples:
    units = {"temperature_c": "gb10_sensor_celsius", "power_w": "gb10_sensor_watts"}
    found: Samples = []
    for sensor in read:
        found += sample(units[sensor["unit"]], sensor["value"], chip=sensor["chip"], label=sensor["label"])
    return found


def of_memory(read: Mapping[str, Any]) -> Samples:
    if not read:
        return []
    found: Samples = []
    for key in _MEMORY:
        found += sample(f"gb10_memory_{key}_bytes", read[f"{key}_bytes"])
    # What is in none of these accounts is the GPU's, or was not given back.
    return found + sample("gb10_memory_hidden_bytes", memory.hidden(read))


def of_pressure(resource: str, read: Mapping[str, Mapping[str, float]]) -> Samples:
    found: Samples = []
    for tasks, averages in read.items():
        for window in ("10", "60", "300"):
            value = averages[f"avg{window}"] / 100
            found += sample("gb10_pressure_ratio", value, resource=resource, tasks=tasks, window_seconds=window)
    return found


def of_rails(read: list[dict[str, Any]], errors: Collection[str]) -> Samples:
    found: Samples = []
    for rail in read:
        labels = {"hca": rail["hca"], "port": rail["port"], "netdev": rail["netdev"]}
        if rail["state"] is not None:
            found += sample("gb10_rail_up", rail["state"] == "ACTIVE", **labels)
        rate = rail["rate_gbps"]
        found += sample("gb10_rail_link_bits_per_second", None if rate is None else rate * 10**9, **labels)
        for key, (name, factor) in _RAIL.items():
            value = rail["pcie"][key]
            found += sample(name, None if value is None else value * factor, **labels)
        for counter in errors:  # also at 0: a rise from nothing would not be seen
            found += sample("gb10_rail_errors_total", rail["counters"].get(counter, 0), counter=counter, **labels)
    return found
