# SPDX-License-Identifier: GPL-3.0-or-later
"""The firmware inventory of a machine: structures of type 45 in the SMBIOS table (DSP0134, 7.46)."""

from __future__ import annotations

from typing import TypedDict

FIRMWARE, END = 45, 127
_HEADER = 4  # type, length, handle


class FirmwareEntry(TypedDict):
    component: str
    version: str


def firmware_entries(table: bytes) -> list[FirmwareEntry] | None:
    """Component and version of each, in the order of the table. None where it has no firmware or is damaged: what is
    missing then is not known, and no firmware that a release misses."""
    found: list[FirmwareEntry] = [
        {"component": _string(strings, area[4]), "version": _string(strings, area[5])}
        for kind, area, strings in _structures(table) or ()
        if kind == FIRMWARE and len(area) > 5
    ]
    return found or None


def _structures(table: bytes) -> list[tuple[int, bytes, list[bytes]]] | None:
    """None where the table ends before its end mark."""
    place = 0
    found: list[tuple[int, bytes, list[bytes]]] = []
    while place + _HEADER <= len(table):
        kind, length = table[place], table[place + 1]
        if kind == END:
            return found
        end = table.find(b"\0\0", place + length)
        if length < _HEADER or end < 0:
            return None
        found.append((kind, table[place : place + length], table[place + length : end].split(b"\0")))
        place = end + 2
    return None


def _string(strings: list[bytes], number: int) -> str:
    """SMBIOS counts them from 1; 0 is none."""
    return strings[number - 1].decode("ascii", "replace").strip() if 0 < number <= len(strings) else ""
