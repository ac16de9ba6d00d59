# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may drop the page cache of a host without a password."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

# An account, or a group with % before it; everything else means something to sudo.
_OPERATOR = re.compile(r"%?[a-z_][a-z0-9_-]*\Z")


@dataclass(frozen=True)
class PageCacheSettings(RoleSettings, role="page_cache"):
    page_cache_operators: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PageCachePlan(RolePlan):
    """`operators` are accounts and groups, as sudoers(5) writes them."""

    operators: tuple[str, ...]


def plan(view: View) -> PageCachePlan:
    operators = view.settings(PageCacheSettings).page_cache_operators
    strangers = [name for name in operators if not _OPERATOR.match(name)]
    refusal = (
        f"page_cache_operators holds {', '.join(strangers)}. Name accounts, or groups with % before them, for example"
        " spark or %operators."
    )
    return PageCachePlan(refusals=(refusal,) if strangers else (), operators=operators)
