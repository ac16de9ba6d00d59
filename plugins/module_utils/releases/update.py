# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a release that are no host set: the rest of the packages, and firmware by fwupd.

The set has moved before, with holds and pins of its own, so driver and kernel stay here. Firmware is only staged: the
next boot applies it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine import apt_errors
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.dpkg import APT_OPTIONS, run_locked, simulate
from ansible_collections.gb10.fleet.plugins.module_utils.reading.dpkg import read_database
from ansible_collections.gb10.fleet.plugins.module_utils.releases import trial
from ansible_collections.gb10.fleet.plugins.module_utils.system.driver_packages import moves_on_purpose
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document

BEFORE = "/var/lib/gb10-fleet/release-before.json"
CAPSULES_S = 900.0
_NOTHING = 2  # fwupdmgr: no update is there
_UPGRADE = ("apt-get", "dist-upgrade", *APT_OPTIONS, "--no-install-recommends")


def keep(system: System, release: Mapping[str, Any], to: str = "") -> None:
    """What the host was before the update to the release `to`. Without recipes, for they are there afterwards, too.

    An update that is gone on with is not the state of before, also where the host has booted in between: what was
    kept stays until another release is asked for, or until this one was taken back.
    """
    boot = (system.text("/proc/sys/kernel/random/boot_id") or "").strip()
    found = kept(system) or {}
    of = found.get("to") or ""
    if to and of == to and not found.get("taken_back"):
        return
    if boot and found.get("boot_id") == boot and not of:  # nobody said for which release
        return
    _write(system, {**release, "recipes": [], "broken_recipes": [], "boot_id": boot, "to": to})


def _write(system: System, before: Mapping[str, Any]) -> None:
    system.private_directory("/var/lib/gb10-fleet")
    system.write(BEFORE, json.dumps(before).encode(), mode=0o600)


def kept(system: System) -> dict[str, Any] | None:
    """None where no update has begun, or where the file is none."""
    return document(system.text(BEFORE)) or None


def packages(system: System, *, check: bool) -> dict[str, list[str]]:
    """Bring the rest of the packages; refuses where that would exchange driver or kernel, or remove anything."""
    if not check:
        done = run_locked(system, ["apt-get", "update"])
        if done.rc != 0:
            raise HostError(f"apt-get update failed: {apt_errors.explained(done, system)}")
    found = simulate(system, _UPGRADE)
    if found.error:
        raise HostError(f"apt cannot bring the rest of the packages: {found.error}")
    moving = sorted(filter(moves_on_purpose, found.installs))
    if moving:
        raise HostError(
            f"the rest of the packages would bring {', '.join(moving)}, which belong to the host set: run the role"
            " driver first, so that its holds are there"
        )
    if found.removes:
        gone = ", ".join(sorted(found.removes))
        raise HostError(f"the rest of the packages would remove {gone}; decide that by hand")
    if found.installs and not check:
        # Between the simulation and this, another program may have changed what apt knows.
        done = run_locked(system, (*_UPGRADE, "--no-remove"))
        system.forget()
        if done.rc != 0:
            raise HostError(f"apt did not bring the rest of the packages: {apt_errors.explained(done, system)}")
        left = read_database(system).unfinished
        if left:
            raise HostError(f"dpkg has work left over: {', '.join(left)}; run dpkg --configure -a")
    return {"installs": sorted(found.installs)}


def firmware(system: System, guids: Sequence[str], *, check: bool) -> bool:
    """Stage these capsules; whether there is one to stage."""
    if not guids or check:
        return bool(guids)
    argv = ["fwupdmgr", "update", *guids, "--assume-yes", "--no-reboot-check"]
    done = system.run(argv, timeout=CAPSULES_S)
    if done.rc not in (0, _NOTHING):
        raise HostError(f"fwupdmgr could not stage the firmware: {done.words}; fwupdmgr get-history says more")
    return done.rc == 0


def boot_before(system: System, leave: str, release: str = "", *, check: bool) -> str | None:
    """Let the kernel of before the update boot once, where the host runs the one to leave; else None.

    `release`: the one that is taken back, so that what was kept for another one is not taken for it.

    The running kernel cannot be taken away, so a move back of the set begins with that boot. A move has left the image
    of the kernel that ran, and an update keeps its name before any reboot.
    """
    found = kept(system) or {}
    if trial.running(system) != leave:
        if not check:
            trial.clear_once(system)
            if found and not found.get("taken_back") and release in ("", found.get("to")):
                _write(system, {**found, "taken_back": True})  # the next update to the same release begins anew
        return None
    before, of = str(found.get("kernel") or ""), str(found.get("to") or "")
    if before == leave and release and of == release:
        return None  # an update on one kernel: both releases have it
    if not before or before == leave or (release and of not in ("", release)):
        told = f" ({release})" if release else ""
        raise HostError(
            f"{BEFORE} does not name the kernel of before{told}, and the running {leave} has to go: boot the older"
            ' kernel by hand (docs/driver.md, "Move back"), then run again'
        )
    if not check:
        trial.boot_once(system, before)
    return before
