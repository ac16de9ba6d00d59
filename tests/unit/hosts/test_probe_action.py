"""The look at all hosts in one task, and what the playbooks make of it: over an ssh that plays every kind of host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.plays import FACTS, Plays

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
CHANGE = {"role": "page_cache", "resource": "file:/x", "action": "create", "detail": "absent"}
OURS: dict[str, Any] = {"gb10_roles": ["page_cache"], "ansible_become": False}


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
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc == 0 and "0 of 3 hosts are as they should be" in output, output
    hosts(plays, "a", "b", "c")
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc == 0 and "3 of 3 hosts are as they should be" in output, output
    assert calls(plays, "a", "b", "c") == [1, 1, 1]
    assert "spark-a" in alone(output) and "spark-b" not in alone(output)


def test_each_other_host_gets_its_own_result_and_no_second_look(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b", "c")
    plays.play(fleet, SITE, **OURS)
    hosts(plays, "a", "c")
    hosts(plays, "b", changes=[CHANGE])
    rc, output = plays.play(fleet, FACTS_OF, **OURS)
    assert rc == 0 and "2 of 3 hosts" in output, output
    assert calls(plays, "a", "b", "c") == [1, 1, 1]
    assert output.count("look=alone") == 2 and output.count("look=False") == 1


def test_only_the_host_with_something_to_do_is_worked_on(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b")
    plays.play(fleet, SITE, **OURS)
    hosts(plays, "a")
    hosts(plays, "b", changes=[CHANGE])
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc == 0, output
    assert [request["check"] for request in plays.requests("a")] == [True]
    assert [request["check"] for request in plays.requests("b")] == [True, False]


def test_a_cluster_is_unchanged_as_a_whole(plays: Plays) -> None:
    pair = {**OURS, "gb10_cluster": "sparks", "fabric_topology": "pair"}
    fleet = hosts(plays, "a", "b")
    plays.play(fleet, FACTS_OF, **pair)
    hosts(plays, "a")
    hosts(plays, "b", changes=[CHANGE])
    rc, output = plays.play(fleet, FACTS_OF, **pair)
    assert rc == 0 and "0 of 2 hosts" in output, output
    assert "look=True" in output and "look=False" in output, "to apply, the facts of all members are needed"


def test_who_cannot_be_looked_at_stops_all_and_is_named(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b")
    plays.play(fleet, SITE, **OURS)
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
    assert rc == 2, output
    for kind, id_ in kinds.items():
        assert f"spark-{kind}: {id_}: " in output
        assert f"spark-{kind} " in alone(output)
    assert "--limit '!spark-away'" in output, "a host without a cluster is left out by its own name"
    assert "No route to host" in output and "Welcome to a host that says much" in output
    assert output.count("unreachable=0") == 2 + len(kinds) and output.count("failed=1") == len(kinds)
    assert [request["check"] for request in plays.requests("b")] == [True], "nothing changes on any host"


def test_an_answer_that_nobody_understands_fails_its_host_alone(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b", "c")
    hosts(plays, "b", facts={"product": 7})
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc == 2
    recap = alone(output)
    assert recap.count("failed=1") == 1 and "failed=1" in next(line for line in recap.splitlines() if "spark-b" in line)


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
    plays.play(fleet, SITE, **OURS)
    hosts(plays, *kinds, pending=[waits])
    rc, output = plays.play(fleet, SITE, **OURS)
    assert rc == 0 and "5 of 5 hosts" in output, output
    waiting = "unit:docker.service: restart waits for your consent, docker_allow_restart: true"
    said = " ".join(output.split())
    assert f"spark-a, spark-b, spark-c and 2 more: {waiting}" in said and said.count(waiting) == 1


def test_a_host_that_needs_a_password_is_asked_by_a_task_of_its_own(plays: Plays) -> None:
    fleet = hosts(plays, "a", "b")
    fleet["spark-b"] |= {"ansible_password": "secret"}
    for _ in range(2):
        hosts(plays, "a", "b")
        rc, output = plays.play(fleet, SITE, "-vvv", **OURS)
    assert rc == 0 and "1 of 2 hosts" in output and "secret" not in output, output
    assert calls(plays, "a", "b") == [1, 1]
    assert "spark-b" in alone(output)


def test_variables_of_the_play_count(plays: Plays) -> None:
    fleet = hosts(plays, "a")
    play = SITE.splitlines()[1] + "\n  vars: {gb10_roles: [page_cache]}\n"
    for _ in range(2):
        rc, output = plays.play(fleet, play, ansible_become=False, gb10_roles=["driver"])
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
