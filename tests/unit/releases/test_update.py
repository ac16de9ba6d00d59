"""The parts of a release that are no host set: which packages and which firmware, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.releases import update
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, Completed, HostError, System
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import evidence, flashing

from tests.support.release_machines import GUIDS, JULY, RECIPES, device, machine

OWN = [{"file": "x", "sha256": recipe.name, "content": dict(recipe.content)} for recipe in RECIPES]
STATUS = "Package: dpkg\nStatus: install ok installed\nArchitecture: arm64\nVersion: 1.22\n"


def system(tmp_path: Path, answers: Mapping[str, Completed]) -> tuple[System, list[list[str]]]:
    """`answers` by a word of the command."""
    (tmp_path / "var/lib/dpkg").mkdir(parents=True, exist_ok=True)
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS)
    calls: list[list[str]] = []

    def run(argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        calls.append([*argv])
        return next((found for word, found in answers.items() if word in argv), Completed((), 0))

    return System(tmp_path, run, Clock()), calls


def inst(*names: str) -> Completed:
    return Completed((), 0, "".join(f"Inst {name} [1] (2 dgx:1 [arm64])\n" for name in names))


def test_the_rest_comes_after_it_was_simulated(tmp_path: Path) -> None:
    host, calls = system(tmp_path, {"--simulate": inst("docker-ce", "vim")})
    assert update.packages(host, check=False) == {"installs": ["docker-ce", "vim"]}
    assert [("update" in call, "--simulate" in call) for call in calls] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    host, calls = system(tmp_path, {"--simulate": inst("docker-ce")})
    assert update.packages(host, check=True) == {"installs": ["docker-ce"]}
    host, calls = system(tmp_path, {"--simulate": inst("docker-ce")})
    update.packages(host, check=False)
    assert ["--no-remove" in call for call in calls] == [False, False, True], "simulated, the removal has its name"
    host, calls = system(tmp_path, {"--simulate": inst("docker-ce")})
    update.packages(host, check=True)
    assert all("--simulate" in call for call in calls), "a check changes nothing, also no lists"


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (
            {"--simulate": inst("nvidia-driver-580-open")},
            "would bring nvidia-driver-580-open, which belong to the host set",
        ),
        ({"--simulate": inst("linux-image-6.17.0-1032-nvidia")}, "belong to the host set"),
        ({"--simulate": Completed((), 0, "Remv nano [1]\n")}, "would remove nano"),
        ({"--simulate": Completed((), 100, "", "E: broken")}, "cannot bring the rest"),
        ({"update": Completed((), 100, "", "E: no network")}, "apt-get update failed"),
    ],
)
def test_what_is_refused_changes_no_package(tmp_path: Path, answers: dict[str, Completed], says: str) -> None:
    host, calls = system(tmp_path, answers)
    with pytest.raises(HostError, match=says):
        update.packages(host, check=False)
    assert not [call for call in calls if "dist-upgrade" in call and "--simulate" not in call]


@pytest.mark.parametrize(("rc", "staged"), [(0, True), (2, False)])
def test_firmware_is_staged_by_guid(tmp_path: Path, rc: int, *, staged: bool) -> None:
    host, calls = system(tmp_path, {"fwupdmgr": Completed((), rc)})
    assert update.firmware(host, ["a-guid"], check=False) is staged
    assert calls == [["fwupdmgr", "update", "a-guid", "--assume-yes", "--no-reboot-check"]]
    host, calls = system(tmp_path, {})
    assert update.firmware(host, [], check=False) is False and calls == [], "no GUID would mean all devices"
    host, calls = system(tmp_path, {"fwupdmgr": Completed((), 1, "", "battery low")})
    with pytest.raises(HostError, match="battery low"):
        update.firmware(host, ["a-guid"], check=False)


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "7"])
def test_what_is_no_record_is_none(tmp_path: Path, text: str) -> None:
    host, _ = system(tmp_path, {})
    place = tmp_path / update.BEFORE.lstrip("/")
    place.parent.mkdir(parents=True)
    place.write_text(text)
    assert update.kept(host) is None


def test_what_was_before_is_kept_without_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        System, "account_id", lambda self, database, name: os.getuid() if database == "passwd" else os.getgid()
    )
    host, _ = system(tmp_path, {})
    assert update.kept(host) is None
    update.keep(host, machine("a", recipes=OWN))
    assert (update.kept(host) or {})["kernel"] == machine("a")["kernel"] and (update.kept(host) or {})["recipes"] == []


@pytest.mark.parametrize(
    ("boots", "to", "kernel"),
    [
        (("b1", "b1"), ("", ""), "old"),
        (("b1", "b2"), ("", ""), "new"),
        (("", ""), ("", ""), "new"),
        (("b1", "b2"), ("OTA2607", "OTA2607"), "old"),
        (("", ""), ("OTA2607", "OTA2607"), "old"),
        (("b1", "b1"), ("OTA2604", "OTA2607"), "new"),
        (("b1", "b2"), ("", "OTA2607"), "new"),
        (("b1", "b1"), ("", "OTA2607"), "old"),
    ],
)
def test_an_update_that_is_resumed_keeps_what_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boots: tuple[str, str], to: tuple[str, str], kernel: str
) -> None:
    monkeypatch.setattr(System, "account_id", lambda self, database, name: os.getuid())
    host, _ = system(tmp_path, {})
    place = tmp_path / "proc/sys/kernel/random/boot_id"
    place.parent.mkdir(parents=True)
    for boot, release, now in zip(boots, to, ("old", "new"), strict=True):
        place.write_text(boot)
        update.keep(host, machine("a", kernel=now), release)
    assert (update.kept(host) or {})["kernel"] == kernel


SOC = "0x029B0B00"  # 2.155.11


@pytest.mark.parametrize(
    ("name", "fwupd", "guids", "left"),
    [
        ("a", [device("SOCFW", "0x02980F00", SOC)], [GUIDS["SOCFW"]], []),
        (
            "a",
            [device("SOCFW", "0x02980F00", "0x03000000")],
            [],
            ["fwupd offers SOCFW 3.0.0, and OTA2607 has 2.155.11"],
        ),
        ("a", [device("SOCFW", SOC)], [], []),
        ("a", [device("SOCFW", "0x02980F00", SOC) | {"plugin": "nvme"}], [], []),
        ("a", None, [], ["fwupd does not answer, so no firmware is staged: fwupdmgr get-devices says why"]),
        (
            "b",
            [device("SOCFW", "1")],
            [],
            [
                "no newer firmware for the board of ASUSTeK COMPUTER INC.: fwupd offers none, by the lists that this"
                " host has: `sudo fwupdmgr refresh`, and ask again"
            ],
        ),
        ("b", None, [], ["fwupd does not answer, so no firmware is staged: fwupdmgr get-devices says why"]),
        ("b", [device("SOCFW", "1", "2") | {"guids": ["asus"]}], ["asus"], []),
        ("b", [device("SOCFW", "1", "2") | {"guids": []}, device("EC", "1", "2")], [GUIDS["EC"]], []),
    ],
)
def test_only_what_the_maker_has_published_is_staged(
    name: str, fwupd: list[dict[str, Any]] | None, guids: list[str], left: list[str]
) -> None:
    found = flashing.chosen(machine(name, fwupd=fwupd, recipes=OWN), JULY.name)
    assert found == {"guids": guids, "left": left}


@pytest.mark.parametrize("vendor", [None, "", " "])
def test_a_board_that_names_no_maker_gets_no_firmware(vendor: str | None) -> None:
    """It may be NVIDIA's, and what is offered another version than the release's."""
    offered = [device("SOCFW", "0x02980F00", "0x03000000")]
    found = flashing.chosen(machine("a", board_vendor=vendor, fwupd=offered, recipes=OWN), JULY.name)
    assert found == {"guids": [], "left": ["SMBIOS names no maker of the board, so no firmware is staged"]}


def test_a_board_of_nvidias_is_one_in_small_letters_too() -> None:
    offered = [device("SOCFW", "0x02980F00", "0x03000000")]
    found = flashing.chosen(machine("a", board_vendor="nvidia", fwupd=offered, recipes=OWN), JULY.name)
    assert found["guids"] == [] and "fwupd offers SOCFW 3.0.0" in found["left"][0]


def test_an_unknown_release_flashes_nothing() -> None:
    found = flashing.chosen(machine("a", fwupd=[device("SOCFW", "0x02980F00", SOC)], recipes=OWN), "OTA9999")
    assert found["guids"] == [] and "no recipe of OTA9999" in found["left"][0]


def test_a_known_trouble_holds_the_boards_that_it_names() -> None:
    bad = [{"id": "x", "release": "OTA2607", "boards": ["ASUS"], "symptom": "s", "source": "t", "date": "d"}]
    assert flashing.held(machine("b"), "OTA2607", bad) != []
    assert flashing.held(machine("a"), "OTA2607", bad) == flashing.held(machine("b"), "OTA2607", bad, {"x": "y"}) == []


BARE = [{**OWN[2], "content": {**OWN[2]["content"], "metadata": {"name": "OTA2607", "releaseDate": "2026-07-15"}}}]


@pytest.mark.parametrize("recipes", [OWN, BARE, []], ids=["recipes", "without external name", "the catalog alone"])
@pytest.mark.parametrize("written", ["OTA2607", "July 2026"])
@pytest.mark.parametrize("to", ["OTA2607", "July 2026", "newest"])
def test_a_known_trouble_holds_under_each_name_of_the_release(
    to: str, written: str, recipes: list[dict[str, Any]]
) -> None:
    bad = [{"id": "x", "release": written, "boards": [], "symptom": "s", "source": "t", "date": "d"}]
    host = machine("b", recipes=recipes)
    assert flashing.held(host, to, bad) != [], "without a recipe nobody knows the newest, and that holds it too"
    assert flashing.named(host, to) == ("OTA2607" if recipes or to != "newest" else "")


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("to", ["OTA9999", "ota2607", "", "newest"])
def test_a_release_that_nobody_knows_is_held_and_flashes_nothing_on_any_board(name: str, to: str) -> None:
    host = machine(name, fwupd=[device("SOCFW", "0x02980F00", SOC)])
    assert flashing.held(host, to, [])[0].startswith(f"no recipe of {to} is known")
    found = flashing.chosen(host, to)
    assert found["guids"] == [] and found["left"][0].startswith(f"no recipe of {to} is known")
    assert flashing.named(host, to) == ""


def test_the_evidence_has_the_score_now_and_before() -> None:
    before = machine("b", recipes=[])
    found = evidence.told(
        {
            "spark-a": {"release": machine("a", recipes=OWN), "before": before},
            "spark-b": {"release": machine("b"), "before": None},
            "spark-c": None,
            "spark-d": {"release": {"recipes": 7}},
            "spark-e": {"release": machine("a"), "before": "nonsense"},
        },
        catalog.load("releases"),
    )
    assert sorted(found) == ["spark-a", "spark-b", "spark-e"]
    assert (found["spark-a"]["state"], found["spark-a"]["recipe"]) == ("current", "OTA2607")
    assert found["spark-a"]["before"]["score"]["torn"] == 0.6 and found["spark-e"]["before"] is None
    assert evidence.line(found["spark-a"]).startswith(
        "OTA2607 (July 2026), current, torn 0 %; before: OTA2604 (April 2026)"
    )
    assert json.loads(json.dumps(found)) == found
