"""`gb10 ps`, stop, start, swap, layout and fetch: what they ask, what they refuse, and the way back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import from_failure
from typer.testing import CliRunner

from gb10_fleet import cli, layout_timer, services_cli, stopping
from gb10_fleet.playbook import Order, Outcome, Report
from gb10_fleet.rollout import locks
from scripts.gates import ROOT
from tests.support.attacker import tally

CLI = CliRunner()
WISH = {"who": "ada@laptop", "since": "x", "until": "y", "shown": "07:00 CET"}


def said(name: str, **more: Any) -> dict[str, Any]:
    return {
        **{"name": name, "unit": f"gb10-vllm-{name}.service", "state": "active", "enabled": True, "since": None},
        **{"phase": None, "load_s": None, "members": [], "memory_gib": 40, "model": f"org/{name}", "port": 8000},
        **{"wish": None, "tools": False, **more},
    }


class Hosts:
    """What the playbooks say; a wish comes out as `outcome` has it, and is kept."""

    def __init__(
        self,
        found: dict[str, list[dict[str, Any]]],
        silent: Sequence[str] = (),
        layouts: Any = None,
        bad: dict[str, str] | None = None,
    ) -> None:
        self.found, self.silent, self.layouts, self.bad = found, silent, layouts, bad or {}
        self.outcome: Callable[[dict[str, Any]], Outcome] = lambda wish: Outcome.done
        self.orders: list[Order] = []
        self.canceled = False
        self.by_host: dict[str, Any] = {}
        self.consents: dict[str, Any] = {}
        self.reach: dict[str, Any] = {}
        self.quiet: list[bool] = []  # of each wish
        self.shown, self.already = "07:00 CET", False
        self.shown_by: dict[str, str] = {}

    def run(self, order: Order, quiet: bool = False, watch: Any = None) -> tuple[Outcome, Report]:
        report = Report(asks=order.asks)
        if order.playbook == "gb10.fleet.services":
            layouts = self.by_host or dict.fromkeys(self.found, self.layouts)
            of_the_inventory = {"step": "layouts", "host": next(iter(self.found), "a")}
            mates = {host: [one for each in said for one in each["members"]] for host, said in self.found.items()}
            reach = {host: {"members": known} for host, known in mates.items()} | self.reach
            named = of_the_inventory | {
                "res": {"msg": json.dumps({"layouts": layouts, "by_timer": self.consents, "reach": reach})}
            }
            report.take({"event": "runner_on_ok", "event_data": named})
            nothing = {"services": None, "error": None, "silent": None}
            hosts: dict[str, Any] = {host: {**nothing, "services": services} for host, services in self.found.items()}
            hosts |= {host: {**nothing, "silent": from_failure(host, "timed out").as_dict()} for host in self.silent}
            hosts |= {host: {**nothing, "error": msg} for host, msg in self.bad.items()}
            first = next(iter(hosts))
            read = {"resolved_action": "gb10.fleet.glance", "host": first, "res": {"hosts": hosts}}
            report.take({"event": "runner_on_ok", "event_data": read})
            report.stats = {"ok": {first: 1}}
            if self.canceled:
                report.canceled, report.errors, report.stats = True, [stopping.READ_ONLY], {}
                return Outcome.interrupted, report
            return Outcome.done, report
        self.orders.append(order)
        self.quiet.append(quiet)
        wish = order.variables.get("gb10_wish", {})
        if (outcome := self.outcome(wish)) is Outcome.done and wish:
            for event in self.events(wish, str(order.limit).split(",")):
                report.take(event)
                if watch:
                    watch(event)
        return outcome, report

    def events(self, wish: dict[str, Any], hosts: Sequence[str]) -> Iterator[dict[str, Any]]:
        """What the play says of it: that of a stop to a request as well, for the tasks that do not apply begin, too."""
        for task in ("Have it stand still, or start it", "See the memory return", "Wait until the model has loaded"):
            yield {"event": "playbook_on_task_start", "event_data": {"task": task}}
        for host in hosts:
            stops = wish["state"] == "stopped"
            said: dict[str, Any] = {
                "wish": {**WISH, "shown": self.shown_by.get(host, self.shown) if wish.get("until") else ""}
                if stops
                else None,
                "changes": [] if self.already else [{"resource": "unit:u", "action": "stop"}],
            }
            done = {"host": host, "resolved_action": "gb10.fleet.wish", "res": said}
            yield {"event": "runner_on_ok", "event_data": done}
            told = {"step": "returned", "msg": "memory_returned: 90 GiB are available"}
            if wish.get("prove"):
                told = {"step": "served", "msg": "serving: org/chat answered 2 test questions correctly"}
            if stops or wish.get("prove"):
                data = {"host": host, "resolved_action": "ansible.builtin.assert", "step": told["step"]}
                yield {"event": "runner_on_ok", "event_data": {**data, "res": {"msg": told["msg"]}}}

    @property
    def wishes(self) -> list[tuple[str, str, str | None]]:
        asked = [(order.variables["gb10_wish"], order.limit) for order in self.orders]
        return [(wish["service"], wish["state"], limit) for wish, limit in asked]


def systemd(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess(list(argv), "garbage" in argv, "", "")


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Hosts, Any]]:
    monkeypatch.chdir(tmp_path)

    def invoke(*words: str, hosts: Hosts | None = None, **more: Any) -> tuple[Hosts, Any]:
        hosts = hosts or Hosts({"a": [said("chat"), said("embed")], "b": [said("chat")]}, **more)
        monkeypatch.setattr(services_cli, "run", hosts.run)
        monkeypatch.setattr(layout_timer, "systemd", systemd, raising=False)
        return hosts, CLI.invoke(cli.app, [*words, "-i", "a,"])

    return invoke


Ask = Callable[..., tuple[Hosts, Any]]


def test_ps_shows_services_by_hosts(ask: Ask) -> None:
    rows = {
        "a": [said("chat", phase="ready", wish=None)],
        "b": [said("chat", state="inactive", wish={"unit": "u", **WISH})],
    }
    _, result = ask("ps", hosts=Hosts(rows))
    head, first, second = result.output.splitlines()
    assert head.split() == ["SERVICE", "HOST", "STATE", "SINCE", "MODEL", "PORT", "MEMORY", "STOPPED", "BY"]
    assert first.split() == ["chat", "a", "ready", "-", "org/chat", "8000", "40", "GiB", "-"]
    assert second.endswith("  ada@laptop until 07:00 CET")
    _, result = ask("ps", "--json", hosts=Hosts(rows))
    found = json.loads(result.output)
    assert [(row["host"], row["name"], row["state"]) for row in found["services"]] == [
        ("a", "chat", "active"),
        ("b", "chat", "inactive"),
    ]


def test_ps_shows_who_answers_and_ends_as_one_that_is_silent(ask: Ask) -> None:
    _, result = ask("ps", silent=["c"])
    assert result.exit_code == Outcome.unreachable and "org/embed" in result.output


def test_ps_says_who_has_a_host_for_himself(ask: Ask) -> None:
    hosts = Hosts({"a": [said("chat")], "b": [said("chat")]})
    hosts.reach = {"a": {"reserved": "ada until 2999-12-24"}, "b": {"reserved": "ada until 2020-01-01"}}
    assert "a: reserved: ada until 2999-12-24" in ask("ps", hosts=hosts)[1].output
    document = json.loads(ask("ps", "--json", hosts=hosts)[1].output)
    assert document["reserved"] == {"a": "ada until 2999-12-24"}


def test_of_a_service_that_failed_ps_names_who_says_why(ask: Ask) -> None:
    rows = {"a": [said("chat", phase="failed", wish=None)], "b": [said("chat", phase="ready", wish=None)]}
    lines = ask("ps", hosts=Hosts(rows))[1].output.splitlines()
    assert any(line.startswith("why it failed, and how to fix it: gb10 why a") for line in lines)


@pytest.mark.parametrize("words", [["ps"], ["stop", "chat", "--yes"], ["swap", "chat", "embed", "--yes"]], ids=" ".join)
def test_who_has_answered_before_a_ctrl_c_is_not_taken_for_the_fleet(ask: Ask, words: list[str]) -> None:
    hosts = Hosts({"a": [said("chat"), said("embed")]})
    hosts.canceled = True
    _, result = ask(*words, hosts=hosts)
    assert (result.exit_code, result.stdout, hosts.orders) == (Outcome.interrupted, "", [])
    assert result.stderr == f"gb10.fleet.services: interrupted; {stopping.READ_ONLY}\n"


def test_ps_is_one_object_whoever_is_silent(ask: Ask) -> None:
    for found in ({"a": [said("chat")]}, {}):
        _, result = ask("ps", "--json", hosts=Hosts(found, silent=["d", "c"]))
        answer = json.loads(result.stdout)
        assert (result.exit_code, result.stderr, answer["outcome"]) == (Outcome.unreachable, "", "unreachable")
        assert answer["silent"] == ["c", "d"] and len(answer["services"]) == len(found)
        assert [(one["host"], one["id"]) for one in answer["findings"]] == [("c", "unreachable"), ("d", "unreachable")]
        assert "ansible c -i a, -m raw" in answer["findings"][0]["way_out"]


def test_ps_is_one_object_where_ansible_does_not_begin(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts({})
    monkeypatch.setattr(hosts, "run", lambda *_, **__: (Outcome.failed, Report(errors=["no such host"])))
    _, result = ask("ps", "--json", hosts=hosts)
    assert result.exit_code == Outcome.failed and json.loads(result.stdout)["errors"] == ["no such host"]


@pytest.mark.parametrize("words", [["ps"], ["stop", "chat", "--yes"], ["layout", "one", "--yes"]])
def test_a_silent_host_gets_the_way_out_of_the_doctor_once(ask: Ask, words: list[str]) -> None:
    _, result = ask(*words, silent=["c"], layouts={"one": ["chat"]})
    assert "c: unreachable: the host did not answer over SSH" in result.stderr
    assert result.stderr.count("ansible c -i a, -m raw -a true must work") == 1
    _, result = ask(*words, silent=["c", "d"], layouts={"one": ["chat"]})
    assert "ansible d -i a," in result.stderr and result.stderr.count("to go on without") == 1


def test_silent_hosts_come_in_the_order_of_their_names(ask: Ask) -> None:
    _, result = ask("ps", silent=["d", "c", "e"])
    assert [line[0] for line in result.stderr.splitlines() if ": unreachable:" in line] == ["c", "d", "e"]


BAD = "c: services[0].port is 'no', and must be a number; look at what runs on that host, its answer is not ours"


def test_a_bad_answer_is_the_silence_of_its_host(ask: Ask) -> None:
    """The action of the module has refused it; other hosts are shown, and their services stopped."""
    _, result = ask("ps", bad={"c": BAD})
    assert result.exit_code == Outcome.unreachable and "org/embed" in result.stdout and BAD in result.stderr
    _, result = ask("ps", "--json", bad={"c": BAD})
    answer = json.loads(result.stdout)
    assert answer["silent"] == ["c"] and len(answer["services"]) == 3 and answer["messages"] == {"c": [BAD]}
    hosts, result = ask("stop", "chat", "--yes", bad={"c": BAD})
    assert result.exit_code == Outcome.unreachable and [on for *_, on in hosts.wishes] == ["a,b"]
    assert BAD in result.stderr and "c: no answer, so it is as it was there" in result.stderr


def test_no_host_says_the_end_of_a_stop_for_another_one(ask: Ask) -> None:
    hosts = Hosts({"a": [said("chat")], "b": [said("chat")]})
    hosts.shown_by = {"a": "the year 9999. To start it: x;reboot"}
    _, result = ask("stop", "chat", "--until", "07:00", "--yes", hosts=hosts)
    tally("an end of a stop, said for other hosts", 1, "9999" in result.output)
    assert "chat is stopped on 2 single hosts (a, b) until 07:00. To start it before" in result.output


def test_stop_goes_to_all_hosts_of_the_service_and_to_no_other(ask: Ask) -> None:
    hosts, result = ask("stop", "chat", "--until", "07:00", "--yes")
    assert (result.exit_code, hosts.wishes) == (0, [("chat", "stopped", "a,b")])
    wish = hosts.orders[0].variables["gb10_wish"]
    assert (wish["until"], wish["limit_gib"], wish["within_s"]) == ("07:00", 8, 60)
    hosts, _ = ask("start", "embed", "--yes")
    assert hosts.wishes == [("embed", "started", "a")]


@pytest.mark.parametrize(
    ("words", "steps", "lines"),
    [
        (
            ["stop", "chat", "--until", "07:00"],
            ["stopping chat", "waiting for its memory"],
            [
                "a, b: 90 GiB are available",
                "chat is stopped on 2 single hosts (a, b) until 07:00 CET. To start it before: gb10 start chat -i a,",
            ],
        ),
        (
            ["stop", "embed", "--limit", "a"],
            ["stopping embed", "waiting for its memory"],
            [
                "a: 90 GiB are available",
                "embed is stopped on a, also after a boot. To start it: gb10 start embed --limit a -i a,",
            ],
        ),
        (["start", "embed"], ["starting embed"], ["embed starts on a. `gb10 ps -i a,` says when it is ready"]),
        (
            ["start", "embed", "--prove"],
            ["starting embed", "waiting for the model to load, then asking it"],
            ["a: org/chat answered 2 test questions correctly", "embed serves on a"],
        ),
        (
            ["swap", "embed", "chat", "--limit", "a"],
            ["stopping embed", "waiting for its memory", "starting chat", "waiting for the model"],
            ["a: 90 GiB", "a, b: org/chat answered", "chat serves, embed stopped by you"],
        ),
    ],
    ids=lambda words: words[0] if words[0] in ("stop", "start", "swap") else "",
)  # fmt: skip
def test_it_ends_in_plain_words(ask: Ask, words: list[str], steps: list[str], lines: list[str]) -> None:
    """An owner who knows no Ansible met its recap."""
    hosts, result = ask(*words, "--yes")
    assert result.exit_code == 0 and all(hosts.quiet) and hosts.quiet, result.output
    shown = result.stdout.splitlines()
    begun = [line[9:] for line in shown if line.startswith("  ")]
    assert [said[: len(step)] for said, step in zip(begun, steps, strict=True)] == steps, result.output
    ended = [line for line in shown if not line.startswith("  ")]
    assert [said[: len(line)] for said, line in zip(ended, lines, strict=True)] == lines, result.output


def test_a_start_of_what_is_started_says_so(ask: Ask) -> None:
    hosts = Hosts({"a": [said("chat")]})
    hosts.already = True
    _, result = ask("start", "chat", "--yes", hosts=hosts)
    assert result.stdout.splitlines()[-1] == "chat was started already on a. `gb10 ps -i a,` says whether it is ready"


@pytest.mark.parametrize("word", ["-v", "--check", "--diff"])
def test_who_asks_ansible_to_say_more_sees_its_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    hosts = Hosts({"a": [said("chat")]})
    monkeypatch.setattr(services_cli, "run", hosts.run)
    result = CLI.invoke(cli.app, ["stop", "chat", "--yes", "-i", "a,", "--", word])
    assert (result.exit_code, hosts.quiet) == (0, [False]), result.output
    assert ("is stopped" in result.output) is (word != "--check")
    assert ("Nothing was changed" in result.output) is (word == "--check")


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Outcome.refused, "chat: nothing was changed\n"),
        (Outcome.failed, "chat: it did not come to its end: `gb10 ps -i a,` says what runs now\n"),
        (Outcome.unreachable, "chat: it did not come to its end: `gb10 ps -i a,` says what runs now\n"),
    ],
)
def test_what_fails_says_how_it_stands(ask: Ask, outcome: Outcome, text: str) -> None:
    hosts = Hosts({"a": [said("chat")]})
    hosts.outcome = lambda wish: outcome
    _, result = ask("stop", "chat", "--yes", hosts=hosts)
    assert result.exit_code == outcome and result.stderr.endswith(text) and "chat is stopped" not in result.output


def test_the_play_says_the_two_that_are_told() -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks/wish.yml").read_text())
    steps = {
        task["vars"]["__gb10_step"] for task in play["tasks"] if "ansible.builtin.assert" in task and "vars" in task
    }
    assert steps - {"refuse"} == services_cli.TOLD.keys() - {"gb10.fleet.wish"}
    names = [task["name"] for task in play["tasks"]]
    begun = [step for steps in services_cli.STEPS.values() for step in steps]
    assert begun and all(any(name.startswith(step) for name in names) for step in begun)


@pytest.mark.parametrize(
    ("words", "more", "text"),
    [
        (["stop", "chat"], {}, "(a, b)? [y]es or [n]o: Nobody is there to ask: say --yes. Nothing was changed"),
        (["stop", "chta", "--yes"], {}, "no service is called chta on a,; there are chat, embed. `gb10 site` brings"),
        (
            ["stop", "chat", "--yes"],
            {"hosts": Hosts({"a": [said("chat", members=["a", "b"])]}, ["b"])},
            "b: no answer, so",
        ),
        (["stop", "chta", "--yes"], {"silent": ["c"]}, "c: no answer, so nothing was changed"),
        (["swap", "chat", "embed", "--yes"], {"silent": ["c"]}, "c: no answer, so nothing was changed"),
        (["layout", "one", "--yes"], {"silent": ["c"], "layouts": {"one": ["chat"]}}, "c: no answer, so nothing"),
        (["swap", "chat", "big", "--yes"], {}, "no service is called big"),
        (["layout", "both", "--yes"], {"layouts": {"one": ["chat"]}}, "no layout is called both; there are one"),
        (["layout", "one", "--yes"], {"layouts": {"one": ["chta"]}}, "no service is called chta"),
    ],
)
def test_nothing_begins_that_cannot_end(ask: Ask, words: list[str], more: dict[str, Any], text: str) -> None:
    hosts, result = ask(*words, **more)
    assert result.exit_code == Outcome.refused
    assert text in result.output
    assert hosts.orders == []


OF_A_PAIR = {"a": [said("chat", members=["a", "b"]), said("embed", members=["a", "b"])]}
OF_ANOTHER = {host: [said("chat", members=["c", "d"]), said("embed", members=["c", "d"])] for host in ("c", "d")}


@pytest.mark.parametrize("words", [["start", "chat", "--yes"], ["swap", "chat", "embed", "--yes"]])
@pytest.mark.parametrize("found", [OF_A_PAIR, {}])
def test_of_the_only_cluster_nothing_is_left_out(ask: Ask, words: list[str], found: dict[str, Any]) -> None:
    """Half of it serves nothing, so nothing would be left."""
    _, result = ask(*words, hosts=Hosts(found, ["b"]))
    assert result.exit_code in (Outcome.refused, Outcome.unreachable)
    assert "--limit" not in result.output.partition("no answer, so nothing")[2]
    assert "must work" in result.stderr, "the way out that `ps` names"


def test_a_switch_is_refused_by_a_silent_host_which_may_be_left_out(ask: Ask) -> None:
    _, result = ask("swap", "chat", "embed", "--yes", hosts=Hosts({**OF_A_PAIR, **OF_ANOTHER}, ["b"]))
    assert result.exit_code == Outcome.refused and "leave its whole cluster out with --limit" in result.output


# A cluster that is not whole, by what its own hosts say, and what is said of it.
NOT_WHOLE = {
    "silent": (Hosts(OF_A_PAIR, ["b"]), "chat on a stays as it is: no answer from b"),
    "a lie": (Hosts({**OF_A_PAIR, "b": [said("embed")]}), "chat on a stays as it is: this run does not find it on b"),
    "both": (
        Hosts({"a": [said("chat", members=["a", "b"])], "b": [said("chat", members=["a", "b", "x"])]}),
        "chat on a, b stays as it is: this run does not find it on x",
    ),
}


def test_a_stop_that_one_host_refuses_has_changed_something(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts({"a": [said("chat")], "b": [said("chat")]})
    run = hosts.run

    def refused_by_b(order: Order, **more: Any) -> tuple[Outcome, Report]:
        outcome, report = run(order, **more)
        if "gb10_wish" not in order.variables:
            return outcome, report
        report.stats = {"ok": {"a": 9}, "failures": {"b": 1}}
        return Outcome.refused, report

    monkeypatch.setattr(hosts, "run", refused_by_b)
    _, result = ask("stop", "chat", "--yes", hosts=hosts)
    assert result.exit_code == Outcome.failed and "nothing was changed" not in result.output


@pytest.mark.parametrize("state", ["stop", "start"])
@pytest.mark.parametrize("kind", NOT_WHOLE)
def test_a_cluster_that_is_not_whole_keeps_no_other_one_from_a_stop(ask: Ask, state: str, kind: str) -> None:
    one, text = NOT_WHOLE[kind]
    hosts, result = ask(state, "chat", "--yes", hosts=Hosts({**one.found, **OF_ANOTHER}, one.silent))
    tally("a host says that its cluster is not whole, and nobody's service is stopped", 1, int(not hosts.wishes))
    assert [on for *_, on in hosts.wishes] == ["c,d"]
    assert text in result.stderr, result.output
    assert result.exit_code == (Outcome.unreachable if one.silent else Outcome.failed)


@pytest.mark.parametrize("state", ["stop", "start"])
@pytest.mark.parametrize("host", [{"silent": ["c"]}, {"bad": {"c": "its answer cannot be used"}}])
def test_one_silent_host_keeps_nobody_else_from_a_stop(ask: Ask, state: str, host: dict[str, Any]) -> None:
    hosts, result = ask(state, "embed", "--yes", **host)
    assert [(name, on) for name, _, on in hosts.wishes] == [("embed", "a")]
    assert result.exit_code == Outcome.unreachable and "c: no answer, so it is as it was there" in result.output


def test_the_question_says_how_many_clusters_it_is_about(ask: Ask) -> None:
    """Without --limit it is every cluster of the inventory that has a service of that name."""
    pairs = {host: [said("chat", members=[host[0] + "1", host[0] + "2"])] for host in ("a1", "a2", "b1", "b2")}
    single = {"c": [said("chat"), said("embed")], "d": [said("chat")]}
    for found, text in (
        (pairs, "Stop chat on 2 clusters (a1, a2, b1, b2)"),
        ({"a1": pairs["a1"], "a2": pairs["a2"]}, "Stop chat on a1, a2"),
        ({**pairs, **single}, "Stop chat on 2 clusters and 2 single hosts (a1, a2, b1, b2, c, d)"),
        (
            {"a1": pairs["a1"], "a2": pairs["a2"], "d": single["d"]},
            "Stop chat on 1 cluster and 1 single host (a1, a2, d)",
        ),
        (single, "Stop chat on 2 single hosts (c, d)"),
    ):
        _, result = ask("stop", "chat", hosts=Hosts(found))
        assert f"{text}? [y]es or [n]o: Nobody is there to ask" in result.stderr
    _, result = ask("swap", "chat", "embed", hosts=Hosts(single))
    assert "Stop chat on 2 single hosts (c, d), and start embed on c? [y]es or [n]o: Nobody" in result.stderr


def test_half_of_a_cluster_is_refused(ask: Ask) -> None:
    found = {"a": [said("big", members=["a", "b"])]}
    hosts, result = ask("stop", "big", "--yes", hosts=Hosts(found))
    assert result.exit_code == Outcome.refused and hosts.orders == []
    assert "big is served by b as well" in result.output


@pytest.mark.parametrize("lie", [["b", "c"], ["b", "nobody"]])
def test_a_host_names_no_member_that_the_inventory_has_elsewhere(ask: Ask, lie: list[str]) -> None:
    hosts = Hosts({"a": [said("chat")], "b": [said("chat", members=lie)]}, silent=["c"])
    hosts.reach = {host: {"services": ["chat"], "members": []} for host in ("a", "b")}
    hosts, result = ask("stop", "chat", "--yes", hosts=hosts)
    tally("a host names a member of its cluster, and nobody's service is stopped", 1, int(not hosts.wishes))
    assert [on for *_, on in hosts.wishes] == ["a,b"] and result.exit_code == Outcome.unreachable


def test_swap_stops_first_and_asks_the_other(ask: Ask) -> None:
    hosts, result = ask("swap", "embed", "chat", "--yes")
    assert (result.exit_code, hosts.wishes) == (0, [("embed", "stopped", "a"), ("chat", "started", "a,b")])
    assert hosts.orders[1].variables["gb10_wish"]["prove"] is True


def test_a_swap_that_fails_goes_back_and_says_so(ask: Ask) -> None:
    hosts = Hosts({"a": [said("chat"), said("big", state="inactive")]})
    hosts.outcome = lambda wish: (
        Outcome.failed if wish["service"] == "big" and wish["state"] == "started" else Outcome.done
    )
    _, result = ask("swap", "chat", "big", "--yes", hosts=hosts)
    assert result.exit_code == Outcome.failed
    assert [wish[:2] for wish in hosts.wishes] == [
        ("chat", "stopped"),
        ("big", "started"),
        ("big", "stopped"),
        ("chat", "started"),
    ]
    assert "it failed, so chat serves again as before" in result.output
    hosts.outcome = lambda wish: Outcome.failed if wish["state"] == "started" else Outcome.done
    _, result = ask("swap", "chat", "big", "--yes", hosts=hosts)
    assert "and so did the way back to chat" in result.output


def test_one_switch_at_a_time(ask: Ask, tmp_path: Path) -> None:
    """Two timers of the same minute, or a timer and a person."""
    switch, layouts = ["swap", "chat", "embed", "--yes"], {"split": ["chat"], "big": ["embed"]}
    assert ask(*switch)[1].exit_code == Outcome.done
    assert (tmp_path / ".gb10").stat().st_mode & 0o077 == 0
    with locks.held(tmp_path / ".gb10/switch"):
        for words in (switch, ["layout", "big", "--yes"]):
            hosts, result = ask(*words, layouts=layouts)
            assert (result.exit_code, hosts.orders) == (Outcome.refused, [])
            assert "another gb10 is at work on this fleet" in result.stderr
    with locks.held(tmp_path / ".gb10"):
        for words in (switch, ["layout", "big", "--yes"]):
            hosts, result = ask(*words, layouts=layouts)
            assert (result.exit_code, hosts.orders) == (Outcome.refused, [])
            assert "a rollout is at work on this fleet; nothing was changed: see `gb10 status -i a,`" in result.stderr


def test_a_switch_that_another_has_overtaken_changes_nothing(ask: Ask) -> None:
    class Overtaken(Hosts):
        def run(self, order: Order, quiet: bool = False, watch: Any = None) -> tuple[Outcome, Report]:
            done = super().run(order, quiet, watch)
            self.found = {host: [{**one, "state": "inactive"} for one in said] for host, said in self.found.items()}
            return done

    found = {"a": [said("chat"), said("embed", state="inactive")]}
    layouts = {"split": ["chat"], "big": ["embed"]}
    hosts, result = ask("layout", "big", "--yes", hosts=Overtaken(found, layouts=layouts))
    assert (result.exit_code, hosts.orders) == (Outcome.refused, [])
    assert "a: what runs has changed meanwhile" in result.stderr


def test_memory_that_does_not_return_starts_nothing(ask: Ask) -> None:
    hosts = Hosts({"a": [said("chat"), said("big", state="inactive")]})
    hosts.outcome = lambda wish: Outcome.failed if wish["state"] == "stopped" else Outcome.done
    _, result = ask("swap", "chat", "big", "--yes", hosts=hosts)
    assert [wish[:2] for wish in hosts.wishes] == [("chat", "stopped"), ("chat", "started")]
    assert result.exit_code == Outcome.failed


def test_a_refusal_before_the_first_stop_needs_no_way_back(ask: Ask) -> None:
    hosts = Hosts({"a": [said("chat"), said("big", state="inactive")]})
    hosts.outcome = lambda wish: Outcome.refused
    _, result = ask("swap", "chat", "big", "--yes", hosts=hosts)
    assert (result.exit_code, len(hosts.orders)) == (Outcome.refused, 1)


def test_a_layout_stops_the_others_and_starts_its_own(ask: Ask) -> None:
    found = {"a": [said("chat"), said("embed"), said("big", state="inactive")]}
    hosts = Hosts(found, layouts={"split": ["chat", "embed"], "cluster": ["big"]})
    _, result = ask("layout", hosts=hosts)
    assert result.output.splitlines() == ["split: chat, embed  (runs)", "cluster: big"]
    _, result = ask("layout", "cluster", "--yes", hosts=hosts)
    assert [wish[:2] for wish in hosts.wishes] == [("chat", "stopped"), ("embed", "stopped"), ("big", "started")]
    assert result.exit_code == 0
    _, result = ask("layout", "split", "--yes", hosts=hosts)
    assert "split runs already" in result.output and len(hosts.orders) == 3


def test_a_host_does_not_say_of_a_service_of_others_that_it_runs(ask: Ask) -> None:
    found = {"a": [said("chat"), said("big", state="inactive")], "evil": [said("big"), said("embed")]}
    hosts = Hosts(found, layouts={"split": ["chat"], "cluster": ["big"]})
    hosts.reach = {"a": {"services": ["chat", "big"]}, "evil": {"services": ["embed"]}}
    _, result = ask("layout", hosts=hosts)
    tally(
        "a host says of a service of others that it runs, and a layout is not switched",
        1,
        int("(runs)" not in result.output),
    )
    assert result.output.splitlines() == ["split: chat  (runs)", "cluster: big"]
    _, result = ask("layout", "cluster", "--yes", hosts=hosts)
    assert hosts.wishes == [("chat", "stopped", "a"), ("big", "started", "a")] and result.exit_code == 0


def test_a_host_does_not_say_for_the_others_that_a_layout_runs(ask: Ask) -> None:
    """`embed` was stopped on all hosts then, `chat` started on none, and the exit status was 0."""
    night = [said("chat", state="inactive"), said("embed")]
    hosts = Hosts({"a": night, "evil": [said("chat"), said("embed", state="inactive")]})
    hosts.layouts = {"day": ["chat"], "night": ["embed"]}
    _, result = ask("layout", "day", "--yes", hosts=hosts)
    wrong = [wish[:2] for wish in hosts.wishes] != [("embed", "stopped"), ("chat", "started")]
    hosts.found["a"] = [said("chat", state="inactive"), said("embed", state="inactive")]
    _, again = ask("layout", "day", "--yes", hosts=hosts)
    tally("a host says that it runs a layout, and it starts nowhere", 2, wrong + ("runs already" in again.output))
    assert not wrong and hosts.wishes[2:] == [("chat", "started", "a,evil")], (hosts.wishes, again.output)
    assert (result.exit_code, again.exit_code) == (0, 0)
    assert "(runs)" not in ask("layout", hosts=hosts)[1].output


def test_the_way_back_is_for_hosts_on_which_it_ran(ask: Ask) -> None:
    """A host that fails had others start what had not run there, beside what did."""
    day = [said("chat"), said("embed", state="inactive")]
    hosts = Hosts({"a": day, "evil": [said("chat"), said("embed")]}, layouts={"day": ["chat"], "night": ["embed"]})
    hosts.outcome = lambda wish: Outcome.failed if wish["state"] == "stopped" else Outcome.done
    _, result = ask("layout", "day", "--yes", hosts=hosts)
    assert result.exit_code == Outcome.failed
    of_a = [on for _, state, on in hosts.wishes if state == "started" and on != "evil"]
    hosts.found["a"][0], hosts.orders = said("chat", state="inactive"), []
    hosts.found["evil"][1] = said("embed", state="inactive")
    hosts.outcome = lambda wish: Outcome.failed if wish["service"] == "embed" else Outcome.done
    ask("swap", "chat", "embed", "--yes", hosts=hosts)
    of_b = hosts.wishes[2:] != [("embed", "stopped", "a,evil"), ("chat", "started", "evil")]
    tally("a host fails, and a service starts where it did not run", 2, bool(of_a) + of_b)
    assert not of_a and not of_b, hosts.wishes


def test_of_a_cluster_that_ran_in_part_the_way_back_starts_the_whole(ask: Ask) -> None:
    hosts = Hosts({"a": [said("chat", members=["a", "b"])], "b": [said("chat", members=["a", "b"], state="failed")]})
    hosts.found["c"] = [said("big", state="inactive")]
    hosts.outcome = lambda wish: Outcome.failed if wish["service"] == "big" else Outcome.done
    ask("swap", "chat", "big", "--yes", hosts=hosts)
    assert hosts.wishes[2:] == [("big", "stopped", "c"), ("chat", "started", "a,b")]


def test_the_first_host_does_not_speak_for_all(ask: Ask) -> None:
    hosts = Hosts({"a": [said("chat")], "b": [said("big", state="inactive")]})
    hosts.by_host = {"a": {}, "b": {"cluster": ["big"]}}
    _, result = ask("layout", hosts=hosts)
    assert result.output == "cluster: big\n"
    hosts.by_host["a"] = {"split": ["chat"]}
    _, result = ask("layout", "cluster", "--yes", hosts=hosts)
    assert result.exit_code == Outcome.refused and hosts.orders == []
    assert "gb10_layouts is not the same on all hosts (a: {'split': ['chat']}; b: {'cluster'" in result.output


def test_a_layout_is_judged_by_the_inventory_before_any_host_is_asked(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def refusing(order: Order, quiet: bool = False) -> tuple[Outcome, Report]:
        asked.append(order.variables)
        return Outcome.refused, Report(messages={"a": ["no layout is called nihgt; there are night"]})

    hosts = Hosts({})
    monkeypatch.setattr(hosts, "run", refusing)
    _, result = ask("layout", "nihgt", "--yes", hosts=hosts)
    assert (result.exit_code, asked) == (Outcome.refused, [{"gb10_layout": "nihgt"}])
    assert result.output == "no layout is called nihgt; there are night\n"
    ask("layout", hosts=hosts)
    assert asked[1:] == [{}], "without a name there is nothing to judge"


def test_fetch_says_the_time_without_service_beforehand(ask: Ask) -> None:
    hosts, result = ask(
        "fetch", "chat", hosts=Hosts({"a": [said("chat", load_s=312.4)], "b": [said("chat", load_s=300)]})
    )
    assert result.output.startswith("chat: 312 s without service: the load alone")
    assert (hosts.orders[0].playbook, hosts.orders[0].variables) == (
        "gb10.fleet.fetch",
        {"gb10_ahead": True, "gb10_ahead_of": "chat"},
    )
    assert result.stdout.splitlines()[-1] == "chat: image and model are on its hosts" and hosts.quiet == [True]
    _, result = ask("fetch", "chat")
    assert "up to 1800 s without service: no load of it is known" in result.output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["stop", "chat", "--until", "25:00"], "--until '25:00': it is no time; write 07:00"),
        (["stop", "chat", "--until", "tomorrow"], "--until 'tomorrow': it is no time"),
        (["swap", "chat", "chat"], "chat cannot take its own place"),
        (["layout", "split", "--at", "garbage"], "--at 'garbage' is no time of systemd's calendar"),
        (["layout", "a b", "--at", "07:00"], "a timer cannot be named after 'a b'"),
        (["layout", "--at", "07:00"], "--at: name the layout"),
    ],
)
def test_what_no_host_needs_to_judge_asks_none(
    words: list[str], text: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(services_cli, "_read", lambda *given: asked.append(given))
    _, result = ask(*words, "--yes")
    assert result.exit_code == Outcome.refused and text in result.output and not asked


@pytest.mark.parametrize("until", ["07:00", "+2h", "2026-11-24T07:00"])
def test_every_form_of_a_time_goes_to_the_hosts(until: str, ask: Ask) -> None:
    hosts, result = ask("stop", "chat", "--until", until, "--yes")
    assert result.exit_code == Outcome.done and hosts.orders[0].variables["gb10_wish"]["until"] == until


def test_a_service_that_is_asleep_says_so_and_a_layout_of_others_closes_its_socket(ask: Ask) -> None:
    wish = {"unit": "u", "who": "on_demand", "since": "", "until": "", "shown": ""}
    found = {"a": [said("chat"), said("embed", state="inactive", wish=wish), said("big", state="inactive")]}
    assert "asleep, starts when asked" in ask("ps", hosts=Hosts(found))[1].output
    layouts = {"split": ["chat", "embed"], "cluster": ["big"]}
    hosts, result = ask("layout", "cluster", "--yes", hosts=Hosts(found, layouts=layouts))
    assert result.exit_code == 0
    assert hosts.wishes == [("chat", "stopped", "a"), ("embed", "stopped", "a"), ("big", "started", "a")]


def test_a_timer_goes_without_a_host_also_of_a_layout_that_is_gone(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(layout_timer, "place", lambda root: (tmp_path, ["systemctl"]))
    monkeypatch.setattr(services_cli, "_read", lambda *given: pytest.fail("a host was asked"))
    ours = layout_timer.Timer("gone", layout_timer.NEVER, ("a,",), None, tmp_path).owner
    (tmp_path / "gb10-layout-gone.timer").write_text(f"{ours}\n")
    _, result = ask("layout", "gone", "--at", "never", "--yes")
    assert (result.exit_code, result.output) == (0, "gb10-layout-gone.timer: removed\n")
    assert list(tmp_path.iterdir()) == []


def test_a_timer_needs_a_consent_and_a_layout_that_there_is(ask: Ask) -> None:
    layouts = {"split": ["chat", "embed"]}
    hosts, result = ask("layout", "split", "--at", "07:00", "--yes", layouts=layouts)
    assert result.exit_code == Outcome.refused and "gb10_layouts_by_timer: true" in result.output
    hosts.by_host, hosts.consents = {"a": {}, "b": layouts, "c": layouts}, {"a": False, "b": True}
    _, result = ask("layout", "split", "--at", "07:00", "--yes", hosts=hosts)
    assert result.exit_code == Outcome.refused
    assert "true in the inventory for c\n" in result.output, "a has no part in layouts"
    hosts, result = ask("layout", "both", "--at", "07:00", "--yes", layouts=layouts)
    assert result.exit_code == Outcome.refused and "no layout is called both" in result.output
    assert hosts.orders == []


@pytest.mark.parametrize("consented", [True, False])
def test_a_timer_switches_only_while_there_is_a_consent(ask: Ask, consented: bool) -> None:
    hosts = Hosts({"a": [said("chat"), said("big", state="inactive")]}, layouts={"one": ["chat"], "two": ["big"]})
    hosts.consents = {"a": consented}
    _, result = ask("layout", "two", "--yes", "--by-timer", hosts=hosts)
    assert (result.exit_code == Outcome.done) is consented and bool(hosts.wishes) is consented
    assert ("gb10_layouts_by_timer: true" in result.output) is not consented
    assert consented or result.exit_code == Outcome.refused
