# SPDX-License-Identifier: GPL-3.0-or-later
"""Detectors of memory: not given back, in small pieces, under pressure, or kept by the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import GIB, Patient, Said, Unsure
from ansible_collections.gb10.fleet.plugins.module_utils.reading.memory import ACCOUNTS, hidden

if TYPE_CHECKING:  # for types alone, which no program needs
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.memory import Memory


def _somebody_computes(patient: Patient) -> str | None:
    """Return why memory of the GPU may be in use; None where nothing computes."""
    processes = patient.reading["processes"]
    if processes is None:
        return f"what computes on the GPU is unknown: {patient.why('processes')}"
    if processes:
        return f"{len(processes)} processes compute on the GPU"
    gpu = patient.last["gpu"]  # now, as the memory
    if gpu and (gpu["utilization_percent"] or 0) >= patient.limit("load_idle_percent"):
        return "the GPU works for a program that draws, which nvidia-smi does not list"
    awake = gpu and (gpu["clock_mhz"] or 0) >= patient.limit("clock_min_mhz")
    if gpu and awake and gpu["reasons"] is not None and "gpu_idle" not in gpu["reasons"]:
        return "a program keeps the GPU awake, and nvidia-smi does not list it: one that draws has memory of its own"
    return None


def check_returned(patient: Patient) -> Iterator[Said]:
    memory, busy = patient.last["memory"], _somebody_computes(patient)
    if busy or memory is None:
        yield Unsure("memory_not_returned", busy or patient.why("memory"))
        return
    missing = [name for name in ACCOUNTS if memory[name] is None]  # type: ignore[literal-required]
    if missing:
        yield Unsure("memory_not_returned", patient.why(f"memory.{missing[0]}"))
        return
    if (lost := hidden(memory)) is None:
        yield Unsure("memory_not_returned", "the kernel says that more is available than its other figures allow")
        return
    if lost >= patient.limit("hidden_gib") * GIB:
        fact = f"{lost / GIB:.0f} GiB are in use by nobody: nothing computes, and the kernel accounts for the rest only"
        yield patient.say("memory_not_returned", fact)


def check_fragmentation(patient: Patient) -> Iterator[Said]:
    """Large free blocks, before an engine starts."""
    blocks, busy = patient.last["blocks"], _somebody_computes(patient)
    if busy or blocks is None:
        yield Unsure("memory_fragmented", busy or patient.why("blocks"))
        return
    if blocks["large_bytes"] is None:
        yield Unsure("memory_fragmented", "this kernel keeps no blocks so large")
        return
    if blocks["free_bytes"] < patient.limit("judged_from") * GIB:
        yield Unsure("memory_fragmented", f"{blocks['free_bytes'] / GIB:.0f} GiB are free; the rest hides the blocks")
    elif blocks["large_bytes"] < patient.limit("large_least") * GIB:
        yield patient.say(
            "memory_fragmented",
            f"{blocks['free_bytes'] / GIB:.0f} GiB are free, and {blocks['large_bytes'] / GIB:.1f} GiB of it in large"
            f" blocks; a start wants {patient.limit('large_least')} GiB",
        )


def check_pressure(patient: Patient) -> Iterator[Said]:
    pressure, memory = patient.last["pressure"]["memory"], patient.last["memory"]
    if pressure is None or "some" not in pressure:
        yield Unsure("memory_pressure", patient.why("pressure.memory"))
        return
    waited = pressure["some"]["avg300"]
    if waited < patient.limit("pressure_percent"):
        if pressure["some"]["avg10"] >= patient.limit("pressure_percent"):
            now = f"in {pressure['some']['avg10']:.0f} % of the last 10 s something waited for memory"
            yield Unsure("memory_pressure", f"{now}; it may pass: ask again in 5 minutes")
        return
    cached = memory["cached_bytes"] if memory else None
    fact, severity = f"in {waited:.0f} % of the last 300 s something waited for memory", ""
    if pressure["some"]["avg10"] < patient.limit("pressure_percent"):
        fact, severity = f"{fact}; it has passed", "info"
    elif pressure["some"]["avg10"] > patient.limit("spike_ratio") * waited:
        fact, severity = f"{fact}; it began less than 5 minutes ago, and may pass", "info"
    if memory and _free(memory) >= patient.limit("pressure_free") * memory["total_bytes"]:
        fact, severity = f"{fact}; most of the memory is free: a container or unit is at a limit of its own", "info"
    if memory and cached is not None and cached >= patient.limit("cache_share") * memory["total_bytes"]:
        fact = f"{fact}, while the page cache holds {cached / GIB:.0f} GiB"
        yield patient.say("page_cache_pressure", fact, severity)
    else:
        yield patient.say("memory_pressure", fact, severity)


def _free(memory: Memory) -> int:
    """What is free by both figures of the kernel."""
    return min(memory["free_bytes"] or 0, memory["available_bytes"] or 0)


def check_kho(patient: Patient) -> Iterator[Said]:
    """More free CMA than there is CMA: kexec handover keeps its scratch area there."""
    memory = patient.last["memory"]
    if memory is None or memory["cma_free_bytes"] is None or memory["cma_total_bytes"] is None:
        name = "memory" if memory is None else "memory.cma_free_bytes"
        yield Unsure("kho", patient.why(name))
        return
    free, total = memory["cma_free_bytes"], memory["cma_total_bytes"]
    if free > total:
        helped = "kho=off is on the command line of this boot, and did not help: report it with `uname -r`"
        yield patient.say(
            "kho",
            f"CmaFree ({free / GIB:.1f} GiB) is above CmaTotal ({total / GIB:.1f} GiB):"
            " kexec handover keeps memory where RDMA cannot register its buffers",
            way_out=helped if patient.reading["kho_off"] else "",
        )


CHECKS = (check_returned, check_fragmentation, check_pressure, check_kho)
