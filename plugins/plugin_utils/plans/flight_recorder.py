# SPDX-License-Identifier: GPL-3.0-or-later
"""Which host keeps the last seconds of which: each sends to the next one of its cluster, over the rail between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, programs
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import planner as fabric
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.addressing import ClusterFabric

SHORTEST_KEY = 32
ALIKE = ("flight_recorder_key", "flight_recorder_port", "flight_recorder_enabled")


@dataclass(frozen=True)
class FlightRecorderSettings(RoleSettings, role="flight_recorder"):
    flight_recorder_enabled: bool
    flight_recorder_key: str
    flight_recorder_port: int


@dataclass(frozen=True, kw_only=True)
class FlightRecorderPlan(RolePlan):
    """`settings` as programs/recorder reads them. `following` keeps what this host sends; this one keeps `before`'s."""

    records: bool
    following: str = ""
    before: str = ""
    settings: Mapping[str, Any]

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that both programs import."""
        return programs.modules_of("programs/recorder/keep", "programs/recorder/send")

    @property
    def restart_on(self) -> tuple[str, ...]:
        """The files that the units read."""
        return (
            "/etc/gb10-fleet/recorder.key",
            "/etc/gb10-fleet/recorder-keep.key",
            "/etc/gb10-fleet/recorder.json",
            *(programs.installed("recorder", module) for module in self.modules),
        )


def plan(view: View) -> FlightRecorderPlan:
    said = view.settings(FlightRecorderSettings)
    if not said.flight_recorder_enabled:
        return FlightRecorderPlan(records=False, settings={})
    if refusals := tuple(_refusals(view, said)):
        return FlightRecorderPlan(records=False, settings={}, refusals=refusals)
    following, before = (view.members[(view.rank + step) % view.size] for step in (1, -1))
    whole = fabric.cluster_fabric(view)
    there, here = _rail(whole, view.host, following), _rail(whole, before, view.host)
    if there is None or here is None:
        missing = following if there is None else before
        refusal = f"flight_recorder_enabled: no rail of the plan joins {view.host} and {missing}; see fabric_topology."
        return FlightRecorderPlan(records=False, settings={}, joint_refusals=(refusal,))
    figures = catalog.load("flight_recorder")["figures"]
    port = said.flight_recorder_port
    settings = {
        "host": view.host,
        "to": {"host": following, "address": there[1], "port": port},
        "listen": here[1],
        "port": port,
        "from": {here[0]: before},
        "most_bytes": figures["most_bytes"]["value"],
        "bytes_per_s": figures["bytes_per_s"]["value"],
    }
    return FlightRecorderPlan(records=True, following=following, before=before, settings=settings)


def _rail(whole: ClusterFabric, host: str, peer: str) -> tuple[str, str] | None:
    """The addresses of both ends of the first rail that joins two hosts."""
    mine = whole.hosts.get(host)
    ends = (
        (profile.address, other.address)
        for profile in (mine.profiles if mine else ())
        for other in profile.peers
        if other.host == peer
    )
    return next(ends, None)


def _refusals(view: View, settings: FlightRecorderSettings) -> list[str]:
    found = []
    if view.size == 1:
        found.append(
            f"flight_recorder_enabled: {view.host} is in no cluster, so no host keeps what it sends; leave it false."
        )
    if len(settings.flight_recorder_key) < SHORTEST_KEY:
        found.append(
            f"flight_recorder_key has fewer than {SHORTEST_KEY} characters; make one with `openssl rand -hex 32`,"
            " put it into a vault, and give it to all hosts of the cluster."
        )
    of_all = [view.settings(FlightRecorderSettings, member) for member in view.members]
    differing = [name for name in ALIKE if len({getattr(each, name) for each in of_all}) > 1]
    if differing:
        found.append(f"{', '.join(differing)} must be alike on all hosts of a cluster; set them on its group.")
    return found
