"""`-k` and a jump host that asks for a password: the one that was typed is for the Spark behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

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
