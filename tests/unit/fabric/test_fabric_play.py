"""Rails in real ansible-playbook runs: shown, cables checked, changed in a task of their own, and confirmed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.plays import FACTS, Plays

STATE = "- ansible.builtin.import_playbook: gb10.fleet.converge\n"
VALIDATE = "- ansible.builtin.import_playbook: gb10.fleet.validate\n"
DOCTOR = """
- hosts: sparks
  gather_facts: false
  tasks:
    - gb10.fleet.doctor:
      register: doctor
    - ansible.builtin.debug: {msg: "found: {{ doctor.findings | map(attribute='id') | list }}"}
"""
BOTH = {"spark-a": {"ansible_host": "kind-a"}, "spark-b": {"ansible_host": "kind-b"}}
PAIR: dict[str, Any] = {
    "gb10_cluster": "sparks",
    "fabric_topology": "pair",
    "fabric_allow_activation": True,
    "gb10_roles": ["kernel_parameters", "fabric"],
    "ansible_become": False,
}
CHANGE = {"resource": "nm_profile:x", "role": "fabric", "action": "update"}
# In place of the real one: what was heard is written down beside the play, for no machine here has such rails.
NEIGHBOURS = """#!/usr/bin/python
import json
from ansible.module_utils.basic import AnsibleModule
options = {"token": {"type": "str", "no_log": False}, "host": {}, "rails": {"type": "list", "elements": "dict"}}
module = AnsibleModule(options, supports_check_mode=True)
with open("%s") as file:
    heard = json.load(file)[module.params["host"]]
module.exit_json(changed=False, heard=heard, mute=[], token=module.params["token"])
"""
# Which fault each end of the first rail has, call by call; the figures of the second one say which call it was.
BANDWIDTH = """#!/usr/bin/python
import json, os
from dataclasses import asdict
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gb10.fleet.plugins.module_utils.fabric.perftest import Report
module = AnsibleModule({"tests": {"type": "list", "elements": "dict"}}, supports_check_mode=True)
tests = module.params["tests"]
faults = {}
if os.path.exists("%s"):
    with open("%s") as file:
        faults = json.load(file)
calls = "%s." + tests[0]["end"]
number = os.path.exists(calls) and os.path.getsize(calls)
with open(calls, "a") as file:
    file.write("x")
blank = dict(fault=None, latency_us=None, state="ok", counters={}, perftest="6.24", command=[], attempts=1, output="")
blank["listening_after_s"] = None
figures = asdict(Report(97.0 + number, 65536, 9000, 4, 4096, 3, *[None] * 4))
results = [{**blank, **test, "figures": {**figures, "gbytes_per_s": 12.2}} for test in tests]
name = faults.get(tests[0]["end"], [None])[number]
if name:
    results[0].update(state="failed", figures=None, fault={"name": name, "text": "seen", "way_out": "do"})
module.exit_json(changed=False, version="6.24", tests=results)
"""


@pytest.fixture
def plays(tmp_path: Path) -> Plays:
    plays = Plays(tmp_path)
    plugins = tmp_path / "collections/ansible_collections/gb10/fleet/plugins"
    real = (plugins / "modules").resolve()
    (plugins / "modules").unlink()
    (plugins / "modules").mkdir()
    for path in real.iterdir():
        if path.suffix == ".py" and path.name not in ("rail_neighbours.py", "ib_write_bw.py"):
            (plugins / "modules" / path.name).symlink_to(path)
    (plugins / "modules/rail_neighbours.py").write_text(NEIGHBOURS % (tmp_path / "heard.json"))
    said = tmp_path / "faults.json"
    (plugins / "modules/ib_write_bw.py").write_text(BANDWIDTH % (said, said, tmp_path / "calls"))
    wired(plays)
    return plays


def wired(plays: Plays, there: str = "p0") -> None:
    """spark-a's p0 leads to this port of spark-b."""
    both = {"netdev": "enp1s0f0np0", "there_netdev": "enp1s0f0np0"}
    heard = {
        "spark-a": [{**both, "port": "p0", "host": "spark-b", "there_port": there}],
        "spark-b": [{**both, "port": there, "host": "spark-a", "there_port": "p0"}],
    }
    (plays.tmp_path / "heard.json").write_text(json.dumps(heard))


def pair(plays: Plays, live: bool, **says: Any) -> None:
    for number, kind in enumerate("ab"):
        rails = [dict(rail) for rail in FACTS["rails"]]
        for twin, rail in enumerate(rails[:2]):
            rail.update(mtu=9000, addresses=[f"192.168.10{twin}.1{number}/24"] if live else [])
        plays.host(kind, facts={"rails": rails}, **says)


def sent(plays: Plays, kind: str) -> list[tuple[list[str], bool, bool]]:
    """The calls to a host: roles, check mode, and whether a change of the network is to wait for a word."""
    return [
        ([document["role"] for document in request["documents"]], request["check"], "guard" in request)
        for request in plays.requests(kind)
    ]


def test_rails_that_wait_are_shown_and_change_in_a_task_of_their_own(plays: Plays) -> None:
    pair(plays, live=False)
    rc, output = plays.play(BOTH, STATE, **PAIR)
    assert rc == 0, output
    assert "enp1s0f0np0 (p0): 192.168.100.10/24, MTU 9000, to spark-b p0 192.168.100.11" in output
    applied = [call for call in sent(plays, "a") if not call[1]]
    assert applied == [(["kernel_parameters"], False, True), (["fabric"], False, True)]


def test_rails_as_planned_travel_with_all_the_rest(plays: Plays) -> None:
    pair(plays, live=True)
    rc, output = plays.play(BOTH, STATE, **PAIR)
    assert rc == 0, output
    assert [call for call in sent(plays, "a") if not call[1]] == [(["kernel_parameters", "fabric"], False, True)]
    listened = output.partition("Find the partner behind each port")[2].partition("TASK [")[0]
    assert listened.count("skipping") == 2


def test_a_wrong_cable_ends_the_run_before_anything_changes(plays: Plays) -> None:
    pair(plays, live=False)
    wired(plays, there="p1")
    rc, output = plays.play(BOTH, STATE, **PAIR)
    said = " ".join(output.split())
    assert rc == 2, output
    assert "spark-a p0: the cable leads to spark-b p1, and should lead to spark-b p0" in said
    assert "at spark-b, move that end of the cable from p1 to p0" in said
    assert all(check for _roles, check, _waits in sent(plays, "a") + sent(plays, "b"))


def test_a_change_of_the_network_is_confirmed_with_the_same_documents(plays: Plays) -> None:
    pair(plays, live=True, guard={"id": "f" * 16, "seconds": 5, "resources": []}, changes=[CHANGE])
    engine = plays.tmp_path / "collections/ansible_collections/gb10/fleet/plugins/module_utils/engine/remote.py"
    confirmed = '    if request.get("confirm"):\n        said.update(guard=None, changes=[])\n'
    engine.write_text(engine.read_text().replace("    return {**said,", f"{confirmed}    return {{**said,"))
    rc, output = plays.play(BOTH, STATE, **PAIR)
    assert rc == 0, output
    first, second = [request for request in plays.requests("a") if not request["check"]]
    assert first["guard"] == second["confirm"]
    assert first["documents"] == second["documents"]
    assert (bool(first["expect"]), second["expect"]) == (True, {})


def test_doctor_says_what_the_rails_will_get(plays: Plays) -> None:
    pair(plays, live=False)
    for _ in range(2):  # with the facts of both, which the second look has
        rc, output = plays.play(BOTH, DOCTOR, **PAIR)
        assert rc == 0, output
    assert output.count("fabric_plan") == 2, output
    pair(plays, live=True)
    rc, output = plays.play(BOTH, DOCTOR, **PAIR)
    assert "fabric_plan" not in output


def test_a_refusal_of_the_plan_names_its_host_once(plays: Plays) -> None:
    """As a result of the task, and as a finding."""
    pair(plays, live=False)
    plays.host("a", facts={"rails": []})
    doctor = {"gb10.fleet.doctor": {"refuse": False}}
    plan = {"gb10.fleet.plan": {"roles": ["fabric"]}}
    said = {"ansible.builtin.debug": {"msg": "{{ ansible_failed_result.msg }}"}}
    tasks = [doctor, {"block": [plan], "rescue": [said]}, doctor]
    rc, output = plays.play(BOTH, [{"hosts": "sparks", "gather_facts": False, "tasks": tasks}], **PAIR)
    assert rc == 0, output
    words = " ".join(output.split())
    assert '"msg": "spark-a has no rail on port p0' in words
    assert "spark-b: spark-a has no rail on port p0" in words, "the other host of the cluster has the same refusal"
    assert "spark-a: spark-a" not in words and "spark-a: fabric_refused: spark-a" not in words


def test_the_proof_of_a_pair_surveys_its_rails_in_one_call(plays: Plays) -> None:
    """No machine here has such rails: nobody is heard, each ping says why, and the evidence has it."""
    pair(plays, live=True)
    rc, output = plays.play(BOTH, VALIDATE, **{**PAIR, "gb10_roles": ["fabric"]})
    assert rc == 2 and "Prove | Read the GID tables, find the partner" in output, output
    found = json.loads((plays.tmp_path / "evidence/latest/evidence.json").read_text())
    assert "proof_stopped" not in json.dumps(found), output
    hosts = found["hosts"]
    for name in BOTH:
        assert hosts[name]["heard"] == [] and len(hosts[name]["pings"]) == 2
        assert {ping["ok"] for ping in hosts[name]["pings"]} == {False}
        assert [rail["netdev"] for rail in hosts[name]["gids"]["rails"]] == ["enp1s0f0np0", "enP2p1s0f0np0"]


@pytest.mark.parametrize(
    ("server", "client", "calls", "kept"),
    [
        ([None, None], ["peer_died", None], 2, [None, None]),
        (["died", "died"], ["peer_died", "peer_died"], 2, ["died", "peer_died"]),
        (["peer_died"], ["retry_exceeded"], 1, ["peer_died", "retry_exceeded"]),
    ],
)
def test_a_test_that_ended_without_a_word_is_measured_again_by_both_hosts(
    plays: Plays, server: list[str | None], client: list[str | None], calls: int, kept: list[str | None]
) -> None:
    """What says something of the fabric is a result, and a second one that broke as well is kept."""
    pair(plays, live=True)
    (plays.tmp_path / "faults.json").write_text(json.dumps({"server": server, "client": client}))
    _rc, output = plays.play(BOTH, VALIDATE, **{**PAIR, "gb10_roles": ["fabric"]})
    assert {len((plays.tmp_path / f"calls.{end}").read_text()) for end in ("server", "client")} == {calls}, output
    hosts = json.loads((plays.tmp_path / "evidence/latest/evidence.json").read_text())["hosts"]
    found = [hosts[name]["bandwidth"] for name in BOTH]
    assert [first["fault"] and first["fault"]["name"] for first, _second in found] == kept
    assert [second["figures"]["gbps"] for _first, second in found] == [97.0 + calls - 1] * 2
    assert ("peer_died, seen" in output) == (client[0] == "peer_died"), "the first one is said as well"
