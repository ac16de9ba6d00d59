# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters of the role release_update: which release is meant, what holds it, and which firmware it stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import flashing


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "release_firmware": flashing.chosen,
            "release_held": flashing.held,
            "release_named": flashing.named,
        }
