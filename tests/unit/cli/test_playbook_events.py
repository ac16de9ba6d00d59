"""What gb10 hears of a run: real ansible-playbook runs on this machine, through ansible-runner and our own callback."""

from __future__ import annotations

import base64
import importlib
import json
import os
import signal
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gb10_fleet import ansible_runs, playbook, stopping
from gb10_fleet.playbook import Order, Outcome, Report
from gb10_fleet.rollout import gate, locks
from gb10_fleet.rollout.journal import Journal
from gb10_fleet.rollout.waves import FleetHost, Wave
from tests.support.attacker import Compared, tally

ROOT = Path(__file__).parents[3]
Task = dict[str, Any]
Play = Callable[..., tuple[Outcome, Report]]
ASSERT = "ansible.builtin.assert"


def said(text: str, **more: Any) -> Task:
    return {"name": f"Say {text}", ASSERT: {"that": True, "success_msg": text, "quiet": True}, **more}


def failing(name: str, text: str, **more: Any) -> Task:
    return {"name": name, "ansible.builtin.fail": {"msg": text}, **more}


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run tasks on two hosts that are this machine."""
    monkeypatch.chdir(tmp_path)
    for name in ("ANSIBLE_CONFIG", "ANSIBLE_HOST_KEY_CHECKING", "ANSIBLE_STDOUT_CALLBACK", "ANSIBLE_CALLBACK_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    hosts = {name: {"ansible_connection": "local"} for name in ("spark-a", "spark-b")}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"sparks": {"hosts": hosts}}))

    def run(
        *tasks: Task,
        name: str = "Work",
        of_play: Task | None = None,
        asks: Task | None = None,
        loud: bool = False,
        **more: Any,
    ) -> tuple[Outcome, Report]:
        content = [{"name": name, "hosts": "sparks", "gather_facts": False, "vars": of_play or {}, "tasks": [*tasks]}]
        (tmp_path / "work.yml").write_text(yaml.safe_dump(content))
        return playbook.run(Order(str(tmp_path / "work.yml"), ["hosts.yml"], asks=asks or {}), quiet=not loud, **more)

    return run


def test_a_failure_of_a_step_is_no_answer(play: Play) -> None:
    """Such as of `gb10 enrol`: a host whose cloud-init says no JSON ended the enrolment of all."""
    words = {"spark-a": "this is no JSON", "spark-b": "{}"}
    task = said("{{ (words[inventory_hostname] | from_json) | to_json }}", name="Say what was found")
    _, report = play(
        {**task, "vars": {"words": words, "__gb10_step": "enrol"}, "ignore_errors": True}, asks={"enrol": "msg"}
    )
    tally("a host fails where its answer is awaited", 1, int("spark-a" in report.answers["enrol"]))
    assert {host: json.loads(result["msg"]) for host, result in report.answers["enrol"].items()} == {"spark-b": {}}


def test_who_hangs_in_a_task_is_known(play: Play) -> None:
    heard: list[tuple[str, str]] = []
    there = [("runner_on_skipped", "spark-a"), *[("runner_on_start", "spark-b")] * 2]

    def watch(event: Any) -> None:
        heard.append((event["event"], event.get("event_data", {}).get("host", "")))

    hangs = {"name": "Hang", "ansible.builtin.command": "sleep 60", "when": "inventory_hostname == 'spark-b'"}
    _, report = play(said("hello"), hangs, watch=watch, cancel=lambda: not Counter(there) - Counter(heard))
    # Its task may hear of the end before Ansible does: then it has failed.
    assert report.busy | report.troubles.keys() == {"spark-b"}


def test_each_result_is_heard_with_its_host_and_task(play: Play) -> None:
    only = {"when": "inventory_hostname == 'spark-b'"}
    events: list[dict[str, Any]] = []
    outcome, report = play(
        said("hello"),
        failing("Try", "no matter", ignore_errors=True),
        failing("Break", "it is broken", **only),
        watch=events.append,
    )
    assert outcome is Outcome.failed
    assert report.stats["failures"] == {"spark-b": 1} and report.stats["ok"]["spark-a"] == 2
    assert report.messages == {"spark-b": ["it is broken"]}
    assert {host: trouble.kind for host, trouble in report.troubles.items()} == {
        "spark-a": "ignored",
        "spark-b": "ignored",
    }
    kinds = ("runner_on_ok", "runner_on_failed", "runner_on_skipped", "playbook")
    told = [(event["event"], event["event_data"]) for event in events if event["event"].startswith(kinds)]
    begun = [event["event_data"]["host"] for event in events if event["event"] == "runner_on_start"]
    assert sorted(begun) == ["spark-a"] * 3 + ["spark-b"] * 3 and not report.busy
    heard = [(kind, data["host"], data["task"]) for kind, data in told if kind.startswith("runner")]
    assert sorted(heard) == [
        ("runner_on_failed", "spark-a", "Try"),
        ("runner_on_failed", "spark-b", "Break"),
        ("runner_on_failed", "spark-b", "Try"),
        ("runner_on_ok", "spark-a", "Say hello"),
        ("runner_on_ok", "spark-b", "Say hello"),
        ("runner_on_skipped", "spark-a", "Break"),
    ]
    assert {data["play"] for kind, data in told if kind.startswith("runner")} == {"Work"}
    assert [kind for kind, _ in told][-1] == "playbook_on_stats"


@pytest.mark.parametrize("more", [{"failed_when": False}, {"loop": ["1"], "ignore_errors": True}], ids=["one", "loop"])
def test_who_asks_another_host_that_does_not_answer_is_not_silent_itself(play: Play, more: Task) -> None:
    """As `gb10 why` asks what the next host has kept, and `gb10 stop` has routers let go."""
    gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    task = {"ansible.builtin.raw": "true", "vars": gone, "ignore_unreachable": True, **more}
    outcome, report = play({**task, "delegate_to": "spark-c"}, said("hello"))
    assert (outcome, report.messages, report.silent) == (Outcome.done, {}, {})
    assert play({**task, "ignore_errors": False})[1].silent.keys() == {"spark-a", "spark-b"}, "of themselves"


def test_bytes_that_are_no_text_end_no_rollout(play: Play, tmp_path: Path) -> None:
    """Ansible made characters of them that the journal cannot keep: it ended for all hosts, in the middle of a wave."""
    ssh = tmp_path / "ssh"
    said = rb"banner \377\376\nssh: connect to host h port 22: No route to host\n"
    ssh.write_bytes(b"#!/bin/sh\nprintf '%b' '" + said + b"' >&2; exit 255\n")
    ssh.chmod(0o755)
    way = {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh), "ansible_host": "192.0.2.9"}
    _, report = play({"ansible.builtin.raw": "true", "vars": way, "when": "inventory_hostname == 'spark-a'"})
    bad = gate.work(["spark-a"], report)
    assert bad["spark-a"][0] == "unreachable" and "No route to host" in str(bad)
    hosts, waves = [FleetHost("spark-a"), FleetHost("spark-b")], [Wave(1, ("spark-a", "spark-b"), ())]
    with Journal(tmp_path / "state", write=True) as journal:
        run = journal.begin("rollout", {}, {}, hosts, waves)
        try:
            journal.end_step(run, 1, 0, bad, report.changes, None)
        except UnicodeError:
            tally("a host ends the journal of a rollout", 1, 1)
            raise
    tally("a host ends the journal of a rollout", 1, 0)


def test_what_fails_for_all_of_them_is_told_apart(play: Play) -> None:
    events: list[dict[str, Any]] = []
    play(failing("One", "of one", when="inventory_hostname == 'spark-b'"), watch=events.append)
    play(failing("All", "of all", run_once=True), watch=events.append)
    failed = [event["event_data"] for event in events if event["event"] == "runner_on_failed"]
    assert [(data["host"], data["run_once"]) for data in failed] == [("spark-b", False), ("spark-a", True)]


def test_a_play_is_known_by_its_step_and_not_by_its_name(play: Play) -> None:
    ours = yaml.safe_load((ROOT / "playbooks/doctor.yml").read_text())[0]
    refusal = failing("Refuse before anything changes on any host", "no")
    assert play(refusal, name=ours["name"])[0] is Outcome.failed
    assert play(refusal, of_play=ours["vars"])[0] is Outcome.refused
    assert play({**refusal, "vars": {playbook.STEP: playbook.REFUSE}})[0] is Outcome.refused
    assert play(refusal, of_play={playbook.STEP: playbook.DRAIN})[1].seen == set()


def test_the_roll_call_of_a_rollout_is_heard(play: Play, tmp_path: Path) -> None:
    (call,) = gate.ROLL_CALL_PLAY["tasks"]
    _, report = play(call, name="Mine", of_play=gate.ROLL_CALL_PLAY["vars"])
    assert report.through == report.called == {"spark-a", "spark-b"}
    _, report = play(call, name=gate.ROLL_CALL_PLAY["name"])
    assert report.through is None


def test_a_result_that_is_censored_stays_so(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "hunter2")
    events: list[dict[str, Any]] = []
    play(failing("Break", "{{ lookup('ansible.builtin.env', 'WORD') }}", no_log=True), watch=events.append)
    ours = json.dumps([event for event in events if event["event"] != "verbose"])  # that is Ansible's own output
    assert "hunter2" not in ours and "censored" in ours


@pytest.mark.parametrize(("action", "key"), [("gb10.fleet.host_state", "changes"), ("gb10.fleet.doctor", "findings")])
def test_what_a_host_says_often_is_not_compared_with_all_that_was_said(action: str, key: str) -> None:
    """16,000 changes took 17 s, and an answer has room for 400,000: hours, in which nobody could end the run."""
    Compared.times = 0
    report, many = Report(), [Compared(resource=f"file:{number}") for number in range(2000)]
    for _ in range(2):
        data = {"resolved_action": action, "host": "spark-a", "res": {key: many}}
        report.take({"event": "runner_on_ok", "event_data": data})
    told = report.findings if key == "findings" else report.changes["spark-a"]
    assert [each["resource"] for each in told] == [each["resource"] for each in many], "each once, in its order"
    tally("a host says so much that a run does not end", 2 * len(many), int(Compared.times > 10 * len(many)))
    assert Compared.times <= 10 * len(many)


def test_what_the_user_has_chosen_holds(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """ansible-runner would switch the check of host keys off for everybody, and put its own callback for theirs."""
    names = ("ANSIBLE_HOST_KEY_CHECKING", "ANSIBLE_STDOUT_CALLBACK")
    words = said("{{ [" + ", ".join(f"lookup('ansible.builtin.env', '{name}')" for name in names) + "] | join(',') }}")

    def heard() -> set[str]:
        events: list[dict[str, Any]] = []
        play(words, watch=events.append)
        return {event["event_data"]["res"]["msg"] for event in events if event["event"] == "runner_on_ok"}

    assert heard() == {","}  # nothing: their ansible.cfg decides
    monkeypatch.setenv(names[0], "True")
    monkeypatch.setenv(names[1], "minimal")
    assert heard() == {"True,minimal"}


def test_no_event_is_in_a_file(play: Play, tmp_path: Path) -> None:
    found: list[tuple[str, bool]] = []

    def look(event: Any) -> None:
        if event["event"] == "runner_on_ok":
            for folder, _, names in os.walk(tmp_path / "state"):
                for name in names:
                    path = Path(folder, name)
                    found.append((name, stat.S_ISFIFO(path.stat().st_mode)))
                    if path.is_file():
                        assert "a secret result" not in path.read_text()

    (tmp_path / "state").mkdir()
    play(said("a secret result"), watch=look, folder=tmp_path / "state")
    assert ("events", True) in found
    assert not [*(tmp_path / "state").iterdir()]


def test_a_defect_in_what_listens_ends_in_an_error_and_not_in_a_hang(play: Play) -> None:
    def broken(event: Any) -> None:
        if event["event"].startswith("runner"):
            raise KeyError("res")

    with pytest.raises(KeyError):
        play(*[said("x" * 20_000) for _ in range(5)], watch=broken)


def test_a_playbook_that_is_none_is_said_in_ansibles_words(play: Play, tmp_path: Path) -> None:
    outcome, report = play({"no_such_module": {}})
    assert outcome is Outcome.failed
    assert any("no_such_module" in line for line in report.errors)


LOCKED = "$ANSIBLE_VAULT;1.1;AES256\n" + "3132" * 20 + "\n"


@pytest.mark.parametrize("loud", [False, True])
@pytest.mark.parametrize(
    ("content", "says"),
    [("a: {b\n", "main.yml:2:1: "), (LOCKED, "-J asks for its password")],
    ids=["no YAML", "locked"],
)
def test_what_ansible_says_between_a_play_and_its_first_task_is_told(
    play: Play, tmp_path: Path, content: str, says: str, loud: bool
) -> None:
    """It reads the variables of groups and hosts no sooner, and its line names no file and no way out."""
    (tmp_path / "group_vars/sparks").mkdir(parents=True)
    (tmp_path / "group_vars/sparks/main.yml").write_text(content)
    outcome, report = play(said("hello"), loud=loud)
    assert outcome is Outcome.failed
    theirs, ours = report.errors
    assert theirs.startswith("[ERROR]: ") and says in ours and playbook.ours(report) == [ours]


def test_the_place_of_a_mistake_in_an_inventory_is_named(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    file.write_text("all:\n  hosts: {a: 1\n  vars: {}\n")
    order, failed = Order("", [str(file)]), [f"[ERROR]: Completely failed to parse inventory source {file}"]
    (line,) = playbook._unread(order, failed)
    assert line.startswith(f"{file}:3:") and "correct it" in line
    file.write_text("all: {}\n")
    assert playbook._unread(order, failed) == []


def test_a_host_that_the_inventory_lacks_is_named() -> None:
    said = ["[ERROR]: Specified inventory, host pattern and/or --limit leaves us with no hosts to target."]
    order = playbook.Order("gb10.fleet.why", ["inventory/mine"], "spark-z")
    (line,) = playbook._unknown(order, said)
    assert line.startswith("spark-z is no host or group there; `ansible-inventory -i inventory/mine --graph`")
    assert playbook._unknown(order, ["[ERROR]: another one"]) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_run_that_a_signal_ends_says_so_and_leaves_nobody_at_work(
    play: Play, tmp_path: Path, number: signal.Signals
) -> None:
    def interrupt(event: dict[str, Any]) -> None:
        if event.get("event") == "playbook_on_task_start":
            threading.Thread(target=lambda: (wait_for(tmp_path / "at-work"), os.kill(os.getpid(), number))).start()

    work = f"echo $$ >>{tmp_path}/at-work; exec sleep 60"
    before = signal.getsignal(number)
    outcome, report = play({"name": "Work", "ansible.builtin.raw": work}, watch=interrupt)
    assert (outcome, report.errors) == (Outcome.interrupted, [stopping.INTERRUPTED]), report.messages
    assert signal.getsignal(number) is before
    left = [pid for pid in (tmp_path / "at-work").read_text().split() if locks._started(int(pid))]
    assert left == [], "the workers of Ansible, which detach themselves, have gone on"


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 30
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


# What ansible-runner's own callback plugin would write, and read: here a host writes it, to speak for another one.
_EVENT = {
    "uuid": "../../kept",
    "event": "runner_on_ok",
    "event_data": {"host": "spark-b", "resolved_action": "gb10.fleet.evidence", "res": {"directory": "forged"}},
}


def _written(event: Task) -> str:
    text = base64.b64encode(json.dumps(event).encode()).decode()
    return f"\x1b[K{text}\x1b[{len(text)}D\x1b[K"


@pytest.mark.parametrize("quiet", [True, False])
def test_no_event_is_in_what_a_host_writes(
    play: Play, tmp_path: Path, capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    """Ansible shows it as it is where its own module fails: a host gave the evidence and the counts of all others."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\ncat {tmp_path}/words >&2\nexit 255\n")
    ssh.chmod(0o755)
    (tmp_path / "words").write_text(f"{_written(_EVENT)}\nDenied \x1b[2J{_written(_EVENT)}\n")
    hosts = {"spark-a": {"ansible_ssh_executable": str(ssh)}, "spark-b": {"ansible_connection": "local"}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"sparks": {"hosts": hosts}}))
    events: list[dict[str, Any]] = []
    _, report = play({"ansible.builtin.command": "true"}, watch=events.append, loud=not quiet)
    forged = sum(event.get("uuid") == _EVENT["uuid"] for event in events) + int(report.evidence == "forged")
    shown = capsys.readouterr().out
    tally("a host writes an event for another one", 2, forged + ("\x1b[2J" in shown))
    assert not forged and report.evidence is None
    assert report.hosts["spark-a"]["unreachable"] == 1
    assert "\x1b[2J" not in shown and ("Denied \\x1b[2J" in shown) is not quiet


def test_an_ansible_runner_that_looks_for_events_elsewhere_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take those of a host, and nobody would hear of it."""
    monkeypatch.delattr(ansible_runs.runners, "OutputEventFilter")
    with pytest.raises(AttributeError, match="OutputEventFilter"):
        importlib.reload(ansible_runs)


def test_lines_are_told_whole_and_their_colours_are_for_the_screen_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """At a terminal an error of Ansible's begins with its colour: nobody took it for one, and it was not told."""
    told: list[Any] = []
    lines = ansible_runs.Lines(None, told.append, suppress_ansible_output=False)
    for piece in ("\x1b[0;31mfa", "tal\x1b[0m\r\n\tone\r", "\nhid\rden \x1b[8m\n", "the end"):
        lines.write(piece)
    lines.close()
    text = ["\x1b[0;31mfatal\x1b[0m", "\tone", "hid\\rden \\x1b[8m", "the end"]
    assert [event["stdout"] for event in told] == ["fatal", *text[1:]]
    assert capsys.readouterr().out == "\n".join(text)


def test_a_host_that_fails_is_not_silent_by_its_own_word() -> None:
    """By such words the run was over for a host without contact, and the advice named the clusters of others."""
    told = (
        "spark-a: unreachable: no\n    Fix: wait; to go on without it, leave its whole cluster out (--limit '!spark-b')"
    )
    data = {"resolved_action": "gb10.fleet.undo", "host": "spark-a", "res": {"failed": True, "msg": told}}
    report = Report()
    report.take({"event": "runner_on_failed", "event_data": data})
    tally("a host words a finding of ours", 1, len(report.findings))
    assert not report.findings and report.messages == {"spark-a": [told]}
    report.take({"event": "runner_on_unreachable", "event_data": {**data, "res": {"unreachable": True, "msg": told}}})
    assert [one["id"] for one in report.findings] == ["unreachable"]


def test_an_address_that_names_no_variable_says_what_to_set(play: Play) -> None:
    _, report = play(said("so"), of_play={"ansible_host": "{{ nosuch }}"})
    (text,) = report.messages["spark-a"]
    assert text.endswith("'nosuch' is undefined. Fix: set nosuch in the inventory, or correct ansible_host there")


def test_a_module_that_says_so_is_no_way_out(play: Play, tmp_path: Path) -> None:
    """It named a consent of the inventory, and our `Fix:` stood before it."""
    text = "Task failed: Error processing keyword 'remote_addr': 'vllm_allow_security_options' is undefined"
    (tmp_path / "library").mkdir()
    answer = json.dumps({"failed": True, "msg": text, "exception": text})
    (tmp_path / "library/evil").write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
    _, report = play({"name": "Ask", "evil": None})
    believed = sum("Fix: " in str(said) for said in report.messages.values())
    tally("a host says what Ansible says of a variable that nobody set", 2, believed)
    assert report.messages == {"spark-a": [text], "spark-b": [text]}
