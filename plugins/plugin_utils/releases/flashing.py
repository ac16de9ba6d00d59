# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role release_update asks of a release, by the name that it was given. Pure.

Which release that is, what holds it for a host, and which firmware is staged: what the board's maker offers through
fwupd, and no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import boards, verdict
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.rehearsal import Known, target
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.rehearsal import held as troubles
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.score import Recipe, three


def named(release: Mapping[str, Any], to: str) -> str:
    """The one name of the release that is asked for; empty where neither the host nor the catalog knows it."""
    recipe = _recipe(release, to)
    return recipe.name if recipe else ""


def held(
    release: Mapping[str, Any],
    to: str,
    known_bad: Sequence[Mapping[str, Any]],
    accepted: Mapping[str, str] | None = None,
) -> list[str]:
    """Why a host is not moved to a release: its known troubles, all of them in `known_bad`; or that nobody knows it."""
    recipe = _recipe(release, to)
    return troubles(release, recipe, _known(known_bad, accepted)) if recipe else [_nobodys(to)]


def _recipe(release: Mapping[str, Any], to: str) -> Recipe | None:
    return target(to, verdict.union({"": release}), _known())


def _known(known_bad: Sequence[Mapping[str, Any]] = (), accepted: Mapping[str, str] | None = None) -> Known:
    releases = {**catalog.load("releases"), "known_bad": known_bad}
    return Known(releases, catalog.load("host_sets")["host_sets"], [], [], accepted or {})


def _nobodys(to: str) -> str:
    return f"no recipe of {to} is known, so neither are its troubles and firmware: `gb10 release` names those there are"


def chosen(release: Mapping[str, Any], to: str) -> dict[str, Any]:
    """`guids` to stage, and `left`, why other firmware of the release stays. `release`: of gb10.fleet.spark_facts.

    On a board of NVIDIA's a device is staged only where fwupd offers exactly the release's version. A partner's board
    has other GUIDs and other numbers, so what its maker offers is taken; where the maker offers nothing, nothing is.
    """
    if (recipe := _recipe(release, to)) is None:
        return {"guids": [], "left": [_nobodys(to)]}
    if release["fwupd"] is None:
        return {"guids": [], "left": ["fwupd does not answer, so no firmware is staged: fwupdmgr get-devices says why"]}
    if not (board := (release["board_vendor"] or "").strip()):
        # It may be NVIDIA's, whose versions have to be compared: firmware does not go back.
        return {"guids": [], "left": ["SMBIOS names no maker of the board, so no firmware is staged"]}
    # A device without a GUID has nothing by which fwupd could be told to stage it.
    offers = [device for device in release["fwupd"] if verdict.offers_capsule(device) and device["guids"]]
    if boards.by_nvidia(board):
        return _of_nvidia(recipe, offers)
    left = [] if offers else [f"no newer firmware for the board of {board}: {verdict.no_offer(release)}"]
    return {"guids": [device["guids"][0] for device in offers], "left": left}


def _of_nvidia(recipe: Recipe, offers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    guids: list[str] = []
    left: list[str] = []
    for entry in recipe.entries("firmware"):
        device = next((each for each in offers if entry.get("guid") in each["guids"]), None)
        if device is None:
            continue
        if three(device["offers"]) == entry["version"]:
            guids.append(entry["guid"])
        else:
            left.append(
                f"fwupd offers {entry['name']} {three(device['offers'])}, and {recipe.name} has {entry['version']}"
            )
    return {"guids": guids, "left": left}
