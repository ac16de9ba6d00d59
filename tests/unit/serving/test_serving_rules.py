"""What the rules say of an inventory, before anything is touched: acceptance, versions, typos, memory, and who pays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.table import severities
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import Rendered, render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View, digest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import rules, serving_rules

from tests.support.proofs import spark
from tests.support.services import only_service

NGC = "nvcr.io/nvidia/vllm:26.04-py3"  # vLLM 0.19.0
OURS = "registry.example/ours@sha256:" + "0" * 64
SAID = {"vllm_image": NGC, "vllm_allow_tag": True, "vllm_model": "openai/gpt-oss-120b", "vllm_flags": "none"}


def alone(gib: float = 121.7, **variables: Any) -> Rendered:
    return render("vllm", View("spark-a", spark(gib), SAID | variables))


def pair(gibs: tuple[float, float] = (121.7, 121.7), certain: bool = True, **variables: Any) -> View:
    said = SAID | {"fabric_topology": "pair"} | variables
    first, second = (spark(gib, host=host) for gib, host in zip(gibs, ("spark-a", "spark-b"), strict=True))
    members = ("spark-a", "spark-b")
    return View("spark-a", first, said, members, {"spark-b": second}, {"spark-b": said}, certain=certain)


def only(rendered: Rendered) -> str:
    (text,) = rendered.refusals
    assert rendered.resources == []
    return text


def found(rendered: Rendered, name: str) -> Mapping[str, Any]:
    (finding,) = (each for each in rendered.findings if each["id"] == name)
    return finding


def ids(rendered: Rendered) -> set[str]:
    return {each["id"] for each in rendered.findings}


# --- refused, warned of, accepted


def test_a_refusal_names_rule_reason_way_out_and_sources() -> None:
    text = only(alone(vllm_extra_args=["--load-format", "fastsafetensors"]))
    (rule,) = (rule for rule in rules.rules() if rule["id"] == "fastsafetensors_missing")
    assert text.startswith("rule fastsafetensors_missing: --load-format fastsafetensors")
    assert all(words in text for words in (rule["reason"], rule["way_out"], *rule["sources"]))
    assert "vllm_accept: {fastsafetensors_missing: WHY}" in text


def test_what_is_accepted_is_a_finding_with_its_reason() -> None:
    accepted = {"fastsafetensors_missing": "our image brings it; imported on 2026-11-21"}
    rendered = alone(vllm_extra_args=["--load-format", "fastsafetensors"], vllm_accept=accepted)
    assert rendered.refusals == [] and rendered.resources
    finding = found(rendered, "fastsafetensors_missing")
    assert (finding["severity"], finding["accepted"]) == ("error", accepted["fastsafetensors_missing"])


def test_a_warning_stops_nothing_and_is_a_finding() -> None:
    rendered = alone(vllm_extra_args=["--enforce-eager"])
    finding = found(rendered, "enforce_eager")
    assert rendered.refusals == [] and (finding["severity"], finding["accepted"]) == ("warn", None)
    assert "vllm_accept: {enforce_eager: WHY}" in finding["way_out"]
    quiet = alone(vllm_extra_args=["--enforce-eager"], vllm_accept={"enforce_eager": "we look for a fault"})
    assert found(quiet, "enforce_eager")["accepted"] == "we look for a fault"


@pytest.mark.parametrize(
    ("environment", "rule", "fact"),
    [
        ({"GLOO_SOCKET_IFNAME": "eth0"}, "fabric_name_absent", "GLOO_SOCKET_IFNAME names eth0, which spark-a does"),
        ({"NCCL_SOCKET_IFNAME": "=eth0"}, "fabric_name_absent", "NCCL_SOCKET_IFNAME =eth0 takes no interface"),
        ({"VLLM_HOST_IP": "10.9.9.9"}, "fabric_name_absent", "VLLM_HOST_IP 10.9.9.9 is no address of spark-a"),
        ({"NCCL_IB_HCA": "mlx5_0"}, "fabric_name_absent", "NCCL_IB_HCA mlx5_0 takes none of roceP2p1s0f0"),
        ({"NCCL_IB_HCA": ""}, "fabric_name_empty", "NCCL_IB_HCA is empty"),
        ({"NCCL_IB_HCA": "=rocep1s0f0:1"}, "fabric_rails_idle", "of spark-a without work"),
    ],
)
def test_a_name_pinned_by_hand_is_compared_with_the_host(environment: dict[str, str], rule: str, fact: str) -> None:
    rendered = render("vllm", pair(vllm_environment=environment))
    said = [*rendered.refusals, *(f"rule {each['id']}: {each['fact']}" for each in rendered.findings)]
    assert [text for text in said if text.startswith(f"rule {rule}: ") and fact in text], said


@pytest.mark.parametrize(
    "environment",
    [
        {"NCCL_SOCKET_IFNAME": "enp1s0f0np0"}, {"NCCL_SOCKET_IFNAME": "^docker,lo"}, {"NCCL_IB_HCA": "roce"},
        {"GLOO_SOCKET_IFNAME": "enp1s0f0np0"}, {"NCCL_IB_HCA": "^mlx5_9"},
    ],
)  # fmt: skip
def test_a_name_that_the_host_has_is_nobodys_fault(environment: dict[str, str]) -> None:
    rendered = render("vllm", pair(vllm_environment=environment))
    assert not {name for name in ids(rendered) if name.startswith("fabric_")} and rendered.refusals == []
    assert render("vllm", View("spark-a", spark(), SAID | {"vllm_environment": environment})).refusals == []


def test_notes_are_for_the_plan() -> None:
    assert {each["severity"] for each in alone().findings} <= {"warn"}


@pytest.mark.parametrize("reason", ["", "  ", None, True, 1, ["why"]])
def test_an_acceptance_needs_a_text(reason: Any) -> None:
    rendered = alone(vllm_extra_args=["--enforce-eager"], vllm_accept={"enforce_eager": reason})
    text = only(rendered)
    assert "vllm_accept: enforce_eager was accepted without a reason" in text and "WHY" not in text
    assert found(rendered, "enforce_eager")["accepted"] is None


def test_an_unknown_rule_is_refused_with_its_neighbour() -> None:
    text = only(alone(vllm_accept={"enforce_eagre": "why"}))
    assert "'enforce_eagre' was accepted, and there is no such rule: did you mean enforce_eager?" in text


def test_an_objection_to_an_acceptance_cannot_be_accepted() -> None:
    refused = alone(vllm_accept={"enforce_eagre": "why", "unknown_rule": "we know better"}).refusals
    assert len(refused) == 2 and all("there is no such rule" in text for text in refused)


def test_what_the_role_refuses_anyway_is_said_once_and_cannot_be_accepted() -> None:
    for accepted in ({}, {"utilization_above_090": "it is tight"}):
        assert "at most 0.9" in only(alone(vllm_gpu_memory_utilization=0.95, vllm_accept=accepted))


def test_a_rule_and_a_finding_of_the_doctor_do_not_share_an_id() -> None:
    assert not {*(rule["id"] for rule in rules.rules()), *catalog.load("rules")["command_line"]} & set(severities())


# --- the command line of the version in the image


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"vllm_extra_args": ["--max-num-seq5", "4"]}, ["rule unknown_flag: --max-num-seq5", "mean --max-num-seqs?"]),
        ({"vllm_extra_args": ["--swap-space", "4"]}, ["rule unsupported_flag: --swap-space: vLLM 0.17.0 was the last"]),
        (
            {"vllm_extra_args": ["--kv-cache-dtype", "fp9"]},
            ["rule bad_choice: --kv-cache-dtype fp9", "did you mean fp8?"],
        ),
        ({"vllm_extra_args": ["--max-num-seqs", "four"]}, ["rule bad_value: --max-num-seqs four"]),
        ({"vllm_extra_args": ["--max-num-seqs 4"]}, ["--max-num-seqs 4"]),
        (
            {"vllm_environment": {"VLLM_USE_V3": "1"}, "vllm_extra_args": ["--fail-on-environ-validation"]},
            ["rule refused_environment: VLLM_USE_V3"],
        ),
    ],
)
def test_what_its_parser_would_not_take_is_refused(variables: dict[str, Any], says: list[str]) -> None:
    text = only(alone(**variables))
    assert all(words in text for words in says), text


def test_a_variable_that_vllm_only_warns_about_is_a_warning() -> None:
    rendered = alone(vllm_environment={"VLLM_USE_V3": "1"})
    assert rendered.refusals == [] and found(rendered, "unknown_environment")["severity"] == "warn"


def test_the_version_of_a_build_without_tags_is_taken_as_it_is_printed() -> None:
    fork = "0.1.dev20482+g83cb22a0e.d20260903"
    rendered = alone(vllm_image=OURS, vllm_version=fork, vllm_extra_args=["--gdn-decode-kernel", "b12x"])
    assert rendered.refusals == [] and found(rendered, "unknown_flag")["severity"] == "warn"
    assert f"{fork} says nothing of the release that it is near" in found(rendered, "version_unknown")["fact"]
    about_versions = {"cold_load_023", "warm_up_025", "forced_remote_code", "cve_2026_9540", "embed_bypass"}
    assert not about_versions & ids(rendered)


def test_a_flag_is_judged_by_the_version_that_is_said() -> None:
    swap = {"vllm_extra_args": ["--swap-space", "4"], "vllm_image": OURS}
    assert only(alone(**swap, vllm_version="0.24.0")).startswith("rule unsupported_flag: --swap-space")
    rendered = alone(**swap, vllm_version="0.17.0")
    assert rendered.refusals == [] and "version_unknown" not in ids(rendered)


def test_an_unknown_version_is_said_and_what_depends_on_it_only_warns() -> None:
    rendered = alone(vllm_image=OURS, vllm_extra_args=["--max-num-seq5", "4"])
    finding = found(rendered, "version_unknown")
    depend = sum("versions" in rule for rule in rules.rules())
    assert rendered.refusals == [] and depend > 10
    assert f"vLLM's version in {OURS} is not known, and {depend} of {len(rules.rules())} rules" in finding["fact"]
    assert "set vllm_version" in finding["way_out"]
    assert found(rendered, "unknown_flag")["severity"] == "warn"
    assert "version_unknown" not in ids(alone(vllm_image=OURS, vllm_version="0.19.0"))


@pytest.mark.parametrize("version", [0.19, "0.19", "newest", "v0.19.0", "0.19.0\n"])
def test_a_version_is_written_out(version: Any) -> None:
    assert "Write vLLM's whole version as a text" in only(alone(vllm_version=version))


def test_the_driver_is_the_hosts() -> None:
    newer = SAID | {"vllm_image": "nvcr.io/nvidia/vllm:26.05-py3"}
    found = [ids(render("vllm", View("spark-a", spark(driver=driver), newer))) for driver in ("580.142", "595.58.03")]
    assert ["cuda_13_2_driver" in each for each in found] == [True, False]


# --- memory

BF16 = {"vllm_model": "Qwen/Qwen3-Coder-30B-A3B-Instruct", "vllm_max_model_len": 262144}


def test_a_context_that_does_not_fit_is_refused_with_what_does() -> None:
    text = only(alone(**BF16, vllm_gpu_memory_utilization=0.6))
    assert text.startswith("rule memory_fit: one request of 262144 tokens takes 85.8 GiB, but 0.60 of 121.7 GiB")
    assert "vllm_gpu_memory_utilization 0.71 is enough for 262144 tokens" in text
    assert "6.1 GiB too large where it was measured" in text, "the error of the sum"
    longest = int(text.split("vllm_max_model_len ")[1].split(" ")[0])
    assert alone(**{**BF16, "vllm_max_model_len": longest}, vllm_gpu_memory_utilization=0.6).refusals == []
    assert alone(**{**BF16, "vllm_max_model_len": longest + 1024}, vllm_gpu_memory_utilization=0.6).refusals != []
    assert alone(**BF16, vllm_gpu_memory_utilization=0.71).refusals == []


def test_the_error_that_a_refusal_states_is_that_of_the_known_cases() -> None:
    from tests.support.memory_fit import CASES

    (rule,) = (rule for rule in rules.rules() if rule["id"] == "memory_fit")
    assert f"at most {max(case.error for case in CASES):.1f} GiB too large" in rule["reason"]


def test_no_length_is_the_models_own() -> None:
    text = only(alone(**{**BF16, "vllm_max_model_len": 0}, vllm_gpu_memory_utilization=0.6))
    assert "one request of 262144 tokens" in text


@pytest.mark.parametrize(
    ("gib", "says"),
    [
        (61, "it takes 2 hosts of this memory"),  # weights alone are 60.8 GiB
        (2.5, "no number of such hosts is enough"),
        (85, "is enough for 131072 tokens"),
    ],
)
def test_a_host_that_is_too_small(gib: float, says: str) -> None:
    text = only(alone(gib))
    assert text.startswith("rule memory_fit: ") and says in text


def test_a_lab_accepts_that_nothing_fits() -> None:
    rendered = alone(2.5, vllm_accept={"memory_fit": "the simulated server loads nothing"})
    assert rendered.refusals == [] and found(rendered, "memory_fit")["accepted"]


BIG = {"vllm_model": "Qwen/Qwen3-235B-A22B-GPTQ-Int4", "vllm_max_model_len": 32768}


def test_the_smallest_host_of_the_cluster_counts() -> None:
    assert render("vllm", pair(**BIG)).refusals == []
    text = only(render("vllm", pair((121.7, 64.0), **BIG)))
    assert text.startswith("rule memory_fit: on spark-b, the smallest host of its cluster, weights 57.6 GiB")
    assert "0.80 of 64.0 GiB" in text


def test_the_others_count_by_what_they_say_in_this_run() -> None:
    """A host is not refused for what another one said last time; that one judges itself."""
    assert render("vllm", pair((121.7, 64.0), certain=False, **BIG)).refusals == []
    assert "rule memory_fit: weights" in only(render("vllm", pair((64.0, 121.7), certain=False, **BIG)))


@pytest.mark.parametrize(
    "variables",
    [
        {"vllm_model": "somebody/unknown-900B"},
        {**BF16, "vllm_extra_args": ["--quantization", "fp8"]},  # half of it in memory
    ],
)
def test_what_nobody_can_count_is_not_refused(variables: dict[str, Any]) -> None:
    assert "memory_fit" not in "".join(alone(61.0, **variables).refusals)


def test_a_pinned_cache_is_counted() -> None:
    pinned = {"vllm_extra_args": ["--kv-cache-memory-bytes", "1G"], "vllm_max_model_len": 131072}
    assert "rule memory_fit: one request of 131072 tokens" in only(alone(**pinned))
    assert "are safe to take" in only(alone(61.0, vllm_extra_args=["--kv-cache-memory-bytes", "4G"]))
    assert alone(vllm_extra_args=["--kv-cache-memory-bytes", "8G"]).refusals == []


def test_a_length_that_vllm_finds_by_itself_needs_no_whole_context() -> None:
    assert alone(**{**BF16, "vllm_max_model_len": -1}, vllm_gpu_memory_utilization=0.6).refusals == []


def test_more_than_the_model_was_made_for_is_refused_unless_it_is_stretched() -> None:
    long = {"vllm_model": "Qwen/Qwen3-30B-A3B", "vllm_max_model_len": 65536}
    assert "the model was made for 40960 tokens, not for 65536 (vllm_max_model_len 40960 fits)" in only(alone(**long))
    stretched = {"vllm_extra_args": ["--hf-overrides", '{"rope_scaling": {}}']}
    assert alone(**long, **stretched).refusals == []


# --- clusters, and what it costs


def test_a_cluster_is_judged_before_the_facts_of_all_are_known() -> None:
    """Or the doctor would say nothing of it, for it looks at all hosts at once."""
    for context in (pair(certain=False), pair()):
        context.variables = {**context.variables, "vllm_extra_args": ["--max-num-seq5", "4"]}
        context.given = {"spark-b": context.variables}
        assert "rule unknown_flag" in only(render("vllm", context))


def test_the_facts_that_were_used_are_expected() -> None:
    context = pair()
    render("vllm", context)
    assert {"memory_bytes", "driver"} <= set(context.expect)
    assert context.expect["driver"] == digest(context.facts["driver"])


def test_equal_profiles_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[rules.Profile] = []
    judge = rules.judge

    def counted(profile: rules.Profile, accepted: Mapping[str, str] | None = None) -> list[rules.Fired]:
        judged.append(profile)
        return judge(profile, accepted)

    monkeypatch.setattr(rules, "judge", counted)
    serving_rules.fired.cache_clear()
    for gib in (121.7, 121.6, 120.0):
        alone(gib)
    assert len(judged) == 1
    for name in ("a/b", "c/d"):
        alone(vllm_model=name)
    assert len(judged) == 3


PAYS = """
import sys
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from tests.support.proofs import facts

read, whole = [], catalog.read
catalog.read = lambda path: read.append(path.stem) or whole(path)
documents.preload()
context = View("spark-a", facts(), {said})
for role in catalog.ROLES:
    if role != "vllm" or {serves}:
        documents.render(role, context)
judged = "ansible_collections.gb10.fleet.plugins.plugin_utils.serving.rules" in sys.modules
print(sorted(catalog.OF_SERVING.intersection(read)), judged)
"""


@pytest.mark.parametrize(("serves", "says"), [(False, "[] False"), (True, "['images', 'models', 'rules'] True")])
def test_only_a_host_that_serves_reads_these_catalogs(serves: bool, says: str, tmp_path: Path) -> None:
    program = PAYS.format(said=SAID, serves=serves)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert done.stdout.strip() == says, done.stderr


def three(**variables: Any) -> View:
    members = ("spark-a", "spark-b", "spark-c")
    said = SAID | {"vllm_flags": "plan", "fabric_topology": "ring", "fabric_network": "192.168.96.0/21"} | variables
    facts = {host: spark(host=host) for host in members}
    others = {host: facts[host] for host in members[1:]}
    return View("spark-a", facts["spark-a"], said, members, others, dict.fromkeys(others, said))


@pytest.mark.parametrize(
    ("said", "size", "stages"),
    [({}, 1, 3), ({"vllm_tensor_parallel_size": 3, "vllm_accept": {"layers_uneven": "our image can"}}, 3, 1)],
)
def test_a_ring_of_three_shares_the_layers_or_each_layer(said: dict[str, Any], size: int, stages: int) -> None:
    made = only_service(three(**said))
    assert made.refusals == () and made.joint_refusals == ()
    words = " ".join(made.argv)
    assert f"--tensor-parallel-size {size}" in words
    assert (f"--pipeline-parallel-size {stages}" in words) == (stages > 1)


@pytest.mark.parametrize("said", [{"vllm_tensor_parallel_size": 3}, {"vllm_flags": "none"}])
def test_a_ring_of_three_that_would_divide_eight_kv_heads_is_refused_before_anything_is_touched(
    said: dict[str, Any],
) -> None:
    text = only(render("vllm", three(**said)))
    assert "layers_uneven" in text and "64 query heads and 8 KV heads do not divide by 3" in text
    assert "set vllm_tensor_parallel_size to 1" in text and "vllm_accept" in text
