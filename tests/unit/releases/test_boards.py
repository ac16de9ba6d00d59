"""Two simulated boards, read from a faked root with the simulated fwupdmgr as a program, and judged: state by state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.releases.read import TABLE

from gb10_fleet import release
from lab.vendor import releases
from lab.vendor.releases import METADATA, RELEASES, Release
from tests.support.boards import APRIL, JULY, MARCH, programs, spark

HOST = dict[str, Any]


PINS = {"/etc/apt/preferences.d/10-gb10-nvidia": "x"}
OLD_FIRMWARE = {"SOCFW": APRIL.firmware["SOCFW"], "EC": APRIL.firmware["EC"]}
NEWER_FIRMWARE = {"SOCFW": "2.156.2", "EC": "3.6.1"}  # ahead of each release here
NEXT_SOC = {"SOCFW": JULY.firmware["SOCFW"]}


@pytest.mark.parametrize(
    ("board", "has", "changed", "state", "torn"),
    [
        ("nvidia", JULY, {}, "current", []),
        ("asus", JULY, {}, "current", []),
        ("nvidia", JULY, {"firmware": NEWER_FIRMWARE}, "newer", []),
        ("asus", JULY, {"firmware": NEWER_FIRMWARE}, "newer", []),
        (
            "nvidia",
            JULY,
            {"firmware": {"SOCFW": OLD_FIRMWARE["SOCFW"], "EC": NEWER_FIRMWARE["EC"]}},
            "torn",
            ["firmware"],
        ),
        ("nvidia", APRIL, {}, "behind", []),
        ("asus", MARCH, {}, "behind", []),
        ("nvidia", JULY, {"firmware": OLD_FIRMWARE}, "torn", ["firmware"]),
        ("nvidia", JULY, {"firmware": OLD_FIRMWARE, "offers": NEXT_SOC}, "torn", ["firmware"]),
        ("asus", JULY, {"firmware": OLD_FIRMWARE, "offers": NEXT_SOC}, "torn", ["firmware"]),
        ("nvidia", JULY, {"kernel": APRIL.kernel}, "torn", ["kernel"]),
        ("nvidia", JULY, {"driver": APRIL.driver}, "torn", ["driver"]),
        ("nvidia", JULY, {"kernel": APRIL.kernel, "driver": APRIL.driver}, "torn", ["kernel", "driver"]),
        ("asus", JULY, {"firmware": OLD_FIRMWARE}, "waiting_for_firmware", []),
        ("nvidia", APRIL, {"held": list(APRIL.packages), "files": PINS}, "held_by_us", []),
        ("nvidia", APRIL, {"held": list(APRIL.packages)}, "behind", []),
        ("nvidia", JULY, {"knows": ()}, "unknown", []),
        ("nvidia", JULY, {"files": {TABLE: b""}, "knows": ()}, "unknown", []),
        ("nvidia", JULY, {"files": {"/run/reboot-required": ""}}, "unknown", []),
        ("nvidia", JULY, {"files": {f"{METADATA}/spark-ota-x.json": "{"}}, "current", []),
    ],
)
def test_the_verdict_of_each_state(
    tmp_path: Path, board: str, has: Release, changed: HOST, state: str, torn: list[str]
) -> None:
    answer = spark(tmp_path, board, has, **changed)
    said = release.judged({"spark": answer})["hosts"]["spark"]
    assert (said["state"], sorted(said["torn"])) == (state, sorted(torn)), said["reason"]


def test_a_broken_recipe_is_named_and_spoils_no_other(tmp_path: Path) -> None:
    answer = spark(tmp_path, "nvidia", JULY, files={f"{METADATA}/spark-ota-x.json": "{", f"{METADATA}/y.json": "{"})
    found = release.judged({"spark": answer})
    assert found["hosts"]["spark"]["broken_recipes"] == ["spark-ota-x.json"] and found["newest"]["name"] == "OTA2607"


def test_members_of_a_cluster_on_two_boards_are_mixed_and_know_the_union(tmp_path: Path) -> None:
    one = spark(tmp_path / "a", "nvidia", JULY, cluster="pair1")
    other = spark(tmp_path / "b", "asus", JULY, cluster="pair1", knows=(MARCH, APRIL), firmware=OLD_FIRMWARE)
    found = release.judged({"spark-a": one, "spark-b": other})
    assert any(line.startswith("SOCFW: spark-a SBP:R:2.155.11, spark-b") for line in found["mixed_firmware"]["pair1"])
    assert found["hosts"]["spark-b"]["next"] == "OTA2607"


def test_a_fleet_with_a_newer_checker_is_told_of_the_next(tmp_path: Path) -> None:
    newer = spark(tmp_path / "a", "nvidia", JULY, knows=RELEASES)
    older = spark(tmp_path / "b", "nvidia", JULY)
    found = release.judged({"spark-a": newer, "spark-b": older})
    assert found["newest"]["name"] == "OTA26.09.2"
    assert {said["state"] for said in found["hosts"].values()} == {"behind"}


def test_the_simulated_fwupdmgr_stages_what_it_offers_and_nothing_twice(tmp_path: Path) -> None:
    spark(tmp_path, "nvidia", APRIL, offers=NEXT_SOC)
    run = programs(tmp_path)
    assert run(["fwupdmgr", "update", "-y", releases.GUIDS["EC"]], None, 9).rc == 2, "nothing on offer"
    assert run(["fwupdmgr", "update", "-y"], None, 9).rc == 0
    staged = json.loads((tmp_path / "run/gb10-lab/fwupd.json").read_text())["devices"]
    assert [each.get("Staged") for each in staged] == ["0x029B0B00", None, None, None]


def test_a_fwupd_that_fails_is_no_answer(tmp_path: Path) -> None:
    answer = spark(tmp_path, "nvidia", JULY, files={"/run/gb10-lab/fwupd.json": json.dumps({"fails": "no daemon"})})
    assert answer["release"]["fwupd"] is None
