# SPDX-License-Identifier: GPL-3.0-or-later
"""Which services of a host are watched, and by what figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, programs
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import waits
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import services


@dataclass(frozen=True)
class WatchdogSettings(RoleSettings, role="watchdog"):
    watchdog_allow_restart: bool
    watchdog_services: tuple[str, ...]
    watchdog_after_s: int
    watchdog_host_guard: str


@dataclass(frozen=True, kw_only=True)
class WatchdogPlan(RolePlan):
    """`services`: names, none for all; `rules` as checks/hang.py has them. `guard`: disabled, report or reboot."""

    watches: bool
    services: tuple[str, ...]
    rules: Mapping[str, float]
    guard: str
    guard_rules: Mapping[str, float]

    @property
    def guard_modules(self) -> tuple[str, ...]:
        return programs.modules_of("programs/host_guard")

    @property
    def guard_restart_on(self) -> tuple[str, ...]:
        """The files that the guard reads when it starts, its own text among them."""
        return (
            "/etc/systemd/system/gb10-host-guard.service",
            "/etc/gb10-fleet/host-guard.json",
            "/usr/local/sbin/gb10-host-guard",
            *(programs.installed("host_guard", module) for module in self.guard_modules),
        )


def plan(view: View) -> WatchdogPlan:
    settings = view.settings(WatchdogSettings)
    figures, limits = catalog.load("watchdog")["figures"], catalog.load("health")["limits"]
    least = figures["least_s"]["value"]
    refusal = (
        f"watchdog_after_s is {settings.watchdog_after_s}; say {least} or more, for a shorter pause is no hang."
        if settings.watchdog_after_s < least
        else ""
    )
    return WatchdogPlan(
        refusals=tuple(
            filter(
                None, (refusal, *waits.too_long(watchdog_after_s=settings.watchdog_after_s), _unknown(view, settings))
            )
        ),
        watches=settings.watchdog_allow_restart,
        services=settings.watchdog_services,
        rules={
            "after_s": settings.watchdog_after_s,
            "power_w": limits["hang_power_w"]["value"],
            "gap_s": figures["gap_s"]["value"],
            "breaker_s": figures["breaker_s"]["value"],
            "busy_percent": catalog.load("thresholds")["benchmark"]["busy_percent"]["value"],
            "held_clock_mhz": limits["held_clock_mhz"]["value"],
        },
        guard=settings.watchdog_host_guard,
        guard_rules={
            name: figures[f"guard_{name}"]["value"] for name in ("full_percent", "sustained_s", "every_s", "per_day")
        },
    )


def _unknown(view: View, settings: WatchdogSettings) -> str:
    """A name that no host of the fleet knows is a slip, and nobody would watch what it means."""
    known = services.declared_names(view) if settings.watchdog_services else frozenset()
    strange = [name for name in settings.watchdog_services if name not in known]
    if not strange or not known:
        return ""
    return (
        f"watchdog_services names {', '.join(strange)}, and no service is called that; there are "
        f"{', '.join(sorted(known))}. Correct it; an empty list watches all."
    )
