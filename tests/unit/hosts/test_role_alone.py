"""Roles in a playbook of a user's own: no doctor has read the facts of the cluster before them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.plays import FACTS, Plays

BOTH = {"spark-a": {"ansible_host": "kind-a"}, "spark-b": {"ansible_host": "kind-b"}}
PAIR: dict[str, Any] = {
    "gb10_cluster": "sparks",
    "fabric_topology": "pair",
    "fabric_allow_activation": True,
    "flight_recorder_enabled": True,
    "flight_recorder_key": "k" * 32,
}
# In place of the real one, which would read the machine of the test.
SPARK_FACTS = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
import json, os
module = AnsibleModule({"sections": {"type": "list"}}, supports_check_mode=True)
with open(os.environ["GB10_TEST_HOST"] + "/host.json") as file:
    module.exit_json(changed=False, ansible_facts={"gb10_spark": json.load(file)["facts"]})
"""


@pytest.fixture
def plays(tmp_path: Path) -> Plays:
    plays = Plays(tmp_path)
    modules = tmp_path / "collections/ansible_collections/gb10/fleet/plugins/modules"
    real = modules.resolve()
    modules.unlink()
    modules.mkdir()
    for path in real.iterdir():
        if path.suffix == ".py" and path.name != "spark_facts.py":
            (modules / path.name).symlink_to(path)
    (modules / "spark_facts.py").write_text(SPARK_FACTS)
    for number, kind in enumerate("ab"):
        rails = [dict(rail) for rail in FACTS["rails"]]
        for twin, rail in enumerate(rails[:2]):
            rail.update(mtu=9000, addresses=[f"192.168.10{twin}.1{number}/24"])
        plays.host(kind, facts={"rails": rails})
    return plays


def play(*roles: str, **keywords: Any) -> list[dict[str, Any]]:
    return [{"hosts": "sparks", "gather_facts": False, "roles": [f"gb10.fleet.{role}" for role in roles], **keywords}]


def applied(plays: Plays, kind: str) -> list[str]:
    return [document["role"] for request in plays.requests(kind) for document in request["documents"]]


@pytest.mark.parametrize("role", ["firewall", "flight_recorder"])
def test_a_role_that_plans_from_its_cluster_reads_the_facts_of_all_hosts_first(plays: Plays, role: str) -> None:
    rc, output = plays.play(BOTH, play(role), **PAIR)
    assert rc == 0, output
    assert applied(plays, "a") == applied(plays, "b") == [role]


@pytest.mark.parametrize("role", ["firewall", "flight_recorder"])
def test_a_host_of_a_cluster_alone_is_refused(plays: Plays, role: str) -> None:
    for args, keywords in ((("--limit", "spark-a"), {}), ((), {"serial": 1})):
        rc, output = plays.play(BOTH, play(role, **keywords), *args, **PAIR)
        assert rc == 2, output
        assert f"the role {role} needs the facts of spark-b, read in this run" in " ".join(output.split())
    assert applied(plays, "a") == []


def test_beside_a_host_that_failed_earlier_the_other_says_that_it_waits_once_for_all_roles(plays: Plays) -> None:
    fails = {"ansible.builtin.fail": {"msg": "no space"}, "when": "inventory_hostname == 'spark-b'"}
    tasks = [fails, {"gb10.fleet.plan": {"roles": ["fabric", "firewall", "flight_recorder"]}}]
    rc, output = plays.play(BOTH, [{"hosts": "sparks", "gather_facts": False, "tasks": tasks}], **PAIR)
    assert rc == 2, output
    said = " ".join(output.split())
    waits = "spark-a: waits for spark-b of its cluster, which failed earlier in this run: mend that first"
    assert f'"refusals": ["{waits}"], "waits_for": ["spark-b"]' in said, output
