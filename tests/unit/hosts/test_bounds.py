"""Nobody of a fleet can fill the controller's memory: what sends without end is ended and named, the others go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader
from ansible_collections.gb10.fleet.plugins.action import await_boot, model_files
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import bounds, scan

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
    action._name, action._vars = "spark-a", {}
    monkeypatch.setattr(action, "_execute_module", lambda **_: {"msg": [{"deep": flood.text()}]})
    monkeypatch.setattr(action, "_low_level_execute_command", lambda _: {"stdout": flood.text()})
    return action


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
    tally(FLOOD, 1, int(flood.most > bounds.MEMORY_LIMIT))
    assert flood.most <= bounds.MEMORY_LIMIT


@pytest.mark.parametrize("size", [600 * 2**20, 20 * 2**20])
def test_a_host_that_boots_is_bounded(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """It is not waited for: nothing that it says later would be believed."""
    flood = Flood(size)
    action = await_boot.ActionModule.__new__(await_boot.ActionModule)
    action._connection = flood  # type: ignore[assignment]
    arguments = {"boot_id": "5b0a0a44-6a51-4b21-9a3c-2f60c3d0a001", "timeout": 200}
    monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda *_: {})
    monkeypatch.setattr(action, "validate_argument_spec", lambda **_: (None, arguments))
    monkeypatch.setattr(action, "_low_level_execute_command", lambda *_, **__: {"rc": 0, "stdout": flood.text()})
    with pytest.raises(AnsibleActionFail, match=r"spark-a: it wrote more than \d+ MiB to standard output or error"):
        action.run(task_vars={"inventory_hostname": "spark-a"})
    assert flood.most <= bounds.MEMORY_LIMIT


@pytest.mark.parametrize("said", ["x" * LIMIT, {"a": ["x" * LIMIT]}, [["x"] * LIMIT], {"x" * LIMIT: 0}])
def test_texts_count_wherever_they_stand(monkeypatch: pytest.MonkeyPatch, said: object) -> None:
    monkeypatch.setattr(bounds, "ANSWER_LIMIT", LIMIT + 1)
    bounds.fit(said)
    monkeypatch.setattr(bounds, "ANSWER_LIMIT", LIMIT - 1)
    with pytest.raises(bounds.TooMuch):
        bounds.fit(said)
