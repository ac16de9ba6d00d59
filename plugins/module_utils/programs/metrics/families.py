# SPDX-License-Identifier: GPL-3.0-or-later
"""Every metric that the collector writes: its type, what it says, where it is read. docs/monitoring.md shows them."""

from __future__ import annotations

GAUGE, COUNTER = "gauge", "counter"
_SMI, _MEMINFO, _RDMA = "nvidia-smi", "/proc/meminfo", "/sys/class/infiniband"
_JOURNAL, _SMART, _UNIT, _SELF = "journalctl", "nvme smart-log or smartctl", "status.json of the unit", "the collector"

# name: (type, what it says, source). What was not read has no sample: an absent series is honest, a zero would be a
# figure. Whatever is missing is named by gb10_unknown.
NOW = {
    "gb10_gpu_state": (
        GAUGE,
        "1 with the state: ok, or why nothing can be read.",
        _SMI,
    ),
    "gb10_gpu_temperature_celsius": (GAUGE, "Temperature of the GPU.", _SMI),
    "gb10_gpu_temperature_margin_celsius": (GAUGE, "Degrees left until the driver slows the GPU.", _SMI),
    "gb10_gpu_power_watts": (GAUGE, "Power of the GPU alone.", _SMI),
    "gb10_gpu_clock_hertz": (GAUGE, "SM clock.", _SMI),
    "gb10_gpu_clock_max_hertz": (GAUGE, "Highest SM clock.", _SMI),
    "gb10_gpu_utilization_ratio": (GAUGE, "Share of the time in which a kernel ran, from 0 to 1.", _SMI),
    "gb10_gpu_event_reason": (GAUGE, "1 while the driver names this reason for the clock.", _SMI),
    "gb10_thermal_zone_celsius": (GAUGE, "Temperature of a thermal zone.", "/sys/class/thermal"),
    "gb10_thermal_zone_critical_celsius": (GAUGE, "Where the zone switches the machine off.", "/sys/class/thermal"),
    "gb10_sensor_celsius": (GAUGE, "Temperature of a sensor.", "/sys/class/hwmon"),
    "gb10_sensor_watts": (GAUGE, "Power of a sensor.", "/sys/class/hwmon"),
    "gb10_memory_total_bytes": (GAUGE, "Memory of the host.", _MEMINFO),
    "gb10_memory_free_bytes": (GAUGE, "Memory that nobody uses.", _MEMINFO),
    "gb10_memory_available_bytes": (GAUGE, "Memory that a program could still get.", _MEMINFO),
    "gb10_memory_cached_bytes": (GAUGE, "Page cache.", _MEMINFO),
    "gb10_memory_hidden_bytes": (
        GAUGE,
        "Memory in no account of the kernel: the GPU's, or not given back.",
        _MEMINFO,
    ),
    "gb10_memory_cma_total_bytes": (GAUGE, "CmaTotal.", _MEMINFO),
    "gb10_memory_cma_free_bytes": (GAUGE, "CmaFree; above CmaTotal, kexec handover keeps memory.", _MEMINFO),
    "gb10_memory_blocks_free_bytes": (GAUGE, "Free memory, by its blocks.", "/proc/buddyinfo"),
    "gb10_memory_blocks_large_bytes": (GAUGE, "Free memory in blocks of 32 MiB or more.", "/proc/buddyinfo"),
    "gb10_pressure_ratio": (
        GAUGE,
        "Share of the last 10, 60 or 300 s in which tasks waited.",
        "/proc/pressure",
    ),
    "gb10_oom_kills_total": (COUNTER, "How often the kernel killed for memory since the boot.", "/proc/vmstat"),
    "gb10_rail_up": (GAUGE, "1 where the port is ACTIVE.", _RDMA),
    "gb10_rail_planned": (
        GAUGE,
        "1 for a network device that the role fabric set up as a rail.",
        "the manifest of the engine",
    ),
    "gb10_rail_link_bits_per_second": (GAUGE, "Rate of the link.", _RDMA),
    "gb10_rail_pcie_lanes": (GAUGE, "PCIe lanes in use.", _RDMA),
    "gb10_rail_pcie_transfers_per_second": (GAUGE, "PCIe speed of a lane.", _RDMA),
    "gb10_rail_pcie_transfers_max_per_second": (GAUGE, "Highest PCIe speed of a lane.", _RDMA),
    "gb10_rail_errors_total": (COUNTER, "Errors of the port, by the kernel's counter.", _RDMA),
    "gb10_service_up": (GAUGE, "1 while systemd runs the unit.", "/run/systemd/units"),
    "gb10_service_wanted": (
        GAUGE,
        "1 where a role keeps the unit running; 0 while its operator has stopped it, or a request is to wake it."
        " model: as a router calls it.",
        "the manifest of the engine",
    ),
    "gb10_planned_until_seconds": (
        GAUGE,
        "When planned work on the host ends; 0 where there is none. cluster is gb10_cluster, or the host alone.",
        "gb10-planned",
    ),
    "gb10_gateway_wanted": (GAUGE, "1 where a role keeps gateway or router running.", "the manifest of the engine"),
    "gb10_gateway_up": (GAUGE, "1 while systemd runs the unit.", "/run/systemd/units"),
    "gb10_router_replica_up": (
        GAUGE,
        "1 where a replica takes requests. Of one that was taken out there is no sample.",
        "HAProxy, show servers state",
    ),
    "gb10_slo_ttft_p95_seconds": (
        GAUGE,
        "Within it 95 of 100 requests should have their first token.",
        "monitoring_slo",
    ),
    "gb10_slo_error_ratio": (GAUGE, "Share of the requests that may fail.", "monitoring_slo"),
    "gb10_service_phase": (GAUGE, "1 with the phase of the unit; ready is the last one.", _UNIT),
    "gb10_service_failures": (GAUGE, "Lives in a row that ended before the model was ready.", _UNIT),
    "gb10_service_verdict": (GAUGE, "1 with the verdict of the last failure.", _UNIT),
    "gb10_service_answers": (GAUGE, "1 where the server's /metrics answered.", "the server, on loopback"),
}
HISTORY = {
    "gb10_filesystem_free_ratio": (GAUGE, "Share of a file system that is free for programs.", "statvfs"),
    "gb10_watchdog_restarts": (
        GAUGE,
        "Restarts by the watchdog within the last event_s.",
        "/var/lib/gb10-watchdog",
    ),
    "gb10_gateway_requests_total": (
        COUNTER,
        "Requests of a client since the boot, by the class of their status. (fleet) is a router of another host.",
        "journalctl",
    ),
    "gb10_gpu_processes": (GAUGE, "Processes that compute on the GPU.", _SMI),
    "gb10_disk_worn_ratio": (GAUGE, "Used share of the writes that the maker vouches for; may pass 1.", _SMART),
    "gb10_disk_spare_ratio": (GAUGE, "Spare blocks that are left, from 0 to 1.", _SMART),
    "gb10_disk_critical_warning": (GAUGE, "Warning bits of the disk; 0 is none.", _SMART),
    "gb10_disk_media_errors_total": (COUNTER, "Errors of the medium.", _SMART),
    "gb10_disk_unsafe_shutdowns_total": (COUNTER, "Power losses that the disk has seen.", _SMART),
    "gb10_boots": (GAUGE, "Boots of the last recent_days by their end: clean or unclean.", _JOURNAL),
    "gb10_boot_former_unclean": (GAUGE, "1 where the boot before this one ended without a shutdown.", _JOURNAL),
    "gb10_boot_time_seconds": (GAUGE, "When this boot began.", "/proc/uptime, else journalctl"),
    "gb10_journal_events": (
        GAUGE,
        "Lines of the last event_s that tell of a fault; an xid with its number.",
        _JOURNAL,
    ),
}
ALWAYS = {
    "gb10_finding": (
        GAUGE,
        "1 while `gb10 why` would find this on the host. An Xid has its number in id, a line of the journal its kind.",
        _SELF,
    ),
    "gb10_unknown": (GAUGE, "1 for a value that could not be read; `gb10 why` says the reason.", _SELF),
    "gb10_collector_time_seconds": (GAUGE, "When the collector ran last, by part.", _SELF),
    "gb10_collector_interval_seconds": (GAUGE, "From one run to the next, by part, as it should be.", _SELF),
    "gb10_collector_seconds": (GAUGE, "How long its last run took.", _SELF),
    "gb10_collector_cpu_seconds": (
        GAUGE,
        "CPU of its last run and of its commands, without Python's start.",
        _SELF,
    ),
}
FAMILIES = {**NOW, **HISTORY, **ALWAYS}
