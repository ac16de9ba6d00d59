# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks that the modules which take lists of tests share: an error names the entry and the field."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

# For how long an end waits for the other one, and after how long every test is ended, unless the task says otherwise.
PAIRING_TIMEOUT_S, DEADLINE_S = 60, 180
# What a bandwidth test can be told, with the least and the most of each.
MEASURING = (("qps", 1, 16384), ("message_bytes", 1, 2**30), ("duration_s", 2, 3600), ("qp_timeout", 1, 31))


def check_ipv4(where: str, entry: object, fields: Iterable[str]) -> None:
    """Raise ValueError for the first of the fields that is no IPv4 address."""
    for field in fields:
        try:
            ipaddress.IPv4Address(getattr(entry, field))
        except ValueError as error:
            raise ValueError(f"{where}.{field} is no IPv4 address: {error}") from error


def check_ranges(where: str, entry: object, ranges: Iterable[tuple[str, int, int]]) -> None:
    """Raise ValueError for the first ``(field, least, most)`` whose number is outside; both ends belong to it."""
    for field, least, most in ranges:
        value = getattr(entry, field)
        if not least <= value <= most:
            raise ValueError(f"{where}.{field} {value} is not between {least} and {most}")
