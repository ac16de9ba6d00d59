"""The actions doctor and evidence in real ansible-playbook runs, over an ssh that plays every kind of host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from tests.support.plays import FACTS, Plays, recap

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
LOOK = PLAY.replace("the run went on", "look={{ ansible_facts['gb10_probe'] | to_json }}")
VALIDATE = "- ansible.builtin.import_playbook: gb10.fleet.validate\n"
A = {"spark-a": {"ansible_host": "kind-ok"}}


@pytest.fixture
def plays(tmp_path: Path) -> Plays:
    return Plays(tmp_path)


def look(plays: Plays, *args: str, **variables: Any) -> dict[str, Any]:
    """What the look at a single host says."""
    rc, output = plays.play(A, LOOK, *args, **variables)
    assert rc == 0, output
    line = next(line for line in output.splitlines() if "look=" in line)
    answer: dict[str, Any] = json.loads(json.loads(line.strip().removeprefix('"msg":').strip()).removeprefix("look="))
    assert "@" in answer.pop("run")
    return answer


def test_a_host_that_lets_us_in_goes_on(plays: Plays) -> None:
    play = PLAY.replace("the run went on", "{{ ansible_facts['gb10_spark']['ssh'] }}")
    rc, output = plays.play(A, play)
    assert rc == 0, output
    assert FACTS["ssh"]["peer_address"] in output


def test_hosts_that_do_not_let_us_in_stop_the_run_for_all(plays: Plays) -> None:
    kinds = {
        "ok": None, "away": "unreachable", "key": "host_key", "nosudo": "no_sudo", "nopython": "unreadable",
        "garbled": "unreadable",
    }  # fmt: skip
    hosts = {f"spark-{kind}": {"ansible_host": f"kind-{kind}"} for kind in kinds}
    rc, output = plays.play(hosts, PLAY)
    assert rc == 4, output
    assert "the run went on" not in output
    for kind, id_ in kinds.items():
        assert id_ is None or f"spark-{kind}: {id_}: " in output
    assert "no usable Python" in output and "Welcome to a host that says much" in output
    assert "--limit '!spark-away'" in output, "a host without a cluster is left out by its own name"
    states = {"ok": "ok", "away": "unreachable", "key": "unreachable"}
    assert recap(output) == {f"spark-{kind}": states.get(kind, "failed") for kind in kinds}


def test_the_first_look_asks_twice_and_a_later_one_settles_in_one_call(plays: Plays) -> None:
    assert look(plays)["unchanged"] is True
    first, second = plays.requests()
    assert (first["documents"], first["expect"], first["check"]) == ([], {}, True)
    assert [document["role"] for document in second["documents"]] == list(catalog.ROLES) and second["check"] is True
    (memory,) = (plays.tmp_path / "cache" / "gb10-fleet" / "facts").iterdir()
    text = memory.read_bytes()
    memory.unlink()
    plays.known(A)
    assert memory.read_bytes() == text, "Plays.known does what this run did"
    plays.host("ok")
    assert look(plays) == {"unchanged": True, "changes": [], "pending": [], "orphans": [], "loading": False}
    (request,) = plays.requests()
    assert [document["role"] for document in request["documents"]] == list(catalog.ROLES)
    assert {"packages", "apt_sources"} <= set(request["expect"])
    assert request["verb"] == "converge" and request["project"] == catalog.collection_version()


def test_facts_that_changed_cost_a_second_question(plays: Plays) -> None:
    plays.known(A)
    plays.host("ok", facts={"apt_sources": {**FACTS["apt_sources"], "offered": ["something-else"]}})
    assert look(plays)["unchanged"] is True
    assert len(plays.requests()) == 2
    assert look(plays)["unchanged"] is True
    assert len(plays.requests()) == 3
    plays.host("ok", facts={"packages": {**FACTS["packages"], "docker-ce": "5:27.0.0-1"}})
    rc, output = plays.play(A, PLAY)
    assert rc == 2
    assert "spark-a: docker_refused: docker-ce 5:27.0.0-1 is installed" in " ".join(output.split())
    guess, request = plays.requests()
    assert "docker" in [document["role"] for document in guess["documents"]], "the guess was not sent"
    assert "docker" not in [document["role"] for document in request["documents"]], "it is refused"


def test_what_the_documents_would_change_is_told(plays: Plays) -> None:
    changes = [{"role": "driver", "resource": "file:/x", "action": "create", "detail": "absent"}]
    plays.known(A)
    plays.host("ok", changes=changes)
    assert look(plays) == {"unchanged": False, "changes": changes, "pending": [], "orphans": [], "loading": False}
    pending = [
        {"role": "docker", "resource": "unit:docker.service", "action": "restart", "consent": "docker_allow_restart"}
    ]
    orphans = [{"role": "driver", "resource": "file:/y"}]
    plays.host("ok", pending=pending, orphans=orphans)
    assert look(plays)["unchanged"] is True
    _, output = plays.play(A, PLAY)
    said = " ".join(output.split())
    assert (
        "spark-a: unit:docker.service: restart waits for your consent: set docker_allow_restart: true in the inventory"
        in said
    )
    assert "spark-a: file:/y: the role driver declares it no longer" in said
    assert look(plays, "-e", "gb10_orphans=remove")["unchanged"] is False
    assert plays.requests()[-1]["orphans"] == "remove"


def test_what_the_engine_refuses_is_a_finding(plays: Plays) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "link": {"error": {"kind": "host", "message": "file:/etc/x: is a link to /etc/y"}},
        "locked": {"error": {"kind": "host", "message": "locked by x"}, "no_facts": True},
        "noroot": {"facts": {"root": False}, "error": {"kind": "host", "message": "is for root"}},
    }
    hosts = {f"spark-{kind}": {"ansible_host": f"kind-{kind}"} for kind in kinds}
    for kind in kinds:
        plays.host(kind)
    plays.known(hosts)
    for kind, says in kinds.items():
        plays.host(kind, **says)
    rc, output = plays.play(hosts, PLAY)
    assert rc == 2 and "spark-link: state_refused: file:/etc/x: is a link to /etc/y" in output
    assert "spark-locked: state_refused: locked by x" in output
    assert "spark-noroot: no_sudo: " in output and "spark-noroot: state_refused" not in output


def test_what_the_manifest_does_not_hold_is_still_to_be_written_there(plays: Plays) -> None:
    plays.known(A)
    plays.host("ok", recorded=False)
    assert look(plays)["unchanged"] is False


def test_a_host_gets_the_roles_of_gb10_roles(plays: Plays) -> None:
    variables = {"gb10_roles": ["page_cache", "driver"]}
    plays.known(A)
    assert look(plays, **variables)["unchanged"] is True
    assert [document["role"] for document in plays.requests()[-1]["documents"]] == ["driver", "page_cache"]


def test_damaged_facts_of_last_time_cost_a_look(plays: Plays) -> None:
    """Which damage there is, test_last_facts.py knows."""
    plays.known(A)
    (file,) = (plays.tmp_path / "cache" / "gb10-fleet" / "facts").iterdir()
    file.write_text("{")
    for calls in (2, 3):
        assert look(plays)["unchanged"] is True and len(plays.requests()) == calls


def test_a_template_in_a_fact_is_never_evaluated(plays: Plays) -> None:
    hostile = "{{ lookup('ansible.builtin.pipe', 'touch " + str(plays.tmp_path / "evaluated") + "') }}"
    plays.host(
        "ok", facts={"kernel": hostile, "packages": {**FACTS["packages"], "docker-ce": hostile}, "holds": [hostile]}
    )
    for _ in range(2):
        plays.play(A, PLAY, "-vvv")
    assert not (plays.tmp_path / "evaluated").exists()


def test_a_refusal_does_not_drown_in_facts_and_a_report_has_them(plays: Plays) -> None:
    hosts = {"spark-a": {"ansible_host": "kind-ok", "fabric_mut": 9000}}
    rc, output = plays.play(hosts, PLAY)
    assert rc == 2
    assert "unknown_variable" in output and "boot_id" not in output
    play = PLAY.replace("gb10.fleet.doctor:", "gb10.fleet.doctor: {refuse: false}")
    play = play.replace("the run went on", "{{ ansible_facts['gb10_spark']['boot_id'] }}")
    rc, output = plays.play(hosts, play)
    assert rc == 0, output
    assert FACTS["boot_id"] in output


def test_documents_are_not_made_of_unsound_variables(plays: Plays) -> None:
    plays.known(A)
    rc, output = plays.play(A, PLAY, "-e", '{"vllm_extra_args": 5, "gb10_minimum_free_gib": "{{ nowhere }}"}')
    assert rc == 2 and "vllm_refused" not in output
    assert "vllm_extra_args is 5, and must be a list" in output
    assert "gb10_minimum_free_gib cannot be evaluated" in output and "unreachable:" not in output
    assert plays.requests()[-1]["documents"] == []


def test_what_the_rules_of_serving_say_is_a_refusal_or_a_finding(plays: Plays) -> None:
    says = {"vllm_version": "0.19.0", "gb10_roles": ["vllm"]}
    rc, output = plays.play(A, PLAY, **says, vllm_extra_args=["--max-num-seq5", "4"])
    assert rc == 2 and "spark-a: vllm_refused: rule unknown_flag: --max-num-seq5" in output
    assert "did you mean --max-num-seqs?" in output and "the run went on" not in output
    play = PLAY.replace("gb10.fleet.doctor:", "gb10.fleet.doctor:\n      register: said")
    play = play.replace("the run went on", "found={{ said.findings | map(attribute='accepted') | list }}")
    accepted = {"enforce_eager": "we look for a fault", "cve_2026_9540": ""}
    rc, output = plays.play(A, play, **says, vllm_extra_args=["--enforce-eager"], vllm_accept=accepted)
    assert rc == 2 and "cve_2026_9540 was accepted without a reason" in output
    accepted.pop("cve_2026_9540")
    rc, output = plays.play(A, play, **says, vllm_extra_args=["--enforce-eager"], vllm_accept=accepted)
    assert rc == 0 and "we look for a fault" in output and "spark-a: enforce_eager" not in output, output
    assert "[WARNING]: spark-a: cve_2026_9540: " in output


def test_variables_are_evaluated_and_judged_before_the_host_answers(plays: Plays) -> None:
    hosts = {"spark-a": {"ansible_host": "kind-away", "fabric_topology": "{{ nobody_defined_this }}"}}
    rc, output = plays.play(hosts, PLAY, "-e", "fabric_mut=9000")
    assert rc == 4
    assert "bad_variable: fabric_topology cannot be evaluated" in output
    assert "unknown_variable: no role declares the variable fabric_mut" in output
    assert "spark-a: unreachable" in output


def test_too_few_forks_are_said_once_for_a_cluster(plays: Plays) -> None:
    hosts = {f"spark-{name}": {"ansible_host": "kind-away"} for name in "abc"}
    rc, output = plays.play(hosts, PLAY, "--forks", "2", gb10_cluster="sparks")
    assert rc == 4
    assert "forks is 2, but the cluster sparks has 3 hosts" in output
    assert "spark-b: bad_variable: forks" not in output


def test_evidence_is_written_where_the_run_was_started_and_not_in_check_mode(plays: Plays) -> None:
    from tests.support.proofs import proof

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
    rc, output = plays.play({"spark-a": {}}, play, "--check")
    assert rc == 0, output
    assert "verdict=incomplete" in output and not (plays.tmp_path / "proofs").exists()
    rc, output = plays.play({"spark-a": {}}, play)
    assert rc == 0 and "changed=0" in output, output
    document = json.loads((plays.tmp_path / "proofs/latest/evidence.json").read_text())
    assert document["reasons"][0]["text"] == "no model was asked"
    assert document["meta"]["inventory"] == "test" and document["meta"]["gb10_fleet"]
    assert (plays.tmp_path / "proofs/latest/index.html").exists()
    rc, output = plays.play({"spark-a": {}}, play.replace("twin_index", "twin"))
    assert rc == 2 and "the proof of a host is not as documented" in output


PAIR: dict[str, Any] = {"gb10_cluster": "sparks", "fabric_topology": "pair", "ansible_become": False}
BOTH = {"spark-a": {"ansible_host": "kind-a"}, "spark-b": {"ansible_host": "kind-b"}}


def reasons(plays: Plays) -> list[tuple[str, str, str]]:
    document = json.loads((plays.tmp_path / "evidence/latest/evidence.json").read_text())
    assert document["verdict"] == "unhealthy"
    return [(reason["where"], reason["what"], reason["text"]) for reason in document["reasons"]]


def test_a_host_that_is_away_is_in_the_evidence(plays: Plays) -> None:
    plays.host("ok", facts={"rails": []})
    hosts = {"spark-a": {"ansible_host": "kind-away"}, "spark-b": {"ansible_host": "kind-ok"}}
    rc, output = plays.play(hosts, VALIDATE, **PAIR)
    assert rc == 4 and "No route to host" in output, output
    assert recap(output) == {"spark-a": "unreachable", "spark-b": "failed"}
    assert [reason[:2] for reason in reasons(plays) if reason[0] == "spark-a"] == [("spark-a", "unreachable")]
    assert {reason[1] for reason in reasons(plays)} == {"unreachable", "no_rdma", "unmeasured"}


def test_a_proof_that_stops_is_in_the_evidence(plays: Plays) -> None:
    plays.host("ok", facts={"rails": []})
    hosts = {name: {"ansible_host": "kind-ok"} for name in ("spark-a", "spark-b")}
    rc, output = plays.play(hosts, VALIDATE, **PAIR)
    assert rc == 2, output
    (text,) = {text for _host, what, text in reasons(plays) if what == "proof_stopped"}
    assert "Plan from the facts of this run" in text and "no rail on port p0" in text


def test_a_part_of_a_cluster_is_refused_by_name(plays: Plays) -> None:
    hosts = {name: {"ansible_host": "kind-ok"} for name in ("spark-a", "spark-b")}
    rc, output = plays.play(hosts, PLAY, "--limit", "spark-a", **PAIR)
    assert rc == 2
    assert "cluster_members: of the cluster sparks, spark-b is not part of this run" in output
    plays.play(hosts, VALIDATE, "--limit", "spark-a", **PAIR)
    assert ("spark-a", "cluster_members") in [reason[:2] for reason in reasons(plays)]


def test_a_text_that_is_clear_is_converted_and_any_other_is_refused_by_name(plays: Plays) -> None:
    """As a survey or `-e` gives it."""
    rc, output = plays.play(A, PLAY, "-e", "vllm_ready_timeout=1 vllm_allow_tag=true")
    assert rc == 0, output
    rc, output = plays.play(A, PLAY, "-e", "vllm_ready_timeout=soon vllm_extra_args=--quiet vllm_allow_tag=maybe")
    assert rc == 2
    assert "vllm_ready_timeout is the text 'soon', and must be a whole number" in output
    assert "vllm_extra_args is the text '--quiet', and must be a list" in output
    assert "vllm_allow_tag is the text 'maybe', and must be true or false" in output


def test_two_clusters_on_a_switch_with_the_same_subnets_are_refused(plays: Plays) -> None:
    play = "- hosts: sparks\n  tasks:\n  - ansible.builtin.group_by: {key: '{{ gb10_cluster }}'}\n" + PLAY
    hosts = {
        f"spark-{name}": {"ansible_host": "kind-away", "gb10_cluster": cluster, "fabric_topology": "switch"}
        for name, cluster in zip("abcdef", ["one", "one", "two", "two", "three", "three"], strict=True)
    }
    for name in "ef":
        hosts[f"spark-{name}"]["fabric_network"] = "192.168.102.0/23"
    rc, output = plays.play(hosts, play.replace("  tasks", "  gather_facts: false\n  tasks", 1))
    assert rc == 4
    said = "bad_variable: fabric_network gives 192.168.100.0/24, 192.168.101.0/24 to one and to two"
    # group_by puts whoever answers first at the head of the cluster, and the head speaks for it.
    assert [name for name in "ab" if f"spark-{name}: {said}" in output] in (["a"], ["b"]), output
    assert "a fabric_network of its own, for example 192.168.104.0/23" in output, "the first that nobody has"


def test_the_paths_of_minimum_free_are_asked_for(plays: Plays) -> None:
    rc, output = plays.play(A, PLAY, gb10_minimum_free_gib={"/srv/models": 1e-9})
    assert rc == 0, output
    assert plays.requests()[0]["facts"] == {"paths": ["/srv/models"]}


def test_a_model_that_nobody_here_knows_is_asked_for(plays: Plays) -> None:
    plays.play(A, PLAY, vllm_model="acme/new", vllm_cache_directory="/srv/cache")
    models, _again = (asked["facts"]["models"] for asked in plays.requests())
    assert models == ["/srv/cache/huggingface/hub/models--acme--new/refs/main"]


def test_a_host_that_goes_away_during_the_proof_is_its_first_reason(plays: Plays) -> None:
    plays.host("once")
    plays.known({"spark-a": {"ansible_host": "kind-once"}})
    rc, output = plays.play({"spark-a": {"ansible_host": "kind-once"}}, VALIDATE, ansible_become=False)
    assert rc == 2 and "UNREACHABLE" in output, output
    document = json.loads((plays.tmp_path / "evidence/latest/evidence.json").read_text())
    reason = document["reasons"][0]
    assert (document["verdict"], reason["where"], reason["what"]) == ("unhealthy", "spark-a", "unreachable")


REFUSE = PLAY.partition("- hosts: sparks\n  gather_facts: false\n  tasks")[0] + (
    "    - gb10.fleet.plan: {roles: [fabric, vllm]}\n"
)


def pair(plays: Plays, live: bool) -> None:
    """A pair whose rails are as planned, or have no address yet."""
    for number, kind in enumerate("ab"):
        rails = [dict(rail) for rail in FACTS["rails"]]
        for twin, rail in enumerate(rails[:2]):
            rail.update(mtu=9000, addresses=[f"192.168.10{twin}.1{number}/24"] if live else [])
        plays.host(kind, facts={"rails": rails})


def test_a_rail_that_is_not_up_needs_consent_before_anything_changes(plays: Plays) -> None:
    pair(plays, live=False)
    rc, output = plays.play(BOTH, PLAY, **PAIR)
    assert rc == 0, "doctor has no facts of the other host to refuse this for"
    for args in ((), ("--check",)):
        rc, output = plays.play(BOTH, REFUSE, *args, **PAIR)
        said = " ".join(output.split())
        assert rc == 2, output
        assert "spark-a: enp1s0f0np0, enP2p1s0f0np0 waits for your consent" in said
        assert "set fabric_allow_activation: true in the inventory" in said
        assert '"lacks": ["fabric_allow_activation"]' in said, "for `gb10 up`, which asks by no other word"
    rc, output = plays.play(BOTH, REFUSE, **PAIR, fabric_allow_activation=True)
    assert rc == 0, output
    pair(plays, live=True)
    rc, output = plays.play(BOTH, REFUSE, **PAIR)
    assert rc == 0, output
    assert len(plays.requests("a")) == len(plays.requests("b")) == 2, "to refuse takes no call"


def test_what_the_others_said_last_time_refuses_nobody(plays: Plays) -> None:
    pair(plays, live=True)
    plays.host("b", facts={"rails": []})
    rc, output = plays.play(BOTH, PLAY, **PAIR)
    assert rc == 2 and "spark-b: no_rdma" in output
    pair(plays, live=True)  # somebody has put the cable in
    rc, output = plays.play(BOTH, PLAY, **PAIR)
    assert rc == 0, output
    rc, output = plays.play(BOTH, LOOK, **PAIR)
    assert rc == 0 and output.count('\\"unchanged\\": true') == 2, output


def test_hosts_of_a_cluster_that_disagree_are_refused(plays: Plays) -> None:
    pair(plays, live=False)
    variables = {**PAIR, "fabric_allow_activation": True}
    hosts = {**BOTH, "spark-b": {**BOTH["spark-b"], "fabric_mtu": "{{ 1500 }}"}}
    rc, output = plays.play(hosts, REFUSE, **variables)
    assert rc == 2
    assert "must agree on fabric_mtu, and it is 9000 (spark-a), 1500 (spark-b)" in " ".join(output.split())
    hosts["spark-b"]["fabric_mtu"] = "{{ 9000 }}"
    rc, output = plays.play(hosts, REFUSE, **variables)
    assert rc == 0, output
