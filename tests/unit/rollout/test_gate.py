"""The gate: every host that should have been in a wave is counted, by what Ansible's events say and what they lack."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from gb10_fleet.playbook import DRAIN, KEPT_OUT, ROLL_CALL, Report
from gb10_fleet.rollout import gate
from tests.support.attacker import tally

HOSTS = [f"spark-{number:03d}" for number in range(200)]
Event = dict[str, Any]


def result(kind: str, host: str, text: str = "", **more: Any) -> Event:
    data = {"host": host, "play": "Update", "task": "Check it", "res": {"msg": text}, **more}
    return {"event": f"runner_on_{kind}", "event_data": data}


def roll_call(*through: str, called: Iterable[str] = HOSTS) -> Event:
    said = json.dumps({"called": [*called], "through": [*through]})
    return result("ok", "localhost", said, step=ROLL_CALL)


def heard(*events: Event) -> Report:
    report = Report(tasks=True)
    for event in events:
        report.take(event)
    return report


def states(report: Report, *hosts: str) -> dict[str, str]:
    return {host: state for host, (state, _) in gate.work(hosts, report).items()}


@pytest.mark.parametrize(
    ("events", "bad"),
    [
        ([result("ok", "a"), roll_call("a")], {}),
        ([result("skipped", "a"), roll_call("a")], {}),
        ([result("failed", "a", "no space")], {"a": "failed"}),
        ([result("unreachable", "a", "No route to host")], {"a": "unreachable"}),
        ([result("unreachable", "a", "No route to host"), roll_call("a")], {"a": "unreachable"}),  # ignore_unreachable
        ([result("unreachable", "a", "no route", ignore_errors=True), roll_call("a")], {}),  # it asked another host
        ([result("failed", "a"), result("ok", "a"), roll_call("a")], {"a": "rescued"}),
        ([result("failed", "a", ignore_errors=True), result("ok", "a"), roll_call("a")], {"a": "ignored"}),
        ([roll_call("a")], {"a": "absent"}),
        ([], {"a": "absent"}),
        ([result("ok", "a", step=DRAIN), roll_call("a")], {"a": "absent"}),
        ([result("ok", "a"), roll_call("a"), result("failed", "a", "no", step=KEPT_OUT)], {"a": "failed"}),
        ([result("ok", "a"), roll_call()], {"a": "absent"}),  # meta: end_host after a beginning
    ],
)
def test_what_a_host_is_called(events: list[Event], bad: dict[str, str]) -> None:
    assert states(heard(*events), "a") == bad


def test_a_unchanged_host_has_come_through() -> None:
    report = heard(roll_call("a"))
    report.unchanged = ["a"]
    assert states(report, "a") == {}


def test_who_only_stood_beside_a_bad_one_is_skipped_and_the_bad_one_named() -> None:
    report = heard(result("ok", "b"), result("failed", "a", "no space"))
    assert gate.work(["a", "b", "c"], report) == {
        "a": ("failed", "Check it: no space"),
        "b": ("skipped", "Ansible went no further here, because of a"),
        "c": ("skipped", "Ansible went no further here, because of a"),  # of a later batch of the same wave
    }


def test_who_waits_for_a_bad_one_is_skipped_whoever_is_heard_first() -> None:
    said = {"msg": "a: waits for b", "waits_for": ["b"]}
    waits = result("failed", "a", res=said, resolved_action="gb10.fleet.plan")
    for events in ([waits, result("failed", "b", "no space")], [result("failed", "b", "no space"), waits]):
        assert gate.work(["a", "b"], heard(*events)) == {
            "a": ("skipped", "Ansible went no further here, because of b"),
            "b": ("failed", "Check it: no space"),
        }
    claims = result("failed", "a", res=said, resolved_action="ansible.builtin.command")
    assert states(heard(claims), "a") == {"a": "failed"}, "a host has said it, and not our judgement of one"


def test_who_is_not_in_the_play_is_absent_beside_a_bad_one_too() -> None:
    assert states(heard(result("failed", "a"), result("ok", "b"), roll_call("b", "c")), "a", "b", "c") == {
        "a": "failed", "c": "absent",
    }  # fmt: skip


def test_who_was_not_done_in_time() -> None:
    report = heard(result("ok", "a"))
    report.timed_out = True
    assert states(report, "a", "b") == {"a": "timed_out", "b": "timed_out"}


def test_who_only_waits_for_one_that_hangs_is_not_it() -> None:
    """Before, all of a wave were, and the models of all stayed stopped."""
    begins = [{"event": "runner_on_start", "event_data": {"host": host}} for host in "abc"]
    report = heard(*begins, result("ok", "a"), result("skipped", "c"))
    report.timed_out = True
    found = gate.work(["a", "b", "c"], report)
    tally("a host that hangs until a wave is over", 2, sum(found[host][0] == "timed_out" for host in "ac"))
    waits = ("skipped", "Ansible went no further here, because of b")
    assert (found["a"], found["b"][0], found["c"]) == (waits, "timed_out", waits)


def test_one_that_hangs_may_fail_as_it_is_ended() -> None:
    report = heard({"event": "runner_on_start", "event_data": {"host": "b"}}, result("ok", "a"), result("failed", "b"))
    report.timed_out = True
    assert states(report, "a", "b") == {"a": "skipped", "b": "failed"}


def test_a_killed_ansible_has_done_nobody() -> None:
    report = heard(result("ok", "a"))
    report.killed = True
    assert gate.work(["a"], report) == {"a": ("failed", "ansible-playbook was killed on the way")}


def test_ansible_itself_does_not_begin() -> None:
    report = Report(errors=["[ERROR]: couldn't resolve module/action 'nonsense'", "the error appears in play.yml"])
    assert gate.work(["a"], report) == {"a": ("failed", "; ".join(report.errors))}


def test_what_comes_after_the_roll_call_is_no_work() -> None:
    """Its first host speaks for all of a wave there: who is not healthy, the evidence says."""
    assert states(heard(result("ok", "a"), roll_call("a"), result("failed", "a", "not proven")), "a") == {}


@pytest.mark.parametrize("percent", [10, 30, 90])
@pytest.mark.parametrize("goes_on", [True, False], ids=["Ansible goes on", "Ansible stops"])
def test_exactly_the_unreachable_ones_are_unreachable(percent: int, goes_on: bool) -> None:
    away = set(HOSTS[: len(HOSTS) * percent // 100])
    there = [host for host in HOSTS if host not in away]
    events = [result("unreachable" if host in away else "ok", host, "No route to host") for host in HOSTS]
    found = states(heard(*events, *([roll_call(*there)] if goes_on else [])), *HOSTS)
    assert {host for host, state in found.items() if state == "unreachable"} == away
    assert {state for host, state in found.items() if host not in away} == (set() if goes_on else {"skipped"})
    judged = gate.judge(HOSTS, {host: (state, None) for host, state in found.items()}, tolerated=0)
    assert judged.stop and set(judged.hosts) == set(HOSTS)
    assert not goes_on or sum(state == "done" for state, _ in judged.hosts.values()) == len(there)


# -- the proof ---------------------------------------------------------------------------------------------------------


def evidence(verdict: str, *hosts: str, **reason: str) -> dict[str, Any]:
    return {"clusters": [{"hosts": [*hosts], "verdict": verdict, "reasons": [reason] if reason else []}]}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (None, "nothing proves it: no evidence of this wave has it"),
        ({"clusters": []}, "nothing proves it: no evidence of this wave has it"),
        (evidence("healthy", "b"), "nothing proves it: no evidence of this wave has it"),
        (evidence("incomplete", "a"), "its cluster is incomplete"),
        (evidence("unhealthy", "a", "b", where="b", what="gpu", text="fell off"), "b: gpu: fell off"),
    ],
)
def test_who_is_not_proven_is_unhealthy(document: dict[str, Any] | None, reason: str) -> None:
    assert gate.proof(["a"], document) == {"a": ("unhealthy", reason)}


def test_one_sick_host_is_one_fault_and_the_others_of_its_cluster_stand_beside_it() -> None:
    sick = evidence("unhealthy", "a", "b", where="b", what="unreachable", text="it stopped answering")
    found = gate.proof(["a", "b"], sick)
    assert {host: state for host, (state, _) in found.items()} == {"a": "skipped", "b": "unhealthy"}
    assert gate.faults(found.values()) == 1
    cable = evidence("unhealthy", "a", "b", where="a p0 to b p0", what="degraded_cx7", text="13.2 Gb/s")
    assert gate.faults(gate.proof(["a", "b"], cable).values()) == 2, "a cable has two ends"


def test_who_is_proven() -> None:
    assert gate.proof(["a"], evidence("healthy", "a", "b")) == {}


# -- the verdict -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "tolerated", "earlier", "stop"),
    [(0, 0, 0, False), (1, 0, 0, True), (1, 1, 0, False), (2, 1, 0, True), (1, 1, 1, True), (0, 0, 1, True)],
)
def test_a_bad_host_keeps_its_place(bad: int, tolerated: int, earlier: int, stop: bool) -> None:
    hosts = HOSTS[:5]
    judged = gate.judge(hosts, dict.fromkeys(hosts[:bad], ("failed", "no")), tolerated, earlier)
    assert judged.stop is stop
    assert [state for state, _ in judged.hosts.values()] == ["failed"] * bad + ["done"] * (5 - bad)


def test_who_stands_beside_a_bad_host_is_no_fault_of_its_own() -> None:
    judged = gate.judge(["a", "b", "c"], {"a": ("unreachable", "no"), "b": ("skipped", "a")}, tolerated=1)
    assert not judged.stop and judged.hosts["b"][0] == "skipped"
    assert gate.judge(["a"], {"a": ("skipped", "another wave's")}, tolerated=5).stop, "stopped by nobody that is known"
