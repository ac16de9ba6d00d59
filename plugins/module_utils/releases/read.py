# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host says of its release: the vendor's recipes on it, firmware, packages, kernel and driver.

A read of its own, for a settled host must not pay for it. It changes nothing: of the vendor's checker only the recipes
are read, since one of its commands updates itself and apt's lists; `fwupdmgr get-devices` asks the daemon alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading import rdma
from ansible_collections.gb10.fleet.plugins.module_utils.reading.dpkg import read_database
from ansible_collections.gb10.fleet.plugins.module_utils.reading.driver_pins import OUR_PREFERENCES
from ansible_collections.gb10.fleet.plugins.module_utils.reading.machine import Disk, read_disks
from ansible_collections.gb10.fleet.plugins.module_utils.reading.running import read_kernel
from ansible_collections.gb10.fleet.plugins.module_utils.reading.software import PACKAGES
from ansible_collections.gb10.fleet.plugins.module_utils.releases.bounds import (
    MAX_ENTRIES,
    MAX_RECIPE,
    MAX_RECIPES,
    is_date,
)
from ansible_collections.gb10.fleet.plugins.module_utils.releases.smbios import FirmwareEntry, firmware_entries
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired

RECIPES = "/opt/nvidia/spark-ota-check/metadata"
TABLE = "/sys/firmware/dmi/tables/DMI"
FWUPD = ("fwupdmgr", "get-devices", "--json", "--no-metadata-check", "--no-unreported-check")
FWUPD_DEADLINE_S = 30.0
_RECIPE = re.compile(r"spark-ota-.*\.json\Z")
_KEYS = ("metadata", "package", "firmware", "connectx", "software")


class Metadata(TypedDict):
    name: str
    releaseDate: str
    external_name: NotRequired[str | None]
    required_match: NotRequired[list[str] | None]


class Entry(TypedDict):
    name: str
    version: str
    guid: NotRequired[str]


class Content(TypedDict):
    metadata: Metadata
    package: NotRequired[list[Entry]]
    firmware: NotRequired[list[Entry]]
    connectx: NotRequired[list[Entry]]
    software: NotRequired[list[Entry]]


class Recipe(TypedDict):
    file: str
    sha256: str
    content: Content


class Fwupd(TypedDict):
    name: str
    plugin: str
    guids: list[str]
    version: str
    offers: str | None


class Connectx(TypedDict):
    device: str
    version: str


class Release(TypedDict):
    recipes: list[Recipe]
    broken_recipes: list[str]
    packages: dict[str, str]
    held: list[str]
    pinned_by_us: bool
    board_vendor: str | None
    firmware: list[FirmwareEntry] | None
    fwupd: list[Fwupd] | None
    connectx: list[Connectx]
    kernel: str | None
    driver: str | None
    command_line: list[str]
    disks: list[Disk]
    reboot_required: bool


def read_release(host: HostReader) -> Release:
    """All that is read. Of the packages: those that the recipes name, and those that the facts have too."""
    recipes, broken = read_recipes(host)
    named = {entry["name"] for recipe in recipes for entry in recipe["content"].get("package", ())}
    try:
        database = host.system.once(read_database)
        named.update(filter(PACKAGES.match, database.installed))
        packages = {name: database.installed[name].version for name in sorted(named & set(database.installed))}
        held = sorted(named.intersection(database.holds))
    except HostError:
        packages, held = {}, []
    return {
        "recipes": recipes,
        "broken_recipes": broken,
        "packages": packages,
        "held": held,
        "pinned_by_us": host.path(OUR_PREFERENCES).exists(),
        "board_vendor": host.read("/sys/class/dmi/id/board_vendor"),
        "firmware": read_firmware(host),
        "fwupd": read_fwupd(host),
        "connectx": read_connectx(host),
        "kernel": read_kernel(host),
        "driver": host.read("/sys/module/nvidia/version"),
        "command_line": (host.read("/proc/cmdline") or "").split(),
        "disks": read_disks(host, ()),
        "reboot_required": host.path("/run/reboot-required").exists(),
    }


def read_recipes(host: HostReader) -> tuple[list[Recipe], list[str]]:
    """The recipes with their digests, and the files that are none."""
    recipes: list[Recipe] = []
    broken = []
    for name in [each for each in host.names(RECIPES) if _RECIPE.match(each)][:MAX_RECIPES]:
        raw = b""
        with contextlib.suppress(OSError):
            raw = host.path(f"{RECIPES}/{name}").read_bytes()
        content = document(raw) if len(raw) <= MAX_RECIPE else {}
        if is_recipe(content):
            digest = hashlib.sha256(raw).hexdigest()
            parts: Any = {key: content.get(key) for key in _KEYS if content.get(key)}
            recipes.append({"file": name, "sha256": digest, "content": parts})
        else:
            broken.append(name)
    return recipes, broken


def is_recipe(content: Any) -> bool:
    """Whether it has a name, a date, and entries with name and version, not too many; what else a score reads of it
    is text."""
    if not isinstance(content, dict) or not isinstance(content.get("metadata"), dict):
        return False
    told = content["metadata"]
    if not all(isinstance(told.get(key), str) and told[key] for key in ("name", "releaseDate")):
        return False
    if not is_date(told["releaseDate"]):
        return False
    required = told.get("required_match") or []
    if not isinstance(told.get("external_name") or "", str) or not isinstance(required, list):
        return False
    if not all(isinstance(each, str) for each in required):
        return False
    entries = [content.get(key) or [] for key in _KEYS[1:]]
    return all(
        isinstance(part, list)
        and len(part) <= MAX_ENTRIES
        and all(
            isinstance(each, dict)
            and all(isinstance(each.get(key), str) for key in ("name", "version"))
            and isinstance(each.get("guid") or "", str)
            for each in part
        )
        for part in entries
    )


def read_firmware(host: HostReader) -> list[FirmwareEntry] | None:
    """SMBIOS type 45; None where the table cannot be read, which takes root."""
    try:
        return firmware_entries(host.path(TABLE).read_bytes())
    except OSError:
        return None


def read_fwupd(host: HostReader) -> list[Fwupd] | None:
    """The devices that fwupd knows by GUID, with version and the newest one on offer; None without an answer.

    fwupdmgr may say something in front of its JSON, and one device that is odd says nothing of the others.
    """
    done = host.system.run(FWUPD, timeout=FWUPD_DEADLINE_S)
    begin = re.search(r"(?m)^\{", done.stdout)
    if done.rc != 0 or begin is None:
        return None
    try:
        found, __ = json.JSONDecoder().raw_decode(done.stdout, begin.start())
    except (ValueError, RecursionError):
        return None
    devices = found.get("Devices")
    return [_device(each) for each in devices if _has_guids(each)] if isinstance(devices, list) else None


def _has_guids(device: Any) -> bool:
    guids = device.get("Guid") if isinstance(device, dict) else None
    return isinstance(guids, list) and bool(guids) and all(isinstance(guid, str) for guid in guids)


def _device(device: Mapping[str, Any]) -> Fwupd:
    """Without serial numbers."""
    releases = device.get("Releases")
    offers = [each["Version"] for each in (releases if isinstance(releases, list) else ()) if _is_upgrade(each)]
    return {
        "name": str(device.get("Name", "")),
        "plugin": str(device.get("Plugin", "")),
        "guids": list(device["Guid"]),
        "version": str(device.get("Version", "")),
        "offers": offers[0] if offers else None,
    }


def _is_upgrade(release: Any) -> bool:
    if not isinstance(release, dict) or not isinstance(release.get("Version"), str):
        return False
    flags = release.get("Flags")
    return isinstance(flags, list) and "is-upgrade" in flags


def read_connectx(host: HostReader) -> list[Connectx]:
    """The firmware of each RDMA device of a ConnectX, as sysfs tells without root; empty where none is on the bus."""
    found: list[Connectx] = []
    for name in host.names(rdma.FOLDER):
        version = host.read(f"{rdma.FOLDER}/{name}/fw_ver")
        if version and name.startswith(("mlx5_", "roce", "ib")):
            found.append({"device": name, "version": version})
    return found
