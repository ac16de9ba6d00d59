"""The action undo and its playbook in real ansible-playbook runs, over an ssh that notes what the engine is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.engine.remote import parse_request
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from tests.support.plays import recap
from tests.support.undo_action import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def task(**arguments: Any) -> str:
    tasks = [{"gb10.fleet.undo": arguments, "register": "undo"}, {"ansible.builtin.debug": {"var": "undo.changes"}}]
    return yaml.safe_dump([{"hosts": "sparks", "gather_facts": False, "tasks": tasks}])


PLAYBOOK = "- ansible.builtin.import_playbook: gb10.fleet.undo\n"


def test_the_engine_is_asked_to_take_back_the_named_roles(run: Run) -> None:
    rc, output = run.play(task(roles=["fabric", "demo"]))
    assert rc == 0, output
    assert "nm_profile:a" in output and "changed=1" in output
    (request,) = run.requests
    assert (request["verb"], request["check"], request["roles"]) == ("undo", False, ["fabric", "demo"])
    assert parse_request(request).of is None
    assert request["facts"] is None and request["project"] and request["run"]
    assert request["known_roles"] == list(catalog.ROLES)


def test_everything_has_to_be_said(run: Run) -> None:
    unclear: list[dict[str, Any]] = [{}, {"roles": []}, {"roles": ["fabric"], "all": True}]
    for arguments in unclear:
        rc, output = run.play(task(**arguments))
        assert rc == 2 and "one of the two" in output
    assert not run.requests
    run.play(task(all=True))
    assert run.requests[0]["roles"] is None


def test_check_mode_asks_for_the_plan(run: Run) -> None:
    run.play(task(all=True), "--check")
    assert run.requests[0]["check"] is True


def test_nothing_to_take_back_is_no_change(run: Run) -> None:
    rc, output = run.play(task(all=True), kinds=("untouched",))
    assert rc == 0 and "changed=0" in output


def test_consents_are_those_of_the_host(run: Run) -> None:
    run.play(
        task(roles=["docker"], consents={"demo_allow": "yes"}),
        *("-e", "docker_allow_restart=true"),
        fabric_allow_activation="{{ 1 == 2 }}",
    )
    (request,) = run.requests
    assert request["consents"]["docker_allow_restart"] is True
    assert request["consents"]["fabric_allow_activation"] is False
    assert request["consents"]["demo_allow"] is True
    assert all("_allow_" in name or name == "demo_allow" for name in request["consents"])


def test_a_consent_that_is_no_boolean_is_refused_by_name(run: Run) -> None:
    rc, output = run.play(task(all=True), docker_allow_restart="maybe")
    assert rc == 2 and "docker_allow_restart: expected true or false, found 'maybe'" in output
    assert not run.requests


def test_a_refusal_of_the_engine_names_the_host(run: Run) -> None:
    rc, output = run.play(task(all=True), kinds=("changed",))
    assert rc == 2 and "spark-changed: file:/etc/a: changed since" in output


# --- the playbook


def test_an_unreachable_host_stops_the_run_and_says_the_way_out(run: Run) -> None:
    rc, output = run.play(PLAYBOOK, "-e", "gb10_undo=all", kinds=("applied", "away"))
    assert rc == 4 and recap(output) == {"spark-applied": "ok", "spark-away": "unreachable"}, output
    assert output.count("No route to host") == 1 and "accepted" not in output
    assert "No route to host" in output and "check power, network, ansible_host" in output
    assert [request["check"] for request in run.requests if request["check"] is False] == []


def test_a_tag_does_not_make_it_a_green_nothing(run: Run) -> None:
    run.play(PLAYBOOK, "-e", "gb10_undo=all", "--tags", "fabric")
    assert len(run.requests) == 2


def test_documents_of_your_own_are_taken_back_by_their_role(run: Run) -> None:
    rc, output = run.play(PLAYBOOK, "-e", "gb10_undo=ours")
    assert rc == 0, output
    assert run.requests[-1]["roles"] == ["ours"]


def test_all_hosts_are_asked_before_one_is_changed(run: Run) -> None:
    rc, output = run.play(PLAYBOOK, "-e", "gb10_undo=fabric,docker", kinds=("applied", "untouched"))
    assert rc == 0, output
    assert "changed=1" in output and "changed=2" not in output
    assert [request["check"] for request in run.requests] == [True, True, False, False]
    assert {tuple(request["roles"]) for request in run.requests} == {("fabric", "docker")}


def test_each_host_takes_back_what_is_said_of_it(run: Run) -> None:
    """As a rollback says it."""
    said = {"gb10_undo": {"spark-applied": ["fabric"], "spark-untouched": []}, "gb10_undo_of": "R-2"}
    rc, output = run.play(PLAYBOOK, "-e", json.dumps(said), kinds=("applied", "untouched", "docked"))
    assert rc == 0, output
    assert [(asked["check"], asked["roles"]) for asked in run.requests] == [(True, ["fabric"]), (False, ["fabric"])]
    assert {parse_request(asked).of for asked in run.requests} == {"R-2"}


def test_the_log_names_what_was_taken_back_and_what_stays(run: Run) -> None:
    """Without --diff and without -v; the first task, which only asks, says nothing of it."""
    rc, output = run.play(PLAYBOOK, "-e", "gb10_undo=all", kinds=("applied", "docked"))
    assert rc == 0, output
    assert output.count("spark-applied  fabric  nm_profile:a  remove\n") == 1
    assert output.count("spark-docked  docker  package:docker-ce  remove\n") == 1
    assert output.count("spark-docked  stays: Docker's bridge docker0") == 1
    assert "spark-applied  stays" not in output


def test_what_the_next_start_of_a_model_needs_is_named(run: Run) -> None:
    for roles, times in (("docker", 1), ("docker,vllm", 0)):
        rc, output = run.play(PLAYBOOK, "-e", f"gb10_undo={roles}", kinds=("docked", "untouched"))
        assert rc == 0, output
        assert output.count("stays: vllm, where it is set up: its next start needs docker (") == times, output


def test_what_an_undo_of_the_firewall_opens_is_said(run: Run) -> None:
    for roles, times in (("firewall", 1), ("firewall,vllm", 0), ("all", 0)):
        rc, output = run.play(PLAYBOOK, "-e", f"gb10_undo={roles}", kinds=("guarded",))
        assert rc == 0, output
        assert output.count("stays: vllm, where it is set up: nothing closes its ports now") == times


def test_one_refusal_leaves_every_host_alone(run: Run) -> None:
    rc, output = run.play(PLAYBOOK, "-e", "gb10_undo=all", kinds=("applied", "changed"))
    assert rc == 2 and "changed since" in output
    assert [request["check"] for request in run.requests] == [True, True]


def test_the_playbook_in_check_mode_changes_nothing(run: Run) -> None:
    rc, output = run.play(PLAYBOOK, "--check", "-e", "gb10_undo=all")
    assert rc == 0 and "changed=1" in output, output
    assert {(request["check"], request["roles"]) for request in run.requests} == {(True, None)}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([], "say what to take back"),
        (["gb10_undo="], "say what to take back"),
        (["gb10_undo=fabric, docker"], "no blanks"),
        (["gb10_undo=all,fabric"], "say what to take back"),
    ],
)
def test_what_is_not_clearly_said_is_refused(run: Run, said: list[str], why: str) -> None:
    rc, output = run.play(PLAYBOOK, *(word for variable in said for word in ("-e", variable)))
    assert rc == 2, output
    assert why in output
    assert not run.requests
