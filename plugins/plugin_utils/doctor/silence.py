# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that gave no answer, and how many of them a run tolerates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding, together
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import some

VARIABLE = "gb10_unreachable_max"
# A host key that is wrong is no silence: it may be another machine. A host that does not let us in is none, either.
_SILENT = "unreachable"
_LIMIT = re.compile(r"(\d+)(%?)")


def most(limit: Any, hosts: int) -> int:
    """Return how many of so many hosts may be silent: a number, or a share as in "10%", rounded down."""
    found = None if isinstance(limit, bool) else _LIMIT.fullmatch(str(limit).strip())
    if found is None:
        raise ValueError(f"{VARIABLE} is {limit!r}: write a number of hosts (2), or a share of them (10%)")
    number = int(found[1])
    if found[2] and number > 100:
        raise ValueError(f"{VARIABLE} is {limit!r}, more than all hosts: write a share of at most 100%")
    return number * hosts // 100 if found[2] else number


def refuse_several(said: Mapping[str, Any]) -> None:
    """Raise ValueError where hosts of one run say different limits: it has one. `said`: that of each host."""
    hosts: dict[str, list[str]] = {}
    for name, limit in said.items():
        hosts.setdefault(str(limit), []).append(name)
    if len(hosts) > 1:
        differs = "; ".join(f"{some(names)}: {limit}" for limit, names in hosts.items())
        raise ValueError(
            f"{VARIABLE} is not the same on all hosts ({differs}); write it once, for the group of them all, "
            f"or say it with the run: -e {VARIABLE}=..."
        )


def without(result: Mapping[str, Any]) -> str:
    """What is said of a host that the run goes on without, in place of a refusal."""
    lines = [f"no answer. The run goes on without this host, for {VARIABLE} allows it:"]
    for finding in result["findings"]:
        (way_out,), __ = together([finding["way_out"]], True)  # there is no need to leave it out by hand
        lines.append(str(Finding(**{**finding, "way_out": way_out})))
    return "\n".join(lines)


def tolerated(judged: Mapping[str, Mapping[str, Any]], limit: int) -> list[str]:
    """The silent hosts that the run goes on without; none where there are more. `judged`: results of the doctor."""
    # Nothing else may block such a host: a mistake in its variables is certain, and is nobody's to tolerate.
    silent = [
        name
        for name, result in judged.items()
        if result.get("unreachable") and {finding["id"] for finding in result["findings"]} == {_SILENT}
    ]
    return silent if len(silent) <= limit else []
