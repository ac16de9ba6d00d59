# SPDX-License-Identifier: GPL-3.0-or-later
"""The containers of others that end with Docker: named before it is stopped, and started again behind it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import Pending, Plan, Step
from ansible_collections.gb10.fleet.plugins.module_utils.reading.containers import ended_with_docker, runs
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

_UNITS = ("unit:docker.service", "unit:containerd.service")
_PACKAGES = ("package:docker-ce", "package:containerd.io")
_ENDING = ("restart", "repair", "stop")  # of a unit; an exchange of a package restarts it
_START_S = 60.0


def ended(plan: Plan, system: System) -> list[str]:
    """Those that the steps of the plan end, or would end with the operator's consent; asked only where there is one."""
    items: list[Step[Any] | Pending] = [*plan.steps, *plan.pending]
    if not any(_ends_docker(item) for item in items):
        return []
    return [*map(str, ended_with_docker(HostReader(system=system)))]


@contextlib.contextmanager
def kept(plan: Plan, system: System) -> Iterator[None]:
    """Start again what ran before the steps, also where they fail. HostError for one that does not start."""
    host = HostReader(system=system)
    ran = ended_with_docker(host) if any(map(_ends_docker, plan.steps)) else []
    try:
        yield
    finally:
        lost = []
        for each in ran if runs(host) else ():  # an undo takes Docker away
            done = system.run(["docker", "start", each.name], timeout=_START_S)
            if done.rc != 0:
                lost.append(f"{each}: {done.words}")
    if lost:
        raise HostError(
            f"Docker was restarted, and these containers did not start again: {'; '.join(lost)}. They are not ours: "
            "start them as you did before, then run again"
        )


def _ends_docker(item: Step[Any] | Pending) -> bool:
    label = item.resource.label
    return label in _PACKAGES or (label in _UNITS and item.action in _ENDING)
