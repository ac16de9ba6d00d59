# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's own updates where they can still act, and what our holds do to them."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.gb10.fleet.plugins.module_utils.reading.vendor_updates import DASHBOARD, UPGRADE_ONCE
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject


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


CHECKS = (check_vendor_updates,)
