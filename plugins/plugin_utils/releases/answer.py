# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an answer of gb10.fleet.release_facts looks like: a sick or hostile host may send anything."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import facts_schema


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


def rehearsal_problem(answer: object) -> str | None:
    return facts_schema.differs(answer, Rehearsal, "rehearsal")


def problem(answer: object) -> str | None:
    """The first value that is missing or of another type than it must be, in words; None where all are sound."""
    return facts_schema.differs(answer, Release, "release")
