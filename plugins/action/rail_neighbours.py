# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of the module rail_neighbours: see plugin_utils/hosts/module_front.py."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.module_front import ModuleFront


class ActionModule(ModuleFront):
    """Hear what the rails of one host are joined to."""
