"""The look at all hosts in one task, and what the playbooks make of it: over an ssh that plays every kind of host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.plays import FACTS, Plays, recap

# Doctor and state as they are, on hosts that get one role; whoever gets past both says so.
SITE = """
- ansible.builtin.import_playbook: gb10.fleet.doctor
- ansible.builtin.import_playbook: gb10.fleet.converge
"""
FACTS_OF = """
- ansible.builtin.import_playbook: gb10.fleet.doctor
- hosts: sparks
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "look={{ (ansible_facts['gb10_probe'] | default({})).unchanged | default('alone') }}"
"""
# A stdout callback as one that writes JSON.
LINES = """
import json
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "stdout", "lines"

    def say(self, event, result):
        keys = sorted(key for key in result.result if key[0] != "_")
        self._display.display(json.dumps({"event": event, "host": result.host.get_name(), "keys": keys}))

    def v2_runner_on_ok(self, result):
        self.say("ok", result)

    def v2_runner_on_unreachable(self, result):
        self.say("unreachable", result)
"""
CHANGE = {"role": "page_cache", "resource": "file:/x", "action": "create", "detail": "absent"}
OURS: dict[str, Any] = {"gb10_roles": ["page_cache"], "ansible_become": False}
LEFT_OUT: dict[str, Any] = {**OURS, "gb10_recap": "changed"}


@pytest.fixture
def plays(tmp_path: Path) -> Plays:
    return Plays(tmp_path)


def hosts(plays: Plays, *kinds: str, **says: Any) -> dict[str, dict[str, Any]]:
    """One host of each kind that answers."""
    for kind in kinds:
        plays.host(kind, **says)
    return {f"spark-{kind}": {"ansible_host": f"kind-{kind}"} for kind in kinds}


def calls(plays: Plays, *kinds: str) -> list[int]:
    return [len(plays.requests(kind)) for kind in kinds]


def alone(output: str) -> str:
    """The recap: hosts with a task of their own."""
    return output.rpartition("PLAY RECAP")[2]


def test_two_names_of_one_machine_stop_the_run(plays: Plays) -> None:
    said = {**FACTS, "machine_digest": "0123456789abcdef"}
    fleet = hosts(plays, "a", "b", facts=said)
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc != 0 and "spark-a: same_machine: spark-b is the same machine under another name" in output, output


def test_a_clock_beside_the_controller_s_is_judged_in_a_run(plays: Plays) -> None:
    late = {**FACTS, "clock": {**FACTS["clock"], "epoch_s": 1000000000.0}}
    rc, output = plays.play(hosts(plays, "a", facts=late), SITE, **OURS)
    assert rc == 0 and "clock_differs: this host's clock is " in output, output


def test_a_unchanged_fleet_costs_one_call_a_host_and_no_task(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b", "c")
    rc, output = plays.play(fleet, SITE, "-v", **LEFT_OUT)
    assert rc == 0 and "3 of 3 hosts are as they should be" in output, output
    assert calls(plays, "a", "b", "c") == [2, 2, 2], "facts that nobody knew, and what follows from them"
    hosts(plays, "a", "b", "c")
    rc, output = plays.play(fleet, SITE, "-v", **LEFT_OUT)
    assert rc == 0 and "3 of 3 hosts are as they should be" in output, output
    assert calls(plays, "a", "b", "c") == [1, 1, 1]
    assert "spark-a" in alone(output) and "spark-b" not in alone(output)


@pytest.mark.parametrize("typed", [False, True], ids=["all at once", "by its own task"])
@pytest.mark.parametrize("remembered", [{}, {"packages": {}}], ids=["first run", "other facts"])
def test_what_the_engine_refuses_the_doctor_says_though_the_facts_are_new(
    plays: Plays, remembered: dict[str, Any], typed: bool
) -> None:
    fleet = hosts(plays, "a", "b", facts=remembered)
    if remembered:
        plays.known(fleet)
    text = "nm_profile:x: enp1s0f0np0 belongs to the profile 'mine' already"
    hosts(plays, "a", changes=[CHANGE])
    hosts(plays, "b", error={"kind": "host", "message": text, "changes": []})
    looks = [{"hosts": "sparks", "gather_facts": False, "tasks": [{"gb10.fleet.doctor": None}]}] if typed else SITE
    rc, output = plays.play(fleet, looks, **{**OURS, "gb10_roles": ["docker"]})
    assert rc == 2 and f"spark-b: state_refused: {text}" in output, output
    assert [request["check"] for request in plays.requests("a")] == [True, True], "nothing changes on any host"
    assert [bool(request["documents"]) for request in plays.requests("b")] == [bool(remembered), True]


def test_every_host_of_a_run_stands_in_the_recap_with_its_facts(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b", "c")
    plays.known(fleet)
    hosts(plays, "a", "b")
    hosts(plays, "c", changes=[CHANGE])
    rc, output = plays.play(fleet, SITE + FACTS_OF.partition("doctor\n")[2], **OURS)
    assert rc == 0 and recap(output) == {"spark-a": "ok", "spark-b": "ok", "spark-c": "changed"}, output
    assert output.count("look=True") == 2 and output.count("look=False") == 1
    assert calls(plays, "a", "b", "c") == [1, 1, 2]
    hosts(plays, "a", "b", "c")
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc == 0 and recap(output) == dict.fromkeys(fleet, "ok")
    assert calls(plays, "a", "b", "c") == [1, 1, 1]


def test_an_unchanged_host_can_be_left_out_of_the_recap(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b", "c")
    plays.known(fleet)
    hosts(plays, "a", "b")
    hosts(plays, "c", changes=[CHANGE])
    rc, output = plays.play(fleet, SITE, **LEFT_OUT)
    # The first host stands for the look at all of them.
    assert rc == 0 and recap(output) == {"spark-a": "ok", "spark-c": "changed"}, output


def test_one_host_without_an_answer_keeps_all_the_others_as_they_are(plays: Plays) -> None:
    fleet = {**hosts(plays, "a", "b"), "spark-away": {"ansible_host": "kind-away"}}
    plays.known(fleet)
    hosts(plays, "a", "b", changes=[CHANGE])
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc == 4, output
    assert recap(output) == {"spark-a": "ok", "spark-b": "ok", "spark-away": "unreachable"}
    assert [request["check"] for request in plays.requests("a") + plays.requests("b")] == [True, True]
    assert "No route to host" in output and "--limit '!spark-away'" in output


@pytest.mark.parametrize(("most", "goes_on"), [("1", True), ("50%", True), ("33%", False), (0, False)])
def test_a_run_goes_on_without_as_many_as_it_may(plays: Plays, most: Any, goes_on: bool) -> None:
    fleet = {"spark-away": {"ansible_host": "kind-away"}, **hosts(plays, "a")}
    plays.known(fleet)
    hosts(plays, "a", changes=[CHANGE])
    rc, output = plays.play(fleet, SITE, **OURS, gb10_unreachable_max=most)
    assert rc == 4, "somebody was not reached"
    assert recap(output) == {"spark-a": "changed" if goes_on else "ok", "spark-away": "unreachable"}, output
    assert ("spark-away: no answer; the run goes on" in output) is goes_on
    said = "The run goes on without this host, for gb10_unreachable_max allows it:" in output
    assert (said, "doctor refuses to go on" in output, "--limit '!spark-away'" in output) == (
        goes_on, not goes_on, not goes_on,
    )  # fmt: skip
    assert "Fix: check power, network, ansible_host" in output


@pytest.mark.parametrize("own", [{"ansible_host": "kind-key"}, {"ansible_host": "kind-away", "fabric_mut": 9000}])
def test_a_wrong_key_and_a_wrong_variable_are_not_tolerated(plays: Plays, own: dict[str, Any]) -> None:
    fleet = {**hosts(plays, "a", changes=[CHANGE]), "spark-b": own}
    rc, output = plays.play(fleet, SITE, **OURS, gb10_unreachable_max=2)
    assert rc == 4 and recap(output) == {"spark-a": "ok", "spark-b": "unreachable"}, output


def test_the_cluster_of_a_silent_host_is_left_alone(plays: Plays) -> None:
    fleet = {**hosts(plays, "a", "b"), "spark-away": {"ansible_host": "kind-away", "gb10_cluster": "pair"}}
    fleet["spark-a"]["gb10_cluster"] = "pair"
    for name in ("spark-a", "spark-away"):
        fleet[name]["fabric_topology"] = "pair"
    group = {"ansible.builtin.group_by": {"key": "pair"}, "changed_when": False}
    play = yaml.safe_dump([{"hosts": "spark-a:spark-away", "gather_facts": False, "tasks": [group]}])
    plays.known(fleet)
    hosts(plays, "a", "b", changes=[CHANGE])
    rc, output = plays.play(fleet, play + SITE, **OURS, gb10_unreachable_max=1)
    assert rc == 4, output
    assert recap(output) == {"spark-a": "ok", "spark-b": "changed", "spark-away": "unreachable"}
    assert "spark-a: left alone, for a host of the same cluster gives no answer" in " ".join(output.split())


def test_how_many_may_be_silent_is_a_number_or_a_share(plays: Plays) -> None:
    rc, output = plays.play(hosts(plays, "a"), SITE, **OURS, gb10_unreachable_max="some")
    assert rc == 2 and "gb10_unreachable_max is 'some': write a number of hosts (2), or a share of them (10%)" in output
    rc, output = plays.play(hosts(plays, "a"), SITE, **OURS, gb10_unreachable_max="101%")
    assert rc == 2 and "gb10_unreachable_max is '101%', more than all hosts" in " ".join(output.split())


def test_how_many_may_be_silent_is_said_once_for_a_run(plays: Plays) -> None:
    """The first host would speak for all of them."""
    fleet = hosts(plays, "a", "b")
    fleet["spark-b"]["gb10_unreachable_max"] = "10%"
    rc, output = plays.play(fleet, SITE, **OURS)
    said = "gb10_unreachable_max is not the same on all hosts (spark-a: 0; spark-b: 10%); write it once"
    assert rc == 2 and said in " ".join(output.split()), output
    fleet["spark-a"]["gb10_unreachable_max"] = "{{ '10%' }}"
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc == 0, output


def test_stdout_belongs_to_the_callback(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    (plays.tmp_path / "lines.py").write_text(LINES)
    monkeypatch.setenv("ANSIBLE_CALLBACK_PLUGINS", str(plays.tmp_path))
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", "lines")
    fleet = {**hosts(plays, "a", "b"), "spark-away": {"ansible_host": "kind-away"}}
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc == 4
    said = {(line["host"], line["event"]): line["keys"] for line in map(json.loads, output.splitlines())}
    assert said.keys() == {("spark-a", "ok"), ("spark-b", "ok"), ("spark-away", "unreachable")}
    assert said["spark-away", "unreachable"] == ["changed", "msg", "unreachable"], "said once"


def test_each_other_other_host_gets_its_own_result_and_no_second_look(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b", "c")
    plays.known(fleet)
    hosts(plays, "a", "c")
    hosts(plays, "b", changes=[CHANGE])
    rc, output = plays.play(fleet, FACTS_OF, "-v", **LEFT_OUT)
    assert rc == 0 and "2 of 3 hosts" in output, output
    assert calls(plays, "a", "b", "c") == [1, 1, 1]
    assert output.count("look=alone") == 2 and output.count("look=False") == 1


def test_only_the_host_with_something_to_do_is_worked_on(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b")
    plays.known(fleet)
    hosts(plays, "a")
    hosts(plays, "b", changes=[CHANGE])
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc == 0, output
    assert [request["check"] for request in plays.requests("a")] == [True]
    assert [request["check"] for request in plays.requests("b")] == [True, False]


def test_a_cluster_is_unchanged_as_a_whole(plays: Plays) -> None:
    pair = {**OURS, "gb10_cluster": "sparks", "fabric_topology": "pair"}
    fleet = hosts(plays, "a", "b")
    plays.known(fleet)
    hosts(plays, "a")
    hosts(plays, "b", changes=[CHANGE])
    rc, output = plays.play(fleet, FACTS_OF, "-v", **pair)
    assert rc == 0 and "0 of 2 hosts" in output, output
    assert "look=True" in output and "look=False" in output, "to apply, the facts of all members are needed"


def test_who_cannot_be_looked_at_stops_all_and_is_named(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b")
    plays.known(fleet)
    kinds = {
        "away": "unreachable",
        "key": "host_key",
        "nosudo": "no_sudo",
        "nopython": "unreadable",
        "garbled": "unreadable",
    }
    sick = {f"spark-{kind}": {"ansible_host": f"kind-{kind}"} for kind in kinds}
    hosts(plays, "a", "b", changes=[CHANGE])
    rc, output = plays.play({**fleet, **sick}, SITE, **OURS)
    assert rc == 4, output
    for kind, id_ in kinds.items():
        assert f"spark-{kind}: {id_}: " in output
        assert f"spark-{kind} " in alone(output)
    assert "--limit '!spark-away'" in output, "a host without a cluster is left out by its own name"
    assert "No route to host" in output and "Welcome to a host that says much" in output
    states = {"spark-a": "ok", "spark-b": "ok", "spark-away": "unreachable", "spark-key": "unreachable"}
    assert recap(output) == {name: states.get(name, "failed") for name in (*fleet, *sick)}
    assert [request["check"] for request in plays.requests("b")] == [True], "nothing changes on any host"


def test_an_answer_that_nobody_understands_fails_its_host_alone(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b", "c")
    hosts(plays, "b", facts={"product": 7})
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc == 2
    assert "facts.product is 7, and must be a mapping" in " ".join(output.split())
    recap = alone(output)
    assert recap.count("failed=1") == 1 and "failed=1" in next(line for line in recap.splitlines() if "spark-b" in line)


def test_kept_facts_that_no_plan_can_be_made_of_cost_one_call_more(plays: Plays) -> None:
    """What one host has said once would end each later look at all of them, and nobody would say whose facts it was."""
    fleet = {**hosts(plays, "a"), **hosts(plays, "b", facts={"docker": 7})}
    plays.known(fleet)
    hosts(plays, "b")
    rc, output = plays.play(fleet, SITE, gb10_roles=["docker"], ansible_become=False)
    assert rc == 0, output
    assert recap(output) == {"spark-a": "ok", "spark-b": "ok"}


def test_a_refusal_is_that_of_its_host(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b")
    fleet["spark-b"]["fabric_mut"] = 9000
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc == 2
    assert "spark-b: unknown_variable: no role declares the variable fabric_mut" in output
    assert "boot_id" not in output, "the reason must not drown in facts"


def test_what_is_to_say_of_a_unchanged_host_is_said(plays: Plays) -> None:
    waits = {
        "role": "docker",
        "resource": "unit:docker.service",
        "action": "restart",
        "consent": "docker_allow_restart",
    }
    kinds = ("a", "b", "c", "d", "e")
    fleet = hosts(plays, *kinds)
    plays.known(fleet)
    hosts(plays, *kinds, pending=[waits])
    rc, output = plays.play(fleet, SITE, "-v", **{**LEFT_OUT, "gb10_roles": ["docker"]})
    assert rc == 0 and "5 of 5 hosts" in output, output
    waiting = "unit:docker.service: restart waits for your consent: set docker_allow_restart: true in the inventory"
    said = " ".join(output.split())
    assert f"spark-a, spark-b, spark-c and 2 more: {waiting}" in said and said.count(waiting) == 1


def test_a_host_that_needs_a_password_is_asked_by_a_task_of_its_own(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b")
    fleet["spark-b"] |= {"ansible_password": "secret"}
    plays.known(fleet)
    rc, output = plays.play(fleet, SITE, "-vvv", **OURS)
    assert rc == 0 and "1 of 2 hosts" in output and "secret" not in output, output
    assert calls(plays, "a", "b") == [1, 1]
    assert "spark-b" in alone(output)


def test_variables_of_the_play_count(plays: Plays) -> None:
    fleet = hosts(plays, "a")
    play = SITE.splitlines()[1] + "\n  vars: {gb10_roles: [page_cache]}\n"
    plays.known(fleet)
    rc, output = plays.play(fleet, play, "-v", ansible_become=False, gb10_roles=["driver"])
    assert rc == 0 and "1 of 1 hosts" in output, output
    assert [document["role"] for document in plays.requests("a")[-1]["documents"]] == ["page_cache"]


def test_what_does_not_evaluate_is_said_by_its_host(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b", "c")
    fleet["spark-b"]["gb10_minimum_free_gib"] = "{{ nowhere }}"
    fleet["spark-c"]["ansible_port"] = "{{ nowhere }}"
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc == 2
    assert "spark-b: bad_variable: gb10_minimum_free_gib cannot be evaluated" in output
    assert "fatal: [spark-c]: FAILED!" in output and "failed=0" in alone(output).splitlines()[1]


def test_a_template_in_a_fact_is_never_evaluated(plays: Plays) -> None:
    mark = plays.tmp_path / "evaluated"
    hostile = "{{ lookup('ansible.builtin.pipe', 'touch " + str(mark) + "') }}"
    fleet = hosts(
        plays, "a", facts={"kernel": hostile, "holds": [hostile], "packages": {**FACTS["packages"], "x": hostile}}
    )
    for _ in range(2):
        plays.play(fleet, FACTS_OF, "-vvv", **OURS)
    assert not mark.exists()


def test_the_doctor_takes_nothing_but_a_result(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b", "c")
    for name, said in zip(fleet, (5, {}, {"findings": []}), strict=True):
        fleet[name]["judged"] = said
    play = [{"hosts": "sparks", "gather_facts": False, "tasks": [{"gb10.fleet.doctor": {"judged": "{{ judged }}"}}]}]
    rc, output = plays.play(fleet, play, **OURS)
    assert rc == 2 and alone(output).count("failed=1") == 3
    assert "judged: expected the result of gb10.fleet.probe for this host" in output
    assert calls(plays, "a", "b", "c") == [0, 0, 0]


def test_where_the_evidence_goes_is_tried_before_anything_else(plays: Plays) -> None:
    fleet = hosts(plays, "a")
    (plays.tmp_path / "file").touch()
    rc, output = plays.play(fleet, SITE, **OURS, gb10_evidence_directory="file/below")
    assert rc == 2 and "gb10_evidence_directory is" in output and "file is no folder: name a folder" in output, output
    assert calls(plays, "a") == [0]
    assert plays.play(fleet, SITE, **OURS, gb10_evidence_directory="new/below")[0] == 0


def test_a_start_at_a_task_leaves_out_what_the_others_need(plays: Plays) -> None:
    fleet = hosts(plays, "a")
    rc, output = plays.play(fleet, SITE, "--start-at-task", "Fetch image and model", **OURS)
    assert rc != 0 and "--start-at-task 'Fetch image and model' would leave out" in output and "leave it out" in output
    assert calls(plays, "a") == [0]


def test_the_look_has_all_findings_of_a_host_that_is_refused(plays: Plays) -> None:
    fleet = hosts(plays, "a", facts={"clock": {**FACTS["clock"], "synchronized": False}})
    fleet["spark-a"]["fabric_mut"] = 9000
    show = FACTS_OF.replace("import_playbook: gb10.fleet.doctor", "import_playbook: look.yml")
    look = [{"hosts": "sparks", "gather_facts": False, "tasks": [
        {"gb10.fleet.probe": {}, "register": "said"},
        {"ansible.builtin.debug": {"msg": "{{ said.judged['spark-a'].findings | map(attribute='severity') }}"}},
    ]}]  # fmt: skip
    (plays.tmp_path / "look.yml").write_text(yaml.safe_dump(look))
    rc, output = plays.play(fleet, show, **OURS)
    assert rc == 0 and '"error",' in output and '"warn"' in output, output
