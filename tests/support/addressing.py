"""Facts of clusters, for the planner of addresses."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import shown
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import addressing
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.addressing import ClusterFabric

NAMES = {
    "p0": [("enp1s0f0np0", "rocep1s0f0"), ("enP2p1s0f0np0", "roceP2p1s0f0")],
    "p1": [("enp1s0f1np1", "rocep1s0f1"), ("enP2p1s0f1np1", "roceP2p1s0f1")],
}


def make_facts(number: int = 0, *, management: str | None = None, rails: bool = True) -> dict[str, Any]:
    return {
        "ssh": {"interface": "enP7s7", "local_address": management, "peer_address": "192.0.2.1"},
        "default_route_interfaces": ["enP7s7"],
        "interfaces": [{"name": "enP7s7", "addresses": [management or f"192.0.2.{number + 1}/24", "fe80::1/64"]}],
        "rails": [
            {"netdev": netdev, "hca": hca, "hca_port": 1, "port": port, "twin_index": twin}
            for port, functions in NAMES.items()
            for twin, (netdev, hca) in enumerate(functions)
        ]
        if rails
        else [],
    }


def make(topology: str, count: int, **options: Any) -> dict[str, Any]:
    return shown(cluster(topology, count, **options))


def cluster(topology: str, count: int, **options: Any) -> ClusterFabric:
    hosts = [f"spark-{number}" for number in range(count)]
    options = {"network": "10.32.0.0/13", **options}
    facts = {host: make_facts(number) for number, host in enumerate(hosts)}
    return addressing.plan(topology, hosts, facts, **options)
