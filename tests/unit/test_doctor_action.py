"""The actions doctor and evidence in real ansible-playbook runs, over an ssh that plays every kind of host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]

# Stands in for ssh: the destination names the kind of host. What is left of the arguments is run here.
SSH = """#!/bin/bash
for word in "$@"; do case $word in kind-*) kind=${word#*@}; kind=${kind#kind-};; esac; command=$word; done
case $kind in
  away) echo "ssh: connect to host 192.0.2.9 port 22: No route to host" >&2; exit 255;;
  key) echo "Host key verification failed." >&2; exit 255;;
  nosudo) echo "sudo: a password is required" >&2; exit 1;;
  nopython) echo "/bin/sh: 1: /usr/bin/python3: not found" >&2; exit 127;;
esac
export SSH_CONNECTION="192.0.2.1 50000 192.0.2.11 22"
exec /bin/sh -c "$command"
"""
PLAY = """
- hosts: sparks
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - gb10.fleet.doctor:
- hosts: sparks
  gather_facts: false
  tasks:
    - ansible.builtin.debug: {msg: "the run went on"}
"""
# This machine is no Spark: the test is about how a host gets in, not what it is.
ACCEPTED = ("not_a_spark", "os", "architecture", "driver_branch", "gpu_absent", "disk_full")


class Run:
    """One ansible-playbook run in a directory of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        ssh = tmp_path / "ssh"
        ssh.write_text(SSH)
        ssh.chmod(0o755)

    def play(self, hosts: dict[str, dict[str, Any]], play: str = PLAY, *args: str, **variables: Any) -> tuple[int, str]:
        inventory = {
            "sparks": {
                "hosts": hosts,
                "vars": {
                    "ansible_ssh_executable": str(self.tmp_path / "ssh"),
                    "ansible_python_interpreter": sys.executable,
                    "gb10_accept": dict.fromkeys(ACCEPTED, "test"),
                    "vllm_model": "m",
                    "vllm_image": "i@sha256:0",
                    **variables,
                },
            }
        }
        (self.tmp_path / "inventory.yml").write_text(yaml.safe_dump(inventory))
        (self.tmp_path / "play.yml").write_text(play)
        (self.tmp_path / "ansible.cfg").touch()
        environ = {
            "ANSIBLE_CONFIG": str(self.tmp_path / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(self.tmp_path / "local"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_SSH_RETRIES": "0", "ANSIBLE_HOST_KEY_CHECKING": "1", "HOME": str(self.tmp_path),
        }  # fmt: skip
        playbook = Path(sys.executable).parent / "ansible-playbook"
        done = subprocess.run(
            [str(playbook), "-i", "inventory.yml", "play.yml", *args],
            cwd=self.tmp_path, env={**os.environ, **environ}, text=True, timeout=60, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_host_that_lets_us_in_goes_on(run: Run) -> None:
    play = PLAY.replace("the run went on", "{{ ansible_facts['gb10_spark']['ssh'] }}")
    rc, output = run.play({"spark-a": {"ansible_host": "kind-ok"}}, play)
    if os.geteuid() != 0:
        pytest.skip("doctor wants root, and this fake host runs as the user of the test")
    assert rc == 0, output
    assert "192.0.2.11" in output


def test_hosts_that_do_not_let_us_in_stop_the_run_for_all(run: Run) -> None:
    kinds = {"ok": None, "away": "unreachable", "key": "host_key", "nosudo": "no_sudo", "nopython": "unreadable"}
    hosts = {f"spark-{kind}": {"ansible_host": f"kind-{kind}"} for kind in kinds}
    rc, output = run.play(hosts)
    assert rc == 2, output
    assert "the run went on" not in output
    for kind, id_ in kinds.items():
        assert id_ is None or f"spark-{kind}: {id_}: " in output
    assert "no usable Python" in output
    assert output.count("unreachable=0") == len(kinds), "an unreachable host would not stop later plays"


def test_a_refusal_does_not_drown_in_facts_and_a_report_has_them(run: Run) -> None:
    if os.geteuid() != 0:
        pytest.skip("doctor wants root, and this fake host runs as the user of the test")
    hosts = {"spark-a": {"ansible_host": "kind-ok", "fabric_mut": 9000}}
    rc, output = run.play(hosts)
    assert rc == 2
    assert "unknown_variable" in output and "boot_id" not in output
    play = PLAY.replace("gb10.fleet.doctor:", "gb10.fleet.doctor: {refuse: false}")
    play = play.replace("the run went on", "{{ ansible_facts['gb10_spark']['boot_id'] }}")
    rc, output = run.play(hosts, play)
    assert rc == 0, output


def test_variables_are_evaluated_and_judged_before_the_host_answers(run: Run) -> None:
    hosts = {"spark-a": {"ansible_host": "kind-away", "fabric_topology": "{{ nobody_defined_this }}"}}
    rc, output = run.play(hosts, PLAY, "-e", "fabric_mut=9000")
    assert rc == 2
    assert "bad_variable: fabric_topology cannot be evaluated" in output
    assert "unknown_variable: no role declares the variable fabric_mut" in output


def test_too_few_forks_are_said_once(run: Run) -> None:
    hosts = {f"spark-{name}": {"ansible_host": "kind-away"} for name in "abc"}
    rc, output = run.play(hosts, PLAY, "--forks", "2", gb10_cluster="sparks")
    assert rc == 2
    assert "forks is 2, but the largest cluster has 3 hosts" in output
    assert "spark-b: bad_variable: forks" not in output


def test_evidence_is_written_where_the_run_was_started_and_not_in_check_mode(run: Run) -> None:
    from tests.proofs import proof

    proofs = {name: {**host, "serving": None} for name, host in proof("pair").items()}
    play = yaml.safe_dump(
        [
            {
                "hosts": "localhost",
                "gather_facts": False,
                "connection": "local",
                "tasks": [
                    {
                        "gb10.fleet.evidence": {"path": "proofs", "hosts": proofs, "meta": {"inventory": "test"}},
                        "register": "done",
                    },
                    {"ansible.builtin.debug": {"msg": "verdict={{ done.verdict }} page={{ done.page }}"}},
                ],
            }
        ]
    )
    rc, output = run.play({"spark-a": {}}, play, "--check")
    assert rc == 0, output
    assert "verdict=incomplete" in output and not (run.tmp_path / "proofs").exists()
    rc, output = run.play({"spark-a": {}}, play)
    assert rc == 0 and "changed=0" in output, output
    document = json.loads((run.tmp_path / "proofs/latest/evidence.json").read_text())
    assert document["reasons"][0]["text"] == "no model was asked"
    assert document["meta"]["inventory"] == "test" and document["meta"]["gb10_fleet"]
    assert (run.tmp_path / "proofs/latest/index.html").exists()
    rc, output = run.play({"spark-a": {}}, play.replace("twin_index", "twin"))
    assert rc == 2 and "the proof of a host is not as documented" in output
