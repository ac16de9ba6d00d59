"""Whether a rollout goes on: every host that should have been in a wave is counted, not only those that said something.

Ansible's own brakes count tasks that failed. They go on after a canary that gave no answer, and call a run green whose
failure was rescued or ignored, or in which a host did not take part. And of a host without a failure of its own, its
results do not tell whether Ansible went on with it to the end or stopped there because of another one. So a play at the
end of the work calls the roll (`ROLL_CALL_PLAY`): Ansible runs it only for those with which it goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import some

from gb10_fleet.playbook import ROLL_CALL, STEP, Report
from gb10_fleet.rollout.written import GOOD

State = tuple[str, str | None]  # "done" or a state of written.BAD, and why
# States that say of a host itself that something is wrong; one that is `skipped` only waited for such a host.
CUT = "skipped"

ROLL_CALL_PLAY: dict[str, Any] = {
    "name": "gb10.fleet: roll call of this wave",
    "hosts": "all",
    "gather_facts": False,
    "become": False,
    "tags": ["always"],
    "vars": {STEP: ROLL_CALL},
    "tasks": [
        {
            "name": "Who came through",
            "ansible.builtin.assert": {
                "that": True,
                "quiet": True,
                "success_msg": "{{ {'called': ansible_play_hosts_all, 'through': ansible_play_hosts} | to_json }}",
            },
            "run_once": True,
            "connection": "local",
        }
    ],
}


@dataclass(frozen=True)
class Judgement:
    """`hosts` has every host of the wave."""

    stop: bool
    hosts: dict[str, State]


def work(hosts: Iterable[str], report: Report) -> dict[str, State]:
    """The hosts that are bad after the work. A host that is not named came through all of it."""
    judged = {host: _state(host, report) for host in hosts}
    return {host: state for host, state in judged.items() if state is not None}


def _state(host: str, report: Report) -> State | None:
    through = report.through is not None and host in report.through
    trouble = report.troubles.get(host)
    if trouble is not None:
        if trouble.kind == "failed" and through:
            return "rescued", f"a failure was rescued: {trouble.text}"
        if trouble.kind == "ignored":
            return "ignored", f"a failure was ignored: {trouble.text}"
        return trouble.kind, trouble.text
    seen = host in report.seen or host in report.unchanged
    if through and seen:  # the work is done, and the next wave would take another replica away
        return ("failed", report.kept_out[host]) if host in report.kept_out else None
    if report.killed:
        return "failed", "ansible-playbook was killed on the way"
    # Its task may have heard of the end before Ansible did: then it has a trouble.
    if report.timed_out and (stuck := {*report.busy, *report.troubles}) and host not in stuck:
        return CUT, _no_further(stuck)
    if report.timed_out:
        return "timed_out", "it was not done when the time of its wave was up"
    if not report.tasks and report.errors:
        return "failed", "; ".join(report.errors)
    if report.troubles and not through:
        return CUT, _no_further(report.troubles)
    return "absent", "no task of the playbook has a result for it"


def _no_further(guilty: Iterable[str]) -> str:
    return f"Ansible went no further here, because of {some(sorted(guilty))}"


def proof(hosts: Iterable[str], evidence: Mapping[str, Any] | None) -> dict[str, State]:
    """Return who is not proven by an evidence.json: a cluster is healthy as a whole or not at all.

    Where all reasons are about one host, that one is at fault, and the others of its cluster only stand beside it.
    """
    of = {host: cluster for cluster in (evidence or {}).get("clusters", []) for host in cluster["hosts"]}
    judged: dict[str, State] = {}
    hosts = [*hosts]
    for host in hosts:
        cluster = of.get(host)
        if cluster is None:
            judged[host] = ("unhealthy", "nothing proves it: no evidence of this wave has it")
        elif cluster["verdict"] != "healthy":
            reasons = [f"{reason['where']}: {reason['what']}: {reason['text']}" for reason in cluster["reasons"]]
            named = {reason["where"] for reason in cluster["reasons"]}
            guilty = named.pop() if len(named) == 1 and named <= set(cluster["hosts"]) else None
            if guilty != host and guilty in hosts:
                judged[host] = (CUT, f"{guilty} of its cluster is unhealthy")
            else:
                judged[host] = ("unhealthy", "; ".join(reasons) or f"its cluster is {cluster['verdict']}")
    return judged


def faults(states: Iterable[State]) -> int:
    """Return how many hosts are bad themselves: one that is skipped only stands beside a bad one."""
    return sum(state not in (*GOOD, CUT) for state, _ in states)


def judge(hosts: Collection[str], bad: Mapping[str, State], tolerated: int, earlier: int = 0) -> Judgement:
    """The gate after a wave. A bad host of an earlier wave keeps its place: it counts here as well."""
    states = {host: bad.get(host, ("done", None)) for host in hosts}
    count = faults(states.values())
    # Where nobody of the wave is at fault, what stopped Ansible for these hosts is none that may be tolerated.
    cut = not count and any(state == CUT for state, _ in states.values())
    return Judgement(cut or earlier + count > tolerated, states)
