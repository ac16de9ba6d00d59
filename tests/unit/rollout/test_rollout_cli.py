"""`gb10 rollout`, `resume`, `rollback` and `status`: exit states, JSON, locks, and real kills."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from gb10_fleet import cli
from gb10_fleet.enrol import written
from gb10_fleet.enrol.judging import Known
from gb10_fleet.playbook import Order, Outcome, Report, Trouble
from gb10_fleet.rollout import cli as rollout_cli
from gb10_fleet.rollout import live, locks
from gb10_fleet.rollout.boards import another
from gb10_fleet.rollout.journal import Journal, place
from tests.support.plays import ROOT
from tests.support.ways import BAD, GB10, Rollout, Way, update

CLI = CliRunner()
HOSTS = ["a", "b", "c", "d"]


@cache
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "gb10_fleet/report/report.schema.json").read_text())
    return found


def valid(document: Mapping[str, Any]) -> None:
    jsonschema.validate(document, schema(), cls=jsonschema.Draft202012Validator)


class Fleet:
    """In place of playbook.run: four hosts, and what goes wrong with them."""

    def __init__(self) -> None:
        self.bad: dict[str, str] = {}
        self.refuses = False
        self.cancels = False
        self.worked: list[list[str]] = []
        self.clusters, self.serves, self.reserved = [""] * 4, False, [""] * 4
        self.told: list[dict[str, Any]] = []
        self.hook = (Outcome.done, Report())

    @property
    def hosts(self) -> list[str]:
        """Those that had work, as often as they had it."""
        return sorted(host for wave in self.worked for host in wave)

    def run(self, order: Order, *, watch: Callable[[Mapping[str, Any]], None], **_: Any) -> tuple[Outcome, Report]:
        if order.playbook == "gb10.fleet.hosts":
            roles, groups = [["vllm"] if self.serves else []] * 4, [*{*self.clusters}]
            said = {"hosts": HOSTS, "clusters": self.clusters, "roles": roles, "groups": groups}
            said |= {"in_groups": [groups] * 4, "reserved": self.reserved}
            data = {"task": "List the hosts", "host": "a", "res": {"msg": json.dumps(said)}}
            watch({"event": "runner_on_ok", "event_data": data})
            return Outcome.done, Report()
        if order.playbook == "gb10.fleet.notify":
            self.told.append(dict(order.variables["__notify_event"]))
            return self.hook
        hosts = Path(str(order.limit)[1:]).read_text().split()
        self.worked.append(hosts)
        for step in ("drain", "serve") if self.serves else ():
            for host in hosts if step == "drain" or not (self.cancels or set(hosts) & set(self.bad)) else ():
                unit = {"res": {"changed": True}, "step": step, "task": step, "host": host}
                watch({"event": "runner_on_ok", "event_data": unit})
        troubles = {host: Trouble(self.bad[host], "Update: no") for host in hosts if host in self.bad}
        for host, trouble in troubles.items():
            data = {"host": host, "task": "Update", "res": {"msg": "no\x1b[2J"}}
            watch({"event": f"runner_on_{trouble.kind}", "event_data": data})
        through = set(hosts) - set(troubles)
        report = Report(tasks=True, seen=set(hosts), through=through, troubles=troubles, canceled=self.cancels)
        report.refused = self.refuses and bool(troubles)
        report.changes = {host: [{"role": "driver", "resource": "package:x", "action": "update"}] for host in through}
        return Outcome.done, report


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.yml").write_text("{}\n")
    (tmp_path / "play.yml").write_text("[]\n")
    made = Fleet()
    monkeypatch.setattr(rollout_cli, "run", made.run)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


SIZES = ["--canary", "a", "--growth", "2", "--soak", "0"]


def gb10(command: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit status and the one JSON object, which the schema knows."""
    result = CLI.invoke(cli.app, [command, *words, "-i", "hosts.yml", "--json"])
    assert result.stderr == "", result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    if "--plan" not in words:
        valid(document)
    return result.exit_code, document


def start(*words: str) -> tuple[int, dict[str, Any]]:
    return gb10("rollout", "play.yml", "--no-prove", *SIZES, *words)


def states(record: Mapping[str, Any]) -> dict[str, str]:
    return {host["host"]: host["state"] for wave in record["waves"] for host in wave["hosts"]}


# -- how it ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "refuses", "words", "outcome"),
    [
        ({}, False, [], Outcome.done),
        ({"a": "failed"}, False, [], Outcome.failed),
        ({"a": "unreachable"}, False, [], Outcome.unreachable),
        ({"a": "failed"}, True, [], Outcome.refused),
        (dict.fromkeys("bcd", "failed"), False, [], Outcome.partial),
        ({"a": "failed"}, False, ["--threshold", "1"], Outcome.partial),
    ],
)
def test_every_end_has_its_exit_status_and_a_valid_report(
    fleet: Fleet, bad: dict[str, str], refuses: bool, words: list[str], outcome: Outcome
) -> None:
    fleet.bad, fleet.refuses = bad, refuses
    status, record = start(*words)
    assert (status, record["outcome"]) == (outcome, outcome.name)
    assert (record["reason"] is None) == (outcome is Outcome.done)
    folder = Path(".gb10/reports") / record["run"]
    document = json.loads((folder / "report.json").read_text())
    valid(document)
    assert states(document) == states(record) and document["events"][-1]["kind"] == "ended"
    assert record["run"] in (folder / "index.html").read_text()
    assert gb10("status") == (0, {**record, "owner": None, "orphans": []})


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (["rollout", "nonsense"], "nonsense is no playbook"),
        (["rollout", "play.yml", "--growth", "0"], "growth: 0 is no size"),
        (["rollout", "play.yml", "--window", "at night"], "window: 'at night'"),
        (["rollout", "play.yml", "--to", "nonsense"], "--to nonsense"),
        (["rollout", "play.yml", "--canary", "nobody"], "canary: nobody is neither"),
        (["resume"], "no rollout of this fleet has begun"),
        (["rollback", "r"], "no rollout of this fleet has begun"),
        (["status", "r"], "no rollout of this fleet has begun"),
        (["rollout", "nonsense", "--plan"], "nonsense is no playbook"),
    ],
)
def test_what_is_refused_before_it_begins_has_the_same_keys(fleet: Fleet, words: list[str], because: str) -> None:
    status, record = gb10(words[0], *words[1:])
    assert status == Outcome.refused and record["outcome"] == "refused" and record["run"] is None
    assert because in record["reason"] and fleet.worked == []
    assert record["kind"] == ("rollback" if words[0] == "rollback" else "rollout")
    shown = CLI.invoke(cli.app, [*words, "-i", "hosts.yml"])
    assert shown.exit_code == Outcome.refused and because in " ".join(shown.stderr.split())


def test_people_hear_of_a_rollout_that_stopped_and_of_no_other(fleet: Fleet) -> None:
    code, _ = start()
    assert (code, fleet.told) == (0, [])
    fleet.bad["b"] = "failed"
    code, record = start()
    (told,) = fleet.told
    assert code == Outcome.partial
    assert (told["event"], told["verdict"], told["hosts"]) == ("rollout", "partial", ["b"])
    assert record["run"] in told["text"] and record["reason"] in told["text"]
    assert Path(told["see"]).is_file()


def test_a_hook_that_fails_is_said_and_changes_no_outcome(fleet: Fleet) -> None:
    fleet.bad["b"] = "failed"
    why = "gb10_notify: /usr/local/bin/tell ended with status 1, so nobody may have been told"
    fleet.hook = (Outcome.failed, Report(messages={"a": [why]}))
    result = CLI.invoke(cli.app, ["rollout", "play.yml", "--no-prove", *SIZES, "-i", "hosts.yml", "--json"])
    assert result.exit_code == Outcome.partial and result.stderr == f"{why}\n"
    valid(json.loads(result.stdout))


def test_an_interrupt_is_no_end(fleet: Fleet) -> None:
    fleet.cancels = True
    status, record = start()
    assert status == 128 + signal.SIGINT and (record["outcome"], record["ended"]) == (None, None)
    assert states(record)["a"] == "running"
    fleet.cancels = False
    status, record = gb10("resume")
    assert (status, record["outcome"], record["attempt"]) == (0, "done", 2)


def test_who_ends_it_on_the_way_hears_what_does_not_serve_and_how_to_go_on(fleet: Fleet) -> None:
    fleet.serves, fleet.clusters, fleet.cancels = True, ["pair", "pair", "", ""], True
    words = ["rollout", "play.yml", "--no-prove", *SIZES, "-i", "hosts.yml"]
    shown = CLI.invoke(cli.app, words)
    assert shown.exit_code == 128 + signal.SIGINT
    lines = shown.output.splitlines()
    assert lines[0].startswith("the canary has 2 hosts and not 1: cluster pair")
    run = json.loads(CLI.invoke(cli.app, ["status", "-i", "hosts.yml", "--json"]).stdout)["run"]
    way_on = [
        "does not serve now: cluster pair (a, b)",
        f"not at its end, gb10 resume goes on: gb10 resume {run} -i hosts.yml",
    ]
    assert [line for line in lines if line in way_on] == way_on
    status = CLI.invoke(cli.app, ["status", "-i", "hosts.yml"])
    assert status.exit_code == Outcome.unfinished and status.output.splitlines()[-2:] == way_on
    fleet.cancels = False
    code, record = gb10("resume", run)
    assert code == 0 and set(record["models"].values()) == {"started"}
    assert gb10("status")[0] == 0


def test_the_end_and_status_name_what_was_changed(fleet: Fleet) -> None:
    shown = CLI.invoke(cli.app, ["rollout", "play.yml", "--no-prove", *SIZES, "-i", "hosts.yml"])
    line = "a, b, d and 1 more  driver  package:x  update"
    assert shown.exit_code == 0 and shown.output.splitlines().count(line) == 1, shown.output
    assert line in CLI.invoke(cli.app, ["status", "-i", "hosts.yml"]).output.splitlines()


def test_what_a_stopped_rollout_has_changed_can_be_taken_back_and_its_end_says_how(fleet: Fleet) -> None:
    fleet.bad = dict.fromkeys("bcd", "failed")
    words = ["rollout", "play.yml", "--no-prove", *SIZES, "-i", "hosts.yml"]
    lines = CLI.invoke(cli.app, words).output.splitlines()
    (run,) = (line.split()[-3] for line in lines if line.startswith("when it is repaired: gb10 resume "))
    assert f"or take back what it did: gb10 rollback {run} -i hosts.yml" in lines
    fleet.bad = {"a": "failed"}
    shown = CLI.invoke(cli.app, ["rollback", run, "-i", "hosts.yml"]).output
    assert "gb10 resume" in shown and "gb10 rollback" not in shown, "what takes back is not taken back"


def test_after_a_silent_host_the_command_that_goes_on_is_said(fleet: Fleet) -> None:
    fleet.bad = {"a": "unreachable"}
    status, record = start()
    assert status == Outcome.unreachable
    shown = CLI.invoke(cli.app, ["status", "-i", "hosts.yml"])
    way = f"check power, network and SSH of a; when it answers: gb10 resume {record['run']} -i hosts.yml"
    assert shown.exit_code == Outcome.done and way in shown.output.splitlines()
    fleet.bad = {}
    assert CLI.invoke(cli.app, ["resume", "-i", "hosts.yml"]).exit_code == Outcome.done
    assert "gb10 resume" not in CLI.invoke(cli.app, ["status", "-i", "hosts.yml"]).output


def test_a_bad_host_whose_model_stays_stopped_is_said_too(fleet: Fleet) -> None:
    fleet.serves, fleet.bad = True, {"a": "failed"}
    status, record = start()
    assert status == Outcome.failed and record["models"] == {"a": "stopped"}
    shown = CLI.invoke(cli.app, ["status", "-i", "hosts.yml"])
    assert (
        shown.exit_code == Outcome.unfinished
        and "does not serve now: a\nwhen it is repaired: gb10 resume" in shown.output
    )
    page = (Path(".gb10/reports") / record["run"] / "index.html").read_text()
    assert "does not serve now: a" in page


def test_where_gb10_is_killed_nobody_knows_and_status_says_so(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.serves = True

    def die(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(rollout_cli.rollout.Rollout, "_judge", die)
    monkeypatch.setattr(rollout_cli.rollout.Models, "note", lambda *_, **__: None)
    CLI.invoke(cli.app, ["rollout", "play.yml", "--no-prove", *SIZES, "-i", "hosts.yml"])
    status, record = gb10("status")
    assert status == Outcome.unfinished and record["models"] == {"a": "maybe"}
    assert "may not serve now: a" in CLI.invoke(cli.app, ["status", "-i", "hosts.yml"]).output


def test_resume_goes_on_where_it_stopped(fleet: Fleet) -> None:
    fleet.bad = dict.fromkeys("bcd", "failed")
    _, record = start()
    second = [host["host"] for host in record["waves"][1]["hosts"]]
    fleet.bad, fleet.worked = {}, []
    status, again = gb10("resume")
    assert status == 0 and again["run"] == record["run"] and fleet.worked[0] == second and len(fleet.worked) == 2
    status, refused = gb10("resume")
    assert status == Outcome.refused and refused["reason"] == f"{record['run']} is done"
    unheard = "what an attempt that was cut off had changed may be missing here"
    assert unheard in CLI.invoke(cli.app, ["status", "-i", "hosts.yml"]).output
    start()
    assert unheard not in CLI.invoke(cli.app, ["status", "-i", "hosts.yml"]).output


def test_bad_hosts_of_a_later_wave_do_not_stop_the_repair_of_an_earlier_one(fleet: Fleet) -> None:
    fleet.bad = dict.fromkeys("abd", "failed")
    status, record = start("--threshold", "1")
    assert status == Outcome.failed and states(record) == {"a": "failed", "b": "failed", "d": "failed", "c": "planned"}
    fleet.bad = {}
    assert gb10("resume")[0] == 0


def test_rollback_takes_back_what_was_touched(fleet: Fleet) -> None:
    _, record = start()
    fleet.worked = []
    status, back = gb10("rollback", record["run"])
    assert (status, back["kind"], back["of"], back["outcome"]) == (0, "rollback", record["run"], "done")
    assert fleet.worked == [[host["host"] for host in wave["hosts"]] for wave in record["waves"]]
    undo = back["order"]["steps"][0]["plays"][0]["vars"]["gb10_undo"]
    assert undo == {host: ["driver"] for host in HOSTS}


# -- another inventory than the run was planned with -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clusters", "first"), [(["", "pair", "pair", ""], "b"), (["pair", "", "pair", ""], "c")], ids=["both", "one"]
)
def test_no_half_of_what_is_a_cluster_since_is_stopped(fleet: Fleet, clusters: list[str], first: str) -> None:
    """Wave 1 is a, wave 2 has b and d: b is not done. Its model, and that of its mate, would have stayed down."""
    fleet.bad = {"b": "failed", "d": "failed", "c": "failed"}
    _, record = start()
    assert {host for host, state in states(record).items() if state == "done"} == {"a"}
    fleet.bad, fleet.worked, fleet.clusters = {}, [], clusters
    status, refused = gb10("resume")
    says = f"{first} is in cluster pair now, and was not when the run was planned: begin a new rollout"
    assert (status, refused["reason"]) == (Outcome.refused, says) and not fleet.worked


def test_who_is_done_may_be_in_another_cluster(fleet: Fleet) -> None:
    fleet.bad = {"b": "failed", "d": "failed"}
    start()
    fleet.bad, fleet.clusters = {}, ["alone", "", "", ""]
    assert gb10("resume")[0] == 0


def test_a_cluster_that_was_parted_is_not_taken_back_by_half(fleet: Fleet) -> None:
    fleet.clusters = ["", "pair", "pair", ""]
    _, record = start()
    fleet.worked, fleet.clusters = [], ["", "pair", "", "pair"]
    status, refused = gb10("rollback", record["run"])
    assert status == Outcome.refused and not fleet.worked
    assert "now, and was not when the run was planned: put the inventory back as it was" in refused["reason"]


@pytest.mark.parametrize("words", [["--state", "elsewhere"], ["-i", "other/hosts.yml"], []])
def test_whoever_looks_at_an_inventory_sees_the_rollout(fleet: Fleet, monkeypatch: Any, words: list[str]) -> None:
    """With --state the lock was in that folder alone: gb10 share took a key back, and the wave brought it again."""
    Path("other").mkdir()
    Path("other/hosts.yml").write_text("{}\n")
    seen: list[bool] = []

    def run(order: Order, **more: Any) -> tuple[Outcome, Report]:
        seen.append(all(locks.owner(place([name])) for name in ("hosts.yml", *words[1:] * (words[:1] == ["-i"]))))
        return fleet.run(order, **more)

    monkeypatch.setattr(rollout_cli, "run", run)
    assert start(*words)[0] == 0
    assert seen and all(seen)
    assert locks.owner(place(["hosts.yml"])) is None


# -- another board behind a name ---------------------------------------------------------------------------------------


def board(number: int, **said: Any) -> Known:
    return Known("x", f"machine-{number}", [f"48:b0:2d:00:00:{number:02}"], "Spark", "2026-11-01", **said)


def test_a_board_of_which_nothing_is_known_is_no_other() -> None:
    unknown = Known("x", None, [], "Spark", "2026-11-01")
    assert not another({"machine": None, "macs": []}, unknown)
    assert not another({"machine": None, "macs": ["48:b0:2d:00:00:01"]}, unknown)


def enrol(**boards: Known | None) -> None:
    written.keep(Path(".gb10"), boards)


@pytest.mark.parametrize("before", [board(1), None], ids=["enrolled", "never enrolled"])
def test_a_board_that_replaced_one_that_was_done_gets_the_work(fleet: Fleet, before: Known | None) -> None:
    enrol(a=before, b=board(2), c=board(3), d=board(4))
    fleet.bad = dict.fromkeys("bcd", "failed")
    _, record = start()
    assert states(record)["a"] == "done"
    enrol(a=board(9, replaced=True))
    fleet.bad, fleet.worked = {}, []
    result = CLI.invoke(cli.app, ["resume", "-i", "hosts.yml"])
    assert result.exit_code == 0 and fleet.worked[0] == ["a"], result.output
    assert "a is another board now: its wave begins again for it" in result.stdout
    assert fleet.hosts == HOSTS, "and each other one once"
    assert gb10("rollback", record["run"])[0] == 0 and fleet.hosts == sorted(HOSTS * 2)


def test_half_of_a_cluster_that_is_another_board_opens_all_of_it(fleet: Fleet) -> None:
    fleet.clusters = ["pair", "pair", "", ""]
    enrol(b=board(2))
    fleet.bad = dict.fromkeys("cd", "failed")
    _, record = start()
    assert {host for host, state in states(record).items() if state == "done"} == {"a", "b"}
    enrol(b=board(9))
    fleet.bad, fleet.worked = {}, []
    assert gb10("resume")[0] == 0 and sorted(fleet.worked[0]) == ["a", "b"]


def test_a_board_that_has_joined_another_cluster_since_is_not_opened_by_half(fleet: Fleet) -> None:
    enrol(a=board(1))
    fleet.bad = {"c": "failed"}
    start()
    enrol(a=board(9))
    fleet.bad, fleet.worked, fleet.clusters = {}, [], ["pair", "pair", "", ""]
    status, refused = gb10("resume")
    assert (status, fleet.worked) == (Outcome.refused, []) and "a is in cluster pair now" in refused["reason"]
    assert states(gb10("status")[1])["a"] == "done", "nothing was opened"


def test_a_board_that_takes_over_in_a_wave_that_was_cut_begins_with_its_first_step(fleet: Fleet) -> None:
    enrol(a=board(1))
    _, record = start()
    with Journal(Path(".gb10"), write=True) as journal:
        journal.resume(record["run"])
        journal.begin_wave(record["run"], 1, ["a"], {"a": {"machine": "machine-1", "macs": []}})
        journal.end_step(record["run"], 1, 0, {}, {}, None)
    enrol(a=board(9))
    fleet.worked = []
    assert gb10("resume")[0] == 0 and fleet.worked == [["a"]]


@pytest.mark.parametrize("now", [board(1), None], ids=["the same", "nobody knows"])
def test_who_is_no_other_board_stays_done(fleet: Fleet, now: Known | None) -> None:
    enrol(a=board(1))
    fleet.bad = dict.fromkeys("bcd", "failed")
    _, record = start()
    enrol(a=now)
    fleet.bad, fleet.worked = {}, []
    assert gb10("resume")[0] == 0 and "a" not in fleet.hosts
    assert states(gb10("rollback", record["run"])[1]).keys() == {*HOSTS}


@pytest.mark.parametrize(("cluster", "left"), [("", ["b", "c", "d"]), ("pair", ["c", "d"])])
def test_a_rollback_leaves_out_a_board_that_never_had_it(fleet: Fleet, cluster: str, left: list[str]) -> None:
    fleet.clusters = [cluster, cluster, "", ""]
    enrol(a=board(1))
    _, record = start()
    enrol(a=board(9))
    fleet.worked = []
    result = CLI.invoke(cli.app, ["rollback", record["run"], "-i", "hosts.yml"])
    assert result.exit_code == 0 and fleet.hosts == left, result.output
    said = "a is another board now; put the inventory back as it was, and roll it out there"
    assert f"left out: {f'{cluster}: ' if cluster else ''}{said}" in " ".join(result.stdout.split())
    undo = gb10("status")[1]["order"]["steps"][0]["plays"][0]["vars"]["gb10_undo"]
    assert undo == {host: ["driver"] for host in left}


def test_where_all_are_other_boards_nothing_goes_back(fleet: Fleet) -> None:
    _, record = start()
    enrol(**{host: board(number, replaced=True) for number, host in enumerate(HOSTS)})
    status, refused = gb10("rollback", record["run"])
    assert status == Outcome.refused
    assert refused["reason"] == f"a, b, d, c: another board now, and {record['run']} did nothing there"


def test_what_an_older_run_did_on_another_board_is_in_nobody_s_way(fleet: Fleet) -> None:
    """A role of an earlier run on the same host has the rollback refused; the new board has seen one run alone."""
    enrol(**{host: board(number) for number, host in enumerate(HOSTS)})
    start()
    enrol(**{host: board(number + 50) for number, host in enumerate(HOSTS)})
    _, record = start()
    assert gb10("rollback", record["run"])[0] == 0


def test_a_rollback_that_was_cut_does_not_go_on_with_another_board(fleet: Fleet) -> None:
    enrol(b=board(2))
    _, record = start()
    fleet.bad = {"a": "failed"}
    _, back = gb10("rollback", record["run"])
    assert states(back)["b"] == "planned"
    enrol(b=board(9))
    fleet.bad, fleet.worked = {}, []
    status, refused = gb10("resume")
    assert status == Outcome.refused and not fleet.worked
    assert refused["reason"].startswith(f"b is another board now, and {record['run']} did nothing there: begin a new")
    assert gb10("rollback", record["run"])[0] == 0 and fleet.hosts == ["a", "c", "d"]


def test_a_list_of_boards_that_cannot_be_read_is_named(fleet: Fleet) -> None:
    start()
    Path(".gb10/enrolled.json").write_text("[")
    status, refused = start()
    assert status == Outcome.refused and "enrolled.json cannot be read" in refused["reason"] and len(fleet.worked) == 3


def test_a_page_that_cannot_be_written_changes_no_outcome(fleet: Fleet) -> None:
    Path(".gb10").mkdir()
    Path(".gb10/reports").touch()
    result = CLI.invoke(cli.app, ["rollout", "play.yml", "--no-prove", *SIZES, "-i", "hosts.yml"])
    assert result.exit_code == 0 and "no report: " in result.stderr


def test_resume_and_rollback_may_say_another_policy(fleet: Fleet) -> None:
    fleet.bad = {"b": "failed"}
    _, record = start("--window", "00:00-24:00")
    assert record["outcome"] == "partial"
    status, resumed = gb10("resume", "--threshold", "1", "--timeout", "99", "--window", "always")
    assert (status, resumed["outcome"]) == (Outcome.partial, "partial") and states(resumed)["d"] == "done"
    assert {key: resumed["policy"][key] for key in ("threshold", "timeout_s", "window")} == {
        "threshold": 1, "timeout_s": 99, "window": [],
    }  # fmt: skip
    fleet.bad = {}
    status, back = gb10("rollback", record["run"], "--soak", "1")
    assert status == 0 and back["policy"]["soak_s"] == 1


def test_a_rollback_does_not_wait_for_the_window(fleet: Fleet) -> None:
    _, record = start("--window", "00:00-24:00")
    hour = (datetime.now(UTC).hour + 2) % 24
    with Journal(Path(".gb10"), write=True) as journal:
        closed = record["policy"] | {"window": [f"{hour:02}:00-{hour:02}:10"]}
        journal.resume(record["run"], closed)
        journal.end(record["run"], "done", None)
    assert gb10("rollback", record["run"])[0] == 0


def test_two_inventories_in_one_folder_are_two_fleets(fleet: Fleet) -> None:
    fleet.bad = {"a": "failed"}
    _, record = start()
    Path("staging.yml").write_text("{}\n")
    words = ["--no-prove", *SIZES, "-i", "staging.yml", "--json"]
    staging = json.loads(CLI.invoke(cli.app, ["rollout", "play.yml", *words]).stdout)
    assert gb10("status")[1]["run"] == record["run"] != staging["run"]
    for command in ("resume", "rollback", "status"):
        status, refused = gb10(command, staging["run"])
        assert status == Outcome.refused and "is a run of another inventory: -i " in refused["reason"]
    fleet.bad = {}
    assert gb10("resume")[1]["run"] == record["run"]


def test_a_journal_that_is_broken_is_not_the_same_as_none(fleet: Fleet) -> None:
    start()
    file = Path(".gb10/journal.db")
    whole = file.read_bytes()
    for broken in (whole[:3000], b"nonsense" * 1000, whole[:4096] + b"\xff" * (len(whole) - 4096)):
        file.write_bytes(broken)
        for other in ("journal.db-wal", "journal.db-shm"):
            file.with_name(other).unlink(missing_ok=True)
        for command in ("status", "resume", "report"):
            result = CLI.invoke(cli.app, [command, "-i", "hosts.yml", "--json"])
            said = json.loads(result.stdout)
            assert result.exit_code == Outcome.refused and "move it away" in said["reason"], (command, result.output)


@pytest.mark.parametrize("place", ["hosts.yml", "/proc/nothing"])
def test_a_state_folder_that_cannot_be_one(fleet: Fleet, place: str) -> None:
    status, refused = start("--state", place)
    assert status == Outcome.refused and place in refused["reason"]


# -- for people --------------------------------------------------------------------------------------------------------


def test_lines_where_nobody_looks(fleet: Fleet) -> None:
    fleet.bad = {"a": "failed"}
    result = CLI.invoke(cli.app, ["rollout", "play.yml", "--no-prove", *SIZES, "-i", "hosts.yml"])
    assert "\x1b" not in result.output, "a host steers the terminal"
    lines = result.output.splitlines()
    assert lines[0] == "wave 1 of 3, 1 host: work"
    assert lines[1] == "  a: failed: Update: no\\x1b[2J" and lines[2] == "wave 1 of 3, 1 host: stop"
    assert "wave 1: a: failed: Update: no" in lines and "failed: wave 1: a failed" in lines
    assert lines[-1].startswith("report: ") and Path(lines[-1].partition(" ")[2]).is_file()
    shown = CLI.invoke(cli.app, ["status", "-i", "hosts.yml"])
    assert shown.exit_code == 0 and "failed: wave 1: a failed" in shown.output


def test_a_table_where_somebody_looks(fleet: Fleet) -> None:
    start()
    with Journal(Path(".gb10")) as journal:
        record = journal.record()
    console = Console(width=100, force_terminal=False, record=True)
    view = live.Terminal(console, wave_s=60, soak_s=0)
    view.wave(record, 1, "work")
    view.event({"event": "playbook_on_task_start", "event_data": {"task": "Update\x1b[2J"}})
    view.event({"event": "runner_on_ok", "event_data": {"host": "a"}})
    console.print(view._draw())
    shown = console.export_text()
    assert record["run"] in shown and "work: Update\\x1b[2J\n1 host answered, 0 s" in shown
    assert "to go" not in shown, "all waves are over"
    record["waves"][1]["state"], record["waves"][2]["state"] = "running", "planned"
    console.print(view._draw())
    assert "about 2 min to go" in console.export_text()


def test_a_narrow_terminal_loses_names_and_nothing_else(fleet: Fleet) -> None:
    fleet.bad = {"b": "failed"}
    _, record = start()
    console = Console(width=80, force_terminal=False, record=True, file=io.StringIO())
    record["waves"][1]["hosts"][0]["host"] = "spark-with-a-name-that-is-long" * 3
    view = live.Terminal(console, wave_s=None, soak_s=0)
    view.wave(record, 2, "work")
    console.print(view._draw())
    shown = console.export_text()
    assert all(word in shown for word in ("wave", "state", "hosts", "done", "bad", "stopped", "planned"))


def test_what_is_left_has_the_soak_in_it(fleet: Fleet) -> None:
    fleet.bad = {"a": "failed"}
    _, record = start()
    console = Console(width=100, force_terminal=False, record=True, file=io.StringIO())
    record["waves"][0]["state"] = "running"
    view = live.Terminal(console, wave_s=60, soak_s=240)
    view.wave(record, 1, "work")
    console.print(view._draw())
    assert "about 11 min to go" in console.export_text()


def test_what_is_said_meanwhile_leaves_the_tables_colours_alone(fleet: Fleet) -> None:
    start()
    with Journal(Path(".gb10")) as journal:
        record = journal.record()
    shown = io.StringIO()
    with live.Terminal(Console(width=100, force_terminal=True, file=shown), wave_s=None, soak_s=0) as view:
        view.wave(record, 1, "done")
        failed = {"host": "a", "task": "Prove", "res": {"msg": "incomplete: 3 hosts\nspark-16: unmeasured"}}
        view.event({"event": "runner_on_failed", "event_data": failed})
        view.event({"event": "runner_on_failed", "event_data": failed | {"run_once": True}})
    assert "[green]" not in shown.getvalue() and "\x1b[32mdone" in shown.getvalue()
    assert "  a: failed: Prove: incomplete: 3 hosts ...\n" in shown.getvalue()
    assert "  the wave: failed: Prove: incomplete: 3 hosts ...\n" in shown.getvalue()


def test_the_plan_says_who_when_and_how_long(fleet: Fleet) -> None:
    words = ["rollout", "play.yml", "--plan", *SIZES]
    status, plan = gb10(*words)
    assert status == 0 and plan["wave_s"] is None and fleet.worked == [] and not Path(".gb10").exists()
    assert [len(wave["hosts"]) for wave in plan["waves"]] == [1, 2, 1] and plan["waves"][1]["begins"] is None
    _, record = start()
    assert [[host["host"] for host in wave["hosts"]] for wave in record["waves"]] == [
        [host["host"] for host in wave["hosts"]] for wave in plan["waves"]
    ]
    _, plan = gb10(*words)
    assert plan["wave_s"] is not None and all(wave["begins"] for wave in plan["waves"])
    shown = CLI.invoke(cli.app, [*words, "-i", "hosts.yml"]).output
    assert "wave 1, 1 of 4, from about " in shown and "3 waves, " in shown and "as earlier ones took" in shown


def test_status_names_the_others_and_does_not_tell_to_resume_what_is_at_work(fleet: Fleet) -> None:
    start("--to", "img:1")
    fleet.bad = {"a": "failed"}
    _, record = start()
    shown = CLI.invoke(cli.app, ["status", "-i", "hosts.yml"]).output.splitlines()
    assert shown[0].endswith(", rollout of play.yml: done") and shown[1].startswith(f"run {record['run']}, ")
    fleet.cancels = True
    _, record = start()
    with locks.held(Path(".gb10")) as say:
        say(record["run"])
        shown = CLI.invoke(cli.app, ["status", "-i", "hosts.yml"]).output.splitlines()
    assert shown[-1] == f"at work: process {os.getpid()}, wave 1 of 3: work" and "resume" not in "".join(shown)
    assert "resume goes on" in CLI.invoke(cli.app, ["status", "-i", "hosts.yml"]).output.splitlines()[-1]


def test_what_was_moved_is_not_yet_in_the_inventory(fleet: Fleet) -> None:
    result = CLI.invoke(cli.app, ["rollout", "play.yml", "--no-prove", *SIZES, "-i", "hosts.yml", "--to", "img:1"])
    assert "the next gb10 site brings what the inventory says: make that vllm_image: img:1" in result.output


def test_an_output_that_fails_ends_no_rollout(tmp_path: Path) -> None:
    made = Rollout(tmp_path, ["spark-1", "spark-2"], Way("good", "done", "", 0, 0, False), "nobody")
    with Path("/dev/full").open("w") as full:
        command = [*GB10, "rollout", *WORDS[:-1]]
        child = subprocess.Popen(command, cwd=tmp_path, env=made.environment, stdout=full, stderr=subprocess.PIPE)
        assert child.wait(timeout=60) == 0, child.communicate()
    assert made.touched() == ["spark-1", "spark-2"]


def test_status_of_a_fleet_without_rollouts(fleet: Fleet) -> None:
    result = CLI.invoke(cli.app, ["status", "-i", "hosts.yml"])
    assert result.exit_code == 0 and "no rollout of this fleet has begun" in result.output
    assert "gb10 status --hosts -i hosts.yml says how each host is" in result.output
    assert not Path(".gb10").exists()


# -- one writer --------------------------------------------------------------------------------------------------------


def test_a_second_command_is_refused_and_told_whose_run_it_is(fleet: Fleet) -> None:
    with locks.held(Path(".gb10")) as say:
        status, record = start()
        assert status == Outcome.refused and "a run that is just beginning" in record["reason"]
        say("20261121T010000Z-ab12")
        assert f"run 20261121T010000Z-ab12, process {os.getpid()}, since" in start()[1]["reason"]
        owner = locks.owner(Path(".gb10"))
        assert owner is not None and (owner.pid, owner.run) == (os.getpid(), "20261121T010000Z-ab12")
    assert locks.owner(Path(".gb10")) is None and start()[0] == 0


def test_the_lock_goes_with_the_process(tmp_path: Path) -> None:
    code = "import os, sys; from pathlib import Path; from gb10_fleet.rollout import locks\n"
    code += "with locks.held(Path(sys.argv[1])) as say: say('r'); os.kill(os.getpid(), 9)"
    subprocess.run(
        [sys.executable, "-c", code, tmp_path], check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert json.loads((tmp_path / "lock").read_text())["run"] == "r" and locks.owner(tmp_path) is None
    with locks.held(tmp_path):
        pass


@pytest.fixture
def sleepers() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Processes that carry a rollout in their environment, and stay until they are ended."""
    running: list[subprocess.Popen[str]] = []

    def begin(value: str, code: str = "pass") -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", f"import signal, time; {code}; print(flush=True); time.sleep(300)"]
        child = subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, env={**os.environ, "GB10_ROLLOUT": value})
        running.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    yield begin
    for child in running:
        child.kill()
        child.wait()
        if child.stdout:
            child.stdout.close()


def test_orphans_are_found_by_their_run_and_ended_by_their_ids(sleepers: Callable[..., subprocess.Popen[str]]) -> None:
    ours, deaf = sleepers("r-1/1"), sleepers("r-1/2", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    other = sleepers("r-11/1")
    found = locks.orphans(["r-1"])
    assert {(process.pid, process.rollout) for process in found} == {(ours.pid, "r-1/1"), (deaf.pid, "r-1/2")}
    assert found[0].words.startswith(f"left behind by {found[0].rollout}: process {found[0].pid}, ")
    assert locks.end(found, lambda: locks.orphans(["r-1"]), grace_s=0.3) == []
    assert ours.wait() == -signal.SIGTERM and deaf.wait() == -signal.SIGKILL and other.poll() is None


def test_a_pid_that_has_gone_to_another_process_is_left_alone(sleepers: Callable[..., subprocess.Popen[str]]) -> None:
    child = sleepers("r-1/1")
    (found,) = locks.orphans(["r-1"])
    earlier = locks.Process(found.pid, found.started - 1, found.rollout, found.command)
    locks.end([earlier], list, grace_s=0.1)
    assert child.poll() is None


def test_beside_an_orphan_that_does_not_end_nothing_goes_on(
    fleet: Fleet, sleepers: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.cancels = True
    monkeypatch.setattr(locks, "end", lambda found, _: found)
    _, record = start()
    child = sleepers(f"{record['run']}/1")
    assert [orphan["pid"] for orphan in gb10("status")[1]["orphans"]] == [child.pid]
    status, refused = gb10("resume")
    assert status == Outcome.refused and f"processes {child.pid} of {record['run']}/1 do not end" in refused["reason"]
    with Journal(Path(".gb10"), write=True) as journal:
        journal.end(record["run"], "failed", "as it may be: the orphan is still there")
    status, refused = start()
    assert status == Outcome.refused and f"processes {child.pid} of" in refused["reason"]


# -- real kills, over the ssh that plays hosts -------------------------------------------------------------------------

# The first time for ever, the second time not at all: whoever gets behind it has done so after a resume.
STUCK = (
    'if [ -e "$GB10_TEST_HOST/stuck" ]; then exit 0; fi; touch "$GB10_TEST_HOST/stuck"; while :; do sleep 0.05; done'
)
STICKS = Way(
    "stuck", "done", "", 0, 0, False, (update(), {"name": "Get stuck", "ansible.builtin.raw": STUCK, "when": BAD})
)
WORDS = ["play.yml", "-i", "inventory.yml", "--canary", "spark-1", "--soak", "0", "--no-prove", "--no-drain", "--json"]


def ended(child: subprocess.Popen[str]) -> tuple[int, dict[str, Any]]:
    output, errors = child.communicate(timeout=60)
    assert output.startswith("{"), output + errors
    document = json.loads(output)
    valid(document)
    return child.returncode, document


def touched(made: Rollout, host: str) -> int:
    file = made.folder / "hosts" / host / "touched"
    return len(file.read_text().split()) if file.exists() else 0


def status_of(made: Rollout) -> dict[str, Any]:
    return ended(made.start(*GB10, "status", "-i", "inventory.yml", "--json"))[1]


# That SIGHUP ends a run of Ansible as SIGINT does, tests/unit/cli/test_playbook_events.py shows.
@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.long)],
    ids=lambda number: number.name,
)
def test_killed_in_the_middle_of_a_wave_it_is_resumed_without_its_orphan(
    tmp_path: Path, number: signal.Signals
) -> None:
    made = Rollout(tmp_path, ["spark-1"], STICKS, "spark-1")
    child = made.start(*GB10, "rollout", *WORDS)
    deadline = time.monotonic() + 60
    while not (tmp_path / "hosts/spark-1/stuck").exists() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(number)
    if number is signal.SIGKILL:
        child.communicate()
        status = status_of(made)
        assert status["owner"] is None and status["orphans"], "ansible-playbook goes on by itself"
        assert status["ended"] is None and states(status) == {"spark-1": "running"}
    else:
        code, record = ended(child)
        assert code == 128 + number and record["outcome"] is None, record
        assert locks.orphans([record["run"]]) == []
    code, record = ended(made.start(*GB10, "resume", "-i", "inventory.yml", "--json"))
    assert (code, record["outcome"], record["attempt"]) == (0, "done", 2)
    assert touched(made, "spark-1") == 2 and locks.orphans([record["run"]]) == []
    assert [*tmp_path.glob(".gb10-*.yml")] == [] and [*(tmp_path / ".gb10").glob(".jobs/gb10-*")] == []
    with Journal(tmp_path / ".gb10") as journal:
        kinds = [event["kind"] for event in journal.events(record["run"])]
    assert ("orphan" if number is signal.SIGKILL else "interrupted") in kinds


def test_where_ansible_is_killed_the_host_has_failed_and_nothing_goes_on(tmp_path: Path) -> None:
    made = Rollout(tmp_path, ["spark-1"], STICKS, "spark-1")
    child = made.start(*GB10, "rollout", *WORDS)
    deadline = time.monotonic() + 60
    while not (tmp_path / "hosts/spark-1/stuck").exists() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    run = status_of(made)["run"]
    os.kill(locks.orphans([run])[0].pid, signal.SIGKILL)  # as the kernel does where memory is short
    code, record = ended(child)
    assert (code, record["outcome"], states(record)) == (Outcome.failed, "failed", {"spark-1": "failed"})
    assert "ansible-playbook was killed" in record["waves"][0]["hosts"][0]["reason"]
    assert locks.orphans([run]) == []


def test_killed_again_and_again_between_two_events_it_touches_every_host_once(tmp_path: Path) -> None:
    made = Rollout(tmp_path, ["spark-1", "spark-2"], Way("good", "done", "", 0, 0, False), "nobody")
    # Begun, wave, step, its end | resumed, gate, next wave, step | resumed, step again, its end, gate | resumed, ended
    attempts = 0
    words: Sequence[str] = ["rollout", *WORDS]
    while True:
        child = made.start(sys.executable, "-m", "tests.support.mortal", "4", *words)
        output, errors = child.communicate(timeout=60)
        attempts += 1
        if child.returncode != -signal.SIGKILL:
            break
        words = ["resume", "-i", "inventory.yml", "--json"]
    record = json.loads(output)
    assert child.returncode == 0 and record["outcome"] == "done", output + errors
    assert (attempts, record["attempt"]) == (4, 4)
    assert [touched(made, host) for host in made.hosts] == [1, 1]
    assert yaml.safe_load((tmp_path / "play.yml").read_text()), "the user's own playbook is still there"
