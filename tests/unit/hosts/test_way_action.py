"""The action way in real ansible-playbook runs: the command line of ssh, and how a key comes onto the host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.plays import SSH, put_ssh, run_playbook

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - gb10.fleet.way: {file: "DEST", forward: "127.0.0.1:8000", look: "test -e /x"}
"""


@pytest.mark.parametrize(
    ("more", "copy"),
    [
        ({}, "ssh-copy-id kind-fine"),
        ({"ansible_user": "nvidia"}, "ssh-copy-id nvidia@kind-fine"),
        ({"ansible_user": "nvidia", "ansible_port": 2222}, "ssh-copy-id -p 2222 nvidia@kind-fine"),
        ({"ansible_user": "nvidia", "ansible_password": "x"}, "ssh-copy-id nvidia@kind-fine"),
        ({"ansible_connection": "local"}, ""),
    ],
)
def test_a_key_goes_to_the_address_of_the_host(tmp_path: Path, more: dict[str, Any], copy: str) -> None:
    put_ssh(tmp_path, SSH)
    hosts = {"spark-03": {"ansible_host": "kind-fine", **more}}
    code, output = run_playbook(tmp_path, hosts, PLAY.replace("DEST", str(tmp_path / "way.json")))
    assert code == 0, output
    said = json.loads((tmp_path / "way.json").read_text())
    assert said["copy"] == copy
    assert ("problem" in said) == ("ansible_password" in more)
    if "problem" in said:
        assert copy in said["problem"] and "spark-03" not in said["problem"]


def test_a_password_of_sudo_keeps_nobody_out(tmp_path: Path) -> None:
    """What is asked on this way needs no root; `gb10 logs` hands sudo its password itself."""
    put_ssh(tmp_path, SSH)
    more = {"ansible_become": True, "ansible_become_password": "x"}
    code, output = run_playbook(
        tmp_path, {"spark-03": {"ansible_host": "kind-fine", **more}}, PLAY.replace("DEST", str(tmp_path / "way.json"))
    )
    assert code == 0, output
    said = json.loads((tmp_path / "way.json").read_text())
    assert "problem" not in said and said["look"][-2:] == ["kind-fine", "test -e /x"]
