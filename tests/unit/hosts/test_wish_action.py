"""The action wish and its playbook in real ansible-playbook runs, over an ssh that notes what the engine is asked."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment

from tests.support.attacker import tally
from tests.support.plays import put_ssh
from tests.support.rig import ROOT
from tests.support.undo_action import Run

# Stands in for ssh, as that of undo: keeps each program, and answers as the host that its destination names.
SSH = """#!/bin/bash
for word in "$@"; do case $word in kind-*) kind=${word#kind-};; esac; done
cat >"${0%/*}/program-$(date +%s%N)-$kind"
wish='{"unit": "gb10-vllm.service", "who": "me", "since": "a", "until": "2026-11-24T06:00:00Z", "shown": "07:00 CET"}'
change='{"role": "vllm", "resource": "unit:gb10-vllm.service", "action": "stop", "detail": "active -> inactive"}'
rest='"facts": null, "stale": [], "pending": [], "orphans": [], "known": true, "recorded": true, "guard": null'
rest+=', "subprocesses": 0, "ends": []'
say() { echo "GB10-ANSWER:{\\"changes\\": [$1], \\"diff\\": [], \\"wishes\\": [$2], \\"error\\": $3, $rest}"; }
case $kind in
  serving) say "$change" "$wish" null;;
  later) say "$change" "${wish/24T06/25T08}" null;;
  away) echo "ssh: connect to host 192.0.2.9 port 22: No route to host" >&2; exit 255;;
  other) say "" "" '{"kind": "host", "message": "gb10-vllm.service: no role has put this unit on this host"}';;
esac
"""
PLAYBOOK = "- ansible.builtin.import_playbook: gb10.fleet.wish\n"
STOP = {"service": "vllm", "state": "stopped", "until": "07:00"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path)
    put_ssh(tmp_path, SSH)
    return made


def test_the_engine_is_asked_for_the_wish(run: Run) -> None:
    arguments = {"unit": "gb10-vllm.service", "state": "stopped", "end": "07:00"}
    tasks = [
        {"gb10.fleet.wish": arguments, "register": "done"},
        {"ansible.builtin.debug": {"msg": "until {{ done.wish.shown }}"}},
    ]
    play = yaml.safe_dump([{"hosts": "sparks", "gather_facts": False, "tasks": tasks}])
    rc, output = run.play(play, kinds=("serving",))
    assert rc == 0, output
    assert "changed=1" in output and "until 07:00 CET" in output
    (request,) = run.requests
    asked = {"unit": "gb10-vllm.service", "state": "stopped", "until": "07:00"}
    assert (request["verb"], request["check"], request["wish"]) == ("wish", False, asked)


@pytest.mark.parametrize("kind", ["away", "other"])
def test_a_host_that_refuses_or_is_silent_keeps_its_own_cluster_as_it_is(run: Run, kind: str) -> None:
    """It ended the stop for the clusters of all others, too."""
    (play,) = yaml.safe_load((ROOT / "playbooks/wish.yml").read_text())
    wanted = ("Refuse what", "Have alerts of", "Refuse a cluster", "Have it stand still, or")
    play["tasks"] = [task for task in play["tasks"] if task["name"].startswith(wanted)]
    kept = {"name": "Have alerts", "when": play["tasks"][1].get("when", True)}
    play["tasks"][1] = {**kept, "ansible.builtin.debug": {"msg": "alerts wait: {{ inventory_hostname }}"}}
    one = {"hosts": {"spark-serving": {}, f"spark-{kind}": {}}, "vars": {"gb10_cluster": "one"}}
    (run.tmp_path / "one.yml").write_text(yaml.safe_dump({"one": one}))
    kinds = ("serving", kind, "later")
    rc, output = run.play(yaml.safe_dump([play]), "-e", json.dumps({"gb10_wish": STOP}), "-i", "one.yml", kinds=kinds)
    assert rc != 0
    done = [request for request in run.requests if not request["check"]]
    tally("a host that fails ends a stop for other clusters", 1, int(len(done) != 1))
    assert len(done) == 1, output
    assert f"spark-serving: spark-{kind} of its cluster failed" in " ".join(output.split())
    assert "alerts wait: spark-later" in output
    assert "alerts wait: spark-serving" not in output, "nobody works there, and they would wait for an hour"


def test_the_first_host_of_a_cluster_says_the_end_of_its_own_cluster_alone(run: Run) -> None:
    """One host said it for all, and so had the models of other clusters stand still for ever."""
    (play,) = yaml.safe_load((ROOT / "playbooks/wish.yml").read_text())
    wanted = {"Refuse what cannot be done, before anything changes on any host", "Have it stand still, or start it"}
    play["tasks"] = [task for task in play["tasks"] if task["name"] in wanted]
    rc, output = run.play(yaml.safe_dump([play]), "-e", json.dumps({"gb10_wish": STOP}), kinds=("serving", "later"))
    assert rc == 0, output
    ends = {request["wish"]["until"] for request in run.requests if not request["check"]}
    assert ends == {"2026-11-24T06:00:00Z", "2026-11-25T08:00:00Z"}


def test_a_host_that_fails_late_keeps_no_other_one_from_its_requests(run: Run) -> None:
    """Where one failed its start or its proof, those of other clusters had started, and no router heard of it."""
    (play,) = yaml.safe_load((ROOT / "playbooks/wish.yml").read_text())
    names = [task["name"] for task in play["tasks"]]
    late = play["tasks"][names.index("Have it stand still, or start it") :]
    kinds = [f"fails{number}" for number in range(len(late))]
    play["tasks"] = [
        {"any_errors_fatal": task.get("any_errors_fatal", play.get("any_errors_fatal", False)), "name": task["name"]}
        | {"ansible.builtin.assert": {"that": f"inventory_hostname != 'spark-{kind}'"}}
        for kind, task in zip(kinds, late, strict=True)
    ]
    play["tasks"].append({"ansible.builtin.debug": {"msg": "the end of {{ inventory_hostname }}"}})
    rc, output = run.play(yaml.safe_dump([play]), "-e", json.dumps({"gb10_wish": STOP}), kinds=("serving", *kinds))
    assert rc != 0 and "the end of spark-serving" in output, output


def test_routers_let_go_of_a_service_before_it_stops_and_take_it_back_when_it_is_up() -> None:
    """Of its own model alone: the host's other services go on."""
    (play,) = yaml.safe_load((ROOT / "playbooks/wish.yml").read_text())
    commands = [task.get("ansible.builtin.command", {}).get("argv", ["wish"])[:2] for task in play["tasks"]]
    drains, ready = commands.index(["gb10-router", "drain"]), commands.index(["gb10-router", "ready"])
    (stop,) = (
        number for number, task in enumerate(play["tasks"]) if task["name"] == "Have it stand still, or start it"
    )
    assert drains < stop < ready
    asked = [task for task in play["tasks"] if "gb10-router" in str(task.get("ansible.builtin.command"))]
    assert all("--model" in task["ansible.builtin.command"]["argv"] for task in asked) and len(asked) == 3


@pytest.mark.parametrize(("gone_s", "most_s"), [(0, 630), (500, 130), (10_000, 30)])
def test_a_router_that_hangs_holds_up_all_who_ask_it_together(gone_s: int, most_s: int) -> None:
    """Each host asks it by itself, five at a time: it took 15 minutes for each five, twice."""
    (play,) = yaml.safe_load((ROOT / "playbooks/wish.yml").read_text())
    asked = [task for task in play["tasks"] if "gb10-router" in str(task.get("ansible.builtin.command"))]
    short, waits, back = (task["timeout"] for task in asked)
    (left,) = (task["vars"]["__wish_left_s"] for task in asked if "__wish_left_s" in task["vars"])
    compiled = Environment().compile_expression  # noqa: S701 - conditions, no page
    given: dict[str, Any] = {"gb10_wish": {"drain_s": 600}, "__wish_let": {"begun": 5000.0}}
    left_s = compiled(left.strip("{} "))(now=lambda: datetime.fromtimestamp(5000 + gone_s, UTC), **given)
    most = compiled(waits.strip("{} "))(__wish_left_s=left_s)
    tally("a router that hangs holds up those who leave it", 1, int(max(short, back) > 30 or most > most_s))
    assert (short, most, back) == (30, most_s, 30)


@pytest.mark.parametrize("wish", [None, {"who": "gb10_layouts"}], ids=["no wish", "at rest"])
@pytest.mark.parametrize("name", ["tiny/chat", "", None])
def test_whether_a_router_is_asked_is_true_or_false(name: str | None, wish: dict[str, str] | None) -> None:
    """Ansible refuses a condition that is a text, as that of a served name was.

    What rests by a layout no router was told of: its start tells them first.
    """
    (play,) = yaml.safe_load((ROOT / "playbooks/wish.yml").read_text())
    asked = [task for task in play["tasks"] if "gb10-router" in str(task.get("ansible.builtin.command"))]
    compiled = Environment().compile_expression  # noqa: S701 - conditions, no page
    given: dict[str, Any] = {"__wish_mine": {"served_name": name, "wish": wish}}
    given["__wish_routed"] = compiled(play["vars"]["__wish_routed"].strip("{} "))(**given)
    for stops in (True, False):
        wanted = [compiled(task["when"])(__wish_stops=stops, **given) for task in asked]
        assert all(isinstance(each, bool) for each in wanted)
        assert wanted == ([stops or wish is not None, stops, not stops] if name else [False] * 3)


def test_a_layout_that_there_is_not_is_refused_before_any_host_is_asked(run: Run) -> None:
    layouts = {"split": ["chat"], "night": ["big"]}
    playbook = "- ansible.builtin.import_playbook: gb10.fleet.services\n"
    rc, output = run.play(playbook, kinds=("serving", "away"), gb10_layout="nihgt", gb10_layouts=layouts)
    text = "no layout is called nihgt; there are split, night. The nearest is night"
    assert rc != 0 and text in " ".join(output.split())
    assert run.requests == [] and "UNREACHABLE" not in output
