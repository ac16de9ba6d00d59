# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The section release of gb10.fleet.spark_facts: a sick or hostile host may send anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.releases.bounds import (
    MAX_ALL,
    MAX_ENTRIES,
    MAX_RECIPE,
    MAX_RECIPES,
    is_date,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import facts_schema

_PARTS = ("package", "firmware", "connectx", "software")


class Metadata(TypedDict):
    name: str
    releaseDate: str
    external_name: NotRequired[str | None]
    required_match: NotRequired[list[str] | None]


class Entry(TypedDict):
    name: str
    version: str
    guid: NotRequired[str]


class Content(TypedDict):
    metadata: Metadata
    package: NotRequired[list[Entry]]
    firmware: NotRequired[list[Entry]]
    connectx: NotRequired[list[Entry]]
    software: NotRequired[list[Entry]]


class Recipe(TypedDict):
    file: str
    sha256: str
    content: Content


class Component(TypedDict):
    component: str
    version: str


class Fwupd(TypedDict):
    name: str
    plugin: str
    guids: list[str]
    version: str
    offers: str | None


class Connectx(TypedDict):
    device: str
    version: str


class Release(TypedDict):
    recipes: list[Recipe]
    broken_recipes: list[str]
    packages: dict[str, str]
    held: list[str]
    pinned_by_us: bool
    board_vendor: str | None
    firmware: list[Component] | None
    fwupd: list[Fwupd] | None
    connectx: list[Connectx]
    kernel: str | None
    driver: str | None
    command_line: list[str]
    disks: list[facts_schema.Disk]
    reboot_required: bool


class Change(TypedDict):
    installs: dict[str, str]
    removes: list[str]
    error: str
    download_bytes: int
    disk_bytes: int


class Rehearsal(TypedDict):
    release: str | None
    set: str | None
    set_move: Change
    rest: Change
    offers_back: bool
    lists_age_s: int | None


def problem(answer: object) -> str | None:
    """The first value that is missing or of another type than it must be, in words; None where all are sound.

    Also what no reader sends: a date that is none, which would win for the whole fleet, and more than a controller
    should compare for one host.
    """
    return facts_schema.differs(answer, Release, "release") or (excess(answer) if isinstance(answer, dict) else None)


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
            shown = content["metadata"]["releaseDate"][: facts_schema.SHOWN]
            return f"{where}.metadata.releaseDate is {shown!r}, and must begin with a date, such as 2026-07-15"
        parts = [content.get(part, []) for part in _PARTS]
        if (most := max(map(len, parts))) > MAX_ENTRIES:
            return f"{where} has a list of {most} entries, and may have {MAX_ENTRIES}"
        total += sum(map(len, parts))
        texts = [text for part in parts for entry in part for text in (entry["name"], entry["version"])]
        if (size := sum(map(len, texts))) > MAX_RECIPE:
            return f"{where} has {size} characters, and may have {MAX_RECIPE}"
    return f"release.recipes have {total} entries, and may have {MAX_ALL}" if total > MAX_ALL else None
