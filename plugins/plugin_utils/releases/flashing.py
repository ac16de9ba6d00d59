# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which firmware of a release is staged on a host: what the board's maker offers through fwupd, and no other. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import answer, boards, verdict
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.rehearsal import Known, target
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.score import three


def chosen(release: Mapping[str, Any], to: str) -> dict[str, Any]:
    """`guids` to stage, and `left`, why other firmware of the release stays. `release`: of gb10.fleet.release_facts.

    On a board of NVIDIA's a device is staged only where fwupd offers exactly the release's version. A partner's board
    has other GUIDs and other numbers, so what its maker offers is taken; where the maker offers nothing, nothing is.
    """
    if (problem := answer.problem(release)) is not None:
        return {"guids": [], "left": [f"the host's answer cannot be used: {problem}"]}
    if release["fwupd"] is None:
        return {"guids": [], "left": ["fwupd does not answer, so no firmware is staged: fwupdmgr get-devices says why"]}
    if not (board := (release["board_vendor"] or "").strip()):
        # It may be NVIDIA's, whose versions have to be compared: firmware does not go back.
        return {"guids": [], "left": ["SMBIOS names no maker of the board, so no firmware is staged"]}
    # A device without a GUID has nothing by which fwupd could be told to stage it.
    offers = [device for device in release["fwupd"] if verdict.offers_capsule(device) and device["guids"]]
    if boards.by_nvidia(board):
        return _of_nvidia(release, offers, to)
    left = [] if offers else [f"no newer firmware for the board of {board}: {verdict.no_offer(release)}"]
    return {"guids": [device["guids"][0] for device in offers], "left": left}


def _of_nvidia(release: Mapping[str, Any], offers: Sequence[Mapping[str, Any]], to: str) -> dict[str, Any]:
    known = Known(catalog.load("releases"), catalog.load("host_sets")["host_sets"], [], [], {})
    recipe = target(to, verdict.union({"": release}), known)
    guids: list[str] = []
    left: list[str] = [] if recipe else [f"no recipe of {to} is known, so no firmware of it is either"]
    for entry in recipe.entries("firmware") if recipe else ():
        device = next((each for each in offers if entry.get("guid") in each["guids"]), None)
        if device is None:
            continue
        if three(device["offers"]) == entry["version"]:
            guids.append(entry["guid"])
        else:
            left.append(f"fwupd offers {entry['name']} {three(device['offers'])}, and {to} has {entry['version']}")
    return {"guids": guids, "left": left}
