# SPDX-License-Identifier: GPL-3.0-or-later
"""How old the catalog is: each entry with its evidence, and those that are older than their file is believed."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

# What an entry is called by, the first that it has.
_NAMES = ("id", "name", "component", "model", "product", "claim", "value")
_LONGEST = 60


@dataclass(frozen=True)
class Entry:
    """A part of a catalog with a source and a date."""

    file: str
    where: str
    date: datetime.date

    def age(self, today: datetime.date) -> int:
        """In days."""
        return (today - self.date).days


def entries() -> list[Entry]:
    """All of catalog/*.yml, the oldest first."""
    files = sorted((catalog.collection_root() / "catalog").glob("*.yml"))
    found = [entry for file in files for entry in _entries(catalog.load(file.stem), file.stem, "")]
    return sorted(found, key=lambda entry: (entry.date, entry.file, entry.where))


def days(file: str) -> int:
    """Return how long an entry of this file is believed."""
    shelf_life = catalog.load("shelf_life")["days"]
    return int(shelf_life["value"].get(file, shelf_life["others"]))


def past(found: Sequence[Entry], today: datetime.date) -> list[Entry]:
    """Those that are older than that."""
    return [entry for entry in found if entry.age(today) > days(entry.file)]


def _entries(node: Any, file: str, where: str) -> Iterator[Entry]:
    if isinstance(node, dict):
        named_for_good = "digests" in node or "measured" in node  # by a digest or a commit, which do not move
        if "source" in node and not named_for_good and (said := _date(node.get("date"))):
            yield Entry(file, where, said)
        for key, value in node.items():
            yield from _entries(value, file, f"{where}.{key}" if where else str(key))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from _entries(value, file, f"{where}[{_name(value, number)}]")


def _name(node: Any, number: int) -> str:
    named = node if isinstance(node, dict) else {}
    text = next((str(named[name]) for name in _NAMES if isinstance(named.get(name), str | int | float)), str(number))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _date(text: Any) -> datetime.date | None:
    """A month counts as its first day."""
    try:
        return datetime.date.fromisoformat(f"{text}-01" if len(str(text)) == len("2026-11") else str(text))
    except ValueError:
        return None
