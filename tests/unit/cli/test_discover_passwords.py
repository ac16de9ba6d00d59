"""`gb10 discover` where a host wants a password: a real ansible-playbook over an ssh and a sudo that ask for one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gb10_fleet import passwords
from gb10_fleet.discover import cli as discover_cli
from gb10_fleet.discover import password
from gb10_fleet.playbook import Outcome
from gb10_fleet.up import people
from tests.support.discovered import fake, key
from tests.support.doors import OF_SSH, OF_SUDO, SSH_DOOR, opened, put_ways_to_root
from tests.support.plays import environment

CLI = CliRunner()
HERE = "127.0.0.1"
# Without the check of host keys no word is sent.
SSH = f"""echo "$@" >>"${{0%/*}}/asked"
case "$*" in *StrictHostKeyChecking=yes*) ;; *) exit 255;; esac
{SSH_DOOR}
SSH_CONNECTION="192.0.2.1 50000 {HERE} 22" exec /bin/sh -c "${{@: -1}}"
"""


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One host, this machine, behind an ssh that wants a password."""
    programs = tmp_path / "bin"
    programs.mkdir()
    fake(programs, "ssh-keyscan", f"cat >/dev/null; echo '{HERE} ssh-ed25519 {key(1)}'")
    fake(programs, "ssh", SSH)
    put_ways_to_root(programs)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(passwords, "typed", {})
    (tmp_path / "ansible.cfg").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def discover(monkeypatch: pytest.MonkeyPatch, typed: dict[str, str], *words: str) -> tuple[int, dict[str, Any]]:
    monkeypatch.setattr("getpass.getpass", lambda prompt: typed[prompt.split()[2].rstrip(":")])
    result = CLI.invoke(discover_cli.app, ["-u", "nvidia", "--json", *words])
    assert not {OF_SSH, OF_SUDO} & set(result.output.split())
    return result.exit_code, json.loads(result.stdout)


def vault(folder: Path) -> Sequence[str]:
    """The SSH password as a variable in a vault, and the vault's own in a file."""
    (folder / "of-the-vault").write_text("secret\n")
    words = [str(Path(sys.executable).with_name("ansible-vault")), "encrypt_string", "--stdin-name", "ansible_password"]
    done = subprocess.run(
        [*words, "--vault-password-file", "of-the-vault"],
        input=OF_SSH, cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (folder / "vault.yml").write_text(done.stdout)
    return "-e", "@vault.yml", "--vault-password-file", "of-the-vault"


def test_typed_passwords_open_a_host_and_its_root(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, answer = discover(monkeypatch, {"SSH": OF_SSH, "sudo": OF_SUDO}, "-k", "-K", HERE)
    assert (answer["locked"], answer["others"]) == ({}, [HERE]), "this machine is no Spark, and it answered"
    assert status == Outcome.failed and opened(network / "bin") == {"ssh", "sudo"}
    argv = (network / "bin/asked").read_text()
    assert OF_SSH not in argv and OF_SUDO not in argv


def test_a_password_from_a_vault_needs_no_root(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, answer = discover(monkeypatch, {}, HERE, "--", *vault(network))
    assert (answer["locked"], answer["others"]) == ({}, [HERE])
    assert opened(network / "bin") == {"ssh"}


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ({"SSH": "wrong", "sudo": OF_SUDO}, ["does not let us in", f"gb10 discover -k {HERE}"]),
        ({"SSH": OF_SSH, "sudo": "wrong"}, ["sudo", "check the password of sudo"]),
    ],
)
def test_a_wrong_password_is_said(
    network: Path, monkeypatch: pytest.MonkeyPatch, typed: dict[str, str], says: list[str]
) -> None:
    status, answer = discover(monkeypatch, typed, "-k", "-K", HERE)
    assert status == Outcome.unreachable and [*answer["locked"]] == [HERE]
    assert [word for word in says if word not in answer["locked"][HERE]] == [], answer["locked"]


def test_a_host_that_is_too_slow_is_no_defect_of_ours(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play = network / "slow.yml"
    look = {"gb10.fleet.spark_facts": {}, "timeout": 1}
    play.write_text(json.dumps([{"hosts": "sparks", "gather_facts": False, "tasks": [look]}]))
    monkeypatch.setattr(password, "PLAYBOOK", str(play))
    fake(network / "bin", "ssh", "sleep 5")
    _, answer = discover(monkeypatch, {"SSH": OF_SSH, "sudo": OF_SUDO}, "-k", "-K", HERE)
    assert answer["locked"][HERE].startswith("no answer within 1 s; look whether the host is overloaded"), answer


def test_nobody_who_was_not_named_gets_a_password(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, answer = discover(monkeypatch, {"SSH": OF_SSH}, "-k", "127.0.0.0/30")
    assert [*answer["locked"]] == [HERE] and status == Outcome.failed
    assert f"gb10 discover -k {HERE}" in answer["locked"][HERE]
    assert "BatchMode=yes" in (network / "bin/asked").read_text().splitlines()[-1], "keys only"


@pytest.mark.parametrize(("word", "opened"), [("y", True), ("n", False)])
def test_who_is_at_the_terminal_is_asked_for_the_others(
    network: Path, monkeypatch: pytest.MonkeyPatch, word: str, opened: bool
) -> None:
    asked = []
    monkeypatch.setattr(discover_cli, "_at_a_terminal", lambda: True)
    monkeypatch.setattr(people.Person, "ask", lambda _, text, __: asked.append(text) or word)
    _, answer = discover(monkeypatch, {"SSH": OF_SSH}, "-k", "127.0.0.0/30")
    assert len(asked) == 1 and (answer["others"] == [HERE]) is opened
