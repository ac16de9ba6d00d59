# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated releases of the vendor: recipes in the form of nvidia-spark-ota-check, firmware of two boards.

Names and GUIDs are the published ones; versions of packages are the lab's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BOARD = "/var/lib/gb10-lab/board"  # of a host: lab-board plays what lies there
METADATA = "/opt/nvidia/spark-ota-check/metadata"
CHECKER = "1.0.16-1"
GUIDS = {
    "SOCFW": "b488217b-3895-4fc0-b1bf-ab7005a2d45a",
    "EC": "3d13c989-e6a8-4ead-95ee-921f09868f65",
    "USBPD": "dd1a238a-5f8e-46bd-9401-a88da99c5a96",
    "TPM": "0eb9bda9-3010-493a-a6a8-b5e80eddf870",
}
VENDORS = {"nvidia": "NVIDIA", "asus": "ASUSTeK COMPUTER INC."}


@dataclass(frozen=True)
class Release:
    name: str
    shown: str
    date: str
    driver: str
    kernel: str
    firmware: Mapping[str, str]
    upload: str  # version of the kernel's packages
    checker: str = CHECKER

    @property
    def suite(self) -> str:
        """Of the lab's repository."""
        return f"release-{self.name.removeprefix('OTA')}"

    @property
    def packages(self) -> dict[str, str]:
        """The lab's versions: of driver parts, and of one package that is nobody's part."""
        version = f"{self.driver}-0ubuntu0.24.04.1"
        return {
            "nvidia-driver-580-open": version,
            "nvidia-utils-580": version,
            "nvidia-spark-ota-check": self.checker,
        }

    def recipe(self) -> dict[str, Any]:
        return {
            "metadata": {
                "name": self.name, "external_name": self.shown, "description": "simulated", "priority": "important",
                "releaseNotesUrl": "https://example.invalid/notes", "releaseDate": f"{self.date}T00:00:00.000Z",
            },
            "package": [{"name": name, "version": version} for name, version in self.packages.items()],
            "firmware": [
                {"name": name, "version": version, "guid": GUIDS[name]} for name, version in self.firmware.items()
            ],
            "connectx": [{"name": "CX7", "version": "28.45.4028"}],
            "software": [
                {"name": "kernel", "version": f"{self.kernel}-nvidia"}, {"name": "driver", "version": self.driver},
            ],
        }  # fmt: skip


def _firmware(soc: str, controller: str, ports: str) -> dict[str, str]:
    return {"SOCFW": soc, "EC": controller, "USBPD": ports, "TPM": "7.516.1"}


_MARCH, _APRIL = _firmware("2.148.26", "2.78.24", "0.5.7"), _firmware("2.152.15", "3.3.2", "0.5.22")
_JULY = _firmware("2.155.11", "3.5.8", "0.5.22")
RELEASES = (
    Release("OTA2.2", "March 2026", "2026-03-31", "580.126.09", "6.17.0-1008", _MARCH, "6.17.0-1008.8"),
    Release("OTA2604", "April 2026", "2026-04-21", "580.142", "6.17.0-1014", _APRIL, "6.17.0-1014.14"),
    Release("OTA2607", "July 2026", "2026-07-15", "580.159.03", "6.17.0-1022", _JULY, "6.17.0-1022.22"),
    Release("OTA26.09.2", "", "2026-09-14", "580.178.04", "7.0.0-1019", _JULY, "7.0.0-1019.19~24.04.2"),
)


def recipe_files(releases: Sequence[Release] = RELEASES) -> dict[str, str]:
    """Path -> text, as they lie on a host."""
    return {
        f"{METADATA}/spark-ota-{each.name.removeprefix('OTA')}.json": json.dumps(each.recipe(), indent=2)
        for each in releases
    }


def smbios(firmware: Mapping[str, str]) -> bytes:
    """The table of a board: structures of type 45 (DSP0134). It has no TPM, as no Spark's has."""
    rows = [
        ("UEFI", "R:1.110.13"),
        ("FLASH", f"SBP:R:{firmware['SOCFW']}"),
        ("EC Firmware", firmware["EC"]),
        *(("PD Firmware", f"PD{port} FW1: {firmware['USBPD'].removeprefix('0.')}, FW2: 4.10") for port in (0, 1)),
    ]
    structures = [
        bytes([45, 10, number, 0, 1, 2, 0, 0, 0, 0]) + b"\0".join(text.encode() for text in row) + b"\0\0"
        for number, row in enumerate(rows)
    ]
    return b"".join(structures) + bytes([127, 4, 0xFE, 0xFF]) + b"\0\0"


def fwupd(board: str, firmware: Mapping[str, str], offers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The devices of a board as `fwupdmgr get-devices --json` words them. A partner's board knows none of the GUIDs."""
    own = {"nvidia": GUIDS, "asus": {"SOCFW": "5e8b7b53-0000-4b10-8121-00000000a505"}}[board]
    return {"devices": [_device(VENDORS[board], own[name], firmware[name], (offers or {}).get(name)) for name in own]}


def board_files(board: str, has: Release, offered: Release | None = None) -> dict[str, bytes]:
    """What lies below BOARD on a host: its firmware now, and what it is once a boot has applied all that is offered."""

    def firmware(release: Release, offers: Mapping[str, str] | None = None) -> dict[str, bytes]:
        told = json.dumps(fwupd(board, release.firmware, offers))
        return {"DMI": smbios(release.firmware), "fwupd.json": told.encode()}

    newer = offered.firmware.items() - has.firmware.items() if offered else ()
    flashed = {f"flashed/{name}": content for name, content in firmware(offered).items()} if offered else {}
    return {"board_vendor": f"{VENDORS[board]}\n".encode(), **firmware(has, dict(newer)), **flashed}


def _device(vendor: str, guid: str, version: str, offered: str | None) -> dict[str, Any]:
    releases = [{"Version": _hex(offered), "Flags": ["is-upgrade"], "Uri": "https://example.invalid/x.cab"}]
    return {
        "Name": "UEFI Device Firmware", "DeviceId": guid.replace("-", ""), "Guid": [guid], "Vendor": vendor,
        "Plugin": "uefi_capsule", "Protocol": "org.uefi.capsule", "Flags": ["internal", "updatable", "needs-reboot"],
        "Version": _hex(version), "VersionFormat": "hex", **({"Releases": releases} if offered else {}),
    }  # fmt: skip


def _hex(version: str | None) -> str:
    """Three numbers of a recipe as fwupd says them: 2.152.15 is 0x02980F00. Other shapes stay as they are."""
    numbers = [int(part) for part in version.split(".")] if version else []
    if len(numbers) == 3 and max(numbers) < 256:
        return "0x" + "".join(f"{number:02X}" for number in numbers) + "00"
    return version or ""
