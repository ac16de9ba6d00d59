# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the GPU's clocks are locked on a host, and between which."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View


@dataclass(frozen=True)
class ClockLockSettings(RoleSettings, role="clock_lock"):
    clock_lock_allow: bool
    clock_lock_min_mhz: int
    clock_lock_max_mhz: int


@dataclass(frozen=True, kw_only=True)
class ClockLockPlan(RolePlan):
    locks: bool
    min_mhz: int
    max_mhz: int


def plan(view: View) -> ClockLockPlan:
    settings = view.settings(ClockLockSettings)
    low, high = settings.clock_lock_min_mhz, settings.clock_lock_max_mhz
    least = catalog.load("clock_lock")["figures"]["least_max_mhz"]["value"]
    refusals = []
    if not 0 <= low <= high:
        refusals.append(f"clock_lock_min_mhz is {low} and clock_lock_max_mhz {high}; say 0 <= min <= max.")
    elif high < least:
        refusals.append(
            f"clock_lock_max_mhz is {high}; say {least} or more, for less looks like a broken power supply."
        )
    return ClockLockPlan(refusals=tuple(refusals), locks=settings.clock_lock_allow, min_mhz=low, max_mhz=high)
