# SPDX-License-Identifier: GPL-3.0-or-later
"""The section release of gb10.fleet.spark_facts: a sick or hostile host may send anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.releases.bounds import (
    MAX_ALL,
    MAX_ENTRIES,
    MAX_RECIPE,
    MAX_RECIPES,
    is_date,
)
from ansible_collections.gb10.fleet.plugins.module_utils.releases.read import Release
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema

_PARTS = ("package", "firmware", "connectx", "software")


def problem(answer: object) -> str | None:
    """The first value that is missing or of another type than it must be, in words; None where all are sound.

    Also what no reader sends: a date that is none, which would win for the whole fleet, and more than a controller
    should compare for one host.
    """
    return schema.problem(answer, Release, "release") or (excess(answer) if isinstance(answer, dict) else None)


def excess(release: Mapping[str, Any]) -> str | None:
    """More than a controller should compare for one host, in words."""
    recipes = release["recipes"]
    if len(recipes) > MAX_RECIPES:
        return f"release.recipes has {len(recipes)} entries, and may have {MAX_RECIPES}"
    if len(release["packages"]) > MAX_ALL:
        return f"release.packages has {len(release['packages'])} entries, and may have {MAX_ALL}"
    total = 0
    for number, recipe in enumerate(recipes):
        content, where = recipe["content"], f"release.recipes[{number}].content"
        if not is_date(content["metadata"]["releaseDate"]):
            shown = content["metadata"]["releaseDate"][: schema.SHOWN]
            return f"{where}.metadata.releaseDate is {shown!r}, and must begin with a date, such as 2026-07-15"
        parts = [content.get(part, []) for part in _PARTS]
        if (most := max(map(len, parts))) > MAX_ENTRIES:
            return f"{where} has a list of {most} entries, and may have {MAX_ENTRIES}"
        total += sum(map(len, parts))
        texts = [text for part in parts for entry in part for text in (entry["name"], entry["version"])]
        if (size := sum(map(len, texts))) > MAX_RECIPE:
            return f"{where} has {size} characters, and may have {MAX_RECIPE}"
    return f"release.recipes have {total} entries, and may have {MAX_ALL}" if total > MAX_ALL else None
