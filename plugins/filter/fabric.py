# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter of the fabric: which cables lead elsewhere than planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import cabling


def wrong_cables(heard: Mapping[str, Sequence[Mapping[str, str]]], hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return cabling.wrong(cabling.judge({host: own["profiles"] for host, own in hosts.items()}, heard))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"fabric_wrong_cables": wrong_cables}
