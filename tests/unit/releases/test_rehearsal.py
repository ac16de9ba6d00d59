"""What a move to a release would do to a host, judged over published machines."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.rehearsal import (
    BLOCKED,
    CURRENT,
    HELD,
    READY,
    UNKNOWN,
    WAITING,
    Rehearsed,
    rehearsed,
    target,
)

from gb10_fleet.release_plan import known, planned
from tests.support.attacker import tally
from tests.support.release_machines import JULY, JULY_SET, RECIPES, device, machine, simulated

SEVEN = "ubuntu24.04-580.178.04-7.0.0-1019"
MOVE = {"nvidia-driver-580-open": "580.159.03-0ubuntu0.24.04.1"}


def told(host: dict[str, Any], to: str = "newest", accepted: dict[str, str] | None = None, **said: Any) -> Rehearsed:
    what = known({**catalog.load("releases"), **said.pop("catalog", {})}, accepted or {})
    return rehearsed(host, simulated(**said), target(to, RECIPES, what), RECIPES, what)


def old(name: str, **changed: Any) -> dict[str, Any]:
    """A machine before the driver of July, on kernel 6.17.0-1014."""
    packages = {**machine(name)["packages"], "nvidia-driver-580-open": "580.142-0ubuntu0.24.04.1"}
    return machine(name, packages=packages, kernel="6.17.0-1014-nvidia", driver="580.142", **changed)


def test_a_current_host_has_nothing_to_do() -> None:
    found = told(machine("a"))
    assert (found.state, found.reboots, found.minutes, found.rollback) == (CURRENT, 0, 0, [])


def test_a_host_that_is_behind_gets_packages_a_reboot_and_a_way_back() -> None:
    found = told(old("a"), set_move={"installs": MOVE, "download_bytes": 300 * 2**20, "disk_bytes": 2**30})
    assert (found.state, found.reboots, found.set) == (READY, 1, JULY_SET)
    assert (found.download_mib, found.disk_mib) == (300, 1324)
    assert found.minutes == 8, "260 s of apt and a boot of 180 s"
    assert any("gb10 rollback" in line and "580.142" in line for line in found.rollback)
    assert any("6.17.0-1014-nvidia stays in GRUB's menu" in line for line in found.rollback)


def test_what_goes_back_needs_a_reason() -> None:
    here = machine("a")["packages"]["nvidia-driver-580-open"]
    back = {"set_move": {"installs": MOVE | {"nvidia-driver-580-open": "580.95.05-0ubuntu0.24.04.2"}}}
    found = told(machine("a"), **back)
    assert found.state == HELD and f"downgrade: nvidia-driver-580-open {here} -> 580.95.05" in found.reason
    assert told(machine("a"), accepted={"downgrade": "as the others"}, **back).state != HELD


def test_a_trouble_with_a_cure_holds_no_host_that_has_it() -> None:
    asked = {"release": "OTA26.09.2", "set": SEVEN, "set_move": {"installs": {}}}
    assert "slow_on_7.6" in told(old("a"), "OTA26.09.2", **asked).reason
    assert told(old("a", command_line=["quiet", "kho=off"]), "OTA26.09.2", **asked).held == []


def test_without_a_source_for_the_old_driver_there_is_no_way_back_by_apt() -> None:
    found = told(old("a"), set_move={"installs": MOVE}, offers_back=False)
    assert any("none by apt" in line for line in found.rollback)


def test_firmware_that_fwupd_offers_comes_and_does_not_go_back() -> None:
    behind = [device("SOCFW", "0x02980F00", "0x029B0B00"), device("EC", "0x03050800"), device("USBPD", "0x00051600")]
    firmware = [
        {**each, "version": "SBP:R:2.152.15"} if each["component"] == "FLASH" else each
        for each in machine("a")["firmware"]
    ]
    found = told(machine("a", fwupd=behind, firmware=firmware))
    assert found.firmware == ["SOCFW SBP:R:2.152.15 -> 2.155.11"]
    assert (found.state, found.torn, found.reboots) == (READY, [], 1)
    assert found.minutes == 16 and any("does not go back" in line for line in found.rollback)


def test_a_partners_board_waits_for_its_maker_and_is_told_what_stays_torn() -> None:
    found = told(machine("b"))
    assert found.state == WAITING and found.reason.startswith("SOCFW, EC, EC Unfused of OTA2607: fwupd offers none")
    assert any("SOCFW stays SBP:R:2.152.15, wanted 2.155.11: fwupd offers none" in line for line in found.torn)
    assert not any("TPM" in line for line in found.torn), "SMBIOS of a partner's board has none"


def test_where_fwupd_does_not_answer_nobody_knows_of_firmware() -> None:
    found = told({**machine("b"), "fwupd": None})
    assert found.state == UNKNOWN and "fwupd does not answer" in found.reason


def test_a_boards_maker_that_offers_nothing_is_waited_for_where_nothing_else_comes() -> None:
    firmware = [
        {**each, "version": "SBP:R:2.152.15"} if each["component"] == "FLASH" else each
        for each in machine("a")["firmware"]
    ]
    devices = [{**each, "version": "0x02980F00"} for each in machine("a")["fwupd"] or []]
    found = told({**machine("a"), "firmware": firmware, "fwupd": devices})
    assert (found.state, found.reboots) == (WAITING, 0) and "fwupdmgr refresh" in found.reason


def test_packages_whose_kernel_does_not_run_yet_need_a_reboot_alone() -> None:
    found = told({**machine("a"), "kernel": "6.17.0-1014-nvidia", "driver": "580.142"})
    assert (found.state, found.reboots, found.torn) == (READY, 1, [])
    assert found.reason == "only a reboot is missing: what it brings is there" and found.minutes == 3


def test_a_release_without_a_host_set_is_none_to_roll_out() -> None:
    found = told(old("a"), set=None, set_move={"installs": MOVE})
    assert found.state == BLOCKED and found.reason.startswith("no host set of OTA2607 is known")
    assert told(machine("a"), set=None).state == CURRENT, "nothing is to be done there"


def test_what_no_source_brings_stays_torn_with_its_reason() -> None:
    found = told(old("a", held=["nvidia-driver-580-open"]))
    assert any(
        line.startswith("package nvidia-driver-580-open stays 580.142") and line.endswith("it is on hold")
        for line in found.torn
    )
    assert any(line.startswith("software kernel stays 6.17.0-1014-nvidia") for line in found.torn)


def test_a_kernel_that_needs_a_parameter_says_so_before() -> None:
    asked = {"release": "OTA26.09.2", "set": SEVEN, "set_move": {"installs": MOVE}, "accepted": {"slow_on_7.6": "x"}}
    found = told(old("a"), "OTA26.09.2", **asked)
    assert [line.partition(":")[0] for line in found.parameters] == ["kho=off for kernel 7.0.0-1019-nvidia"]
    assert told(old("a", command_line=["kho=off"]), "OTA26.09.2", **asked).parameters == []


@pytest.mark.parametrize(
    ("changed", "said", "why"),
    [
        ({"reboot_required": True}, {}, "a reboot is missing"),
        ({}, {"set_move": {"error": "no apt source offers x 1"}}, "apt cannot bring the host set: no apt source"),
        ({}, {"rest": {"error": "held broken packages"}}, "the rest of the packages: held broken"),
        ({}, {"rest": {"removes": ["vim", "nano"]}}, "the rest of the packages would remove nano, vim; decide"),
        ({}, {"set": "nonsense"}, "no host set nonsense"),
        (
            {"disks": [{"mount": "/", "size_bytes": 2**40, "free_bytes": 5 * 2**30}]},
            {"rest": {"disk_bytes": 2 * 2**30}},
            "/ has 5.0 GiB free, needed are 6 GiB",
        ),
    ],
)
def test_what_is_in_the_way(changed: dict[str, Any], said: dict[str, Any], why: str) -> None:
    found = told(old("a", **changed), **said)
    assert found.state == BLOCKED and any(why in line for line in found.blocks), found.blocks


def test_what_the_set_exchanges_is_no_removal_of_the_rest() -> None:
    """Simulated before the set has moved, and its holds with it."""
    gone = ["linux-modules-nvidia-580-open-6.17.0-1014-nvidia"]
    found = told(old("a"), set_move={"installs": MOVE}, rest={"removes": gone})
    assert (found.state, found.removes) == (READY, gone)


@pytest.mark.parametrize(
    ("changed", "said", "why"),
    [
        ({"firmware": None}, {}, "SMBIOS cannot be read. Fix: "),
        ({}, {"release": "OTA2604"}, "its own newest recipe is OTA2604"),
        ({}, {"release": None}, "its own newest recipe is none"),
    ],
)
def test_what_cannot_be_told(changed: dict[str, Any], said: dict[str, Any], why: str) -> None:
    found = told(machine("a", **changed), **said)
    assert found.state == UNKNOWN and why in found.reason


BAD = {
    "id": "noisy", "release": "OTA2607", "boards": ["asus"], "symptom": "the fan is loud", "source": "us",
    "date": "2026-11-01", "confidence": "community",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "release", "accepted", "held"),
    [
        ("b", "OTA2607", {}, True),
        ("a", "OTA2607", {}, False),
        ("b", "OTA2604", {}, False),
        ("b", "OTA2607", {"noisy": "we are deaf"}, False),
    ],
)
def test_a_release_that_is_known_to_be_bad_holds_the_hosts_that_fit(
    name: str, release: str, accepted: dict[str, str], *, held: bool
) -> None:
    found = told(machine(name), accepted=accepted, catalog={"known_bad": [{**BAD, "release": release}]})
    assert (found.state == HELD) is held
    assert bool(found.held) is held
    if held:
        assert "the fan is loud" in found.held[0] and "--accept noisy=REASON" in found.held[0]


def test_a_release_is_named_by_either_name_or_by_the_catalog() -> None:
    what = known(catalog.load("releases"), {})
    for name, expected in (("OTA2607", "OTA2607"), ("April 2026", "OTA2604"), ("OTA0.1", "OTA0.1"), ("x", None)):
        found = target(name, RECIPES, what)
        assert (found and found.name) == expected


def test_a_release_that_one_host_calls_by_the_name_of_another_is_in_no_plan_of_others() -> None:
    """The first recipe of that name or external name counted, and a host may say any date."""
    said = {**JULY.content["metadata"], "name": "zzz", "external_name": "OTA2607", "releaseDate": "2020-01-01"}
    claim = {**JULY.content, "metadata": said, "package": [], "firmware": []}
    mine = [{"file": "x", "sha256": recipe.name, "content": recipe.content} for recipe in RECIPES]
    fleet = {"b": machine("b", recipes=mine), "c": machine("b", recipes=mine), "d": machine("b")}
    evil = machine("a", recipes=[{"file": "x", "sha256": "", "content": claim}])
    what, plans = known(catalog.load("releases"), {}), []
    for hosts in (fleet, {**fleet, "evil": evil}):
        answers = {host: {"release": release, "rehearsal": simulated()} for host, release in hosts.items()}
        made = planned(answers, "OTA2607", what)
        plans.append((made["to"], {host: made["hosts"][host] for host in fleet}))
    tally("a host gives a release the name of another, and others are planned by it", 1, int(plans[0] != plans[1]))
    assert plans[0] == plans[1] and plans[0][0]["name"] == "OTA2607"


def test_a_release_that_a_person_names_may_be_known_to_one_host() -> None:
    new = {"metadata": {**JULY.content["metadata"], "name": "OTA2611", "releaseDate": "2026-11-01"}, "package": []}
    hosts = {"a": machine("a", recipes=[{"file": "x", "sha256": "1", "content": new}]), "b": machine("b")}
    answers = {host: {"release": release, "rehearsal": simulated()} for host, release in hosts.items()}
    assert planned(answers, "OTA2611", known(catalog.load("releases"), {}))["to"]["name"] == "OTA2611"
