# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the GPU does: nvidia-smi's answer as values, a state, and a reason for each value that is missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.gpu_identity import GPU_DEADLINE_S
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import (
    Part,
    Reasons,
    Unknown,
    Values,
    checked,
    number,
    quoted,
)

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
FIELDS = (*TEXTS.values(), *(field for field, _least, _most in NUMBERS.values()), REASON_BITS)
_NAMES = {field: name for name, (field, _least, _most) in NUMBERS.items()}
_UNKNOWN_FIELD = re.compile(r'Field "([\w.]+)" is not a valid field to query')
_NA = re.compile(r"\[?(N/A|Not Supported|Unknown Error|Not Available)", re.IGNORECASE)
_NO_SUCH_COMMAND, _TIME_IS_UP = 127, 124
# How nvidia-smi says that there is nothing to read, by exit status or words.
_STATES = (
    ("mismatch", 18, "version mismatch"),
    ("absent", 6, "No devices were found"),
    ("no_driver", 9, "couldn't communicate with the NVIDIA driver"),
)


def argv(fields: Sequence[str]) -> list[str]:
    return ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]


def read_gpu(host: HostReader) -> Part:
    """One reading. A field that this nvidia-smi does not know is left out, and it is asked again."""
    fields = list(FIELDS)
    while True:
        done = host.system.run(argv(fields), timeout=GPU_DEADLINE_S)
        refused = _UNKNOWN_FIELD.search(done.stdout[:LARGEST_REFUSAL])
        if not refused or refused[1] not in fields or len(fields) == 1:
            return parse(done, fields)
        fields.remove(refused[1])


def parse(done: Completed, fields: Sequence[str] = FIELDS) -> Part:
    """`state` is ok, or why there are no values: silent, absent, mismatch, no_driver, no_program, unreadable."""
    state, reason = _state(done)
    rows: list[list[str]] = []
    if state == "ok":
        try:
            lines = checked(done.stdout, "nvidia-smi").splitlines()
        except Unknown as error:
            state, reason, lines = "unreadable", str(error), []
        rows = [line.split(",") for line in lines if line.count(",") == len(fields) - 1]
    values, reasons = _values(dict(zip(fields, rows[0]))) if rows else _values({})
    if state == "ok" and not (rows and _speaks(values, rows[0])):
        state, reason = "unreadable", f"nvidia-smi gave no row of a GPU: {quoted(done.stdout[:LARGEST_REFUSAL])}"
    if state != "ok":
        return {"state": state, **dict.fromkeys((*TEXTS, *NUMBERS, "reasons"))}, {"state": reason}
    return {"state": state, **values}, reasons


def _speaks(values: Values, row: Sequence[str]) -> bool:
    """All N/A is a GPU that says nothing of itself; a row without any sense is of no GPU."""
    told = any(value is not None for name, value in values.items() if name not in TEXTS)
    return told or all(_NA.search(cell) for cell in row[len(TEXTS) :])


def _state(done: Completed) -> tuple[str, str]:
    said = quoted(f"{done.stdout[:LARGEST_REFUSAL]} {done.stderr[:LARGEST_REFUSAL]}")
    if done.rc == _TIME_IS_UP:
        return "silent", f"nvidia-smi did not end within {GPU_DEADLINE_S:g} s"
    if done.rc == _NO_SUCH_COMMAND:
        return "no_program", "nvidia-smi is not installed"
    for state, status, words in _STATES:
        if done.rc == status or (done.rc and words in said):
            return state, said or f"nvidia-smi ended with {done.rc}"
    return ("unreadable", f"nvidia-smi ended with {done.rc}: {said}") if done.rc else ("ok", "")


def _values(cells: dict[str, str]) -> Part:
    values: Values = {name: _text(cells.get(field)) for name, field in TEXTS.items()}
    reasons: Reasons = {name: "nvidia-smi does not say" for name, value in values.items() if value is None}
    for name, (field, least, most) in NUMBERS.items():
        values[name] = None
        try:
            values[name] = _number(cells.get(field), least, most)
        except Unknown as reason:
            reasons[name] = str(reason)
    values["reasons"] = _reasons(cells.get(REASON_BITS, ""))
    if values["reasons"] is None:
        reasons["reasons"] = f"nvidia-smi says {quoted(cells.get(REASON_BITS, '')) or 'nothing'}"
    return values, reasons


def _text(cell: str | None) -> str | None:
    return None if cell is None or not cell.strip() or _NA.search(cell) else quoted(cell)


def _number(cell: str | None, least: float, most: float) -> float:
    if cell is None:
        raise Unknown("this nvidia-smi does not know the field")
    if _NA.search(cell):
        raise Unknown(f"nvidia-smi says {quoted(cell)}")
    found = number(cell)
    if not least <= found <= most:
        raise Unknown(f"nvidia-smi says {found:g}, which is not possible")
    return found


def _reasons(cell: str) -> list[str] | None:
    """The names of the bits; None where nvidia-smi gives no bits."""
    found = re.match(r"\s*0x([0-9a-fA-F]{1,16})\s*\Z", cell)
    if not found:
        return None
    bits = int(found[1], 16)
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
