# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's own updates where they can still act, and what our holds do to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.apt_preferences import OF_VENDORS
from ansible_collections.gb10.fleet.plugins.module_utils.reading.vendor_updates import DASHBOARD, UPGRADE_ONCE
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject

_LANDSCAPE, _TOOLKIT = "landscape-client", "nvidia-container-toolkit"
CUDA = "developer.download.nvidia.com/compute/cuda"
_PIN_OF_CUDA = f"origin {CUDA.partition('/')[0]}"


def check_vendor_updates(subject: Subject) -> Iterator[Finding]:
    acting = subject.facts["vendor_updates"]
    held = subject.facts["driver"]["unheld"] == []  # None: the role driver never ran; else it has lost some
    if UPGRADE_ONCE in acting:
        result = (
            "the holds of the role driver keep driver and kernel; the rest is upgraded, and the host still reboots"
            if held
            else "driver and kernel move with the rest, and the host reboots"
        )
        yield subject.say(
            "upgrade_at_boot",
            f"{UPGRADE_ONCE}.service has not run yet. At a boot that finds kernel and modules of different builds it"
            f" runs apt-get full-upgrade: {result}",
            f"reboot once while nothing serves, or switch it off: systemctl disable {UPGRADE_ONCE}.service",
        )
    if DASHBOARD in acting:
        result = (
            "the holds of the role driver keep driver and kernel, so the dashboard goes on offering an update;"
            " its button upgrades the rest, flashes firmware and reboots"
            if held
            else "its button upgrades driver, kernel and firmware, and reboots"
        )
        yield subject.say(
            "dashboard_update",
            f"the update button of the DGX dashboard is active: {result}",
            f"move the set with docs/driver.md; to take the button away: systemctl disable --now {DASHBOARD}.service",
        )


def check_landscape(subject: Subject) -> Iterator[Finding]:
    version = subject.facts["packages"].get(_LANDSCAPE)
    if version is not None:
        yield subject.say(
            "landscape",
            f"{_LANDSCAPE} {version} is installed: its server may upgrade packages, restart Docker and reboot when"
            " it likes",
            "leave this host's upgrades and reboots to one of the two: take it out of Landscape's upgrade profiles, or"
            " hold there what the roles driver and docker own",
        )


def check_toolkit_of_cuda(subject: Subject) -> Iterator[Finding]:
    """CUDA's repository has the packages of the container toolkit, too, and apt takes the newest of all sources."""
    sources = subject.facts["apt_sources"]["entries"]
    files = dict.fromkeys(entry["file"] for entry in sources if CUDA in entry["uri"])
    pinned = any(row["package"] == _TOOLKIT and _keeps_cuda_out(row) for row in _pins(subject))
    if files and "container_toolkit" in subject.roles and not pinned:
        yield subject.say(
            "toolkit_of_cuda",
            f"{', '.join(files)} is CUDA's repository, which offers {_TOOLKIT}, too: an upgrade of all packages may"
            " take it from there",
            f"pin it: a stanza `Package: *nvidia-container*` with `Pin: {_PIN_OF_CUDA}` and"
            " `Pin-Priority: -1` in /etc/apt/preferences.d; or raise container_toolkit_version to what it offers",
        )


def check_pins(subject: Subject) -> Iterator[Finding]:
    """Pins on what the roles docker and container_toolkit install; the role driver refuses those on its own set."""
    rows = [row for row in _pins(subject) if not _keeps_cuda_out(row)]
    if rows:
        said = ", ".join(dict.fromkeys(f"{row['file']} gives {row['package']} to {row['pin']}" for row in rows))
        yield subject.say(
            "apt_pin",
            f"a pin of apt decides over packages of our roles: {said}",
            "name that version in docker_version or container_toolkit_version, or remove the stanza; apt takes an exact"
            " version of ours all the same, and its dependencies by the pin",
        )


def _pins(subject: Subject) -> list[Mapping[str, Any]]:
    return [row for row in subject.facts["apt_preferences"] if row["package"] in OF_VENDORS]


def _keeps_cuda_out(row: Mapping[str, Any]) -> bool:
    """The stanza that `toolkit_of_cuda` asks for."""
    return bool(row["pin"].replace('"', "") == _PIN_OF_CUDA and row["priority"] < 0)


CHECKS = (check_vendor_updates, check_landscape, check_toolkit_of_cuda, check_pins)
