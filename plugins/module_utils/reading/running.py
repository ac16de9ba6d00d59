# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot that runs: its id, its kernel, what is on its command line, how long it is up, and its clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import number, text_of
from ansible_collections.gb10.fleet.plugins.module_utils.system.values import KernelRelease, TimeSource

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired

_RUNNING = "/run/systemd/units/invocation:"  # systemd keeps a link of this name while the unit is up
TIMESYNCD = "systemd-timesyncd"
_TIME_SOURCES = (TIMESYNCD, "chrony", "chronyd", "ntpsec", "ntp", "ntpd", "openntpd")
BELOW = "the machine below"


class Clock(TypedDict):
    epoch_s: float | None
    source: TimeSource | None
    synchronized: bool | None


class RunningFacts(TypedDict):
    boot_id: str | None
    kernel: KernelRelease
    # whether this boot has kho=off on the kernel's command line
    kho_off: NotRequired[bool | None]
    # the time of day at the call, the daemon that sets it, and whether it has reached a server
    clock: Clock


def read_facts(host: HostReader) -> RunningFacts:
    """Return what spark_facts says of it."""
    return {
        "boot_id": read_boot_id(host),
        "kernel": cast("str", read_kernel(host)),  # the controller refuses null
        "kho_off": read_kho_off(host),
        "clock": read_clock(host),
    }


def read_boot_id(host: HostReader) -> str | None:
    return host.read("/proc/sys/kernel/random/boot_id")


def read_kernel(host: HostReader) -> str | None:
    return host.read("/proc/sys/kernel/osrelease")


def read_kho_off(host: HostReader) -> bool | None:
    """Whether this boot has kho=off. Of the command line this alone: the rest may hold what is nobody's business."""
    line = host.read("/proc/cmdline")
    return None if line is None else "kho=off" in line.split()


def read_uptime(host: HostReader) -> float:
    """Return the seconds since the boot; Unknown where the kernel does not tell."""
    return number(text_of(host, "/proc/uptime").split()[0])


def read_clock(host: HostReader) -> Clock:
    """The time of day, and what sets it, by files: `timedatectl` would start a service in each call."""
    running = (name for name in _TIME_SOURCES if host.path(f"{_RUNNING}{name}.service").is_symlink())
    # A container has no clock of its own.
    source = BELOW if host.path("/run/systemd/container").exists() else next(running, None)
    reached = host.path("/run/systemd/timesync/synchronized").exists() if source == TIMESYNCD else None
    return {"epoch_s": round(host.time_of_day(), 2), "source": source, "synchronized": reached}
