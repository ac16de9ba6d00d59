"""Nobody of a fleet can fill the controller's memory: what sends without end is ended and named, the others go on."""

from __future__ import annotations

import contextlib
import json
import select
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader
from ansible_collections.gb10.fleet.plugins.action import await_boot, drift, model_files
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import effort
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import bounds, own_action, probe, scan, transport
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import drift_report

from tests.support.answers import EMPTY
from tests.support.attacker import tally

LIMIT = 10**6
FLOOD = "a host floods a stream"
PIECE = 20 * 2**20  # collected at a time; in small ones the copying takes seconds


# -- hosts that need a password: Ansible's own connection asks them


class Message:
    """One program, and nothing more to say."""

    def program(self) -> bytes:
        return b"a program"

    def reply(self, _line: str) -> bytes | None:
        return None


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bounds, scan):
        monkeypatch.setattr(module, "ANSWER_LIMIT", LIMIT)
        monkeypatch.setattr(module, "ERRORS_LIMIT", LIMIT)


def typist(folder: Path, host: str, shell: str) -> scan.Typist:
    """The real plugin, with a script in the place of ssh."""
    ssh = folder / f"ssh-{host}"
    ssh.write_text(f"#!/bin/sh\n{shell}\n")
    ssh.chmod(0o755)
    connection = connection_loader.get("ssh", PlayContext(), new_stdin=None)
    options = {"ansible_ssh_executable": str(ssh), "ansible_host": host, "ansible_ssh_args": ""}
    connection.set_options(var_options=options)
    return scan.Typist(host, connection, "remote", Message())


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("shell", "says"),
    [
        ("exec yes", "wrote more than 0.953674 MiB to standard output"),
        ("exec yes >&2", "wrote more than 0.953674 MiB to standard error"),
        ("yes & exec yes >&2", "wrote more than 0.953674 MiB to standard"),
    ],
)
def test_a_host_with_a_password_is_cut_too_and_others_go_on(tmp_path: Path, shell: str, says: str) -> None:
    loud, other = typist(tmp_path, "loud", shell), typist(tmp_path, "other", "cat; echo fine >&2")
    first, second = scan.ask([loud, other], concurrency=2, timeout_s=60, progress=lambda *_: None)
    tally(FLOOD, 1, int(len(first.stdout) > LIMIT + bounds.CHUNK or len(first.stderr) >= LIMIT + 1000))
    assert says in first.stderr and first.host == "loud"
    assert first.status != 0
    assert len(first.stdout) <= LIMIT + bounds.CHUNK and len(first.stderr) < LIMIT + 1000
    assert second == scan.Reply("other", 0, "a program", "fine\n")


@pytest.mark.usefixtures("small")
def test_a_long_answer_below_the_bound_comes_whole(tmp_path: Path) -> None:
    said = typist(tmp_path, "h", f"head -c {LIMIT} /dev/zero; head -c {LIMIT} /dev/zero >&2").ask(60)
    assert (len(said.stdout), len(said.stderr), said.status) == (LIMIT, LIMIT, 0)


# -- one host after the other: what Ansible has collected


class Flood:
    """A connection that collects all that comes, as Ansible's do, and how much that was."""

    def __init__(self, size: int) -> None:
        self.size, self.most = size, 0

    def text(self) -> str:
        collected = b""
        for _ in range(0, self.size, PIECE):
            collected += b"x" * PIECE
            self.most = len(collected)
        return collected.decode()

    def reset(self) -> None:
        pass


def moving(monkeypatch: pytest.MonkeyPatch, flood: Flood) -> model_files.ActionModule:
    action = model_files.ActionModule.__new__(model_files.ActionModule)
    action._name, action._vars = "spark-a", {"inventory_hostname": "spark-a"}
    action._task = SimpleNamespace(delegate_to=None)  # type: ignore[assignment]
    floods(monkeypatch, flood, action)
    return action


def floods(monkeypatch: pytest.MonkeyPatch, flood: Flood, action: Any) -> None:
    """Whatever Ansible runs on the host for this action."""

    def run(*_: Any, **__: Any) -> dict[str, Any]:
        return {"rc": 0, "stdout": flood.text(), "stderr": ""}

    def module(self: Any, **_: Any) -> Any:
        return self._parse_returned_data(self._low_level_execute_command("module"), "legacy")

    action._connection = flood
    monkeypatch.setattr("ansible.plugins.action.ActionBase._low_level_execute_command", run)
    monkeypatch.setattr("ansible.plugins.action.ActionBase._execute_module", module)


CALLS: dict[str, Callable[[model_files.ActionModule], Any]] = {
    "a step": lambda action: action._module("gb10.fleet.model_files", {}),
    "a question to a step in the background": lambda action: action._status({}, "status"),
    "how far a step is": lambda action: action._progress(),
}


@pytest.mark.parametrize("size", [600 * 2**20, 20 * 2**20])
@pytest.mark.parametrize("call", CALLS)
def test_a_host_that_moves_files_is_bounded(monkeypatch: pytest.MonkeyPatch, call: str, size: int) -> None:
    flood = Flood(size)
    with pytest.raises(AnsibleActionFail, match=r"spark-a: it wrote more than \d+ MiB to standard output or error"):
        CALLS[call](moving(monkeypatch, flood))
    tally(FLOOD, 1, int(flood.most > effort.MEMORY_LIMIT))
    assert flood.most <= effort.MEMORY_LIMIT


@pytest.mark.parametrize("size", [600 * 2**20, 20 * 2**20])
def test_a_host_that_boots_is_bounded(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """It is not waited for: nothing that it says later would be believed."""
    flood = Flood(size)
    action = await_boot.ActionModule.__new__(await_boot.ActionModule)
    arguments = {"boot_id": "5b0a0a44-6a51-4b21-9a3c-2f60c3d0a001", "timeout": 200}
    monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda *_: {})
    monkeypatch.setattr(action, "validate_argument_spec", lambda **_: (None, arguments))
    floods(monkeypatch, flood, action)
    with pytest.raises(AnsibleActionFail, match=r"spark-a: it wrote more than \d+ MiB to standard output or error"):
        action.run(task_vars={"inventory_hostname": "spark-a"})
    assert flood.most <= effort.MEMORY_LIMIT


@pytest.mark.parametrize("said", ["x" * LIMIT, {"a": ["x" * LIMIT]}, [["x"] * LIMIT], {"x" * LIMIT: 0}])
def test_texts_count_wherever_they_stand(monkeypatch: pytest.MonkeyPatch, said: object) -> None:
    monkeypatch.setattr(bounds, "VALUES_LIMIT", LIMIT + 9)
    monkeypatch.setattr(bounds, "ANSWER_LIMIT", LIMIT + 9)
    bounds.fit(said)
    monkeypatch.setattr(bounds, "ANSWER_LIMIT", LIMIT - 1)
    with pytest.raises(effort.TooMuch):
        bounds.fit(said)


@pytest.mark.parametrize("text", ["x\N{GRINNING FACE}" * (LIMIT // 4), "\x7f" * (LIMIT // 2)], ids=["wide", "control"])
def test_a_text_counts_by_what_it_takes_here(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Four characters are made of a control character, and four bytes of each where one is wide: 16 MiB took 256."""
    monkeypatch.setattr(bounds, "ANSWER_LIMIT", LIMIT)
    answer = json.dumps({"said": [text]}, ensure_ascii=False)
    engine = transport.MARKER + json.dumps({**EMPTY, "diff": [{"prepared": text}]}, ensure_ascii=False)
    with pytest.raises(effort.TooMuch):
        own_action.sound(answer)
    with pytest.raises(ValueError, match="wrote more than"):
        transport.parse(engine)
    record = drift._record(scan.Reply("a", 0, engine, "", 0, 0), 1, "a", lambda _name: False, 1, True)
    assert "wrote more than" in record["silence"]["text"], "and not the end of what it wrote"
    monkeypatch.setattr(bounds, "ANSWER_LIMIT", 5 * LIMIT)
    assert own_action.sound(answer) and transport.parse(engine)
    tally("a host takes the memory of the controller, by what its texts become there", 2, 0)


@pytest.mark.parametrize("said", [[[0] * LIMIT], [{}] * LIMIT, dict.fromkeys(range(LIMIT))], ids=["0", "{}", "keys"])
def test_values_count_however_short_they_are(said: object) -> None:
    with pytest.raises(effort.TooMuch, match="more than 262144 values"):
        bounds.fit(said)


def test_depth_has_an_end() -> None:
    deep: list[Any] = []
    for _ in range(bounds.DEPTH_LIMIT - 2):
        deep = [deep]
    bounds.fit([deep])
    with pytest.raises(effort.TooMuch, match="nested too deeply"):
        bounds.fit({"one": [deep]})


# -- work


def slow(*_: Any, **__: Any) -> Any:
    """Work without an end, that takes an error for its own once."""
    with contextlib.suppress(Exception):
        while True:
            pass
    while True:
        pass


def test_what_one_host_says_is_worked_on_for_so_long() -> None:
    with pytest.raises(effort.TooMuch, match=r"more than 0\.2 s of computing"), effort.work(0.2):
        slow()
    tally("a host's words hold up the judge of all", 1, 0)
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0) and signal.getsignal(signal.SIGPROF) is signal.SIG_DFL
    with effort.work(0.2):
        select.select([], [], [], 0.5)  # to wait is no work


def test_a_host_that_takes_too_long_to_judge_is_named_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "WORK_LIMIT_S", 0.2)
    judge = drift_report.judge
    monkeypatch.setattr(
        drift_report, "judge", lambda reply, *more: (slow if reply.host == "a" else judge)(reply, *more)
    )
    records = [
        drift._record(scan.Reply(host, 0, "", "", 0, 0), 1, host, lambda _name: False, 1, True) for host in ("a", "b")
    ]
    assert "of computing" in records[0]["silence"]["text"] and "of computing" not in records[1]["silence"]["text"]
    failures: list[Any] = []

    def of_host(_asked: Any, answer: Any, failure: Any, *, refuse: bool) -> dict[str, Any]:
        failures.append(failure)
        return slow() if answer else {"failed": refuse}

    monkeypatch.setattr(probe, "_judged", of_host)
    asked: Any = SimpleNamespace(failure=lambda text, answered: text)
    assert probe.judge(asked, {"facts": {}}, None, refuse=True) == {"failed": True} and "of computing" in failures[-1]
