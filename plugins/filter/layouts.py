# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter of the playbook services: whether there is a layout of that name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import layouts


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"layout_fault": layouts.fault}
