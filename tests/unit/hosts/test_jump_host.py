"""`-k` and a jump host that asks for a password: the one that was typed is for the Spark behind it."""

from __future__ import annotations

import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import ssh_password

from tests.support.attacker import tally
from tests.support.plays import put_ssh, recap, run_playbook

# As OpenSSH with ProxyJump: the same program once more, for the jump host, which asks first.
JUMPS = """#!/bin/sh
here=${0%/*}
if [ "$1" = -W ]; then "$SSH_ASKPASS" "op@jump's password: " >>"$here/jump"; exit 0; fi
"$0" -W 192.0.2.3:22 jump </dev/null
"$SSH_ASKPASS" "op@192.0.2.3's password: " >>"$here/spark"
for word; do last=$word; done
exec /bin/sh -c "$last"
"""


@pytest.mark.parametrize(
    "task",
    [{"ansible.builtin.command": {"argv": ["true"]}}, {"gb10.fleet.spark_facts": {"sections": ["services"]}}],
    ids=["of Ansible", "of ours"],
)
def test_a_jump_host_is_not_given_the_password_of_the_spark(tmp_path: Path, task: dict[str, object]) -> None:
    put_ssh(tmp_path, JUMPS)
    (tmp_path / "typed").write_text("secret")
    play = [{"hosts": "{{ lookup('gb10.fleet.target') }}", "gather_facts": False, "tasks": [task]}]
    words = ("--connection-password-file", "typed")
    _, output = run_playbook(tmp_path, {"spark-a": {"ansible_host": "192.0.2.3"}}, yaml.safe_dump(play), *words)
    got = (tmp_path / "jump").read_text()
    tally("a jump host is given the password of a Spark", 1, got.count("secret"))
    assert got == "" and (tmp_path / "spark").read_text() == "secret", output[-2000:]
    assert recap(output)["spark-a"] in ("ok", "changed"), output[-2000:]


@pytest.mark.parametrize(("begun", "jumps", "said"), [("sftp", 0, "secret"), ("scp", 0, "secret"), ("sftp", 1, "")])
def test_a_copy_of_a_file_has_an_ssh_below_its_own_program(tmp_path: Path, begun: str, jumps: int, said: str) -> None:
    """Where no connection is kept, Ansible's `copy` logs in by that one; a jump host is one further below."""
    programs = {
        "helper": "echo secret",
        begun: f'"{tmp_path}/ssh" {jumps}; exit $?',
        "ssh": 'if [ "$1" = 1 ]; then "$0" 0; exit $?; fi; "$SSH_ASKPASS" "the password: "; exit $?',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = ssh_password.to_own_ssh({**os.environ, "SSH_ASKPASS": str(tmp_path / "helper")}, tmp_path)
    done = subprocess.run([str(tmp_path / begun)], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == said, done.stderr


def test_threads_of_one_process_may_write_it_at_the_same_moment(tmp_path: Path) -> None:
    """As a look at many hosts does: else the one that comes second finds no file, and its host counts as unreadable."""
    began = threading.Barrier(8)

    def write(folder: Path) -> str:
        began.wait()
        return ssh_password.to_own_ssh({"SSH_ASKPASS": "helper"}, folder)["SSH_ASKPASS"]

    for number in range(60):
        folder = tmp_path / str(number)
        folder.mkdir()
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(write, [folder] * 8)) == {str(folder / "gb10-asked")}
        assert [path.name for path in folder.iterdir()] == ["gb10-asked"]
