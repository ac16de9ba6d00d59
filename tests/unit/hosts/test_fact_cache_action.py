"""Runs that find facts of earlier runs: in Ansible's fact cache (jsonfile, a controller's), or in ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.plays import FACTS, Plays

A = {"spark-a": {"ansible_host": "kind-ok"}}
BOTH = {f"spark-{x}": {"ansible_host": f"kind-{x}"} for x in "ab"}
STATE = "- ansible.builtin.import_playbook: gb10.fleet.converge\n"
OLD_DOCKER = {"packages": {**FACTS["packages"], "docker-ce": "5:20.0.0-1"}}


@pytest.fixture
def plays(tmp_path: Path) -> Plays:
    made = Plays(tmp_path)
    (tmp_path / "ansible.cfg").write_text("[defaults]\nfact_caching=jsonfile\nfact_caching_connection=kept\n")
    return made


def tasks(*content: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"hosts": "sparks", "gather_facts": False, "tasks": list(content)}]


def test_a_look_of_an_earlier_run_settles_nobody(plays: Plays) -> None:
    for looks in ([True, True], [True], [True]):  # the third run finds in the cache that nothing is to do
        plays.host("ok")
        rc, output = plays.play(A, STATE, gb10_roles=["docker"], ansible_become=False)
        assert rc == 0, output
        assert [request["check"] for request in plays.requests()] == [*looks, False]


def test_facts_of_an_earlier_run_refuse_nobody(plays: Plays) -> None:
    plays.host("ok", facts=OLD_DOCKER)
    rc, output = plays.play(A, tasks({"gb10.fleet.doctor": {"refuse": False}}))
    assert rc == 0, output
    plays.host("ok")
    rc, output = plays.play(A, tasks({"gb10.fleet.plan": {"roles": ["docker"]}}))
    assert rc == 0, output
    assert len(plays.requests()) == 1


def test_facts_say_of_which_run_they_are(plays: Plays) -> None:
    said = {
        "ansible.builtin.debug": {"msg": "now={{ ansible_facts['gb10_run'] | default('') is gb10.fleet.this_run }}"}
    }
    rc, output = plays.play(A, tasks(said, {"gb10.fleet.doctor": {}}, said))
    assert rc == 0 and output.index("now=False") < output.index("now=True"), output
    inline = {"gb10.fleet.host_state": {"role": "demo", "resources": [{"hold": "perftest"}]}}
    rc, output = plays.play(A, tasks(said, inline, said))
    assert rc == 0 and output.index("now=False") < output.index("now=True"), output
    rc, output = plays.play(A, tasks(said, {"gb10.fleet.spark_facts": {}}, said))
    assert rc == 0 and output.index("now=False") < output.index("now=True"), output


def test_all_hosts_of_a_run_know_it_by_one_name(plays: Plays) -> None:
    for kind in "ab":
        plays.host(kind)
    for _ in range(2):
        rc, output = plays.play(BOTH, tasks({"gb10.fleet.doctor": {}}), gb10_roles=["docker"])
        assert rc == 0, output
    runs = [[request["run"] for request in plays.requests(kind)] for kind in "ab"]
    assert runs[0] == runs[1] and len(set(runs[0])) == 2


def test_nothing_is_applied_from_what_the_others_said_in_an_earlier_run(plays: Plays) -> None:
    variables = {"gb10_cluster": "sparks", "fabric_topology": "pair", "fabric_allow_activation": True}
    for kind in "ab":
        plays.host(kind)
    rc, output = plays.play(BOTH, tasks({"gb10.fleet.doctor": {}}), ansible_become=False, **variables)
    assert rc == 0, output
    plays.host("a")
    look, apply = {"gb10.fleet.spark_facts": {}}, {"gb10.fleet.host_state": {"roles": ["fabric"]}}
    rc, output = plays.play(BOTH, tasks(look, apply), "--limit", "spark-a", **variables)
    assert rc == 2, output
    assert "needs the facts of spark-b, read in this run: run without --limit" in " ".join(output.split())
    assert not any(request["documents"] for request in plays.requests("a"))
