# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test that tells what was said in this run from what a fact cache kept of an earlier one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import run


def this_run(value: Any) -> bool:
    return bool(value == run.RUN)


class TestModule:
    def tests(self) -> dict[str, Callable[..., bool]]:
        return {"this_run": this_run}
