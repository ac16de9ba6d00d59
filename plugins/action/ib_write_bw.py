# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of the module ib_write_bw: see plugin_utils/hosts/module_front.py."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.module_front import ModuleFront


class ActionModule(ModuleFront):
    """Run one end of a bandwidth test on one host."""
