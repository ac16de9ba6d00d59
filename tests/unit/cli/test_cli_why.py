"""`gb10 why`: what it hands to the playbook, what it prints, and that a host cannot steer it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import Judgement
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, effort
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.why import Answer, Cause
from typer.testing import CliRunner

from gb10_fleet import cli, playbook, why
from tests.support.health import FORMER, GIB, NOW, Record, boot, event, gpu, reading, room, sample
from tests.support.variables import told

CLI = CliRunner()
PLAYBOOK = Path(__file__).parents[3] / "playbooks/why.yml"
UNCLEAN = [boot(FORMER, NOW - 90000, NOW - 3700, clean=False, lines=["a line \x1b[2J"]), boot("b", NOW - 3600, NOW)]


def answered(
    monkeypatch: pytest.MonkeyPatch, *records: Any, bad: dict[str, str] | None = None, rc: int = 0
) -> dict[str, Any]:
    """The next run gets these readings, and failures of `bad` hosts; returns the call, with its variables."""
    seen: dict[str, Any] = {}

    def runner(**call: Any) -> SimpleNamespace:
        seen.update(call, variables=told(Path(call["private_data_dir"], "variables.yml")))
        for number, record in enumerate(records):
            data = {"resolved_action": "gb10.fleet.spark_facts", "host": f"spark-{number}", "res": {"health": record}}
            call["event_handler"]({"event": "runner_on_ok", "event_data": data})
        for host, msg in (bad or {}).items():
            data = {"resolved_action": "gb10.fleet.spark_facts", "host": host, "res": {"msg": msg}}
            call["event_handler"]({"event": "runner_on_failed", "event_data": data})
        counts = {f"spark-{number}": 1 for number in range(len(records))}
        call["event_handler"]({"event": "playbook_on_stats", "event_data": {"ok": counts}})
        return SimpleNamespace(rc=rc)

    monkeypatch.setattr(cli, "run", lambda order, quiet=False: playbook.run(order, quiet=quiet, runner=runner))
    return seen


def test_a_host_that_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = answered(monkeypatch, reading(boots=UNCLEAN))
    result = CLI.invoke(cli.app, ["why", "spark-0", "-i", "a,"])
    assert result.exit_code == 0, result.output
    assert (seen["playbook"], seen["limit"], seen["variables"]) == ("gb10.fleet.why", "spark-0", {})
    lines = result.output.splitlines()
    assert lines[0].startswith("spark-0: likely: the host lost its power"), "the answer comes first"
    assert "  up for 1 h 0 min, read at 2026-11-23 08:00:00 UTC" in lines
    assert any("2026-11-23 06:58:20  unclean_end" in line for line in lines)
    assert any("Fix: check wall" in line and "role flight_recorder" in line for line in lines)
    assert "\x1b" not in result.output
    assert r"a line \x1b[2J" in result.output


@pytest.mark.parametrize(("reboots", "said"), [(True, "very likely: "), (False, "likely: ")])
def test_the_morning_after_the_host_guard_is_as_its_page_has_it(
    monkeypatch: pytest.MonkeyPatch, reboots: bool, said: str
) -> None:
    page = (PLAYBOOK.parents[1] / "roles/watchdog/README.md").read_text(encoding="utf-8")
    kept = {"at_s": NOW - 3710, "boot": FORMER, "full_percent": 98.0, "reboots": reboots}
    answered(monkeypatch, reading(boots=UNCLEAN, guard=kept))
    first, *more = CLI.invoke(cli.app, ["why", "spark-0", "-i", "a,"]).output.splitlines()
    assert first.startswith(f"spark-0: {said}")
    if reboots:
        assert "\n".join([first.replace("spark-0", "spark-a"), *more[:3]]) in page
    else:
        assert f"`{first.removeprefix('spark-0: ')}`" in " ".join(page.split())


@pytest.mark.parametrize(("own", "said"), [({}, True), ({"/var/lib/docker": 5}, False)])
def test_room_is_judged_by_what_the_inventory_asks_for(own: dict[str, float], said: bool) -> None:
    record = reading(rooms=[room("/var/lib/docker", 12)])
    given = {"msg": json.dumps({"members": ["spark-0"], "plugs": [], "minimum_free_gib": own})}
    results = {"gb10.fleet.spark_facts": {"spark-0": {"health": record}}, "kept": {}, "inventory": {"spark-0": given}}
    (found,) = why.answers(results, 7, {})
    assert ("disk_full" in [one.id for one in found.judgement.findings]) is said


def test_a_healthy_host_has_little_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, reading())
    output = CLI.invoke(cli.app, ["why", "spark-0", "-i", "a,"]).output
    assert output.splitlines()[0] == "spark-0: nothing found"
    (unsure,) = (line for line in output.splitlines() if "cannot tell" in line)
    assert "power_fault (--load" in unsure and "engine_hung (--watch 200)" in unsure and "gb10 validate" in unsure
    assert "way out" not in output


def test_a_log_that_is_unknown_is_said_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "journalctl failed: journalctl did not end within 20 s"
    answered(monkeypatch, reading(events=None, unknown={"events": reason}))
    output = CLI.invoke(cli.app, ["why", "spark-0", "-i", "a,"]).output
    assert output.splitlines()[0] == "spark-0: nothing found, and its log is unknown"
    assert f"log ({reason})" in output


STILL = {"running": 3.0, "waiting": 0.0, "generated_tokens": 9.0, "prompt_tokens": 9.0}
HUNG = [sample(NOW - 200 + 40 * place, gpu=gpu(2400, 22, 96), serving=STILL) for place in range(6)]
XID = "NVRM: Xid (PCI:000f:01:00): 119, pid=3849, name=KMS thread, Timeout after 45s"


@pytest.mark.parametrize(
    ("record", "first"),
    [
        (reading(boots=UNCLEAN), "likely: the host lost its power"),
        (reading(HUNG), "very likely: the engine hangs behind"),
        (reading(events=[event("xid", NOW - 60, "119", XID)]), "very likely: the driver lost the GPU"),
        (reading(events=[event("slot_power", NOW - 60, "mlx5_core 0000:01:00.0")]), "nothing found"),
        (
            reading([sample(blocks={"free_bytes": 100 * GIB, "large_bytes": GIB})]),
            "no cause is known: 100 GiB are free",
        ),
    ],
)
def test_the_first_line_is_the_answer(monkeypatch: pytest.MonkeyPatch, record: Record, first: str) -> None:
    answered(monkeypatch, record)
    output = CLI.invoke(cli.app, ["why", "spark-0", "-i", "a,"]).output
    assert output.splitlines()[0].startswith(f"spark-0: {first}")


def test_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = [sample(NOW - 5 + place, gpu=gpu(507, 12, 96)) for place in range(6)]
    answered(monkeypatch, reading(fault), reading())
    hosts = json.loads(CLI.invoke(cli.app, ["why", "all", "-i", "a,", "--json"]).output)["hosts"]
    assert [host["host"] for host in hosts] == ["spark-0", "spark-1"]
    assert [cause["id"] for cause in hosts[0]["causes"]] == ["power_fault"]
    assert hosts[1]["causes"] == []


def test_a_bad_answer_is_the_error_of_its_host_and_others_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = "spark-1: answer.health is missing; look at what runs on that host, its answer is not ours"
    answered(monkeypatch, reading(), bad={"spark-1": bad}, rc=2)
    result = CLI.invoke(cli.app, ["why", "all", "-i", "a,"])
    assert result.exit_code == playbook.Outcome.failed
    assert "spark-0: nothing found" in result.output and bad in result.output
    answered(monkeypatch, reading(), bad={"spark-1": bad}, rc=2)
    said = json.loads(CLI.invoke(cli.app, ["why", "all", "-i", "a,", "--json"]).stdout)
    assert [host["host"] for host in said["hosts"]] == ["spark-0"] and said["messages"] == {"spark-1": [bad]}


def test_a_host_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, rc=4)
    result = CLI.invoke(cli.app, ["why", "spark-0", "-i", "a,", "--json"])
    assert result.exit_code == playbook.Outcome.failed
    said = json.loads(result.output)
    assert (said["outcome"], said["hosts"]) == ("failed", []), "a program finds the same kinds of values each time"


def test_a_silent_host_has_its_way_out_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    report = playbook.Report(stats={"dark": {"spark-0": 1}})
    data = {"host": "spark-0", "res": {"msg": "connect to host 192.0.2.11 port 22: timed out"}}
    report.take({"event": "runner_on_unreachable", "event_data": data})
    monkeypatch.setattr(cli, "run", lambda order, quiet=False: (playbook.Outcome.unreachable, report))
    asked = ["why", "spark-0", "-i", "my fleet,"]
    said = json.loads(CLI.invoke(cli.app, [*asked, "--json"]).output)
    (finding,) = said["findings"]
    assert (finding["host"], finding["id"], said["hosts"]) == ("spark-0", "unreachable", [])
    assert "ansible spark-0 -i 'my fleet,' -m raw" in finding["way_out"] and "--limit" not in finding["way_out"]
    shown = CLI.invoke(cli.app, asked).output
    assert f"Fix: {finding['way_out']}\n" in shown and finding["fact"] in shown


@pytest.mark.parametrize(("seconds", "given"), [(0, {}), (200, {"gb10_why_samples": 41, "gb10_why_every_s": 5})])
def test_a_watch_lasts_as_long_as_it_says(seconds: int, given: Record) -> None:
    assert why.variables(seconds) == given
    if given:
        assert (given["gb10_why_samples"] - 1) * given["gb10_why_every_s"] >= seconds


def test_the_playbook_takes_what_the_command_gives() -> None:
    (play,) = yaml.safe_load(PLAYBOOK.read_text())
    words = json.dumps(play["tasks"])
    assert all(name in words for name in {**why.variables(1), **why.variables(0, load=True)})


@pytest.mark.parametrize(("boots", "asks"), [(UNCLEAN, True), ([], False), (None, False)])
def test_the_next_host_is_asked_where_boots_are_known(boots: Any, asks: bool) -> None:
    """By Ansible's own judgement: it takes no list for true."""
    (play,) = yaml.safe_load(PLAYBOOK.read_text())
    (conditions,) = [task["when"] for task in play["tasks"] if task["name"] == "Read what the next host has kept"]
    said = {"flight_recorder_enabled": True, "gb10_cluster": "pair1", "__why_read": {"health": {"boots": boots}}}
    templar = Templar(loader=DataLoader(), variables=said)
    assert all(templar.evaluate_conditional(trust_as_template(condition)) for condition in conditions) is asks


@pytest.mark.parametrize(("cluster", "asked"), [("pair1", "b"), (None, "a")])
def test_a_host_without_a_cluster_is_told_of_too(cluster: str | None, asked: str) -> None:
    """Ansible reads whom a task is for before it reads whether there is a task."""
    (play,) = yaml.safe_load(PLAYBOOK.read_text())
    (task,) = [task for task in play["tasks"] if task["name"] == "Read what the next host has kept"]
    of_host = {"gb10_cluster": cluster} if cluster else {}
    hostvars = {name: {"inventory_hostname": name, **of_host} for name in ("a", "b")}
    said = {"inventory_hostname": "a", "groups": {"all": ["a", "b"]}, "hostvars": hostvars, **of_host}
    templar = Templar(loader=DataLoader(), variables=said)
    templar.available_variables |= {
        name: templar.template(trust_as_template(text)) for name, text in play["vars"].items()
    }
    assert templar.template(trust_as_template(task["delegate_to"])) == asked


PAIR = {"members": ["spark-a", "spark-b"], "plugs": ["spark-a", "spark-b"]}


@pytest.mark.parametrize(
    ("id_", "plugs", "line"),
    [
        ("power_fault", PAIR, "a cold start may help: gb10 power spark-a cycle -i INVENTORY"),
        ("rail_fault", PAIR, "gb10 power spark-a spark-b cycle -i INVENTORY; pull the QSFP cables meanwhile"),
        ("rail_fault", {**PAIR, "plugs": ["spark-a"]}, "no gb10_power_plug of spark-b, so a hand has to pull it"),
        ("power_fault", None, "no gb10_power_plug of spark-a"),
        ("engine_hung", PAIR, ""),
    ],
)
def test_a_cold_start_is_offered_where_it_is_the_way_out(id_: str, plugs: Any, line: str) -> None:
    cause = Cause(id_, 0.9, "likely", "it is so", "do this", ["seen"])
    found = Answer("spark-a", NOW, 3600, [cause], Judgement([], {}), [], {})
    said = why.cold_power(found, plugs)
    assert line in said and bool(said) is bool(line)
    shown = [*why.lines(replace(found, cold_power=said))]
    assert (f"  {said}" in shown) is bool(line)
    assert replace(found, cold_power=said).as_dict().get("cold_power", "") == said


def test_what_wants_a_cold_start_is_known_and_its_way_out_says_so() -> None:
    health, known = catalog.load("health"), catalog.load("plugs")["cold_power"]["value"]
    ways = {one["value"]: one["way_out"] for part in ("signs", "causes") for one in health[part] if "way_out" in one}
    for id_ in (*known["host"], *known["cluster"]):
        assert "unplug" in ways[id_], id_


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ({"state": "ended", "reason": None, "image": "a/b", "told": {"products": 8, "teraflops": 61.5}},
         "read under a load of our own of a/b, 61.5 TFLOP/s in bfloat16"),
        ({"state": "ended", "reason": "it was ended early: x", "image": "a/b", "told": {}},
         "read under a load of our own of a/b, it was ended early: x"),
        ({"state": "refused", "reason": "requests run on gb10-vllm", "image": "a/b", "told": {}},
         "no load of our own of a/b: requests run on gb10-vllm"),
        ({"state": "refused", "reason": "no image", "image": None, "told": {}}, "no load of our own: no image"),
    ],
)  # fmt: skip
def test_a_load_of_our_own(monkeypatch: pytest.MonkeyPatch, load: Any, said: str) -> None:
    seen = answered(monkeypatch, reading(load=load))
    result = CLI.invoke(cli.app, ["why", "spark-0", "-i", "a,", "--load", "--image", "a/b"])
    assert f"  {said}" in result.output.splitlines()
    assert seen["variables"]["gb10_why_load"]["image"] == "a/b"


@pytest.mark.parametrize("words", [["--load", "--watch", "200"], ["--image", "a/b"]])
def test_words_that_do_not_go_together(words: list[str]) -> None:
    result = CLI.invoke(cli.app, ["why", "spark-0", "-i", "a,", *words])
    assert result.exit_code == 2 and "--image goes with --load" in result.output


def test_an_image_that_docker_would_read_as_an_option_asks_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = answered(monkeypatch, reading())
    result = CLI.invoke(cli.app, ["why", "spark-0", "-i", "a,", "--load", "--image=--help"])
    assert result.exit_code == 2 and "begins with a dash" in result.output and not seen


def test_the_days_bound_the_timeline_and_not_the_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    early = [boot(FORMER, NOW - 5 * 86400, NOW - 3 * 86400, clean=False), boot("b", NOW - 3600, NOW)]
    answered(monkeypatch, reading(boots=early))
    output = CLI.invoke(cli.app, ["why", "spark-0", "-i", "a,", "--days", "1"]).output
    assert "likely: the host lost its power" in output
    assert "unclean_end" not in output


@pytest.mark.parametrize("said", ["Missing sudo password", "Task failed: Missing sudo password"])
def test_a_password_of_sudo_that_is_missing_is_told_with_its_option(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    answered(monkeypatch, bad={"spark-a": said}, rc=2)
    result = CLI.invoke(cli.app, ["why", "spark-a", "-i", "a,"])
    assert "spark-a: no_sudo: sudo was refused: Missing sudo password" in result.output, result.output
    assert "    Fix: add -K (--ask-become-pass)" in result.output


def test_a_host_that_takes_too_long_to_judge_is_named_and_the_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(host: str, *more: Any) -> Answer:
        while host == "spark-0":
            pass
        return of_host(host, *more)

    of_host = why.answer
    monkeypatch.setattr(effort, "WORK_LIMIT_S", 0.2)
    monkeypatch.setattr(why, "answer", judged)
    answered(monkeypatch, reading(boots=UNCLEAN), reading(boots=UNCLEAN))
    result = CLI.invoke(cli.app, ["why", "sparks", "-i", "a,"])
    assert result.exit_code == playbook.Outcome.failed, result.output
    assert (
        result.output.startswith("spark-1: likely") and "spark-0: what it says takes more than 0.2 s" in result.output
    )
