"""Lines of many hosts over one connection each. The hosts are shell commands of this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import stream
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.scan import Secrets, Target


class Heard:
    """Everything that came, until `enough`."""

    def __init__(self, enough: Callable[[Heard], bool]) -> None:
        self.lines: list[tuple[str, str]] = []
        self.gone: list[tuple[str, str]] = []
        self._enough = enough

    def say(self, host: str, line: str) -> bool:
        self.lines.append((host, line))
        return not self._enough(self)

    def lost(self, host: str, why: str) -> bool:
        self.gone.append((host, why))
        return not self._enough(self)

    def listen(self, *targets: Target, again_s: float = 0.0) -> Heard:
        stream.Talks(targets, self.say, self.lost, again_s).listen(lambda: not self._enough(self))
        return self


def target(host: str, shell: str, program: bytes = b"") -> Target:
    return Target(host, ("/bin/sh", "-c", shell), program)


def test_all_hosts_talk_at_the_same_time_and_get_their_program() -> None:
    shell = "read -r one; while :; do echo $one; sleep 0.05; done"
    targets = [target(name, shell, f"from {name}\n".encode()) for name in ("a", "b", "c")]
    heard = Heard(lambda so_far: len(so_far.lines) >= 12).listen(*targets)
    assert {host for host, _ in heard.lines} == {"a", "b", "c"}
    assert all(line == f"from {host}" for host, line in heard.lines)
    assert not heard.gone


def test_a_host_that_is_gone_says_why_and_is_asked_again(tmp_path: Path) -> None:
    shell = f"echo >>{tmp_path}/calls; echo 'ssh: broken' >&2; exit 255"
    heard = Heard(lambda so_far: len(so_far.gone) >= 3).listen(target("a", shell), target("b", "exec sleep 77"))
    assert heard.gone == [("a", "ssh: broken")] * 3
    assert (tmp_path / "calls").read_text().count("\n") == 3


def test_a_program_that_is_not_there() -> None:
    heard = Heard(lambda so_far: bool(so_far.gone)).listen(Target("a", ("/no/such",), b""))
    assert heard.gone == [("a", "/no/such: No such file or directory")]


def test_hosts_end_when_nobody_listens(tmp_path: Path) -> None:
    """Standard input stays open till then, and a host sees its end."""
    shell = f"trap 'echo >{tmp_path}/ended' EXIT; echo there; cat >/dev/null; echo >{tmp_path}/closed"
    Heard(lambda so_far: bool(so_far.lines)).listen(target("a", shell))
    assert not (tmp_path / "closed").exists() or (tmp_path / "ended").exists()


def test_a_line_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LONGEST_LINE", 10_000)
    heard = Heard(lambda so_far: bool(so_far.gone)).listen(target("a", "exec head -c 1000000000 /dev/zero"))
    assert heard.gone == [("a", "it sent a line without an end")] and not heard.lines


# sudo as it asks: without a line's end, on standard error, and once more where the password was wrong.
SUDO = """
until [ "$word" = secret ]; do printf 'ask:' >&2; read -r word || exit 1; done
echo ROOT; read -r one; echo "$one"; exec sleep 77
"""
ASKED = Secrets(sudo="secret", asks=lambda said: said.endswith(b"ask:"), let_in=b"ROOT")


@pytest.mark.parametrize(
    "shell", [SUDO, "echo ROOT; read -r one; echo $one; exec sleep 77"], ids=["it asks", "it asks nobody"]
)
def test_the_program_comes_behind_the_password_and_only_who_asks_gets_that(shell: str) -> None:
    one = replace(target("a", shell, b"the program\n"), secrets=ASKED)
    heard = Heard(lambda so_far: len(so_far.lines) >= 2).listen(one)
    assert heard.lines == [("a", "ROOT"), ("a", "the program")] and not heard.gone


def left_alone(so_far: Heard) -> bool:
    """Host a has gone, and host b three times since: whoever is asked again is so at once."""
    hosts = [host for host, _ in so_far.gone]
    return "a" in hosts and hosts[::-1].index("a") >= 3


@pytest.mark.parametrize(
    ("shell", "why"),
    [
        (SUDO, "the password of sudo is wrong"),
        ("printf ask: >&2; read -r word; echo ' sudo: 1 attempt' >&2; exit 1", "ask: sudo: 1 attempt"),
    ],
    ids=["it asks again", "it asks once"],
)
def test_a_wrong_password_is_typed_once(tmp_path: Path, shell: str, why: str) -> None:
    """Some hosts lock out who is wrong several times."""
    wrong = replace(target("a", f"echo >>{tmp_path}/calls; {shell}"), secrets=replace(ASKED, sudo="wrong"))
    heard = Heard(left_alone).listen(wrong, target("b", "exit 1"))
    assert [said for host, said in heard.gone if host == "a"] == [why]
    assert (tmp_path / "calls").read_text().count("\n") == 1


@pytest.mark.parametrize("word", ["right", "wrong"])
def test_ssh_gets_its_password_and_is_asked_no_more_where_that_is_wrong(tmp_path: Path, word: str) -> None:
    ssh = tmp_path / "ssh"
    denied = "{ echo 'me@a: Permission denied (publickey,password).' >&2; exit 255; }"
    asks = """[ "$($SSH_ASKPASS "me@a's password: ")" = right ]"""
    ssh.write_text(f"#!/bin/sh\necho >>{tmp_path}/calls\n{asks} || {denied}\necho in; exec sleep 77\n")
    ssh.chmod(0o755)
    one = Target("a", (str(ssh), "a"), b"", secrets=Secrets(ssh=word))
    heard = Heard(lambda so_far: bool(so_far.lines) or left_alone(so_far)).listen(one, target("b", "exit 1"))
    assert [line for host, line in heard.lines] == ["in"] * (word == "right")
    assert len([why for host, why in heard.gone if host == "a"]) == (word == "wrong")
    assert (tmp_path / "calls").read_text().count("\n") == 1
