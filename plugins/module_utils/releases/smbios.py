# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firmware inventory of a machine: structures of type 45 in the SMBIOS table (DSP0134, 7.46)."""

from __future__ import annotations

from collections.abc import Iterator

FirmwareEntry = dict[str, str]  # component, version
FIRMWARE, END = 45, 127
_HEADER = 4  # type, length, handle


def firmware_entries(table: bytes) -> list[FirmwareEntry]:
    """Component and version of each, in the order of the table; a damaged table ends where it is damaged."""
    return [
        {"component": _string(strings, area[4]), "version": _string(strings, area[5])}
        for kind, area, strings in _structures(table)
        if kind == FIRMWARE and len(area) > 5
    ]


def _structures(table: bytes) -> Iterator[tuple[int, bytes, list[bytes]]]:
    place = 0
    while place + _HEADER <= len(table):
        kind, length = table[place], table[place + 1]
        end = table.find(b"\0\0", place + length)
        if length < _HEADER or end < 0 or kind == END:
            return
        yield kind, table[place : place + length], table[place + length : end].split(b"\0")
        place = end + 2


def _string(strings: list[bytes], number: int) -> str:
    """SMBIOS counts them from 1; 0 is none."""
    return strings[number - 1].decode("ascii", "replace").strip() if 0 < number <= len(strings) else ""
