# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of the module services: see plugin_utils/hosts/module_front.py."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import facts_schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.module_front import ModuleFront
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.services_said import Said


class ActionModule(ModuleFront):
    """List the services of one host."""

    answer = "services"

    def _wrong(self, said: Any) -> str | None:
        return facts_schema.differs(said, list[Said], "services")
