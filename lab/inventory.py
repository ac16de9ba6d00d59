"""The inventory of a running topology, so that `ansible-playbook -i inventory/lab/pair site.yml` just works."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import yaml

from lab.identity import USER
from lab.topology import GATEWAY, SERVER_PORT, Topology

OVERRIDES = Path(__file__).parent / "overrides.yml"
REGISTRY = f"{GATEWAY}:{SERVER_PORT}"


def ssh_options(known_hosts: Path) -> list[str]:
    return [f"-oUserKnownHostsFile={known_hosts}", "-oStrictHostKeyChecking=yes", "-oIdentitiesOnly=yes"]


def inventory(plan: Topology, image: str, key: Path, known_hosts: Path, overrides: str) -> dict[str, Any]:
    """Pure. Machines form one cluster; a fleet's containers are clusters of one, each for itself."""
    chosen = yaml.safe_load(overrides.replace("{registry}", REGISTRY).replace("{image}", f"{REGISTRY}/{image}")) or {}
    if plan.architecture == "arm64":  # as a Spark
        chosen.get("gb10_accept", {}).pop("architecture", None)
    hosts = {host.name: {"ansible_host": host.address} for host in plan.hosts}
    if plan.fabric == "none":
        sparks: dict[str, Any] = {"hosts": hosts, "vars": {"fabric_topology": "none"}}
    else:
        cluster = f"{plan.fabric}1"
        fabric = {"gb10_cluster": cluster, "fabric_topology": plan.fabric, "fabric_allow_activation": True}
        if plan.fabric == "ring":
            fabric["fabric_network"] = "192.168.96.0/21"  # as in inventory/example/ring: it has six subnets
        sparks = {"children": {cluster: {"hosts": hosts, "vars": fabric}}}
    connection = {
        "ansible_user": USER,
        "ansible_ssh_private_key_file": str(key),
        "ansible_ssh_common_args": shlex.join(ssh_options(known_hosts)),
    }
    return {"all": {"vars": {**connection, **chosen}, "children": {"sparks": sparks}}}


def render(plan: Topology, image: str, key: Path, known_hosts: Path) -> str:
    content = inventory(plan, image, key, known_hosts, OVERRIDES.read_text())
    head = "# Written by `python -m lab up`; it is written anew each time, and `lab down` removes its folder.\n---\n"
    return head + yaml.safe_dump(content, sort_keys=False, width=120)
