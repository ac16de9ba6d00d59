# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory as the kernel accounts for it: /proc/meminfo, free blocks by size, and pressure."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading import memory_blocks
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Part, Unknown, checked, quoted

# What a detector needs, by the kernel's names.
LINES = {
    "total_bytes": "MemTotal",
    "free_bytes": "MemFree",
    "available_bytes": "MemAvailable",
    "buffers_bytes": "Buffers",
    "cached_bytes": "Cached",
    "anonymous_bytes": "AnonPages",
    "shared_bytes": "Shmem",
    "slab_bytes": "Slab",
    "stack_bytes": "KernelStack",
    "tables_bytes": "PageTables",
    "percpu_bytes": "Percpu",
    "huge_bytes": "Hugetlb",
    "cma_total_bytes": "CmaTotal",
    "cma_free_bytes": "CmaFree",
}
# What the kernel accounts for. CmaFree is a part of MemFree, Shmem of Cached.
ACCOUNTS = (
    *("free_bytes", "buffers_bytes", "cached_bytes", "anonymous_bytes", "slab_bytes"),
    *("stack_bytes", "tables_bytes", "percpu_bytes", "huge_bytes"),
)
_LINE = re.compile(r"^(\w+): +(\d{1,15}) kB$", re.MULTILINE)
_PERCENT = r"(\d{1,3}\.\d{2})"
_PRESSURE = re.compile(rf"^(some|full) avg10={_PERCENT} avg60={_PERCENT} avg300={_PERCENT} total=\d+$", re.MULTILINE)


def parse_meminfo(text: str) -> Part:
    found = {name: int(count) * 1024 for name, count in _LINE.findall(checked(text, "/proc/meminfo"))}
    if "MemTotal" not in found:
        raise Unknown(f"/proc/meminfo has no MemTotal: {quoted(text[:200])}")
    values = {name: found.get(line) for name, line in LINES.items()}
    return values, {name: f"this kernel has no {LINES[name]}" for name, value in values.items() if value is None}


def parse_pressure(text: str) -> dict[str, Any]:
    """Percent of the time in which some or all tasks waited, over 10, 60 and 300 s."""
    found = {}
    for kind, ten, sixty, three_hundred in _PRESSURE.findall(checked(text, "/proc/pressure")):
        found[kind] = {"avg10": float(ten), "avg60": float(sixty), "avg300": float(three_hundred)}
    if not found:
        raise Unknown(f"/proc/pressure has no averages: {quoted(text[:200])}")
    return found


def parse_oom_kills(text: str) -> int:
    """How often the kernel killed for memory since the boot."""
    found = re.search(r"^oom_kill (\d{1,15})$", checked(text, "/proc/vmstat"), re.MULTILINE)
    if not found:
        raise Unknown("/proc/vmstat has no oom_kill")
    return int(found[1])


def parse_blocks(text: str, page_bytes: int) -> dict[str, Any]:
    """Free bytes, and those in large blocks, as the facts have them."""
    found = memory_blocks.blocks(checked(text, "/proc/buddyinfo"), page_bytes)
    if found is None:
        raise Unknown(f"/proc/buddyinfo has no zones: {quoted(text[:200])}")
    return found
