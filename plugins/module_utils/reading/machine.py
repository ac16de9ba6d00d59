# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machine this is: the product, its system, memory, file systems and kernel parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import mount_of
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import Facts, HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import sha256

DISK_PATHS = ("/", "/boot", "/var/lib/docker")
# What DGX OS sets and the role kernel_parameters leaves alone; the findings know the lowest sound values.
VERIFIED_SYSCTLS = ("vm.max_map_count",)

_RUNNING = "/run/systemd/units/invocation:"  # systemd keeps a link of this name while the unit is up
TIMESYNCD = "systemd-timesyncd"
_TIME_SOURCES = (TIMESYNCD, "chrony", "chronyd", "ntpsec", "ntp", "ntpd", "openntpd")
BELOW = "the machine below"


def _assignments(text: str | None) -> dict[str, str]:
    """`KEY="value"` lines; of a repeated key the last one counts (dgx-release gains one DGX_OTA_VERSION per update)."""
    pairs = (line.partition("=") for line in (text or "").splitlines() if not line.lstrip().startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, sign, value in pairs if sign and key.strip()}


def read_os(host: HostReader) -> Facts:
    release = _assignments(host.read("/etc/os-release") or host.read("/usr/lib/os-release"))
    return {"id": release.get("ID"), "version_id": release.get("VERSION_ID"), "pretty": release.get("PRETTY_NAME")}


def read_product(host: HostReader) -> Facts:
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


def read_memory_bytes(host: HostReader, line: str = "MemTotal") -> int | None:
    found = re.search(rf"^{line}:\s+(\d+) kB", host.read("/proc/meminfo") or "", re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def read_disks(host: HostReader, paths: Sequence[str]) -> list[Facts]:
    """The file systems under DISK_PATHS and `paths`, each once, named by its mount point."""
    mounts = {line.split()[1] for line in (host.read("/proc/self/mounts") or "").splitlines() if len(line.split()) > 2}
    wanted = dict.fromkeys(mount_of(path, mounts | {"/"}) for path in (*DISK_PATHS, *paths))
    disks = []
    for mount in wanted:
        try:
            stat = host.statvfs(str(host.path(mount)))
        except OSError:
            continue
        size, free = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
        disks.append({"mount": mount, "size_bytes": size, "free_bytes": free})
    return disks


def read_sysctls(host: HostReader) -> dict[str, int | None]:
    return {name: host.number("/proc/sys/" + name.replace(".", "/")) for name in VERIFIED_SYSCTLS}


def read_kho_off(host: HostReader) -> bool | None:
    """Whether this boot has kho=off. Of the command line this alone: the rest may hold what is nobody's business."""
    line = host.read("/proc/cmdline")
    return None if line is None else "kho=off" in line.split()


def read_clock(host: HostReader) -> Facts:
    """The time of day, and what sets it, by files: `timedatectl` would start a service in each call."""
    running = (name for name in _TIME_SOURCES if host.path(f"{_RUNNING}{name}.service").is_symlink())
    # A container has no clock of its own.
    source = BELOW if host.path("/run/systemd/container").exists() else next(running, None)
    reached = host.path("/run/systemd/timesync/synchronized").exists() if source == TIMESYNCD else None
    return {"epoch_s": round(host.time_of_day(), 2), "source": source, "synchronized": reached}
