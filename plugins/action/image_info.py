# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of the module image_info: see plugin_utils/hosts/module_front.py."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.module_front import ModuleFront


class ActionModule(ModuleFront):
    """Read what an image has, on one host."""
