"""Three published machines against NVIDIA's recipes: expected is what NVIDIA's own program printed on machine B."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import evidence, score, verdict
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.score import Recipe

from tests.support.attacker import tally
from tests.support.release_machines import (
    APRIL,
    CAPSULE,
    JULY,
    KNOWN,
    MAY,
    OF_NVIDIA,
    RECIPES,
    device,
    invented,
    machine,
)


@pytest.mark.parametrize(
    ("recipe", "checks", "torn", "failed"),
    [
        (APRIL, 155, 0.6, ["TPM"]),
        (MAY, 155, 0.6, ["TPM"]),
        (JULY, 155, 2.6, ["SOCFW", "EC", "EC Unfused", "TPM"]),
    ],
    ids=lambda each: each.name if isinstance(each, Recipe) else None,
)
def test_the_score_is_nvidias(recipe: Recipe, checks: int, torn: float, failed: list[str]) -> None:
    found = score.score(recipe, RECIPES, machine("b"))
    assert (len(found.checks), len(found.checks) - len(found.failed)) == (checks, checks - len(failed))
    assert [check.name for check in found.failed] == failed
    assert round(found.torn, 1) == torn


def test_the_rank_of_a_recipe_without_a_ceiling_is_nvidias() -> None:
    assert round(score.score(JULY, RECIPES, machine("b")).rank, 2) == 76.67


@pytest.mark.parametrize(("name", "release"), [("a", "OTA2607"), ("b", "OTA2604")])
def test_the_detected_release_is_nvidias(name: str, release: str) -> None:
    found = score.detect([score.score(recipe, RECIPES, machine(name)) for recipe in RECIPES])
    assert found is not None and found.recipe.name == release


def test_without_a_cable_the_connectx_is_left_out_and_not_passed() -> None:
    assert len(score.score(APRIL, RECIPES, machine("b", connectx=[])).checks) == 154


@pytest.mark.parametrize(
    ("version", "text", "stands"),
    [
        ("3.3.2", "3.3.2", True), ("3.3.2", "3.3.20", False), ("3.3.2", "13.3.2", False),
        ("2.152.15", "SBP:R:2.152.15", True), ("5.2", "5.22", False), ("3.3.2", "3.3.2.4", False),
    ],
)  # fmt: skip
def test_a_version_stands_in_a_text_but_not_in_a_longer_number(version: str, text: str, stands: bool) -> None:
    assert score._stands_in(version, text) == stands


def judged(name: str, **changed: Any) -> verdict.Verdict:
    return verdict.judge(machine(name, **changed), RECIPES, catalog.load("releases"))


OLDER = KNOWN["packages"] | {"dgx-oobe": "0.20.4", "nvidia-driver-580-open": "580.142-0ubuntu0.24.04.1"}


@pytest.mark.parametrize(
    ("name", "changed", "state", "says"),
    [
        ("a", {}, "current", "every entry of OTA2607 is met"),
        (
            "b",
            {},
            "waiting_for_firmware",
            "fwupd offers none, by the lists that this host has: `sudo fwupdmgr refresh`",
        ),
        ("b", {"fwupd": None}, "unknown", "fwupd does not answer, so nobody knows of newer firmware"),
        ("a", {"fwupd": None}, "unknown", "the packages are those of OTA2607; fwupd does not answer"),
        ("c", {"fwupd": [CAPSULE | {"offers": "0x02000006"}]}, "torn", "newer firmware: `fwupdmgr update`"),
        ("a", {"fwupd": [*OF_NVIDIA[1:], device("SOCFW", "0x02980F00")]}, "torn", "SOCFW"),
        ("a", {"kernel": "6.11.0-1016-nvidia"}, "torn", "kernel is 6.11.0-1016-nvidia"),
        ("a", {"driver": None}, "torn", "driver is unknown"),
        ("a", {"driver": None}, "torn", "another kernel or driver runs; reboot into that of the packages"),
        ("a", {"packages": OLDER}, "behind", "2 packages of OTA2607 are older or missing"),
        (
            "a",
            {"packages": OLDER, "held": ["dgx-oobe", "nvidia-driver-580-open"]},
            "held_by_us",
            "held by gb10-fleet at",
        ),
        (
            "a",
            {"packages": OLDER, "held": ["dgx-oobe", "nvidia-driver-580-open"], "pinned_by_us": False},
            "behind",
            "2 packages of OTA2607 are older or missing",
        ),
        ("a", {"reboot_required": True}, "unknown", "a reboot is missing"),
        ("a", {"firmware": None}, "unknown", "SMBIOS cannot be read. Fix: "),
        ("a", {"packages": {}}, "unknown", "no DGX OS"),
    ],
)
def test_verdicts(name: str, changed: dict[str, Any], state: str, says: str) -> None:
    found = judged(name, **changed)
    assert found.state == state, found
    assert says in found.reason


def test_a_board_of_nvidias_is_judged_alike_however_its_name_is_written() -> None:
    """Asked by fwupd and by SMBIOS, with NVIDIA's own floor."""
    floors, known = catalog.load("security_floors")["floors"], catalog.load("releases")
    old = {"firmware": [{"component": "UEFI", "version": "R:1.109.2"}]}
    behind = {"fwupd": [*OF_NVIDIA[1:], device("SOCFW", "0x02980F00")]}
    assert judged("a", board_vendor="nvidia", **behind) == judged("a", **behind)
    small, usual = machine("a", board_vendor="nvidia", **old), machine("a", **old)
    assert verdict.below_floors(small, JULY, known, floors) == verdict.below_floors(usual, JULY, known, floors)


def test_without_fwupd_no_release_of_nvidias_board_is_guessed() -> None:
    """Its firmware fails every recipe then, and a required entry would name an older release."""
    found = judged("a", fwupd=None)
    assert (found.release, found.torn, found.missing) == (None, (), {})
    assert judged("a", fwupd=None, packages=OLDER).state == "behind"


def test_what_is_torn_is_named_by_its_kind() -> None:
    assert judged("a", kernel="6.11.0-1016-nvidia", driver=None).torn == ["kernel", "driver"]
    assert judged("c", fwupd=[CAPSULE | {"offers": "1"}]).torn == ["firmware"]


def test_without_recipes_no_release_is_told_whatever_the_stamp_says() -> None:
    """dgx-release 7.5.0 is installed: an image's or an update's stamp."""
    found = verdict.judge(machine("a"), [], catalog.load("releases"))
    assert (found.state, found.release) == ("unknown", None)
    assert "7.5.0" not in str(found.as_dict())


def test_what_blocks_is_told() -> None:
    held = judged("a", packages=OLDER, held=["dgx-oobe"])
    assert held.blocks == ["on hold: dgx-oobe"]
    assert judged("b").blocks == ["no firmware offered for the board of ASUSTeK COMPUTER INC.: EC, EC Unfused, SOCFW"]
    (block,) = judged("a", kernel="7.0.0-1019-nvidia").blocks
    assert block.startswith("kernel 7.0.0-1019-nvidia runs without kho=off: no start on more than one host")
    assert judged("a", kernel="7.0.0-1019-nvidia", command_line=["kho=off"]).blocks == []


def test_packages_that_an_owner_may_remove_are_not_missed() -> None:
    without = {name: version for name, version in KNOWN["packages"].items() if name != "nvidia-system-station-games"}
    assert judged("a", packages=without).state == "current"


def test_the_set_of_the_newest_release_is_told() -> None:
    assert judged("b").set == "ubuntu24.04-580.159.03-6.17.0-1022"


def test_the_newest_release_may_still_be_below_a_floor() -> None:
    floors, known = catalog.load("security_floors")["floors"], catalog.load("releases")
    (driver,) = verdict.below_floors(machine("a"), JULY, known, floors)
    assert driver.startswith("NVIDIA driver 580 580.173.02 is below 580.178.04 (NVIDIA bulletin 5861)")
    assert driver.endswith("; OTA2607, the newest release, still brings 580.159.03")
    old = [{"component": "UEFI", "version": "R:1.109.2"}]
    assert "UEFI 1.109.2 is below 1.110.13" in verdict.below_floors(machine("a", firmware=old), JULY, known, floors)[1]
    assert len(verdict.below_floors(machine("b", firmware=old), JULY, known, floors)) == 1, (
        "each maker counts for itself"
    )


def test_the_catalog_names_sets_that_there_are() -> None:
    sets = catalog.load("host_sets")["host_sets"]
    named = {entry["set"] for entry in catalog.load("releases")["releases"]} - {None}
    assert named <= set(sets)
    for entry in sets.values():
        assert all(version.startswith(entry["modules"]) for version in entry["modules_seen"])
        assert (entry["kernel_parameters"] == ["kho=off"]) == entry["kernel"].startswith("7.0.")


def test_a_full_disk_is_in_the_way() -> None:
    disks = [{"mount": "/", "size_bytes": 2**40, "free_bytes": 2**30}]
    minimums = [{"path": "/var/lib/docker", "value": 20}, {"path": "/boot", "value": 0.5}]
    found = verdict.judge(machine("a", disks=disks), RECIPES, catalog.load("releases"), minimums)
    assert found.blocks == ["/var/lib/docker has 1.0 GiB free, needed are 20 GiB"]


def test_mixed_firmware_of_a_cluster_is_told() -> None:
    mixed = verdict.mixed_firmware({"a": machine("a"), "b": machine("b")})
    assert mixed == ["SOCFW: a SBP:R:2.155.11, b SBP:R:2.152.15", "EC: a 3.5.8, b 3.3.2"]
    assert verdict.mixed_firmware({"a": machine("a"), "d": machine("a")}) == []
    rail = [{"device": "mlx5_0", "version": "28.47.1"}]
    assert verdict.mixed_firmware({"a": machine("a"), "d": machine("a", connectx=rail)}) == [
        "CX7: a 28.45.4028, d 28.47.1"
    ]


def test_a_host_with_a_newer_checker_tells_the_others_of_its_releases() -> None:
    old = {"packages": {"nvidia-spark-ota-check": "1.0.8-1"}, "recipes": [{"sha256": "1", "content": APRIL.content}]}
    changed = {**APRIL.content, "metadata": {**APRIL.content["metadata"], "external_name": "corrected"}}
    new = {
        "packages": {"nvidia-spark-ota-check": "1.0.16-1"},
        "recipes": [{"sha256": "2", "content": changed}, {"sha256": "3", "content": JULY.content}],
    }
    found = verdict.union({"new": new, "old": old})
    assert [(recipe.name, recipe.shown) for recipe in found] == [("OTA2604", "corrected"), ("OTA2607", "July 2026")]


@pytest.mark.parametrize("name", [JULY.name, "OTA9999"])
def test_a_recipe_of_another_host_makes_nobody_better(name: str) -> None:
    """Any host may say that its checker is the newest, and that a release asks for nothing: the others were current."""
    said = {**JULY.content["metadata"], "name": name, "required_match": None}
    said |= {"releaseDate": "2999-01-01"} if name != JULY.name else {}
    claims = [{"file": "x", "sha256": "1", "content": {"metadata": said, "package": [], "firmware": []}}]
    evil = machine("a", recipes=claims, packages={**KNOWN["packages"], "nvidia-spark-ota-check": "999"})
    mine = [{"file": "x", "sha256": "1", "content": recipe.content} for recipe in RECIPES]
    good = machine("b", recipes=mine)
    catalogs = catalog.load("releases")
    alone = verdict.judge(good, verdict.union({"good": good}), catalogs)
    beside = verdict.judge(good, verdict.union({"good": good, "evil": evil}), catalogs)
    tally("a host makes another one look up to date", 1, int(beside != alone))
    assert beside == alone and alone.state == verdict.WAITING


@pytest.mark.parametrize("date", ["9999-01-01", "2026-08-01"])
def test_a_release_that_one_host_invents_puts_nobody_behind(date: str) -> None:
    known, judged = catalog.load("releases"), []
    for hosts in invented(date):
        recipes = verdict.shared(hosts, known)
        told = evidence.told({name: {"release": host} for name, host in hosts.items()}, known)
        judged.append({name: (verdict.judge(host, recipes, known), told[name]) for name, host in hosts.items()})
    alone, beside = judged
    assert beside.pop("evil")
    tally("a host invents a release, and others are judged by it", 1, int(beside != alone))
    assert beside == alone


def test_a_release_counts_for_who_knows_it_and_where_two_do_for_all() -> None:
    new = {"metadata": {**JULY.content["metadata"], "name": "OTA2611", "releaseDate": "2026-11-01"}, "package": []}
    first, second = (
        machine("b", recipes=[{"file": "x", "sha256": "1", "content": content} for content in (JULY.content, new)])
        for _ in range(2)
    )
    known, third = catalog.load("releases"), machine("b", recipes=[])
    one, two = (verdict.shared(of, known) for of in ({"a": first, "c": third}, {"a": first, "b": second}))
    names = [[recipe.name for recipe in found] for found in (verdict.for_host(first, one), one, two)]
    assert names == [["OTA2607", "OTA2611"], ["OTA2607"], ["OTA2607", "OTA2611"]]


def test_what_follows_from_recipes_alone_is_computed_once_for_all_hosts() -> None:
    judged("a")
    before = score._ceilings.cache_info().misses
    judged("b")
    assert score._ceilings.cache_info().misses == before


@pytest.mark.parametrize(("later", "in_range"), [(["2", "3"], True), (["1", "2.5", "1"], True), (["1.5", "9"], False)])
def test_the_next_release_that_raises_a_package_ends_its_range(later: list[str], *, in_range: bool) -> None:
    """The host has version 2 of it."""
    recipes = [
        Recipe(
            {"metadata": {"name": f"OTA{n}", "releaseDate": f"2026-0{n}-01"}, "package": [{"name": "x", "version": v}]}
        )
        for n, v in enumerate(["1", *later], 1)
    ]
    (check,) = score.score(recipes[0], recipes, machine("a", packages={"x": "1.9"})).checks
    assert check.passes and check.in_range is in_range


def test_a_long_version_of_a_firmware_costs_no_time() -> None:
    """Quadratic, this took minutes."""
    long = machine("a", firmware=[{"component": "UEFI", "version": "1" * 200_000}])
    assert verdict.below_floors(long, JULY, catalog.load("releases"), []) == []


def test_a_version_of_many_digits_of_a_package_is_compared() -> None:
    floors = catalog.load("security_floors")["floors"]
    for version in ("9" * 5000, "580." + "9" * 5000):
        packages = {"nvidia-driver-580-open": version}
        verdict.below_floors(machine("a", packages=packages), JULY, catalog.load("releases"), floors)


@pytest.mark.parametrize("version", ["\u00b2", "9" * 5000, "1.\u0663-x"])
def test_a_version_of_odd_digits_on_one_host_is_no_defect(version: str) -> None:
    assert judged("a", kernel=version, driver=version).state
    host = {"packages": {"nvidia-spark-ota-check": version}, "recipes": [{"sha256": "1", "content": APRIL.content}]}
    assert len(verdict.union({"a": host})) == 1
