"""`gb10 release` of a fleet: three published machines and one that says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from gb10_fleet import release
from tests.unit.releases.test_scores import RECIPES, machine

OWN = [{"file": "x", "sha256": recipe.name, "content": dict(recipe.content)} for recipe in RECIPES]
SILENT = {
    "recipes": [], "broken_recipes": ["spark-ota-1.json"], "packages": {}, "held": [], "pinned_by_us": False,
    "board_vendor": None, "firmware": None, "fwupd": None, "connectx": [], "kernel": None, "driver": None,
    "command_line": [], "reboot_required": False, "disks": [],
}  # fmt: skip
ANSWERS = {
    "spark-a": {"release": machine("a", recipes=OWN), "cluster": "pair1"},
    "spark-b": {"release": machine("b"), "cluster": "pair1"},
    "spark-d": {"release": SILENT, "cluster": ""},
}


def test_who_has_what_what_is_next_and_what_blocks_it() -> None:
    found = release.judged(ANSWERS)
    assert found["newest"]["name"] == "OTA2607"
    assert {host: said["state"] for host, said in found["hosts"].items()} == {
        "spark-a": "current", "spark-b": "waiting_for_firmware", "spark-d": "unknown",
    }  # fmt: skip
    assert found["hosts"]["spark-b"]["next"] == "OTA2607", "known from the recipes of the other host"
    assert found["hosts"]["spark-b"]["blocks"] != []
    assert list(found["mixed_firmware"]) == ["pair1"]
    assert found["hosts"]["spark-a"]["recipes"] == {recipe.name: recipe.name for recipe in RECIPES}


def test_the_table() -> None:
    lines = list(release.table(release.judged(ANSWERS)))
    assert lines[0].split() == ["host", "release", "state", "next", "set"]
    assert lines[1].split() == ["spark-a", "OTA2607", "(July", "2026)", "current", "-", "-"]
    text = "\n".join(lines)
    assert "    blocked: firmware not published by ASUSTeK COMPUTER INC.: EC, EC Unfused, SOCFW" in text
    assert "still brings 580.159.03" in text
    assert "    recipe that cannot be read: spark-ota-1.json" in text
    assert "pair1: mixed firmware" in text
    assert lines[-1] == "newest release that these hosts know: OTA2607 (2026-07-15)"
    assert "7.5.0" not in text, "a stamp is no release"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"recipes": [{"file": "x", "sha256": "x", "content": {"metadata": {"name": 7}}}]}, "releaseDate is missing"),
        ({"packages": {"x": []}}, "release.packages.x"),
        ({"firmware": "x"}, "release.firmware"),
        ({"fwupd": [{}]}, "is missing"),
        ({"command_line": None}, "release.command_line"),
    ],
)
def test_a_hostile_answer_is_named_and_spoils_no_other(changed: dict[str, Any], says: str) -> None:
    found = release.judged({**ANSWERS, "spark-x": {"release": {**SILENT, **changed}, "cluster": "pair1"}})
    assert found["hosts"]["spark-x"]["state"] == "unknown"
    assert says in found["hosts"]["spark-x"]["reason"]
    assert found["hosts"]["spark-a"]["state"] == "current"
    assert "spark-x" in "\n".join(release.table(found))


def test_no_host_answered() -> None:
    assert list(release.table(release.judged({}))) == []
