# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role fabric: addresses of all rails of a cluster, what speaks against them, how they are proven."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.consent import give
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import addressing, cabling, measuring
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.addressing import ClusterFabric, HostFabric

# What the hosts of one cluster must say alike, for their fabric is one.
ALIKE = ("fabric_topology", "fabric_ports", "fabric_network", "fabric_mtu")


@dataclass(frozen=True)
class FabricSettings(RoleSettings, role="fabric"):
    """The public variables of the role fabric."""

    fabric_topology: str
    fabric_ports: tuple[str, ...]
    fabric_rails: Mapping[str, Any]
    fabric_network: str
    fabric_mtu: int
    fabric_allow_activation: bool
    fabric_replace_foreign: bool
    fabric_fixed_gid_index: bool
    fabric_test: Mapping[str, int]
    fabric_thresholds: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class FabricPlan(RolePlan):
    """The fabric of the host's cluster, and the host's own part of it, ``mine``.

    ``waiting`` are the rails of the whole cluster that do not have their address and MTU yet, ``words`` what the rails
    of this host get, a line each. ``calls``, ``pings`` and ``rounds`` are what this host's modules are asked to prove;
    ``round_names`` says which cables a round measures.
    """

    cabled: bool
    topology: str
    network: str
    hosts: Mapping[str, HostFabric]
    mine: HostFabric
    fixed_gid_index: bool
    waiting: tuple[str, ...]
    words: tuple[str, ...]
    calls: tuple[Mapping[str, Any], ...]
    pings: tuple[Mapping[str, Any], ...]
    rounds: tuple[tuple[Mapping[str, Any], ...], ...]
    round_names: tuple[str, ...]


def plan(view: View) -> FabricPlan:
    """The plan for one host; PlanError where its cluster can have none."""
    settings = view.settings(FabricSettings)
    whole = cluster_fabric(view)
    mine = whole.hosts[view.host]
    rounds = measuring.rounds(whole, **settings.fabric_test)
    words = tuple(in_words(mine))
    return FabricPlan(
        joint_refusals=tuple(_refusals(settings, mine)),
        findings=(_coming(words),) if mine.waiting else (),
        cabled=whole.topology != "none",
        topology=whole.topology,
        network=whole.network,
        hosts=whole.hosts,
        mine=mine,
        fixed_gid_index=settings.fabric_fixed_gid_index and whole.topology != "none",
        waiting=tuple(netdev for own in whole.hosts.values() for netdev in own.waiting),
        words=words,
        calls=tuple(cabling.calls(mine)),
        pings=tuple(measuring.pings(mine)),
        rounds=tuple(tuple(tests.get(view.host, ())) for tests in rounds),
        round_names=tuple(_name(tests) for tests in rounds),
    )


def cluster_fabric(view: View) -> ClusterFabric:
    """The address plan of the host's cluster, from the settings and facts of all its members."""
    own = view.settings(FabricSettings)
    of_all = {member: view.settings(FabricSettings, member) for member in view.members}
    return addressing.plan(
        own.fabric_topology,
        view.members,
        view.cluster_facts,
        ports=own.fabric_ports,
        network=own.fabric_network,
        mtu=own.fabric_mtu,
        declared={member: said.fabric_rails for member, said in of_all.items()},
        settings={name: [_plain(getattr(said, name)) for said in of_all.values()] for name in ALIKE},
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _refusals(settings: FabricSettings, mine: HostFabric) -> list[str]:
    """Named before anything changes anywhere; NetworkManager itself is asked again by the engine."""
    refusals = []
    if any(owner.lasting for owner in mine.owners) or (mine.owners and not settings.fabric_replace_foreign):
        ways_out = "; ".join(dict.fromkeys(owner.way_out for owner in mine.owners))
        refusals.append(
            f"{'; '.join(owner.text for owner in mine.owners)}: a port has one owner. On this host, {ways_out}. "
            "Then run again."
        )
    # Without consent the run would fail after the host's part of the work.
    if mine.waiting and not settings.fabric_allow_activation:
        refusals.append(
            f"{', '.join(mine.waiting)} waits for your consent: a NetworkManager profile that is activated takes the "
            "rail down for a moment and gives it its address and MTU. No management interface is touched. "
            f"To allow it for this cluster, {give('fabric_allow_activation')}."
        )
    return refusals


def in_words(mine: HostFabric) -> list[str]:
    """Return what a host gets, one line for each rail, for a person to read before anything changes."""
    return [
        f"{profile.netdev} ({profile.port}): {profile.cidr}, MTU {profile.mtu}, to "
        + ", ".join(f"{peer.host} {peer.port} {peer.address}" for peer in profile.peers)
        + ("" if profile.netdev in mine.waiting else " (as it is)")
        for profile in mine.profiles
    ]


def _coming(words: tuple[str, ...]) -> dict[str, Any]:
    """Return what the rails will get, said before anything changes."""
    way_out = "nothing to do: the role fabric does it"
    return {"id": "fabric_plan", "severity": "info", "fact": "; ".join(words), "way_out": way_out, "accepted": None}


def _name(tests: Mapping[str, list[dict[str, Any]]]) -> str:
    """The cables of a round. A pairing has a test for each rail, which both its hosts know: a:p0--b:p0/1."""
    names = dict.fromkeys(test["name"].partition("/")[0] for own in tests.values() for test in own)
    return ", ".join(name.replace("--", " to ").replace(":", " ") for name in names)
