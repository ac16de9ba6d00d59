# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role reboot: how long to wait for the host and for what ran on it, and what forbids a reboot now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

PAUSE_S = 5  # between two questions


@dataclass(frozen=True)
class RebootSettings(RoleSettings, role="reboot"):
    """The public variables of the role reboot."""

    reboot_allow: bool
    reboot_at_once: int
    reboot_wait: int | None


@dataclass(frozen=True, kw_only=True)
class RebootPlan(RolePlan):
    """``wait_s`` is how long the host may take until it answers. For ``settle_s`` after that it is asked, with
    ``pause_s`` between and so at most ``tries`` times, whether everything is back."""

    wait_s: int
    settle_s: int
    tries: int
    pause_s: int


def plan(view: View) -> RebootPlan:
    """The plan for one host."""
    settings, known = view.settings(RebootSettings), catalog.load("reboot")
    return RebootPlan(
        refusals=tuple(_refusals(view.facts["apt"])),
        wait_s=known["wait_s"]["value"] if settings.reboot_wait is None else settings.reboot_wait,
        settle_s=known["settle_s"]["value"],
        tries=known["settle_s"]["value"] // PAUSE_S,
        pause_s=PAUSE_S,
    )


def _refusals(apt: Mapping[str, Any]) -> Iterator[str]:
    """In the middle of an installation; one that was cut short is the graver of the two."""
    if apt["dpkg_interrupted"]:
        yield (
            "an installation was cut short, and what it leaves may not boot. Run site.yml, which repairs it first, or"
            " dpkg --configure -a"
        )
    elif apt["lock_held_by"] is not None:
        yield (
            f"process {apt['lock_held_by']} holds a lock of apt or dpkg, often unattended-upgrades. Wait until it is"
            " done"
        )
