# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run changed, one line for each resource as a drift scan has them: Ansible's `diff`, which callbacks print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import effort, output

Place = tuple[str, str]  # role and resource
FLEET_LINES = 60  # on a terminal; a document has them all


def lines(host: str, changes: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line for each resource, in columns."""
    return columns([(host, *place, what) for place, what in _by_resource(changes).items()])


def of_fleet(changes: Mapping[str, Iterable[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return what was changed, and on which hosts: the same on many is one row, `{hosts, role, resource, what}`."""
    hosts: dict[tuple[str, str, str], list[str]] = {}
    for host, own in changes.items():
        for place, what in _by_resource(own).items():
            hosts.setdefault((*place, what), []).append(host)
    return [
        {"hosts": names, "role": role, "resource": resource, "what": what}
        for (role, resource, what), names in hosts.items()
    ]


def fleet_lines(changes: Mapping[str, Iterable[Mapping[str, Any]]], more: str) -> list[str]:
    """Its rows for a terminal. `more` says where those are that do not fit."""
    rows: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in of_fleet(changes):
        rows.setdefault(tuple(row["hosts"]), []).append(row)
    shown, left = output.shares(rows, FLEET_LINES)
    said = columns(
        [
            (output.some(row["hosts"]), row["role"], row["resource"], row["what"])
            for own in shown.values()
            for row in own
        ]
    )
    return [*said, *([f"... and {left} lines more: {more}"] if left else [])]


def _by_resource(changes: Iterable[Mapping[str, Any]]) -> dict[Place, str]:
    """Two steps of one resource, such as enable and start, are one."""
    said: dict[Place, list[str]] = {}
    for change in changes:
        words = ": ".join(filter(None, (change.get("action"), change.get("detail"))))
        said.setdefault((str(change["role"]), str(change["resource"])), []).append(words)
    return {place: "; ".join(words) for place, words in said.items()}


def columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of them, without what would steer a terminal."""
    return output.columns([tuple(map(output.printable, row)) for row in rows])


def diff(host: str, answer: Mapping[str, Any], *, whole: bool, more: Sequence[str] = ()) -> list[dict[str, str]]:
    """The engine's own diff where the operator asked for it (`whole`), else one line for each resource.

    `more`: lines that follow.
    """
    named = [] if whole else lines(host, answer["changes"])
    return [*(effort.quick(answer["diff"]) if whole else ()), *({"prepared": f"{line}\n"} for line in (*named, *more))]


def left_behind(changes: Iterable[Mapping[str, Any]], known: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what the packages and files that were removed leave on the host; `known`, by name, is the catalog's."""
    gone = [change["resource"].partition(":")[2] for change in changes if change.get("action") == "remove"]
    return [text for name, texts in known.items() if name in gone for text in texts]
