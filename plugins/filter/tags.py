# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters of the play state: the roles that a run takes, and the tags that nobody has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import tags


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"chosen_roles": tags.chosen_roles, "mistyped_tags": tags.mistyped_tags}
