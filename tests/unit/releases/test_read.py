"""What a host says of its release, read from files of a simulated host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.releases.read import (
    FWUPD,
    RECIPES,
    TABLE,
    is_recipe,
    read_release,
)
from ansible_collections.gb10.fleet.plugins.module_utils.releases.smbios import firmware_entries
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, Completed, System

RECIPE = {
    "metadata": {"name": "OTA1", "releaseDate": "2026-01-01T00:00:00.000Z"},
    "package": [{"name": "dgx-release", "version": "7.5.0"}],
}
STATUS = """Package: dpkg
Status: install ok installed
Architecture: arm64
Version: 1.22

Package: dgx-release
Status: hold ok installed
Architecture: all
Version: 7.5.0

Package: docker-ce
Status: install ok installed
Architecture: arm64
Version: 5:29.2.1

Package: vim
Status: install ok installed
Architecture: arm64
Version: 2:9.1
"""


def structure(kind: int, *texts: str) -> bytes:
    """As DSP0134 has it: header, numbers of the strings, the strings, two zeros."""
    area = bytes([kind, 10, 0, 0, 1, 2, 0, 0, 0, 0])
    return area + b"\0".join(text.encode() for text in texts) + b"\0\0"


def host(tmp_path: Path, files: dict[str, str | bytes], fwupd: Completed | None = None) -> tuple[HostReader, list[Any]]:
    for path, content in files.items():
        place = tmp_path / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    calls: list[Any] = []

    def run(argv: Any, stdin: str | None, timeout: float) -> Completed:
        calls.append(tuple(argv))
        return fwupd or Completed((), 127)

    return HostReader(System(tmp_path, run, Clock())), calls


def test_a_host_that_says_nothing(tmp_path: Path) -> None:
    reader, calls = host(tmp_path, {})
    found = read_release(reader)
    assert (found["recipes"], found["packages"], found["firmware"], found["fwupd"]) == ([], {}, None, None)
    assert found["pinned_by_us"] is False
    assert calls == [FWUPD], "and no command that updates itself or apt"


def test_a_host_that_says_all(tmp_path: Path) -> None:
    devices = {
        "Devices": [
            {"Name": "SoC", "Plugin": "uefi_capsule", "Guid": ["g"], "Version": "0x02980F00", "Serial": "secret",
             "Releases": [{"Version": "0x02980F01", "Flags": ["is-upgrade"]}, {"Version": "0x01", "Flags": []}]},
            {"Name": "without a GUID"},
        ]
    }  # fmt: skip
    files: dict[str, str | bytes] = {
        f"{RECIPES}/spark-ota-1.json": json.dumps(RECIPE),
        f"{RECIPES}/spark-ota-broken.json": "{",
        f"{RECIPES}/notes.txt": "x",
        "/var/lib/dpkg/status": STATUS,
        TABLE: structure(1, "x", "serial") + structure(45, "EC Firmware", "3.3.2") + structure(127),
        "/sys/class/dmi/id/board_vendor": "NVIDIA\n",
        "/sys/class/infiniband/rocep1s0f0/fw_ver": "28.45.4028\n",
        "/proc/cmdline": "quiet kho=off\n",
        "/run/reboot-required": "",
        "/etc/apt/preferences.d/10-gb10-nvidia": "",
    }
    reader, _calls = host(tmp_path, files, Completed((), 0, json.dumps(devices)))
    found = read_release(reader)
    assert [(each["file"], each["content"]) for each in found["recipes"]] == [("spark-ota-1.json", RECIPE)]
    assert found["broken_recipes"] == ["spark-ota-broken.json"]
    assert found["packages"] == {"dgx-release": "7.5.0", "docker-ce": "5:29.2.1"} and found["held"] == ["dgx-release"]
    assert found["firmware"] == [{"component": "EC Firmware", "version": "3.3.2"}]
    (device,) = found["fwupd"]
    assert (device["version"], device["offers"]) == ("0x02980F00", "0x02980F01")
    assert "secret" not in json.dumps(found) and "serial" not in json.dumps(found)
    assert found["connectx"] == [{"device": "rocep1s0f0", "version": "28.45.4028"}]
    assert (found["board_vendor"], found["reboot_required"]) == ("NVIDIA", True)
    assert {disk["mount"] for disk in found["disks"]} <= {"/"}
    assert "kho=off" in found["command_line"] and found["pinned_by_us"] is True


def test_an_answer_of_fwupd_without_an_end_is_none(tmp_path: Path) -> None:
    reader, _calls = host(tmp_path, {}, Completed((), 0, "[" * 100_000))
    assert read_release(reader)["fwupd"] is None


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"metadata": {}},
        {"metadata": {"name": "x"}},
        RECIPE | {"package": [{"name": 1}]},
        RECIPE | {"firmware": "x"},
        RECIPE | {"package": [{"name": "x", "version": "1"}] * 2001},
        *(
            RECIPE | {"metadata": {"name": "x", "releaseDate": date}}
            for date in ("2026-7-15", "July 15, 2026", "20260715", "zzzz", "2026-13-01", "2026-07-151", "9026")
        ),
    ],
)
def test_what_is_no_recipe_is_named_and_judged_by_nobody(tmp_path: Path, content: Any) -> None:
    reader, _calls = host(tmp_path, {f"{RECIPES}/spark-ota-x.json": json.dumps(content)})
    found = read_release(reader)
    assert (found["recipes"], found["broken_recipes"]) == ([], ["spark-ota-x.json"])


FIRMWARE_TABLE = structure(1, "x") + structure(45, "EC Firmware", "3.3.2") + structure(45, "FLASH", "SBP:R:2.152.15")


def test_a_whole_table_tells_all_its_firmware() -> None:
    assert [each["version"] for each in firmware_entries(FIRMWARE_TABLE + structure(127)) or ()] == [
        "3.3.2",
        "SBP:R:2.152.15",
    ]


@pytest.mark.parametrize("cut", [0, 3, 4, 7, 20, 40, 50, len(FIRMWARE_TABLE)])
def test_a_table_that_ends_before_its_end_mark_tells_nothing(cut: int) -> None:
    assert firmware_entries(FIRMWARE_TABLE[:cut]) is None


@pytest.mark.parametrize("damaged", [b"\x2d\x00\x00\x00", structure(1, "x") + structure(127), structure(127)])
def test_a_table_without_firmware_tells_nothing(damaged: bytes) -> None:
    assert firmware_entries(damaged) is None


def test_fwupd_may_say_something_before_and_after_its_json(tmp_path: Path) -> None:
    text = "WARNING: {x}\n" + json.dumps({"Devices": [{"Guid": ["g"]}]}, indent=2) + "\nbye\n"
    reader, _calls = host(tmp_path, {}, Completed((), 0, text))
    assert [each["guids"] for each in read_release(reader)["fwupd"]] == [["g"]]


@pytest.mark.parametrize("devices", [None, {}, "x", 7])
def test_an_answer_of_fwupd_without_devices_is_none(tmp_path: Path, devices: Any) -> None:
    reader, _calls = host(tmp_path, {}, Completed((), 0, json.dumps({"Devices": devices})))
    assert read_release(reader)["fwupd"] is None


UPGRADE = {"Version": "2", "Flags": ["is-upgrade"]}


@pytest.mark.parametrize(
    ("odd", "offers"),
    [
        ({"Guid": "b488"}, []),
        ({"Guid": []}, []),
        ({"Guid": ["g", 7]}, []),
        ("x", []),
        (None, []),
        ({"Guid": ["o"], "Releases": None}, [None]),
        ({"Guid": ["o"], "Releases": {"x": 1}}, [None]),
        ({"Guid": ["o"], "Releases": [{"Flags": ["is-upgrade"]}, "x", None, UPGRADE]}, ["2"]),
        ({"Guid": ["o"], "Releases": [{**UPGRADE, "Flags": None}, {**UPGRADE, "Version": 7}]}, [None]),
    ],
)
def test_one_odd_device_of_fwupd_spoils_no_other(tmp_path: Path, odd: Any, offers: list[str | None]) -> None:
    good = {"Guid": ["g"], "Releases": [UPGRADE]}
    reader, _calls = host(tmp_path, {}, Completed((), 0, json.dumps({"Devices": [odd, good]})))
    assert [each["offers"] for each in read_release(reader)["fwupd"]] == [*offers, "2"]


ODD: list[dict[str, Any]] = [
    *({"firmware": [{"name": "EC", "version": "1", "guid": guid}]} for guid in (["g"], {"a": 1}, 5, True)),
    *({"metadata": {**RECIPE["metadata"], "required_match": [each]}} for each in ({}, ["p"], 5, None)),  # type: ignore[dict-item]
]


@pytest.mark.parametrize("change", ODD)
def test_what_cannot_be_scored_is_no_recipe(change: dict[str, Any]) -> None:
    entry = {"name": "EC", "version": "1", "guid": "g"}
    good = {**RECIPE, "firmware": [entry, {**entry, "guid": None}]}
    assert is_recipe(good) and not is_recipe({**good, **change})
