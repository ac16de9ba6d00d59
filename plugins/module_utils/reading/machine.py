# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machine this is: the product, its system, file systems and kernel parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import mount_of
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import sha256

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired

DISK_PATHS = ("/", "/boot", "/var/lib/docker")
# What DGX OS sets and the role kernel_parameters leaves alone; the findings know the lowest sound values.
VERIFIED_SYSCTLS = ("vm.max_map_count",)


class Os(TypedDict):
    id: str | None
    version_id: str | None
    pretty: str | None


class Product(TypedDict):
    dmi_vendor: str | None
    dmi_name: str | None
    dmi_family: str | None
    dgx_release: dict[str, str] | None


class Disk(TypedDict):
    mount: str
    size_bytes: int
    free_bytes: int


class MachineFacts(TypedDict):
    hostname: str | None
    architecture: str
    os: Os
    product: Product
    # whether we are (effective uid 0)
    root: bool
    # for / /boot /var/lib/docker and the paths asked for (their mounts)
    disks: list[Disk]
    # what DGX OS sets and findings verify
    sysctls: dict[str, int | None]
    # of /etc/machine-id, 16 hexadecimal digits; the id itself stays on the host
    machine_digest: NotRequired[str | None]


def read_facts(host: HostReader, paths: Sequence[str]) -> MachineFacts:
    """Return what spark_facts says of it; `disks` also holds the mounts of `paths`."""
    return {
        "hostname": host.read("/proc/sys/kernel/hostname"),
        "architecture": host.machine,
        "os": read_os(host),
        "product": read_product(host),
        "root": host.system.privileged,
        "disks": read_disks(host, paths),
        "sysctls": {name: host.number("/proc/sys/" + name.replace(".", "/")) for name in VERIFIED_SYSCTLS},
        "machine_digest": read_machine_digest(host),
    }


def _assignments(text: str | None) -> dict[str, str]:
    """`KEY="value"` lines; of a repeated key the last one counts (dgx-release gains one DGX_OTA_VERSION per update)."""
    pairs = (line.partition("=") for line in (text or "").splitlines() if not line.lstrip().startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, sign, value in pairs if sign and key.strip()}


def read_os(host: HostReader) -> Os:
    release = _assignments(host.read("/etc/os-release") or host.read("/usr/lib/os-release"))
    return {"id": release.get("ID"), "version_id": release.get("VERSION_ID"), "pretty": release.get("PRETTY_NAME")}


def read_product(host: HostReader) -> Product:
    dgx = _assignments(host.read("/etc/dgx-release"))
    return {
        "dmi_vendor": host.read("/sys/class/dmi/id/sys_vendor"),
        "dmi_name": host.read("/sys/class/dmi/id/product_name"),
        # Partner boards keep their own product name and say "DGX Spark" in the family.
        "dmi_family": host.read("/sys/class/dmi/id/product_family"),
        # Without the serial number: facts go into evidence, and evidence gets shared.
        "dgx_release": {key: value for key, value in dgx.items() if "SERIAL" not in key} or None,
    }


def read_machine_digest(host: HostReader) -> str | None:
    """A digest of the machine id, which itself is not for others (machine-id(5)); None before the first boot."""
    found = re.match(r"[0-9a-f]{32}\Z", host.read("/etc/machine-id") or "")
    return sha256(f"gb10-fleet:{found[0]}".encode())[:16] if found else None


def read_mounts(host: HostReader) -> dict[str, str]:
    """Each mount point, and what is mounted there. The kernel writes a space in a name as its number."""
    rows = [line.split() for line in (host.read("/proc/self/mounts") or "").splitlines()]
    return {
        re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), row[1]): row[0] for row in rows if len(row) > 2
    }


def read_disks(host: HostReader, paths: Sequence[str]) -> list[Disk]:
    """The file systems under DISK_PATHS and `paths`, each once, named by its mount point."""
    wanted = dict.fromkeys(mount_of(path, {*read_mounts(host), "/"}) for path in (*DISK_PATHS, *paths))
    disks: list[Disk] = []
    for mount in wanted:
        try:
            stat = host.statvfs(str(host.path(mount)))
        except OSError:
            continue
        size, free = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
        disks.append({"mount": mount, "size_bytes": size, "free_bytes": free})
    return disks
