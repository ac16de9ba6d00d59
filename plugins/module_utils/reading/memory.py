# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory as the kernel accounts for it: /proc/meminfo, free blocks by size, and pressure.

How free memory is cut counts: a model wants large blocks, and each server that ran leaves smaller ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, cast

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import (
    Notes,
    Part,
    Unknown,
    checked,
    quoted,
    text_of,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.values import Between

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired

MEMINFO = "/proc/meminfo"
BUDDYINFO = "/proc/buddyinfo"
PRESSURES = ("cpu", "memory", "io")
LARGE = 32 * 2**20  # bytes: what the field counts blocks in (sparkring pull requests 173 and 202)

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
# As text, so that each is compiled when it is first used: a probe needs the first two alone.
_LINE = r"^(\w+): +([0-9]{1,15}) kB$"
_ZONE = r"^Node +\d+, +zone +\w+ +(\d[\d ]*)$"
_PERCENT = r"(\d{1,3}\.\d{2})"
_PRESSURE = rf"^(some|full) avg10={_PERCENT} avg60={_PERCENT} avg300={_PERCENT} total=\d+$"


class MemoryBlocks(TypedDict):
    free_bytes: int
    large_bytes: int | None


class Memory(TypedDict):
    total_bytes: int
    free_bytes: int | None
    available_bytes: int | None
    buffers_bytes: int | None
    cached_bytes: int | None
    anonymous_bytes: int | None
    shared_bytes: int | None
    slab_bytes: int | None
    stack_bytes: int | None
    tables_bytes: int | None
    percpu_bytes: int | None
    huge_bytes: int | None
    cma_total_bytes: int | None
    cma_free_bytes: int | None


class MemoryFacts(TypedDict):
    memory_bytes: Annotated[int, Between(1, 2**63)]  # everything is a part of it
    memory_available_bytes: NotRequired[int | None]
    # of HugeTLB pages, which a model does not get
    memory_pinned_bytes: NotRequired[int | None]
    # free memory, and what of it is in blocks of 32 MiB or more; no role uses it
    memory_blocks: NotRequired[MemoryBlocks | None]


class Averages(TypedDict):
    avg10: float
    avg60: float
    avg300: float


class Pressure(TypedDict):
    some: NotRequired[Averages]
    full: NotRequired[Averages]


class Pressures(TypedDict):
    cpu: Pressure | None
    memory: Pressure | None
    io: Pressure | None


def lines(system: System) -> dict[str, int]:
    """Return the bytes of each line of /proc/meminfo, by the kernel's names; nothing where it cannot be read."""
    return _bytes(system.text(MEMINFO) or "")


def _bytes(text: str) -> dict[str, int]:
    return {name: int(count) * 1024 for name, count in re.findall(_LINE, text, re.MULTILINE)}


def read_facts(host: HostReader) -> MemoryFacts:
    """Return what spark_facts says of it."""
    bytes_of = lines(host.system)
    return {
        "memory_bytes": cast("int", bytes_of.get("MemTotal")),  # the controller refuses null
        "memory_available_bytes": bytes_of.get("MemAvailable"),
        "memory_pinned_bytes": bytes_of.get("Hugetlb"),
        "memory_blocks": Notes().read("memory_blocks", lambda: read_blocks(host)),
    }


def read_memory(host: HostReader) -> Part:
    """Return what a detector needs of it, by our names."""
    return parse_meminfo(text_of(host, MEMINFO))


def parse_meminfo(text: str) -> Part:
    found = _bytes(checked(text, MEMINFO))
    if "MemTotal" not in found:
        raise Unknown(f"{MEMINFO} has no MemTotal: {quoted(text[:200])}")
    values = {name: found.get(line) for name, line in LINES.items()}
    return values, {name: f"this kernel has no {LINES[name]}" for name, value in values.items() if value is None}


def hidden(memory: Mapping[str, Any]) -> int | None:
    """Return the bytes that no account of the kernel has. None where a line is missing, or lines contradict each other.

    What is available is a part of the accounts: free, or cache and slab that can be taken back.
    """
    accounts = [memory[name] for name in ACCOUNTS]
    if None in accounts or (memory["available_bytes"] or 0) > sum(accounts):
        return None
    lost: int = memory["total_bytes"] - sum(accounts)
    return max(0, lost)


def read_pressures(host: HostReader, notes: Notes) -> Any:
    """Return the pressure on all of them."""
    return {kind: notes.read(f"pressure.{kind}", partial(read_pressure, host, kind)) for kind in PRESSURES}


def read_pressure(host: HostReader, kind: str) -> dict[str, Any]:
    """Return the pressure on cpu, memory or io."""
    return parse_pressure(text_of(host, f"/proc/pressure/{kind}"))


def parse_pressure(text: str) -> dict[str, Any]:
    """Percent of the time in which some or all tasks waited, over 10, 60 and 300 s."""
    found = {}
    for kind, ten, sixty, three_hundred in re.findall(_PRESSURE, checked(text, "/proc/pressure"), re.MULTILINE):
        found[kind] = {"avg10": float(ten), "avg60": float(sixty), "avg300": float(three_hundred)}
    if not found:
        raise Unknown(f"/proc/pressure has no averages: {quoted(text[:200])}")
    return found


def read_oom_kills(host: HostReader) -> int:
    """Return how often the kernel killed for memory since the boot."""
    return parse_oom_kills(text_of(host, "/proc/vmstat"))


def parse_oom_kills(text: str) -> int:
    found = re.search(r"^oom_kill (\d{1,15})$", checked(text, "/proc/vmstat"), re.MULTILINE)
    if not found:
        raise Unknown("/proc/vmstat has no oom_kill")
    return int(found[1])


def read_blocks(host: HostReader) -> MemoryBlocks:
    """Return the free bytes, and those in large blocks."""
    return parse_blocks(text_of(host, BUDDYINFO), os.sysconf("SC_PAGE_SIZE"))


def parse_blocks(text: str, page_bytes: int) -> MemoryBlocks:
    """Return free bytes, and how many lie in blocks of at least LARGE; null where the kernel keeps no such blocks.

    A zone is a line; its columns count free blocks of one page, two, four and so on.
    """
    zones = re.findall(_ZONE, checked(text, BUDDYINFO), re.MULTILINE)
    if not zones:
        raise Unknown(f"{BUDDYINFO} has no zones: {quoted(text[:200])}")
    counts = [[int(word) for word in zone.split()] for zone in zones]
    blocks = [(page_bytes << order, count) for zone in counts for order, count in enumerate(zone)]
    largest = page_bytes << (max(map(len, counts)) - 1)
    return {
        "free_bytes": sum(size * count for size, count in blocks),
        "large_bytes": sum(size * count for size, count in blocks if size >= LARGE) if largest >= LARGE else None,
    }
