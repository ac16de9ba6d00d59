# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU, by nvidia-smi: the only file that asks it for values, and reads what it answers.

Each caller says which fields it needs, and how long it waits: `read_gpu` for health, `read_identity` for the facts, and
`argv`, `row` and `values` for programs with a runner of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import NOT_ENDED, Completed
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import (
    Part,
    Reasons,
    Unknown,
    Values,
    checked,
    number,
    quoted,
)

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired

GPU_DEADLINE_S = 10.0  # a driver that has lost its GPU can let nvidia-smi hang for ever
LARGEST_REFUSAL = 1000  # characters of an answer that is no row
TEXTS = {"name": "name", "driver": "driver_version", "pstate": "pstate"}
# With what is possible at all: outside of it a number is garbage.
NUMBERS = {
    "temperature_c": ("temperature.gpu", -40, 200),
    "tlimit_c": ("temperature.gpu.tlimit", -200, 200),
    "power_w": ("power.draw", 0, 2000),
    "clock_mhz": ("clocks.sm", 0, 10000),
    "clock_max_mhz": ("clocks.max.sm", 0, 10000),
    "utilization_percent": ("utilization.gpu", 0, 100),
}
REASON_BITS = "clocks_event_reasons.active"
REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}
# Those that a driver gives when it lowers the clock of a busy GPU. Left out: what is normal on a GB10 (idle, settings,
# the software's power cap).
THROTTLING = {bit: REASONS[bit] for bit in (0x8, 0x20, 0x40, 0x80)}
FIELDS = (*TEXTS.values(), *(field for field, _least, _most in NUMBERS.values()), REASON_BITS)
_IDENTITY = ("name", "driver_version", "temperature.gpu", "power.draw")
# As text, so that each is compiled when it is first used: a probe needs the second alone.
_UNKNOWN_FIELD = r'Field "([\w.]+)" is not a valid field to query'
_LOST = ("GPU is lost", "GPU requires reset")  # nvmlErrorString, also in single cells while it goes
_NA = r"\[?(N/A|Not Supported|Unknown Error|Not Available)"
_NO_SUCH_COMMAND = 127
# How nvidia-smi says that there is nothing to read, by exit status or words.
_STATES = (
    ("mismatch", 18, "version mismatch"),
    ("absent", 6, "No devices were found"),
    ("no_driver", 9, "couldn't communicate with the NVIDIA driver"),
    ("no_driver", 12, "couldn't find libnvidia-ml.so"),
    ("absent", 15, "Unable to determine the device handle"),
    ("absent", 15, "Failed to initialize NVML: Unknown Error"),
    *(("absent", 15, words) for words in _LOST),
)


class Identity(TypedDict):
    present: bool
    state: NotRequired[str]  # as in Gpu
    name: str | None
    driver: str | None
    temperature_c: float | None
    power_w: float | None
    query_error: str | None


class Gpu(TypedDict):
    state: str
    name: str | None
    driver: str | None
    pstate: str | None
    temperature_c: float | None
    tlimit_c: float | None
    power_w: float | None
    clock_mhz: float | None
    clock_max_mhz: float | None
    utilization_percent: float | None
    reasons: list[str] | None


class Process(TypedDict):
    pid: int
    memory_mib: int | None


def argv(fields: Sequence[str]) -> list[str]:
    """Return the question for these fields of nvidia-smi."""
    return ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]


def read_gpu(host: HostReader) -> Part:
    """One reading. A field that this nvidia-smi does not know is left out, and it is asked again."""
    fields = list(FIELDS)
    while True:
        done = host.system.run(argv(fields), timeout=GPU_DEADLINE_S)
        refused = re.search(_UNKNOWN_FIELD, done.stdout[:LARGEST_REFUSAL])
        if not refused or refused[1] not in fields or len(fields) == 1:
            return parse(done, fields)
        fields.remove(refused[1])


def parse(done: Completed, fields: Sequence[str] = FIELDS) -> Part:
    """`state` is ok, or why there are no values: silent, absent, mismatch, no_driver, no_program, unreadable."""
    state, reason = _state(done)
    cells: dict[str, str] = {}
    if state == "ok":
        try:
            cells = row(checked(done.stdout, "nvidia-smi"), fields)
        except Unknown as error:
            state, reason = "unreadable", str(error)
    found, reasons = values(cells)
    if state == "ok" and not (cells and _speaks(found, cells)):
        state, reason = "unreadable", f"nvidia-smi gave no row of a GPU: {quoted(done.stdout[:LARGEST_REFUSAL])}"
    lost = next((cell for cell in cells.values() if any(words in cell for words in _LOST)), "")
    if lost:
        state, reason = "absent", f"nvidia-smi says {quoted(lost)}"
    if state != "ok":
        return {"state": state, **dict.fromkeys((*TEXTS, *NUMBERS, "reasons"))}, {"state": reason}
    return {"state": state, **found}, reasons


def read_identity(host: HostReader) -> Identity:
    """Return the GPU as the facts have it. Memory is [N/A] on a GB10: use memory_bytes."""
    done = host.system.run(argv(_IDENTITY), timeout=GPU_DEADLINE_S)
    cells = row(done.stdout, _IDENTITY) if done.rc == 0 else {}
    error = done.words if done.rc else "nvidia-smi listed no GPU"
    found, _reasons = values(cells)
    return {
        "present": bool(cells),
        "state": "ok" if cells else _state(done)[0] if done.rc else "unreadable",
        "name": found["name"],
        "driver": found["driver"],
        "temperature_c": found["temperature_c"],
        "power_w": found["power_w"],
        "query_error": None if cells else error[:300],
    }


def row(text: str, fields: Sequence[str]) -> dict[str, str]:
    """Return the cells of the first GPU by their fields; nothing where no line has as many."""
    lines = (line.split(",") for line in text.splitlines() if line.count(",") == len(fields) - 1)
    return dict(zip(fields, next(lines, [])))


def _speaks(found: Values, cells: Mapping[str, str]) -> bool:
    """All N/A is a GPU that says nothing of itself; a row without any sense is of no GPU."""
    told = any(value is not None for name, value in found.items() if name not in TEXTS)
    return told or all(_absent(cell) for field, cell in cells.items() if field not in TEXTS.values())


def _state(done: Completed) -> tuple[str, str]:
    said = quoted(f"{done.stdout[:LARGEST_REFUSAL]} {done.stderr[:LARGEST_REFUSAL]}")
    if done.rc == NOT_ENDED:
        return "silent", f"nvidia-smi did not end within {GPU_DEADLINE_S:g} s"
    if done.rc == _NO_SUCH_COMMAND:
        return "no_program", "nvidia-smi is not installed"
    for state, status, words in _STATES:
        if done.rc == status or (done.rc and words in said):
            return state, said or f"nvidia-smi ended with {done.rc}"
    return ("unreadable", f"nvidia-smi ended with {done.rc}: {said}") if done.rc else ("ok", "")


def values(cells: Mapping[str, str]) -> Part:
    """Return the values of a row by our names, None for each that was not asked or not said."""
    found: Values = {name: _text(cells.get(field)) for name, field in TEXTS.items()}
    reasons: Reasons = {name: "nvidia-smi does not say" for name, value in found.items() if value is None}
    for name, (field, least, most) in NUMBERS.items():
        found[name] = None
        try:
            found[name] = _number(cells.get(field), least, most)
        except Unknown as reason:
            reasons[name] = str(reason)
    bits = reason_bits(cells)
    found["reasons"] = None if bits is None else _names(bits)
    if bits is None:
        reasons["reasons"] = f"nvidia-smi says {quoted(cells.get(REASON_BITS, '')) or 'nothing'}"
    return found, reasons


def _text(cell: str | None) -> str | None:
    return None if cell is None or not cell.strip() or _absent(cell) else quoted(cell)


def _number(cell: str | None, least: float, most: float) -> float:
    if cell is None:
        raise Unknown("this nvidia-smi does not know the field")
    if _absent(cell):
        raise Unknown(f"nvidia-smi says {quoted(cell)}")
    found = number(cell)
    if not least <= found <= most:
        raise Unknown(f"nvidia-smi says {found:g}, which is not possible")
    return found


def _absent(cell: str) -> bool:
    return re.search(_NA, cell, re.IGNORECASE) is not None


def reason_bits(cells: Mapping[str, str]) -> int | None:
    """Return the bits of the reasons for the clock; None where nvidia-smi gives none."""
    found = re.match(r"\s*0x([0-9a-fA-F]{1,16})\s*\Z", cells.get(REASON_BITS, ""))
    return int(found[1], 16) if found else None


def _names(bits: int) -> list[str]:
    unnamed = bits & ~sum(REASONS)
    return [name for bit, name in REASONS.items() if bits & bit] + ([f"0x{unnamed:x}"] if unnamed else [])


def read_processes(host: HostReader) -> list[dict[str, Any]]:
    """Processes that compute on the GPU, with their memory in MiB; None where nvidia-smi gives none."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    return parse_processes(host.system.run(query, timeout=GPU_DEADLINE_S))


def parse_processes(done: Completed) -> list[dict[str, Any]]:
    if done.rc:
        raise Unknown(_state(done)[1])
    if not done.stdout.strip():
        return []
    lines = checked(done.stdout, "nvidia-smi").splitlines()
    rows = [found for found in (re.match(r"\s*(\d{1,10}), *(.*)\Z", line) for line in lines) if found]
    if len(rows) != len([line for line in lines if line.strip()]):
        raise Unknown(f"nvidia-smi gave no list of processes: {quoted(done.stdout[:LARGEST_REFUSAL])}")
    return [{"pid": int(row[1]), "memory_mib": int(row[2]) if row[2].isdigit() else None} for row in rows]
