"""What site.yml adds to a host, compared with what catalog/baseline.yml declares."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

State = Mapping[str, Collection[str]]  # entries by their kind, as tests/fleet/on_host/baseline.py writes them
_PLACES = re.compile(r"\{(?P<variable>\w+)\}|<(?P<low>\d+)-(?P<high>\d+)>|(?P<any>\*)")


@dataclass(frozen=True)
class Row:
    """One declared entry."""

    kind: str
    name: str
    role: str
    when: str | None = None  # it is not on every host of the role

    def describes(self, entry: str, settings: Mapping[str, Any]) -> bool:
        """A variable without a value stands for anything."""
        pattern, ranges, end = "", [], 0
        for place in _PLACES.finditer(self.name):
            pattern += re.escape(self.name[end : place.start()])
            end = place.end()
            if place["low"]:
                ranges.append((int(place["low"]), int(place["high"])))
                pattern += r"(\d+)"
            else:
                value = settings.get(place["variable"]) if place["variable"] else None
                pattern += ".*" if value is None else re.escape(str(value))
        found = re.fullmatch(pattern + re.escape(self.name[end:]), entry)
        return found is not None and all(
            low <= int(number) <= high for number, (low, high) in zip(found.groups(), ranges, strict=True)
        )


@dataclass(frozen=True)
class Comparison:
    undeclared: tuple[str, ...]  # came with the run, and stands in no row of its roles
    absent: tuple[str, ...]  # stands in a row of its roles, and is not there


def declared() -> list[Row]:
    content = catalog.load("baseline")
    return [
        Row(kind, row["name"], row["role"], row.get("when")) for kind, rows in sorted(content.items()) for row in rows
    ]


def compare(
    before: State, after: State, rows: Sequence[Row], roles: Collection[str], settings: Mapping[str, Any]
) -> Comparison:
    """What `roles` did to a host, by two reads of it. What was there before is somebody else's, and may stay."""
    mine = [row for row in rows if row.role in roles]
    return Comparison(
        tuple(_undeclared(before, after, mine, settings)),
        tuple(
            f"{row.kind}: {row.name}"
            for row in mine
            if row.when is None and not any(row.describes(entry, settings) for entry in after.get(row.kind, ()))
        ),
    )


def _undeclared(before: State, after: State, rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    rows = list(rows)
    for kind in sorted(after):
        for entry in sorted({*after[kind]} - {*before.get(kind, ())}):
            if not any(row.kind == kind and row.describes(entry, settings) for row in rows):
                yield f"{kind}: {entry}"
