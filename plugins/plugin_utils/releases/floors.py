# SPDX-License-Identifier: GPL-3.0-or-later
"""What a version of a component has against it, by catalog/security_floors.yml. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks.coherence import numbers


def faults(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What a component may have, the newest fault first."""
    yield entry
    yield from ({**entry, **each} for each in entry.get("older", ()))


def is_faulty(version: str, entry: Mapping[str, Any]) -> bool:
    """Return whether a version has what the entry warns of: it is below the floor, and not older than the fault."""
    return is_below(version, str(entry["value"])) and not is_below(version, str(entry.get("since", "0")))


def is_below(version: str, floor: str) -> bool:
    return numbers(version) < numbers(floor)
