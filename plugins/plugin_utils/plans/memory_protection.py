# SPDX-License-Identifier: GPL-3.0-or-later
"""Which services that kill by memory are stopped on a host."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View


@dataclass(frozen=True)
class MemoryProtectionSettings(RoleSettings, role="memory_protection"):
    memory_protection_allow_stop: bool


@dataclass(frozen=True, kw_only=True)
class MemoryProtectionPlan(RolePlan):
    """`stopped` are units of systemd. They belong to installed packages; the catalog says why each is stopped."""

    stopped: tuple[str, ...]


def plan(view: View) -> MemoryProtectionPlan:
    if not view.settings(MemoryProtectionSettings).memory_protection_allow_stop:
        return MemoryProtectionPlan(stopped=())
    packages, daemons = view.facts["packages"], catalog.load("memory")["oom_daemons"]
    return MemoryProtectionPlan(
        stopped=tuple(unit for daemon in daemons if daemon["value"] in packages for unit in daemon["units"])
    )
