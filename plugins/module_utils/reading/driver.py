# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of the driver: userland, kernel modules, and which kernel boots next.

Read from files, apart from one `modinfo` where modules are compressed, and the kernel's log where Secure Boot may be
why the driver does not run. The module `spark_facts` imports it as well.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading.driver_pins import Pin, Run, read_pins
from ansible_collections.gb10.fleet.plugins.module_utils.reading.grub import KERNEL_FILE, read_grub
from ansible_collections.gb10.fleet.plugins.module_utils.system.root_files import names_in, read_text
from ansible_collections.gb10.fleet.plugins.module_utils.system.values import KernelRelease, PackageName, Version

MANIFEST = "/var/lib/gb10-fleet/manifest.json"
KERNEL_JOURNAL = ("journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", "--output=cat")
MAX_SECTION = 1024 * 1024  # bytes of an ELF section; real ones have some 5,000

_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# kernel/module/signing.c: an unsigned module, one with unsupported crypto, one with unavailable key.
# Behind dmesg's time and caller alone: the kernel quotes names that a login gives, as of a control group.
_REJECTED = r"(?m)^(?:\[[^\]\n]{1,20}\] ?){0,2}(Loading of (?:unsigned )?module(?: with [a-z ]+)? is rejected)"

VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")
# Which package tells the version of the userland, most telling first: libnvidia-compute carries libcuda itself.
_USERLAND = (r"libnvidia-compute(-\d+)?\Z", r"nvidia-utils(-\d+)?\Z", r"nvidia-driver(-\d+)?(-open)?\Z")


class Kernel(TypedDict):
    release: KernelRelease
    module: Version | None
    license: str | None
    flavour: str | None
    listed: bool


class Driver(TypedDict):
    userland: Version | None
    module_on_disk: Version | None
    module_loaded: Version | None
    license: str | None
    kernels: list[Kernel]
    next_kernel: KernelRelease | None
    next_missing: list[str]
    pins: list[Pin]
    unheld: list[PackageName] | None
    secure_boot: bool | None
    rejected: str | None


def read_driver(root: Path, packages: Mapping[str, str], holds: Collection[str], run: Run) -> Driver:
    """The facts of the driver. `packages`: {name: version} of at least those of NVIDIA and its kernels."""
    running = read_text(root, "/proc/sys/kernel/osrelease").strip()
    menu = read_grub(root)
    trees = [name for name in names_in(root, "/lib/modules") if f"linux-image-{name}" in packages]
    images = [found[1] for found in map(KERNEL_FILE.match, names_in(root, "/boot")) if found]
    releases = sorted({*trees, *images})
    modules = _modules(root, [*releases, *([running] if running not in releases else [])], run)
    loaded = VERSION.search(read_text(root, "/proc/driver/nvidia/version").partition("\n")[0])
    here = modules.get(running, {})
    secure_boot = _secure_boot(root)
    return {
        "userland": _userland(root, packages),
        "module_on_disk": here.get("version"),
        "module_loaded": loaded[1] if loaded else None,
        "license": here.get("license"),
        "kernels": [
            {
                "release": release,
                "module": modules[release].get("version"),
                "license": modules[release].get("license"),
                "flavour": flavour(modules[release].get("license")),
                "listed": release in menu.listed,
            }
            for release in releases
        ],
        "next_kernel": menu.next_kernel,
        "next_missing": menu.missing,
        "pins": read_pins(root),
        "unheld": read_unheld(root, packages, holds),
        "secure_boot": secure_boot,
        # The log is long: it is asked only where the driver should run and does not.
        "rejected": _rejected(run) if secure_boot and here.get("version") and not loaded else None,
    }


def _secure_boot(root: Path) -> bool | None:
    """Whether the firmware boots signed programs only: the fifth byte of its variable, behind 4 bytes of attributes."""
    value = read_text(root, _SECURE_BOOT)[4:5]
    return value == "\1" if value in ("\0", "\1") else None


def _rejected(run: Run) -> str | None:
    """The kernel's own word that it has refused a module for its signature. It does not say which one."""
    # To our units dmesg says nothing (ProtectKernelLogs=), and the journal is a file.
    found = re.search(_REJECTED, run(["dmesg"]) or run(KERNEL_JOURNAL))
    return found[1] if found else None


def flavour(license_: str | None) -> str | None:
    """The open module's licence is `Dual MIT/GPL`, the proprietary one's `NVIDIA`, which does not start a GB10
    (RmInitAdapter fails with 580.173.02: Start9Labs/start-technologies issue 3693, 2026-08-20)."""
    return None if not license_ else "open" if "GPL" in license_ else "proprietary"


def _userland(root: Path, packages: Mapping[str, str]) -> str | None:
    for pattern in _USERLAND:
        for name, version in packages.items():
            found = VERSION.search(version) if re.match(pattern, name) else None
            if found:
                return found[1]
    # A driver of the .run installer is in no package: its library's name tells.
    libraries = (root / "usr/lib").glob("*-linux-gnu/libcuda.so.*.*")
    return next((str(path).partition(".so.")[2] for path in sorted(libraries)), None)


def _modules(root: Path, releases: Sequence[str], run: Run) -> dict[str, dict[str, str]]:
    """What `modinfo -k RELEASE nvidia` says of each kernel; it is asked only about compressed modules, all at once."""
    found: dict[str, dict[str, str]] = {release: {} for release in releases}
    compressed = {}
    for release in releases:
        base = f"/lib/modules/{release}"
        module = _listed_module(read_text(root, f"{base}/modules.dep"))
        if module is None:
            continue
        if not module.endswith(".ko"):
            compressed[f"{base}/{module}"] = release
            continue
        try:
            with (root / base.lstrip("/") / module).open("rb") as file:
                entries = elf_section(file, b".modinfo").decode(errors="replace").split("\0")
        except (OSError, ValueError, IndexError, struct.error, OverflowError):
            continue
        found[release] = {key: value for key, sign, value in (entry.partition("=") for entry in entries) if sign}
    about: dict[str, str] = {}
    for line in run(["modinfo", *compressed]).splitlines() if compressed else ():
        key, __, value = line.partition(":")
        if key == "filename":
            about = found.get(compressed.get(value.strip(), ""), {})
        about.setdefault(key, value.strip())
    return found


def _listed_module(dependencies: str) -> str | None:
    """The file that modprobe takes for `nvidia`, out of a kernel's modules.dep."""
    place = -1
    while (place := dependencies.find("/nvidia.ko", place + 1)) >= 0:
        module = dependencies[dependencies.rfind("\n", 0, place) + 1 :].partition(":")[0]
        if "/" not in module[module.find("/nvidia.ko") + 1 :] and " " not in module:
            return module  # and no line of another one that depends on it
    return None


def elf_section(file: BinaryIO, name: bytes) -> bytes:
    """The contents of a section of a 64-bit little-endian ELF file; ValueError if it has none of that name."""
    header = file.read(64)
    if header[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", header, 0x28)
    size, count, names = struct.unpack_from("<HHH", header, 0x3A)
    file.seek(table)
    rows = file.read(size * count)
    # name, type, flags, address, offset, size
    sections = [struct.unpack_from("<IIQQQQ", rows, size * row) for row in range(count)]
    file.seek(sections[names][4])
    texts = file.read(min(sections[names][5], MAX_SECTION))
    for section in sections:
        if texts[section[0] :].partition(b"\0")[0] == name:
            file.seek(section[4])
            return file.read(min(section[5], MAX_SECTION))
    raise ValueError(f"no section {name!r}")


def read_unheld(root: Path, packages: Mapping[str, str], holds: Collection[str]) -> list[str] | None:
    """The packages that the role `driver` has put on hold, and that are not any more; None where it never ran."""
    try:
        resources = json.loads(read_text(root, MANIFEST, limit=-1))["resources"].values()
        ours = [item["declared"] for item in resources if "driver" in item["roles"] and not item["orphan"]]
        held = [item for item in ours if "hold" in item and item.get("state", "held") == "held"]
        lost = [name for name in packages if name not in holds and any(_covers(item, name) for item in held)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, re.error):
        return None
    return sorted(lost) if held else None


def _covers(hold: Mapping[str, Any], name: str) -> bool:
    if not hold.get("match"):
        return bool(hold["hold"] == name)
    matches, excepted, free = (
        any(re.search(pattern, name) for pattern in hold.get(key) or ()) for key in ("match", "except", "free")
    )
    return matches and not excepted and not free
