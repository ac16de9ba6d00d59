# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host says of its services, in the answer of gb10.fleet.services."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.facts_schema import Wish


class Said(TypedDict):
    """One service."""

    name: str
    unit: str
    state: str
    enabled: bool
    since: int | None
    phase: str | None
    load_s: float | None
    members: list[str]
    memory_gib: float | None
    model: str | None
    port: int | None
    served_name: NotRequired[str | None]
    url: NotRequired[str | None]
    rank: NotRequired[int]
    wish: Wish | None
