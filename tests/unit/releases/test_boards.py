"""Two simulated boards, read from a faked root with the simulated fwupdmgr as a program, and judged: state by state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.releases.read import TABLE, read_release
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, Completed, System

from gb10_fleet import release
from lab.vendor import releases
from lab.vendor.packages import FILES
from lab.vendor.releases import METADATA, RELEASES, Release

MARCH, APRIL, JULY, _ = RELEASES
HOST = dict[str, Any]


def spark(folder: Path, board: str, has: Release, **changed: Any) -> dict[str, Any]:
    """What the module returns of a host: `has` is its release, but for what is changed.

    `knows`: the recipes; `firmware`, `packages`, `kernel`, `driver`; `offers` of fwupd; `held` names; `files` more.
    """
    firmware = {**has.firmware, **changed.get("firmware", {})}
    packages = {**has.packages, **changed.get("packages", {})}
    held = changed.get("held", ())
    files: dict[str, str | bytes] = {
        **releases.recipe_files(changed.get("knows", (MARCH, APRIL, JULY))),
        TABLE: releases.smbios(firmware),
        "/sys/class/dmi/id/board_vendor": releases.VENDORS[board],
        "/sys/class/infiniband/rocep1s0f0/fw_ver": "28.45.4028",
        "/proc/sys/kernel/osrelease": f"{changed.get('kernel', has.kernel)}-nvidia",
        "/sys/module/nvidia/version": changed.get("driver", has.driver),
        "/var/lib/dpkg/status": status(packages, held),
        "/run/gb10-lab/fwupd.json": json.dumps(releases.fwupd(board, firmware, changed.get("offers"))),
        **changed.get("files", {}),
    }
    for path, content in files.items():
        place = folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = read_release(HostReader(System(folder, programs(folder), Clock())))
    return {"release": found, "cluster": changed.get("cluster", "")}


def status(packages: dict[str, str], held: Sequence[str]) -> str:
    rows = {"dpkg": "1.22", **packages}
    return "\n\n".join(
        f"Package: {name}\nStatus: {'hold' if name in held else 'install'} ok installed\nArchitecture: arm64\n"
        f"Version: {version}"
        for name, version in rows.items()
    )


def programs(folder: Path) -> Any:
    """Runs the simulated fwupdmgr as a host would."""

    def run(argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        assert argv[0] == "fwupdmgr", argv
        done = subprocess.run(
            [sys.executable, str(FILES / "fwupdmgr"), *argv[1:]],
            env={**os.environ, "GB10_LAB_RUN": str(folder / "run/gb10-lab")},
            capture_output=True,
            text=True,
            check=False,
        )
        return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)

    return run


PINS = {"/etc/apt/preferences.d/10-gb10-nvidia": "x"}
OLD_FIRMWARE = {"SOCFW": APRIL.firmware["SOCFW"], "EC": APRIL.firmware["EC"]}
NEXT_SOC = {"SOCFW": JULY.firmware["SOCFW"]}


@pytest.mark.parametrize(
    ("board", "has", "changed", "state", "torn"),
    [
        ("nvidia", JULY, {}, "current", []),
        ("asus", JULY, {}, "current", []),
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
