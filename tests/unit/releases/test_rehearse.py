"""What apt is asked on a host on the way to a release, and what is made of its words."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.releases.rehearse import Rehearsal, chosen, rehearse
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, Completed, System
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema

NEW, OLD = "ubuntu24.04-new", "ubuntu24.04-old"
SETS = {
    OLD: {"userland": "580.142-1", "kernel": "6.17.0-1014", "modules": "6.17.0-1014.14"},
    NEW: {"userland": "580.159.03-1", "kernel": "6.17.0-1022", "modules": "6.17.0-1022.22"},
}
ASKED = {"to": "OTA2", "branch": "580", "releases": {"OTA1": OLD, "OTA2": NEW}, "sets": SETS}
STATUS = """Package: dpkg
Status: install ok installed
Architecture: arm64
Version: 1.22

Package: nvidia-driver-580-open
Status: hold ok installed
Architecture: arm64
Version: 580.142-1

Package: linux-image-6.17.0-1014-nvidia
Status: hold ok installed
Architecture: arm64
Version: 6.17.0-1014.14
"""
MODULES = "linux-modules-nvidia-580-open-6.17.0-1022-nvidia"
SHOWN = "".join(
    f"Package: {name}\nVersion: {version}\nDepends: {depends}\nSize: 1048576\nInstalled-Size: 2048\n\n"
    for name, version, depends in (
        (MODULES, "6.17.0-1022.22+3", "nvidia-kernel-common-580 (>= 580.178), nvidia-driver-580-open (= 580.178-1)"),
        (MODULES, "6.17.0-1022.22+1", "nvidia-driver-580-open (= 580.159.03-1)"),
        ("linux-image-6.17.0-1022-nvidia", "6.17.0-1022.22", ""),
    )
)
INST = """NOTE: This is only a simulation!
Inst nvidia-driver-580-open [580.142-1] (580.159.03-1 dgx:1.0 [arm64]) []
Inst linux-image-6.17.0-1022-nvidia (6.17.0-1022.22 dgx:1.0 [arm64])
Remv linux-modules-nvidia-580-open-6.17.0-1014-nvidia [6.17.0-1014.14]
Conf nvidia-driver-580-open (580.159.03-1 dgx:1.0 [arm64])
"""


def asked(tmp_path: Path, question: Mapping[str, Any], answers: Mapping[str, Completed]) -> tuple[Any, list[list[str]]]:
    """The answer, and what was run; `answers` by the word that tells commands apart."""
    for path, text in {
        "/var/lib/dpkg/status": STATUS,
        "/etc/apt/preferences.d/10-gb10-nvidia": "ours",
        "/etc/apt/preferences.d/dgx": "theirs",
        "/var/lib/apt/lists/x_Packages": "",
    }.items():
        place = tmp_path / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    os.utime(tmp_path / "var/lib/apt/lists/x_Packages", (1000, 1000))
    calls: list[list[str]] = []

    def run(argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        calls.append([*argv])
        for option in argv:
            if option.startswith("-oDir::Etc::PreferencesParts="):
                calls.append(sorted(each.name for each in Path(option.partition("=")[2]).iterdir()))
        return next((found for word, found in answers.items() if word in argv), Completed((), 0))

    host = HostReader(System(tmp_path, run, Clock()), time_of_day=lambda: 1100.0)
    return rehearse(host, [], question), calls


def test_the_set_is_asked_for_by_exact_versions_and_without_our_pins(tmp_path: Path) -> None:
    found, calls = asked(tmp_path, ASKED, {"show": Completed((), 0, SHOWN), "install": Completed((), 0, INST)})
    (move,) = [call for call in calls if "install" in call]
    assert f"{MODULES}=6.17.0-1022.22+1" in move, "the build for this driver, and not the highest"
    assert "nvidia-driver-580-open=580.159.03-1" in move and "--simulate" in move
    assert calls[calls.index(move) + 1] == ["dgx"]
    assert found["set_move"]["installs"] == {
        "nvidia-driver-580-open": "580.159.03-1", "linux-image-6.17.0-1022-nvidia": "6.17.0-1022.22",
    }  # fmt: skip
    assert found["set_move"]["removes"] == ["linux-modules-nvidia-580-open-6.17.0-1014-nvidia"]
    assert (found["set_move"]["download_bytes"], found["set_move"]["disk_bytes"]) == (3 * 2**20, 3 * 2**21)
    assert schema.problem(found, Rehearsal, "rehearsal") is None


def test_nothing_is_updated_or_installed(tmp_path: Path) -> None:
    _, calls = asked(tmp_path, ASKED, {"show": Completed((), 0, SHOWN)})
    assert not [call for call in calls if "update" in call]
    assert all("--simulate" in call for call in calls if call[:1] == ["apt-get"])


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({}, "no apt source offers linux-image-6.17.0-1022-nvidia 6.17.0-1022.22*"),
        ({"show": Completed((), 0, SHOWN.replace("22+1", "99+1"))}, "no offered build fits the set"),
        ({"show": Completed((), 0, SHOWN), "install": Completed((), 100, "", "E: broken")}, "broken"),
    ],
)
def test_a_set_that_apt_cannot_bring_has_a_reason(tmp_path: Path, answers: Any, says: str) -> None:
    found, _ = asked(tmp_path, ASKED, answers)
    assert says in found["set_move"]["error"]


def test_a_release_without_a_set_is_the_rest_alone(tmp_path: Path) -> None:
    found, calls = asked(
        tmp_path, {**ASKED, "to": "OTA9"}, {"dist-upgrade": Completed((), 0, "Inst x [1] (2 y [all])")}
    )
    assert found["set"] is None and not [call for call in calls if "install" in call]
    assert found["rest"]["installs"] == {"x": "2"} and found["lists_age_s"] == 100


@pytest.mark.parametrize(("offered", "back"), [("580.142-1", True), ("580.178-1", False)])
def test_the_way_back_is_a_source_that_still_has_the_driver(tmp_path: Path, offered: str, *, back: bool) -> None:
    line = f"nvidia-driver-580-open | {offered} | http://x noble/main arm64 Packages"
    found, _ = asked(tmp_path, ASKED, {"madison": Completed((), 0, line)})
    assert found["offers_back"] is back


def test_a_host_without_dpkg_says_so(tmp_path: Path) -> None:
    host = HostReader(System(tmp_path, lambda argv, stdin, timeout: Completed((), 127), Clock()))
    found = rehearse(host, [], ASKED)
    assert "cannot be read" in found["rest"]["error"] and schema.problem(found, Rehearsal, "rehearsal") is None


def test_the_newest_is_no_pre_release() -> None:
    told = [("OTA1", "2026-01-01"), ("OTA2-ebeta", "2026-03-01"), ("OTA2", "2026-02-01")]
    recipes = [{"content": {"metadata": {"name": name, "releaseDate": date}}} for name, date in told]
    assert (chosen("newest", recipes), chosen("newest", []), chosen("OTA1", recipes)) == ("OTA2", None, "OTA1")
