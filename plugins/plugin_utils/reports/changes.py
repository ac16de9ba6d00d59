# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run changed, one line for each resource as a drift scan has them: Ansible's `diff`, which callbacks print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils import output


def lines(host: str, changes: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line for each change, in columns. Two steps of one resource, such as enable and start, are one line."""
    said: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        words = ": ".join(filter(None, (change.get("action"), change.get("detail"))))
        said.setdefault((str(change["role"]), str(change["resource"])), []).append(words)
    rows = [tuple(map(output.printable, (host, *place, "; ".join(words)))) for place, words in said.items()]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    return ["  ".join([*map(str.ljust, row, widths), row[-1]]) for row in rows]


def diff(host: str, answer: Mapping[str, Any], *, whole: bool, more: Sequence[str] = ()) -> list[dict[str, str]]:
    """The engine's own diff where the operator asked for it (`whole`), else one line for each resource.

    `more`: lines that follow.
    """
    named = [] if whole else lines(host, answer["changes"])
    return [*(answer["diff"] if whole else ()), *({"prepared": f"{line}\n"} for line in (*named, *more))]


def left_behind(changes: Iterable[Mapping[str, Any]], known: Mapping[str, Sequence[str]]) -> list[str]:
    """What the packages that were removed leave on the host; `known`, by package, is the catalog's."""
    gone = [change["resource"].partition(":")[2] for change in changes if change.get("action") == "remove"]
    return [text for package, texts in known.items() if package in gone for text in texts]
