"""Whose board a host is, and what is said of boards that nobody has shown; plain Ubuntu on a GB10."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import boards, flashing

from gb10_fleet import release
from tests.unit.releases.test_boards import JULY, spark
from tests.unit.releases.test_rehearsal import simulated
from tests.unit.releases.test_scores import RECIPES, machine


@pytest.mark.parametrize(
    ("vendor", "maker", "seen"),
    [
        ("NVIDIA", "NVIDIA", True),
        ("ASUSTeK COMPUTER INC.", "ASUS", True),
        ("HP", "HP", True),
        ("Dell Inc.", "Dell", False),
        ("Micro-Star International Co., Ltd.", "MSI", False),
        ("LENOVO", "Lenovo", False),
        ("Gigabyte Technology Co., Ltd.", "Gigabyte", False),
        ("Acer", "Acer", False),
        ("Racer", None, False),
        ("", None, False),
        (None, None, False),
    ],
)
def test_the_maker_of_a_board(vendor: str | None, maker: str | None, *, seen: bool) -> None:
    told = boards.told(vendor)
    assert (told["maker"], told["seen"]) == (maker, seen)
    assert (boards.doubt(told) is None) is seen


def test_every_maker_is_found_by_its_own_vendor_and_what_is_inferred_says_so() -> None:
    rows = catalog.load("products")["boards"]
    assert [boards.maker(row["vendor"]) for row in rows] == rows
    assert {row["confidence"] for row in rows} <= {"measured", "community", "inferred"}


@pytest.mark.parametrize(("named", "holds"), [(["MSI"], True), (["micro-star"], True), (["ASUS"], False), ([], True)])
def test_a_known_trouble_names_a_maker(named: list[str], *, holds: bool) -> None:
    bad = [{"id": "x", "release": "OTA2607", "boards": named, "symptom": "s", "source": "t", "date": "d"}]
    host = machine("b", board_vendor="Micro-Star International Co., Ltd.")
    assert bool(flashing.held(host, "OTA2607", bad)) is holds


def test_a_board_that_nobody_has_shown_is_said_to_be_inferred() -> None:
    recipes = [{"file": "x", "sha256": "x", "content": dict(each.content)} for each in RECIPES]
    hosts = {"spark": {"release": machine("b", board_vendor="LENOVO", recipes=recipes), "cluster": ""}}
    found = release.judged(hosts)
    assert found["hosts"]["spark"]["board"] == {"vendor": "LENOVO", "maker": "Lenovo", "seen": False}
    assert "nobody has published a dump of one" in "\n".join(release.table(found))
    asus = release.judged({"spark": {"release": machine("b", recipes=recipes), "cluster": ""}})
    assert "dump" not in "\n".join(release.table(asus))


def test_plain_ubuntu_has_no_release_and_a_plan_to_a_named_one(tmp_path: Path) -> None:
    """No recipes and no dgx.sources, but a driver, SMBIOS and fwupd."""
    answer = spark(tmp_path, "nvidia", JULY, knows=())
    now = release.judged({"spark": answer})["hosts"]["spark"]
    assert now["state"] == "unknown" and "it is no DGX OS" in now["reason"]
    for to, state in (("newest", "unknown"), ("OTA2607", "current"), ("OTA2604", "ready")):
        said = {**answer, "rehearsal": simulated(release=None if to == "newest" else to)}
        if to == "OTA2604":  # firmware must be equal: newer firmware fails an older release
            said["rehearsal"]["rest"]["installs"] = {"vim": "2"}
        found, _ = release.answered({"spark": said}, release.question(to, [], {}))
        assert found["hosts"]["spark"]["state"] == state, found["hosts"]["spark"]
