"""`gb10.fleet.explain` and `gb10.fleet.plan`: what was decided for a host, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.plays import Plays

HEAD = "- hosts: sparks\n  gather_facts: false\n  tasks:\n"
EXPLAIN = HEAD + (
    "    - gb10.fleet.explain: {roles: [fabric, page_cache]}\n      register: seen\n"
    "    - ansible.builtin.copy: {content: '{{ seen.roles | to_json }}', dest: '{{ out }}'}\n"
    "      delegate_to: localhost\n      when: inventory_hostname == 'spark-a'\n"
)


@pytest.fixture
def plays(tmp_path: Path) -> Plays:
    return Plays(tmp_path)


WISH = {"unit": "gb10-vllm.service", "who": "ada@laptop", "since": "x", "until": "y", "shown": "07:00 CET"}
BOTH = {"spark-a": {"ansible_host": "kind-a", "fabric_replace_foreign": True}, "spark-b": {"ansible_host": "kind-b"}}
PAIR = {"gb10_cluster": "sparks", "fabric_topology": "pair", "fabric_allow_activation": True, "ansible_become": False}


def explained(plays: Plays, play: str, *args: str, **variables: Any) -> dict[str, Any]:
    for kind in "ab":
        plays.host(kind, facts={"wishes": [WISH]})
    out = plays.tmp_path / "seen.json"
    rc, output = plays.play(BOTH, play, "-e", f"out={out}", *args, **PAIR, **variables)
    assert rc == 0, output
    seen: dict[str, Any] = json.loads(out.read_text())
    return seen


def test_each_setting_says_where_it_was_set(plays: Plays) -> None:
    seen = explained(plays, EXPLAIN, "-e", "fabric_mtu=1500")
    origins = {each["name"]: (each["value"], each["origin"]) for each in seen["fabric"]["settings"]}
    assert origins["fabric_topology"] == ("pair", "group sparks")
    assert origins["fabric_replace_foreign"] == (True, "host spark-a")
    assert origins["fabric_mtu"] == (1500, "extra variable")
    assert origins["fabric_ports"] == (["p0"], "default")


def test_the_plan_and_its_resources_are_shown_and_no_content(plays: Plays) -> None:
    for _ in range(2):  # the plan of a pair follows from the facts of both, which the first run leaves behind
        seen = explained(plays, EXPLAIN)
    assert seen["fabric"]["plan"]["topology"] == "pair"
    assert seen["fabric"]["plan"]["mine"]["profiles"][0]["cidr"] == "192.168.100.10/24"
    paths = {each.get("file"): each for each in seen["page_cache"]["resources"]}
    assert paths["/usr/local/sbin/gb10-page-cache-guard"]["content"].endswith(" characters)")


def test_a_secret_is_hidden_and_a_wish_is_told_with_the_role_of_its_unit(plays: Plays) -> None:
    play = EXPLAIN.replace("fabric, page_cache", "vllm").replace(
        "when: inventory_hostname == 'spark-a'", "run_once: true"
    )
    chat = {"model": "a/c", "port": 8001, "api_key": "sesame-chat", "gpu_memory_utilization": 0.1, "span": "host"}
    for _ in range(2):  # the plan of a pair follows from the facts of both, which the first run leaves behind
        seen = explained(
            plays, play, vllm_api_key="sesame-open", vllm_model="a/b", vllm_allow_tag=True, vllm_image="x.example/y:1",
            vllm_gpu_memory_utilization=0.5, vllm_services={"chat": chat},
        )  # fmt: skip
    assert seen["vllm"]["refusals"] == []
    assert "sesame" not in json.dumps(seen)
    hidden = {"chat": chat | {"api_key": "(hidden)"}}
    assert {"name": "vllm_services", "value": hidden, "origin": "group sparks"} in seen["vllm"]["settings"]
    assert {"name": "vllm_api_key", "value": "(hidden)", "origin": "group sparks"} in seen["vllm"]["settings"]
    assert seen["vllm"]["wishes"] == {"gb10-vllm.service": "stopped by ada@laptop until 07:00 CET"}


def test_a_plan_is_registered_and_read_by_a_later_task(plays: Plays) -> None:
    play = HEAD + (
        "    - gb10.fleet.doctor: {refuse: false}\n"
        "    - gb10.fleet.plan: {roles: [fabric]}\n      register: gb10_plan\n"
        "    - ansible.builtin.debug: {var: gb10_plan.fabric.mine.waiting}\n"
    )
    for kind in "ab":
        plays.host(kind)
    rc, output = plays.play(BOTH, play, **PAIR)
    assert rc == 0, output
    assert output.count('"enp1s0f0np0"') == 2


def test_a_role_without_resources_is_planned_and_refused_by_name(plays: Plays) -> None:
    play = HEAD + "    - gb10.fleet.doctor: {refuse: false}\n    - gb10.fleet.plan: {roles: [benchmark]}\n"
    for kind in "ab":
        plays.host(kind)
    rc, output = plays.play(BOTH, play, benchmark_prompts=0, **PAIR)
    assert rc != 0
    assert "spark-a: benchmark_prompts is 0; it must be at least 1" in output
    assert "spark-b: benchmark_prompts is 0" in output


def test_what_our_playbooks_register_is_no_variable_of_the_inventory(plays: Plays) -> None:
    play = HEAD + (
        "    - gb10.fleet.doctor: {refuse: false}\n"
        "    - gb10.fleet.plan: {roles: [fabric]}\n      register: gb10_plan\n"
        "    - gb10.fleet.doctor:\n      register: again\n"
        "    - ansible.builtin.debug: {var: again.findings}\n"
    )
    for kind in "ab":
        plays.host(kind)
    rc, output = plays.play(BOTH, play, **PAIR)
    assert rc == 0 and "unknown_variable" not in output, output
