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
  once) if [ -e "${0%/*}/gone" ]; then exit 255; fi; touch "${0%/*}/gone";;
  nopython) echo "/bin/sh: 1: /usr/bin/python3: not found" >&2; exit 127;;
esac
export SSH_CONNECTION="192.0.2.1 50000 192.0.2.11 22" PATH="${0%/*}/bin:$PATH"
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
ACCEPTED = ("not_a_spark", "os", "architecture", "driver_mismatch", "gpu_absent", "disk_full")
# A driver of another branch cannot be accepted, so it has one.
DPKG_QUERY = "#!/bin/sh\nprintf 'libnvidia-compute-580\\t580.142-0ubuntu1\\tinstall\\tinstalled\\n'\n"
VALIDATE = "- ansible.builtin.import_playbook: gb10.fleet.validate\n"
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="doctor wants root, and this fake host is the test's own user"
)


class Run:
    """One ansible-playbook run in a directory of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        (tmp_path / "bin").mkdir()
        for name, text in (("ssh", SSH), ("bin/dpkg-query", DPKG_QUERY)):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)

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


PAIR: dict[str, Any] = {"gb10_cluster": "sparks", "fabric_topology": "pair", "ansible_become": False}


def reasons(run: Run) -> list[tuple[str, str, str]]:
    document = json.loads((run.tmp_path / "evidence/latest/evidence.json").read_text())
    assert document["verdict"] == "unhealthy"
    return [(reason["where"], reason["what"], reason["text"]) for reason in document["reasons"]]


@needs_root
def test_a_host_that_is_away_is_in_the_evidence(run: Run) -> None:
    hosts = {"spark-a": {"ansible_host": "kind-away"}, "spark-b": {"ansible_host": "kind-ok"}}
    rc, output = run.play(hosts, VALIDATE, **PAIR)
    assert rc == 2 and "No route to host" in output, output
    assert [reason[:2] for reason in reasons(run) if reason[0] == "spark-a"] == [("spark-a", "unreachable")]
    assert {reason[1] for reason in reasons(run)} == {"unreachable", "no_rdma", "unmeasured"}


@needs_root
def test_a_proof_that_stops_is_in_the_evidence(run: Run) -> None:
    hosts = {name: {"ansible_host": "kind-ok"} for name in ("spark-a", "spark-b")}
    rc, output = run.play(hosts, VALIDATE, **PAIR)
    assert rc == 2, output
    (text,) = {text for _host, what, text in reasons(run) if what == "proof_stopped"}
    assert "Plan the fabric of the cluster" in text and "no rail on port p0" in text


@needs_root
def test_a_part_of_a_cluster_is_refused_by_name(run: Run) -> None:
    hosts = {name: {"ansible_host": "kind-ok"} for name in ("spark-a", "spark-b")}
    rc, output = run.play(hosts, PLAY, "--limit", "spark-a", **PAIR)
    assert rc == 2
    assert "cluster_members: of the cluster sparks, spark-b is not part of this run" in output
    run.play(hosts, VALIDATE, "--limit", "spark-a", **PAIR)
    assert ("spark-a", "cluster_members") in [reason[:2] for reason in reasons(run)]


@needs_root
def test_a_text_from_the_command_line_is_refused(run: Run) -> None:
    hosts = {"spark-a": {"ansible_host": "kind-ok"}}
    rc, output = run.play(hosts, PLAY, "-e", "vllm_ready_timeout=1")
    assert rc == 2 and "vllm_ready_timeout is the text '1', and must be a whole number" in output
    assert """-e '{"vllm_ready_timeout": ...}'""" in output
    rc, output = run.play(hosts, PLAY, "-e", '{"vllm_ready_timeout": 1}')
    assert rc == 0, output


@needs_root
def test_two_clusters_on_a_switch_with_the_same_subnets_are_refused(run: Run) -> None:
    play = "- hosts: sparks\n  tasks:\n  - ansible.builtin.group_by: {key: '{{ gb10_cluster }}'}\n" + PLAY
    hosts = {
        f"spark-{name}": {"ansible_host": "kind-away", "gb10_cluster": cluster, "fabric_topology": "switch"}
        for name, cluster in zip("abcd", ["one", "one", "two", "two"], strict=True)
    }
    rc, output = run.play(hosts, play.replace("  tasks", "  gather_facts: false\n  tasks", 1))
    assert rc == 2
    said = "bad_variable: fabric_network gives 192.168.100.0/24, 192.168.101.0/24 to one and to two"
    # group_by puts whoever answers first at the head of the cluster, and the head speaks for it.
    assert [name for name in "ab" if f"spark-{name}: {said}" in output] in (["a"], ["b"]), output


@needs_root
def test_every_path_of_minimum_free_is_judged_on_its_own_mount(run: Run) -> None:
    play = PLAY.replace("the run went on", "{{ ansible_facts['gb10_spark']['disks'] | map(attribute='mount') }}")
    rc, output = run.play({"spark-a": {"ansible_host": "kind-ok"}}, play, gb10_minimum_free_gib={"/proc/sys": 1e-9})
    assert rc == 0, output
    assert "/proc" in output.partition("ok: [spark-a] => {")[2]


@needs_root
def test_a_host_that_goes_away_during_the_proof_leaves_it_incomplete(run: Run) -> None:
    rc, output = run.play({"spark-a": {"ansible_host": "kind-once"}}, VALIDATE, ansible_become=False)
    assert rc == 2 and "UNREACHABLE" in output, output
    document = json.loads((run.tmp_path / "evidence/latest/evidence.json").read_text())
    assert (document["verdict"], document["reasons"][0]["text"]) == ("incomplete", "no model was asked")


def preflight(live: bool) -> str:
    """A play that runs the fabric's preflight over made-up facts of a pair, whose rails are as planned or are not."""
    from tests.proofs import facts

    tasks: list[dict[str, Any]] = []
    for number, host in enumerate(("spark-a", "spark-b")):
        own = facts(host)
        for twin, rail in enumerate(own["rails"][:2]):
            rail.update(mtu=9000, addresses=[f"192.168.10{twin}.1{number}/24"] if live else [])
        when = f"inventory_hostname == '{host}'"
        tasks.append({"ansible.builtin.set_fact": {"gb10_spark": own, "cacheable": True}, "when": when})
    tasks.append({"ansible.builtin.import_role": {"name": "gb10.fleet.fabric", "tasks_from": "preflight"}})
    return yaml.safe_dump([{"hosts": "sparks", "gather_facts": False, "tasks": tasks}])


def test_a_rail_that_is_not_up_needs_consent_before_anything_changes(run: Run) -> None:
    hosts: dict[str, dict[str, Any]] = {"spark-a": {}, "spark-b": {}}
    rc, output = run.play(hosts, preflight(live=False), "--check", **PAIR)
    said = " ".join(output.split())
    assert rc == 2, output
    assert "spark-a: enp1s0f0np0, enP2p1s0f0np0 waits for your consent" in said
    assert "Set fabric_allow_activation to true" in said
    rc, output = run.play(hosts, preflight(live=False), **PAIR, fabric_allow_activation=True)
    assert rc == 0, output
    rc, output = run.play(hosts, preflight(live=True), **PAIR)
    assert rc == 0, output


def test_hosts_of_a_cluster_that_disagree_are_refused(run: Run) -> None:
    variables = {**PAIR, "fabric_allow_activation": True}
    rc, output = run.play({"spark-a": {}, "spark-b": {"fabric_mtu": 1500}}, preflight(live=False), **variables)
    assert rc == 2
    assert "must agree on fabric_mtu, and it is 9000 (spark-a), 1500 (spark-b)" in " ".join(output.split())
    rc, output = run.play({"spark-a": {}, "spark-b": {"fabric_mtu": 9000}}, preflight(live=False), **variables)
    assert rc == 0, output
