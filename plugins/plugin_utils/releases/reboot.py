# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host lacks after a reboot that it had before: a pure function of what it said both times."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.kernel_log import kinds_of
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import unadvised
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, limits

Fault = dict[str, str]  # id, fact, way_out


def expected_kernel(driver: Mapping[str, Any], running: str) -> str | None:
    """What GRUB will boot; None where it does not tell, or did not boot what runs (so its menu says nothing)."""
    listed = [kernel["release"] for kernel in driver["kernels"] if kernel["listed"]]
    return driver["next_kernel"] if running in listed else None


def faults(
    after: Mapping[str, Any],
    before: Mapping[str, Any],
    *,
    units: Sequence[str] = (),
    units_before: Sequence[str] = (),
    kernel_log: str = "",
) -> list[Fault]:
    """What is missing. `before` and `after` are the facts of the Spark; `units` are those of ours that are active;
    `kernel_log` what the kernel has said about the power of its slots since the boot."""
    found = [*_boot(after, before), *_driver(after), *_rails(after, before, kernel_log)]
    missing = sorted(set(units_before) - set(units))
    if missing:
        fact = f"{', '.join(missing)} ran before the reboot and {'does' if len(missing) == 1 else 'do'} not now"
        found.append(_fault("unit_down", fact, f"journalctl -b -u {shlex.quote(missing[0])} says why"))
    return found


def _boot(after: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[Fault]:
    if after["boot_id"] == before["boot_id"]:
        way_out = "systemctl list-jobs and journalctl -u gb10-reboot on the host say what stopped it"
        yield _fault("same_boot", f"the host did not boot again (boot id {after['boot_id']})", way_out)
    due = expected_kernel(before["driver"], before["kernel"])
    if due and after["kernel"] != due:
        way_out = "look at /boot/grub/grubenv and the console: GRUB took another entry, or fell back"
        yield _fault("other_kernel", f"kernel {after['kernel']} runs, GRUB was to boot {due}", way_out)


def _driver(after: Mapping[str, Any]) -> Iterator[Fault]:
    driver, gpu = after["driver"], after["gpu"]
    if not gpu["present"]:
        fact = f"the GPU does not answer: {gpu['query_error']}"
        yield _fault("driver_silent", fact, "dmesg | grep NVRM, and gb10-driver-coherence, say why")
    if driver["module_loaded"] and driver["module_loaded"] != driver["userland"]:
        fact = f"the loaded module is {driver['module_loaded']}, the userland {driver['userland']}"
        yield _fault("driver_differs", fact, "gb10-driver-coherence on the host says what fits together")


def _rails(after: Mapping[str, Any], before: Mapping[str, Any], kernel_log: str) -> Iterator[Fault]:
    known = catalog.load("reboot")
    now = {rail["netdev"]: rail for rail in after["rails"]}
    gone = [rail["netdev"] for rail in before["rails"] if rail["netdev"] not in now]
    down = [rail["netdev"] for rail in before["rails"] if rail["carrier"] and rail["netdev"] in now]
    down = [netdev for netdev in down if not now[netdev]["carrier"]]
    if gone and _latched(kernel_log):
        said = unadvised(kernel_log.strip().splitlines()[0])
        fact = f"{', '.join(gone)} left the PCIe bus, and the kernel says why: {said}"
        yield _fault("slot_power", fact, " ".join(known["cold_power_pull"].split()))
    elif gone:
        way_out = "put the cable in on both ends and wait 20 s: without one the ConnectX-7 is not on the PCIe bus"
        yield _fault("rails_gone", f"{', '.join(gone)} left the PCIe bus", way_out)
    if down:
        way_out = "check that the other end of the cable is powered on and booted; ip link show says the rest"
        yield _fault("rails_down", f"no carrier any more on {', '.join(down)}", way_out)


def _latched(kernel_log: str) -> bool:
    """Whether the kernel says all that the sign needs beside rails that are gone; its own line comes at sound boots."""
    said = {f"log_{kind}" for kind in kinds_of(kernel_log)}
    return "log_slot_power" in said and {*limits.rules().signs["log_slot_power"]["needs"]} <= {*said, "rail_gone"}


def _fault(id_: str, fact: str, way_out: str) -> Fault:
    return {"id": id_, "fact": fact, "way_out": way_out}
