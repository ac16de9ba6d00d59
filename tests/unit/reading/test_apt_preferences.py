"""Which of apt's preferences decide before ours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import apt_preferences
from ansible_collections.gb10.fleet.plugins.module_utils.system import driver_packages
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System

NAMES = ["nvidia-utils-580", "libnvidia-compute-580", "linux-nvidia-hwe-24.04"]


def earlier(root: Path, **files: str) -> list[dict[str, Any]]:
    """`preferences` is the file of that name, every other one a part."""
    for name, text in files.items():
        path = (
            root / "etc/apt" / ("preferences" if name == "preferences" else f"preferences.d/{name.replace('_', '-')}")
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return apt_preferences.read_earlier(System(root=root), NAMES)


def stanza(package: str, pin: str = "version *", priority: str = "500") -> str:
    return f"Package: {package}\nPin: {pin}\nPin-Priority: {priority}\n"


def test_only_what_apt_reads_first_counts(tmp_path: Path) -> None:
    text = stanza("nvidia-utils-580")
    found = earlier(
        tmp_path, preferences=text, **{"00-dgx": text, "09-x.pref": text, "10-gb10-nvidia": text, "zz": text}
    )
    assert [row["file"] for row in found] == [
        "/etc/apt/preferences",
        "/etc/apt/preferences.d/00-dgx",
        "/etc/apt/preferences.d/09-x.pref",
    ]
    assert found[0] == {
        "file": "/etc/apt/preferences",
        "package": "nvidia-utils-580",
        "pin": "version *",
        "priority": 500,
    }


@pytest.mark.parametrize("name", ["00-x.bak", "00-x.dpkg-old", "00-x~", ".00-x"])
def test_files_that_apt_passes_over_do_not_count(tmp_path: Path, name: str) -> None:
    assert earlier(tmp_path, **{name: stanza("nvidia-utils-580")}) == []


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("nvidia-utils-580", ["nvidia-utils-580"]),
        ("bash nvidia-utils-580:arm64", ["nvidia-utils-580"]),
        ("*nvidia-*580", ["libnvidia-compute-580", "nvidia-utils-580"]),
        ("/^LIB.*580$/", ["libnvidia-compute-580"]),
        ("src:nvidia-graphics-drivers-580", ["src:nvidia-graphics-drivers-580"]),
        ("src:bash", []),
        ("*", []),  # a general form comes after every specific one
        ("src:ba*", []),
        ("src:NVIDIA-graphics-drivers-580", []),
        ("/(/", []),
        ("nvidia-utils-58", ["nvidia-utils-58"]),
        # What is not installed, and may come.
        ("nvidia-driver-610-open nvidia-open:any", ["nvidia-driver-610-open", "nvidia-open"]),
        ("cuda-drivers", ["cuda-drivers"]),
        ("cuda-toolkit", []),
        (r"/\<nvidia-driver-590-open\>/", ["nvidia-driver-590-open"]),
        ("/^nvidia-(x|utils)**-580/", ["nvidia-utils-580"]),
        ("/^nvidia-utils-580$/:any", ["nvidia-utils-580"]),
        ("/^nvidia-[[:alpha:]]*-580/", []),  # apt cuts it at its last colon, and takes the rest for a glob
        ("NVIDIA-utils-*", ["nvidia-utils-580"]),
        ("nvidia-[^a-t]tils-580", ["nvidia-utils-580"]),
        ("nvidia-?tils-580", ["nvidia-utils-580"]),
        (r"nvidia-util\s-*", ["nvidia-utils-580"]),
        ("src:*", ["src:*"]),
        ("src:/^nv/", ["src:/^nv/"]),
        ("src:linux*", ["src:linux*"]),
        ("src:/GRAPHICS-drivers/:any", ["src:/GRAPHICS-drivers/:any"]),
    ],
)
def test_names_are_read_as_apt_reads_them(field: str, named: list[str]) -> None:
    assert apt_preferences.covers(field, NAMES) == named


@pytest.mark.parametrize("field", ["* bash", "*:any", "/", "//", "/./"])
def test_some_words_mean_every_package(field: str) -> None:
    assert set(apt_preferences.covers(field, NAMES)) == {*NAMES, apt_preferences.FOREIGN[0]}


def test_what_a_host_need_not_have_is_what_the_role_keeps_away() -> None:
    ours = re.compile("|".join((*driver_packages.PARTS, driver_packages.KERNELS)))
    assert [name for name in apt_preferences.FOREIGN if not ours.search(name)] == []


def test_an_expression_that_python_would_ponder_for_years_is_answered() -> None:
    assert apt_preferences.covers("/^([a-z0-9-]+)+!$/", NAMES) == []


def test_stanzas_have_comments_continuations_and_blank_lines_of_blanks() -> None:
    text = "# a\nExplanation: why\nPackage: a\n b\nPin:  release  o=x\n# b\nPin-Priority: -1\n \t\n\n\n"
    text += "PACKAGE: c\n\nPin: x\n"
    assert list(apt_preferences.parse(text)) == [
        {"explanation": "why", "package": "a b", "pin": "release o=x", "pin-priority": "-1"},
        {"package": "c"},
    ]


def test_a_priority_that_is_no_number_counts_as_none(tmp_path: Path) -> None:
    (row,) = earlier(tmp_path, **{"00": stanza("nvidia-utils-580", priority="high")})
    assert row["priority"] == 0


def test_a_pin_on_a_vendor_s_package_counts_in_any_file(tmp_path: Path) -> None:
    folder = tmp_path / "etc/apt/preferences.d"
    folder.mkdir(parents=True)
    (folder / "99-mine").write_text("Package: docker-* nvidia-driver\nPin: version 5:27*\nPin-Priority: 1001\n")
    found = apt_preferences.read_earlier(System(root=tmp_path), [])
    assert {row["package"] for row in found} >= {"docker-ce", "docker-ce-cli"}
    assert {(row["file"], row["pin"]) for row in found} == {("/etc/apt/preferences.d/99-mine", "version 5:27*")}
    assert not any("driver" in row["package"] for row in found), "ours comes before that file, and says it first"
