"""Rules: how a profile is judged, and what the catalog of rules promises.

One profile for each rule, and its neighbour, stand in test_every_rule.py; here is what is special about a rule.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import rules, vllm_cli
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.rules import judge
from packaging.specifiers import SpecifierSet

from tests.support.rule_profiles import bare, ids, only, profile


def test_a_quiet_profile_has_nothing_against_it() -> None:
    assert judge(profile()) == []


def test_errors_come_first() -> None:
    severities = [each.severity for each in judge(profile("--enforce-eager --kv-cache-dtype fp8 --api-key x --port x"))]
    assert severities == sorted(severities, key=rules.SEVERITIES.index)
    assert set(severities) == {"error", "warn", "info"}


@pytest.mark.parametrize(
    ("args", "changes", "name"),
    [
        ("--gpu-memory-utilization=0.91", {}, "utilization_above_090"),
        ("--gpu_memory_utilization 0.91", {}, "utilization_above_090"),
        ("--gpu-memory-utilization 0.90", {"hosts": 2}, "utilization_above_085"),
        ("-cc.cudagraph_mode none", {}, "cudagraphs_off"),
        ('--compilation-config {"cudagraph_mode":"NONE"}', {}, "cudagraphs_off"),
        ("--moe-backend MARLIN", {"traits": frozenset({"moe"})}, "moe_marlin_bf16"),
        ("--moe-backend flashinfer-trtllm", {}, "moe_kernel_absent"),
        ("--attention-backend flashmla", {}, "attention_kernel_absent"),
        ("--attention-backend ROCM_ATTN", {}, "attention_kernel_absent"),
        (
            '--moe-backend marlin --speculative-config {"method":"qwen3_next_mtp","num_speculative_tokens":2}',
            {"traits": frozenset({"moe"}), "quantization": "fp8"},
            "draft_marlin",
        ),
        ("", {"model": "google/gemma-4-27b-it", "version": "0.19.0"}, "transformers_5"),
        ("", {"version": "0.25.1", "quantization": "nvfp4"}, "warm_up_025"),
        ("--host ::", {}, "public_without_key"),
        ("--host 0.0.0.0", {"api_key": True}, "key_guards_v1"),
        ("--host 0.0.0.0", {"traits": frozenset({"multimodal"})}, "media_from_anywhere"),
        ("", {"hosts": 2, "container": frozenset({"no_memlock"})}, "no_infiniband"),
        ("-pp 2", {}, "world_too_large"),
        ("", {"hosts": 2, "environment": {"VLLM_HOST_IP": "192.0.2.1"}}, "rendezvous_address"),
        ("", {"quantization": "nvfp4", "version": "0.22.0"}, "nvfp4_young"),
        ('--speculative-config {"method":"mtp"}', {"traits": frozenset({"mla"})}, "mtp_async"),
        ("", {"hosts": 2, "image": "vllm/vllm-openai:nightly", "version": "0.25.1rc1.dev9"}, "nccl_2_28_9"),
        ("--no-enable-chunked-prefill --max-num-batched-tokens 2k --max-model-len 32k", {}, "limits_contradict"),
        ("--enable-lora --max-loras 4 --max-cpu-loras 2", {}, "limits_contradict"),
        ("--data-parallel-size 1 --data-parallel-size-local 2", {}, "limits_contradict"),
        ("-tp 2 -dcp 4", {"hosts": 2}, "limits_contradict"),
        ("-dcp 2", {}, "limits_contradict"),
        ("--gpu-memory-utilization 0", {}, "limit_below_one"),
        ('--speculative-config {"method":"ngram","num_speculative_tokens":0}', {}, "limit_below_one"),
        ("--load-format bitsandbytes", {"version": "0.30.0"}, "bnb_plugin"),
        ("", {"model": "stabilityai/stable-diffusion-xl-base-1.0"}, "format_of_another"),
        ("", {"image": "lmsysorg/sglang:v0.5.18"}, "image_of_another"),
        ("", {"environment": {"VLLM_TRACE_FUNCTION": "1"}}, "debugging_left_on"),
        ("--tool-call-parser glm47", {"model": "Qwen/Qwen3-8B", "version": "0.28.0"}, "parser_of_another"),
        ("--load-format mistral", {"model": "meta-llama/Llama-3.3-70B"}, "mistral_format"),
        ("--max-model-len 256k", {"model": "a/GLM-5.3-Flash"}, "long_prompt_wedge"),
        ("--kv-cache-dtype fp8_e5m2", {"quantization": "nvfp4"}, "fp8_e5m2_quantized"),
        ("--runner generate", {"model": "a/Qwen3-Embedding-8B"}, "task_runner"),
        ("", {"hosts": 2, "environment": {"NCCL_NET": "Socket"}}, "rdma_off"),
        ("", {"environment": {"CUDA_VISIBLE_DEVICES": ""}}, "gpu_hidden"),
        ("", {"image": "vllm/vllm-openai-rocm:v0.28.0"}, "image_of_another"),
        ("", {"model": "a/B-8B-exl3", "image": "vllm/vllm-openai:v0.28.0"}, "format_of_another"),
    ],
)
def test_a_rule_fires(args: str, changes: dict[str, Any], name: str) -> None:
    assert name in ids(judge(profile(args, **changes)))


@pytest.mark.parametrize(
    ("args", "changes", "name"),
    [
        ("--host 127.0.0.1", {"listen": "0.0.0.0"}, "public_without_key"),  # noqa: S104
        ("--host localhost", {}, "public_without_key"),
        ("--headless", {"listen": "192.0.2.7", "hosts": 2}, "public_without_key"),
        ("--host 0.0.0.0", {"environment": {"VLLM_API_KEY": "k"}}, "public_without_key"),
        ("--moe-backend marlin --quantization fp8", {"traits": frozenset({"moe"})}, "moe_marlin_bf16"),
        ("--attention-backend TRITON_MLA", {"traits": frozenset({"mla"}), "version": "0.19.0"}, "mla_kernels"),
        ("--linear-backend marlin", {"quantization": "nvfp4", "version": "0.22.0"}, "nvfp4_young"),
        ("", {"quantization": "nvfp4", "version": "0.24.0"}, "nvfp4_young"),
        ("", {"quantization": "nvfp4", "version": "0.22.0", "image": "nvcr.io/nvidia/vllm:1"}, "nvfp4_young"),
        (
            "",
            {"quantization": "nvfp4", "version": "0.21.0", "environment": {"VLLM_NVFP4_GEMM_BACKEND": "cutlass"}},
            "nvfp4_young",
        ),
        ("--gpu-memory-utilization 0.85", {"hosts": 2}, "utilization_above_085"),
        ("--gpu-memory-utilization 0.86", {"hosts": 2}, "utilization_above_085_one"),
        ("--max-num-batched-tokens 16384 --kv-cache-memory-bytes 8G", {}, "batched_tokens_memory"),
        ("", {"version": "0.14.0", "image": "vllm-node"}, "async_first_request"),
        ("", {"model": "google/gemma-4-31B-it", "version": "0.28.0"}, "gemma_4_per_layer"),
        (
            '--speculative-config {"method":"mtp"} --no-async-scheduling',
            {"traits": frozenset({"gdn_hybrid"})},
            "mtp_async",
        ),
        ("", {"hosts": 2, "version": "0.25.1rc1.dev9"}, "nccl_2_28_9"),
        ("", {"hosts": 2, "version": "0.28.0"}, "nccl_2_28_9"),
        ("", {"hosts": 2, "version": None}, "nccl_2_28_9"),
        ("--max-num-batched-tokens 2048 --max-model-len 32768", {}, "limits_contradict"),
        ("--no-enable-chunked-prefill --max-num-batched-tokens 2048 --max-model-len auto", {}, "limits_contradict"),
        ("--no-enable-chunked-prefill --max-num-batched-tokens 8k --max-model-len 8000", {}, "limits_contradict"),
        ("--max-num-batched-tokens 64 --max-num-seqs x", {}, "limits_contradict"),
        ("-tp 2 -dcp 2", {"hosts": 2}, "limits_contradict"),
        ("-dcp 1", {}, "limits_contradict"),
        ("--kv-cache-dtype fp8_e5m2", {"quantization": "bf16"}, "fp8_e5m2_quantized"),
        ("--kv-cache-dtype fp8_e5m2", {"quantization": "fp8", "model": "RedHatAI/A-FP8"}, "fp8_e5m2_quantized"),
        ("--runner pooling", {"model": "a/Qwen3-Embedding-8B"}, "task_runner"),
        ("", {"hosts": 2, "environment": {"NCCL_NET": "IB"}}, "rdma_off"),
        ("", {"environment": {"NCCL_NET": "Socket"}}, "rdma_off"),
        ("", {"environment": {"CUDA_VISIBLE_DEVICES": "GPU-5d3b"}}, "gpu_hidden"),
        ("", {"environment": {"CUDA_VISIBLE_DEVICES": "0,1"}}, "gpu_hidden"),
        ("--gpu-memory-utilization 0.01", {}, "limit_below_one"),
        ("--max-model-len auto", {}, "limit_below_one"),
        ("", {"model": "Qwen/Qwen-Image", "image": "vllm/vllm-omni:1"}, "format_of_another"),
        ("", {"model": "a/Influx-8B"}, "format_of_another"),
        ("--tool-call-parser hermes", {"model": "Qwen/Qwen3-8B"}, "parser_of_another"),
        ("--tool-call-parser qwen3_coder", {"model": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B"}, "parser_of_another"),
        ("--tool-call-parser glm47", {"model": "a/mine"}, "parser_of_another"),
        ("--enable-expert-parallel", {"traits": frozenset()}, "experts_absent"),
        ("", {"model": "a/B-8B-GGUF-like"}, "gguf_plugin"),
        ("", {"image": "registry.example/ollamas/vllm:1"}, "image_of_another"),
        ("", {"image": "registry.example/cpuset/vllm:1"}, "image_of_another"),
        ("", {"model": "a/B-8B-exl3", "image": "registry.example/exl3:1"}, "format_of_another"),
        ("", {"driver": None}, "driver_590"),
        ("", {"driver": "not a version"}, "driver_590"),
        ("", {"driver": "9" * 5000}, "driver_590"),
    ],
)
def test_a_rule_does_not_fire(args: str, changes: dict[str, Any], name: str) -> None:
    assert name not in ids(judge(profile(args, **changes)))


def test_the_text_holds_the_words_that_matched() -> None:
    assert only("utilization_above_090", profile("--gpu-memory-utilization 0.95")).text.startswith(
        "--gpu-memory-utilization 0.95: above 0.90"
    )
    assert only("utilization_unset_092", bare()).text.startswith("no --gpu-memory-utilization")
    assert only("dev_mode", profile(environment={"VLLM_SERVER_DEV_MODE": "1"})).text.startswith(
        "VLLM_SERVER_DEV_MODE=1:"
    )
    assert only("driver_590", profile(driver="590.44.01")).text.startswith("driver 590.44.01:")


def test_no_secret_is_quoted() -> None:
    judged = profile(
        "--api-key hunter2 --hf-token hunter2", environment={"VLLM_API_KEY": "hunter2"}, listen="192.0.2.7"
    )
    assert {"key_in_argv", "token_in_argv"} <= set(ids(judge(judged)))
    assert "hunter2" not in str(judge(judged))


def test_an_override_needs_a_rule_and_a_reason() -> None:
    bad = profile("--gpu-memory-utilization 0.95 --prot 1")
    fired = judge(bad, {"utilization_above_090": "measured here on 2026-11-21", "unknown_flag": "a plugin's"})
    assert [each.refuses for each in fired] == [False, False]
    assert [each.accepted for each in fired] == ["a plugin's", "measured here on 2026-11-21"]
    assert [each.refuses for each in judge(bad)] == [True, True]
    (wrong, *_) = judge(profile(), {"utilisation_above_090": "x"})
    assert (wrong.id, wrong.refuses, wrong.way_out) == ("unknown_rule", True, "did you mean utilization_above_090?")
    (wrong, *_) = judge(profile(), {"enforce_eager": "  "})
    assert (wrong.id, wrong.refuses) == ("no_reason", True) and "enforce_eager" in wrong.text
    (wrong, *_) = judge(profile(), {"unknown_rule": "the door may not open itself"})
    assert wrong.refuses


def test_outside_of_what_was_verified_a_rule_still_fires_and_says_so() -> None:
    newer = only("utilization_unset_092", bare(version="0.40.0"))
    assert (newer.severity, newer.verified) == ("warn", False)  # what nobody has checked refuses nothing
    assert newer.text.endswith("(not verified for vLLM 0.40.0)")
    here = only("utilization_unset_092", bare(version="0.33.0"))
    assert here.verified and "verified" not in here.text


def test_without_a_version_rules_that_depend_on_it_warn_at_most() -> None:
    judged = bare(version=None, quantization="nvfp4", traits=frozenset({"moe"}))
    found = {each.id: each for each in judge(judged)}
    assert found["version_unknown"].severity == "warn"
    unset = found["utilization_unset_092"]
    assert (unset.severity, unset.verified) == ("warn", False)
    assert unset.text.endswith("(the image's vLLM version is not known)")
    assert "nvfp4_native" not in found  # a note that may not even be about this version
    assert only("world_too_large", profile("-tp 2", version=None)).severity == "error"  # holds for every version


@pytest.mark.parametrize("version", [None, "0.1.dev20073+g8e685d198"])
def test_rules_of_old_releases_are_one_line_where_no_release_is_known(version: str | None) -> None:
    found = {each.id: each for each in judge(profile(version=version, quantization="nvfp4", traits=frozenset({"moe"})))}
    left = found["version_unknown"].text.partition("; not judged are ")[2].partition(":")[0].split(", ")
    assert {"nvfp4_moe", "nvfp4_linear", "nvfp4_young"} <= set(left) and not found.keys() & set(left)
    assert "cold_load_023" not in left  # matches whatever is served
    assert "nvfp4_native" not in left  # a note
    assert "; not judged are " not in only("version_unknown", profile(version=version)).text


@pytest.mark.parametrize(
    ("version", "is_19"),
    [
        ("0.19.0", True),
        ("0.19.0+nv26.04", True),
        ("0.19.0rc1", True),
        ("0.18.3.dev17+gce88", False),
        ("0.20.0rc2", False),
    ],
)
def test_a_version_before_its_release_counts_as_that_release(version: str, is_19: bool) -> None:
    assert ("cve_2026_9540" in ids(judge(profile(version=version)))) == is_19


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("0.26.0", "error"),
        ("0.26.0rc1.dev4+gce88", "error"),
        ("0.25.1.dev4+gce88", "error"),
        ("0.26.1.dev6+gce88", "warn"),
    ],
)
def test_a_build_after_the_last_release_of_a_range_may_have_the_correction(version: str, severity: str) -> None:
    """After 0.26.0 the main branch calls itself 0.26.1 until 0.27.0, which is outside of the range."""
    drafting = profile('--speculative-config {"method":"mtp"}', model="google/gemma-4-26B-A4B-it", version=version)
    assert only("gemma_4_moe_mtp", drafting).severity == severity


@pytest.mark.parametrize(
    ("version", "severity"), [("0.23.0", "warn"), ("0.23.1rc1.dev861", "info"), ("0.23.0rc2", "warn")]
)
def test_a_build_after_the_last_release_of_a_range_is_told_and_not_warned(version: str, severity: str) -> None:
    assert only("cold_load_023", profile(version=version)).severity == severity


def test_of_builds_that_the_evidence_is_of_it_warns() -> None:
    build = profile(model="nvidia/Qwen3.6-27B-NVFP4", version="0.23.1rc1.dev515")
    assert only("modelopt_w4a16", build).severity == "warn"


@pytest.mark.parametrize("version", ["0.1.dev20073+g8e685d198", None])
def test_an_image_without_a_release_is_not_taken_for_a_single_one(version: str | None) -> None:
    """dflash_attention_026 is about 0.26 alone; hybrid_drafts_default is about many."""
    drafts = '--speculative-config {"method":"dflash","model":"a/b"}'
    found = ids(judge(profile(drafts, version=version, traits=frozenset({"gdn_hybrid"}))))
    assert "dflash_attention_026" not in found and "hybrid_drafts_default" in found


def test_what_nobody_looked_for_in_an_image_refuses_nothing() -> None:
    ray: dict[str, Any] = {"hosts": 2, "executor": "ray", "contains": frozenset()}
    found = [only("ray_missing", profile(**ray, lacks=frozenset(lacks))) for lacks in ({"ray"}, set())]
    assert [each.severity for each in found] == ["error", "info"]
    assert ["has no ray" in each.text for each in found] == [True, False]


@pytest.mark.parametrize("name", ["--attention-backend", "--attention-config.backend", "-ac.backend"])
def test_a_backend_is_seen_however_it_is_written(name: str) -> None:
    assert "attention_kernel_absent" in ids(judge(profile(f"{name} FLASHMLA")))


@pytest.mark.parametrize(
    ("args", "hosts", "said"),
    [
        ("-dp 2", 1, "--data-parallel-size 2: 2 ranks on 1 host"),
        ("-dp 2 -tp 2", 2, "--data-parallel-size 2, --tensor-parallel-size 2: 4 ranks on 2 hosts"),
        ("-tp 2 -pp 2", 3, "--tensor-parallel-size 2, --pipeline-parallel-size 2: 4 ranks on 3 hosts"),
        ("-tp 4", 4, ""),
        ("-dp 2 -tp 2", 4, ""),
        ("-tp four", 1, ""),
    ],
)
def test_all_kinds_of_parallelism_are_multiplied(args: str, hosts: int, said: str) -> None:
    found = [each.text for each in judge(profile(args, hosts=hosts)) if each.id == "world_too_large"]
    assert [text.startswith(said) for text in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("quantization", "severity"),
    [("bf16", "error"), ("gptq_int4", "error"), ("nvfp4", "warn"), ("fp8", "warn"), (None, "warn")],
)
def test_a_format_that_vllm_does_not_know_may_pass_where_modelopt_wrote_the_files(
    quantization: str | None, severity: str
) -> None:
    assert only("bad_quantization", profile("--quantization fp4", quantization=quantization)).severity == severity


@pytest.mark.parametrize(
    "args",
    [
        '--speculative-config {"method":"dflash","model":"a/b"}',
        '--speculative-config {"model":"a/b"}',
        "--speculative-config.method eagle3",
        "--spec-method mtp --spec-tokens 2",
    ],
)
def test_drafts_are_seen_however_they_are_written(args: str) -> None:
    hybrid = profile(args, traits=frozenset({"dense", "gdn_hybrid"}), version="0.28.0")
    assert "hybrid_drafts_default" in ids(judge(hybrid))


@pytest.mark.parametrize("args", ["--no-enable-prefix-caching", "--no-async-scheduling", ""])
def test_a_hybrid_is_safe_without_one_of_the_three(args: str) -> None:
    drafts = '--speculative-config {"method":"mtp"}' if args else ""
    hybrid = profile(f"{drafts} {args}", traits=frozenset({"dense", "gdn_hybrid"}), version="0.28.0")
    assert not {"hybrid_drafts", "hybrid_drafts_default"} & set(ids(judge(hybrid)))


@pytest.mark.parametrize("version", ["0.24.0", "0.28.0", "0.33.0"])
def test_ngram_on_a_hybrid_is_one_warning_and_its_way_out_is_judged_well(version: str) -> None:
    hybrid = profile("--spec-method ngram --spec-tokens 3", traits=frozenset({"dense", "gdn_hybrid"}), version=version)
    found = ids(judge(hybrid), "warn")
    assert "ngram_hybrid" in found and not {"hybrid_drafts", "hybrid_drafts_default"} & set(found)
    out = profile("--spec-method mtp --spec-tokens 3 --no-async-scheduling", traits=hybrid.traits, version=version)
    assert not {"ngram_hybrid", "hybrid_drafts", "hybrid_drafts_default", "mtp_async"} & set(ids(judge(out)))


def test_an_unknown_model_has_only_rules_that_need_no_knowledge_of_it() -> None:
    unknown = profile(traits=frozenset(), quantization=None, version="0.19.0")
    assert ids(judge(unknown), "error") == []


# --- the catalog's promises


def conditions(match: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(kind, name) of every flag, variable and word that a match speaks of."""
    for key, wanted in match.items():
        if key == "any":
            for each in wanted:
                yield from conditions(each)
        elif key == "not":
            yield from conditions(wanted)
        elif key in ("flags", "environment", "container"):
            yield from ((key, name) for name in wanted)


def test_there_are_enough_rules_and_each_has_its_own_id() -> None:
    names = [rule["id"] for rule in rules.rules()] + list(catalog.load("rules")["command_line"])
    assert len(rules.rules()) >= 45
    assert len(names) == len(set(names))


@pytest.mark.parametrize("rule", rules.rules(), ids=lambda rule: rule["id"])
def test_a_rule_speaks_of_what_exists(rule: dict[str, Any]) -> None:
    known = vllm_cli.everything()
    words = catalog.load("rules")["container"]
    for kind, name in conditions(rule["match"]):
        if kind == "flags":
            assert name.partition(".")[0] in known.flags, name
        elif kind == "environment" and name.startswith("VLLM_"):
            assert name in known.environment, name
        elif kind == "container":
            assert name in words, name
    for text in (rule["reason"], rule["way_out"]):
        for flag in re.findall(r"--[a-z][a-z0-9_-]+", text):
            assert {flag, flag.replace("--no-", "--", 1)} & {*known.flags, *FOREIGN}, flag
        for name in re.findall(r"VLLM_[A-Z0-9_]+", text):
            assert name in known.environment, name


# Of docker run, of ray start, and of gb10 plan.
FOREIGN = {"--device", "--entrypoint", "--cap-add", "--ulimit", "--object-store-memory", "--ask"}


@pytest.mark.parametrize("rule", rules.rules(), ids=lambda rule: rule["id"])
def test_a_rule_holds_for_a_version_that_was_looked_at(rule: dict[str, Any]) -> None:
    """Else its range is empty, or a typo."""
    both = SpecifierSet(rule.get("versions", "")) & SpecifierSet(
        rule.get("verified", catalog.load("rules")["verified"])
    )
    looked_at = [*map(str, vllm_cli.versions()), "0.12.0", "0.14.0", "0.19.1", "0.20.2", "0.25.0", "0.27.0"]
    assert any(both.contains(version) for version in looked_at)


def test_every_container_word_has_a_rule() -> None:
    used = {name for rule in rules.rules() for kind, name in conditions(rule["match"]) if kind == "container"}
    assert used == set(catalog.load("rules")["container"])


def test_successors_are_of_things_that_are_gone_or_new_somewhere() -> None:
    for name in catalog.load("rules")["successors"]:
        have = [
            name in vllm_cli.cli(each).flags or name in vllm_cli.cli(each).environment for each in vllm_cli.versions()
        ]
        assert not all(have), name


def test_every_kernel_of_the_chip_that_is_absent_is_a_choice_of_some_version() -> None:
    """Or the entry protects nobody."""
    flags = vllm_cli.everything().flags
    names = [*flags["--attention-backend"]["choices"], *flags["--moe-backend"]["choices"]]
    for kernel in catalog.load("sm")["kernels"]:
        if kernel["kind"] in ("attention", "moe"):
            assert any(re.fullmatch(kernel["value"], name) for name in names), kernel["value"]


def test_an_objection_can_go_into_json() -> None:
    fired = judge(profile("--enforce-eager"))[0]
    assert json.loads(json.dumps(dataclasses.asdict(fired)))["id"] == "enforce_eager"


@pytest.mark.parametrize(
    ("name", "way_out"),
    [("enforce_eagre", "did you mean enforce_eager?"), ("zzzz", "docs/rules.md has all of them")],
)
def test_a_rule_is_only_proposed_where_one_is_near(name: str, way_out: str) -> None:
    assert judge(profile(), {name: "why"})[0].way_out == way_out


def test_variables_of_the_vendors_forks_warn_of_releases_alone() -> None:
    def unknown(version: str) -> list[str]:
        found = judge(profile(version=version, environment={"VLLM_USE_B12X_MOE": "1", "VLLM_MADE_UP": "1"}))
        return [each.text.partition(":")[0] for each in found if each.id == "refused_environment"]

    assert unknown("0.1.dev20482+g83cb22a0e") == ["VLLM_MADE_UP"]
    assert unknown("0.28.0") == ["VLLM_MADE_UP", "VLLM_USE_B12X_MOE"]
