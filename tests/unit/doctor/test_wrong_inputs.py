"""What people get wrong, each on a host of its own, in one run: the answer is short, named, said once, no traceback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gb10_fleet import cli
from tests.support.plays import ROOT, Plays, environment, put_playbook

NAN = float("nan")
# variable, value, words of the answer: the fact, and a part of the way out.
VARIABLES: list[tuple[str, Any, list[str]]] = [
    # wrong types
    ("gb10_roles", "vllm", ["the text 'vllm'", "a list", "docs/inventory.md"]),
    ("gb10_roles", "['vllm']", ["the text", "a list"]),
    ("gb10_roles", {"vllm": 1}, ["{'vllm': 1}", "a list"]),
    ("gb10_accept", "os", ["the text 'os'", "a mapping"]),
    ("gb10_cluster", ["pair1"], ["gb10_cluster is ['pair1']", "a text"]),
    ("gb10_cluster", {"pair1": 1}, ["gb10_cluster is {'pair1': 1}", "a text"]),
    ("gb10_minimum_free_gib", 5, ["gb10_minimum_free_gib is 5", "a mapping"]),
    ("gb10_evidence_directory", ["x"], ["gb10_evidence_directory", "a text"]),
    ("fabric_mtu", "9k", ["the text '9k'", "a whole number", "roles/fabric/README.md"]),
    ("fabric_mtu", [9000], ["[9000]", "a whole number"]),
    ("fabric_ports", "p0", ["the text 'p0'", "a list"]),
    ("fabric_ports", '["p0"]', ["the text", "a list"]),
    ("fabric_rails", "p0", ["fabric_rails", "a mapping"]),
    ("vllm_model", ["m"], ["vllm_model is ['m']", "a text"]),
    ("vllm_extra_args", "--foo", ["the text '--foo'", "a list"]),
    ("vllm_environment", ["A=1"], ["vllm_environment", "a mapping"]),
    ("vllm_ready_timeout", "soon", ["the text 'soon'", "a whole number"]),
    ("docker_daemon_options", [], ["docker_daemon_options is []", "a mapping"]),
    ("driver_allow_move", "maybe", ["the text 'maybe'", "true or false"]),
    ("page_cache_operators", "me", ["the text 'me'", "a list"]),
    ("kernel_parameters_extra", ["x"], ["kernel_parameters_extra is ['x']", "a mapping"]),
    # impossible values
    ("gb10_orphans", "delete", ["gb10_orphans", "show, remove", "delete"]),
    ("gb10_recap", "chnaged", ["gb10_recap", "all, changed", "chnaged"]),
    ("docker_version", 29, ["docker_version is '29'", "apt-cache madison docker-ce", "5:29.2.1-1"]),
    ("container_toolkit_version", "1.19", ["container_toolkit_version is '1.19'", "1.19.0-1"]),
    ("vllm_services", {"one": {"modell": "m", "port": 8001}}, ["vllm_services.one has modell", "rite model"]),
    ("gb10_minimum_free_gib", {"/": "ten"}, ["'/': 'ten'", '{"/srv/models": 200}']),
    ("fabric_mtu", -1, ["fabric_mtu -1", "1500 and 9216"]),
    ("fabric_mtu", NAN, ["fabric_mtu is nan", "a whole number"]),
    ("fabric_network", "192.168.1", ["'192.168.1'", "192.168.100.0/22"]),
    ("fabric_network", "fe80::/64", ["'fe80::/64'", "192.168.100.0/22"]),
    ("fabric_topology", "star", ["none, pair, ring, switch", "star"]),
    ("fabric_topology", "pair", ["gb10_cluster is not set", "set gb10_cluster"]),
    ("vllm_port", 99999, ["vllm_port", "99999", "65535"]),
    ("vllm_gpu_memory_utilization", 1.5, ["vllm_gpu_memory_utilization", "1.5"]),
    ("driver_host_set", "nope", ["driver_host_set", "nope"]),
    ("page_cache_operators", ["root; rm"], ["page_cache_operators", "root; rm"]),
    # names of roles, clusters and consents that do not exist
    ("gb10_roles", ["vlm"], ["gb10_roles", "vlm", "vllm"]),
    ("gb10_roles", [1, None], ["gb10_roles", "kernel_parameters"]),
    ("gb10_cluster", "pair9", ["gb10_cluster is pair9", "no group", "name the group"]),
    ("gb10_accept", {"oss": "x"}, ["oss", "did you mean os?"]),
    ("gb10_accept", {"unreachable": "x"}, ["unreachable", "cannot be accepted", "remove"]),
    ("gb10_accept", {"ünïcode 💥": "x"}, ["no finding", "docs/doctor.md"]),
    ("driver_allow_mvoe", True, ["driver_allow_mvoe", "driver_allow_move?"]),
    # mistyped names
    ("fabric_mut", 9000, ["fabric_mut", "fabric_mtu?"]),
    ("vllm_modle", "m", ["vllm_modle", "vllm_model?"]),
    ("gb10_klaster", "a", ["gb10_klaster", "gb10_cluster?"]),
    # empty, None, unicode, unresolved
    ("gb10_cluster", "", ["gb10_cluster is empty", "name the group"]),
    ("gb10_roles", None, ["gb10_roles is None", "a list"]),
    ("gb10_accept", {"os": ""}, ["gb10_accept.os gives no reason", "write down"]),
    ("fabric_topology", None, ["fabric_topology", "none, pair, ring, switch"]),
    ("fabric_mtu", "", ["fabric_mtu is the text ''", "a whole number"]),
    ("vllm_model", "", ["vllm_model"]),
    ("vllm_model", None, ["vllm_model"]),
    ("vllm_model", "Qwën/💥", ["vllm_model", "Qwën/💥"]),
    ("fabric_network", "\uff11\uff19\uff12.168.100.0/22", ["fabric_network", "192.168.100.0/22"]),
    ("fabric_mtu", "{{ nowhere }}", ["fabric_mtu cannot be evaluated", "nowhere", "correct it"]),
    ("vllm_model", "{{ 1 / 0 }}", ["vllm_model cannot be evaluated", "correct it"]),
    ("vllm_api_key", ["secret"], ["vllm_api_key is not", "a text"]),
]


# words of `gb10`, words of the answer. HOSTS is an inventory whose hosts answer.
COMMANDS: list[tuple[str, list[str]]] = [
    ("sight", ["No such command", "sight"]),
    ("site", ["name an inventory with -i INVENTORY", "gb10 up"]),
    ("site -i nowhere", ["nowhere is not there", "docs/inventory.md"]),
    ("site -i a, fabric", ["unexpected extra argument", "fabric"]),
    ("site -i a, --chek", ["No such option", "--chek"]),
    ("site -i a, -- --ask-become-pass", ["--ask-become-pass asks", "before --"]),
    ("site -i a, -- --nonsense", ["unrecognized arguments: --nonsense"]),
    ("site -i a, -- other.yml", ["other.yml", "no playbook"]),
    ("undo -i a,", ["name the roles", "--all"]),
    ("undo -i a, fabric --all", ["one of the two"]),
    ("undo -i a, all", ["all is no role", "--all"]),
    ("explain -i a,", ["Missing argument", "host"]),
    ("plan", ["name a model", "--all"]),
    ("plan openai/gpt-oss-120b --hosts 0", ["--hosts", "or equal to 1"]),
    ("evidence nowhere", ["nowhere", "gb10 validate"]),
    ("discover 999.1.1.1", ["999.1.1.1"]),
    ("rollout site -i a, --threshold -1", ["-1"]),
    ("rollout site -i a, --window Someday", ["Someday"]),
    ("rollout site -i a, -- --check", ["--check", "would be called done"]),
    ("rollout site -i a, --check", ["`gb10 rollout --plan` shows its waves", "`gb10 site --check`"]),
    ("rollback nothing -i a,", ["no rollout"]),
]
# The same, where Ansible has to read the inventory first.
RUNS: list[tuple[str, list[str]]] = [
    ("doctor -i broken.yml", ["broken.yml"]),
    ("doctor -i empty.yml", ["group sparks", "the inventory is empty", "docs/inventory.md"]),
    ("doctor -i HOSTS --limit spark-9", ["--limit", "no hosts"]),
    ("explain -i HOSTS spark-a vlm", ["vlm", "vllm"]),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the doctor says of each host; the hosts are numbered as the table is."""
    plays = Plays(tmp_path_factory.mktemp("wrong"))
    hosts = {_host(number): {"ansible_host": "kind-ok", row[0]: row[1]} for number, row in enumerate(VARIABLES)}
    rc, output = plays.play(hosts, "- ansible.builtin.import_playbook: gb10.fleet.doctor\n", ansible_become=False)
    assert rc == 2 and "Traceback" not in output, output
    failed = re.findall(r"^fatal: \[(\S+)\]: FAILED! => (.*)$", output, re.M)
    return {host: json.loads(result)["msg"] for host, result in failed}


def _host(number: int) -> str:
    return f"spark-{number:02}"


def test_the_table_is_long_enough() -> None:
    assert len(VARIABLES) + len(COMMANDS) + len(RUNS) >= 75


@pytest.mark.parametrize(
    ("number", "words"),
    enumerate(words for *_, words in VARIABLES),
    ids=[f"{name}={value!a:.20}" for name, value, _ in VARIABLES],
)
def test_the_answer_names_host_fact_and_way_out_once(answers: dict[str, str], number: int, words: list[str]) -> None:
    answer = answers[_host(number)]
    first, *findings = answer.splitlines()
    assert first == "doctor refuses to go on:" and 0 < len(findings) < 9, answer
    assert all(line.startswith((f"{_host(number)}: ", "    Fix: ")) for line in findings), answer
    assert len(set(findings)) == len(findings), "once"
    assert all(word in answer for word in words), answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An operator's folder: hosts that answer, an inventory that is no YAML, and one without hosts."""
    plays = Plays(tmp_path_factory.mktemp("commands"))
    own = {"gb10_roles": ["page_cache"], "ansible_become": False}
    put_playbook(plays.tmp_path, {"spark-a": {"ansible_host": "kind-ok"}}, "", **own)
    (plays.tmp_path / "broken.yml").write_text("all:\n  hosts: [\n")
    (plays.tmp_path / "empty.yml").write_text("all:\n  children:\n    other:\n      hosts: {}\n")
    return plays.tmp_path


@pytest.mark.parametrize(("command", "words"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_command_says_what_is_wrong_with_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: list[str]
) -> None:
    monkeypatch.chdir(folder)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, command.split(), prog_name="gb10")
    _judge(result.exit_code, result.output, words)


@pytest.mark.parametrize(("command", "words"), RUNS, ids=[command for command, _ in RUNS])
def test_a_run_says_what_is_wrong_with_it(folder: Path, command: str, words: list[str]) -> None:
    argv = [sys.executable, "-c", "from gb10_fleet.cli import main; main()"]
    environ = {**environment(folder, folder / "collections"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*argv, *command.replace("HOSTS", "inventory.yml").split()], cwd=folder, env=environ, text=True, timeout=120,
        check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    _judge(done.returncode, done.stdout, words)


def _judge(status: int, output: str, words: list[str]) -> None:
    said = [line for line in output.splitlines() if line.strip()]
    assert status != 0 and 0 < len(said) < 10, output
    assert "Traceback" not in output
    assert all(word in output for word in words), output
