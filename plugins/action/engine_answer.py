# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Front of the module engine_answer: see plugin_utils/hosts/module_front.py."""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.long_step import Said
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.module_front import ModuleFront
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import engine


class Answer(TypedDict):
    """Its one key; engine.problem judges what is in it."""

    engine: dict[str, object]


class ActionModule(ModuleFront):
    """Ask the vLLM of an image."""

    answer = Answer

    def _wrong(self, result: Said) -> str | None:
        return engine.problem(result.get("engine"))
