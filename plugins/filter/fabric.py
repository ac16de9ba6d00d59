# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of the fabric: its plan, its pings, its measuring rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import addressing as fabric_plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import cabling
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.plan import PlanError


def plan(hosts: Sequence[str], topology: str, facts: Mapping[str, Mapping[str, Any]], **options: Any) -> dict[str, Any]:
    try:
        return fabric_plan.plan(topology, list(hosts), facts, **options)
    except PlanError as error:
        raise AnsibleFilterError(str(error)) from error


def wrong_cables(
    heard: Mapping[str, Sequence[Mapping[str, str]]], fabric: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> list[str]:
    return cabling.wrong(cabling.judge({host: own["profiles"] for host, own in fabric["hosts"].items()}, heard))


class FilterModule:
    """Ansible asks this class for the filters of the file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "fabric_plan": plan,
            "fabric_pings": fabric_plan.pings,
            "fabric_rounds": fabric_plan.rounds,
            "fabric_words": fabric_plan.in_words,
            "fabric_neighbours": cabling.calls,
            "fabric_wrong_cables": wrong_cables,
        }
