# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters of serving: which key a service is asked with, how its host is reached, and which units it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.services import MOST_SERVICES
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service_entries import key_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import usage


def key(services: Mapping[str, Mapping[str, Any]], name: str, common: str) -> str:
    """A service has its own key or the common one. Another program than vLLM gets none that is not its own."""
    return key_of(services.get(name, {}), common)


def rows(lines: Iterable[str]) -> list[list[str]]:
    """Return the words of the first lines: of each service its unit, and the socket that wakes it."""
    return [line.split() for line in islice(lines, 2 * MOST_SERVICES)]


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"service_key": key, "reach": usage.reach, "unit_rows": rows}
