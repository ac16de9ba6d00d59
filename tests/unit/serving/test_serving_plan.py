"""The plan as a whole: flags, refusals, what a person and a program read of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.filter import serving
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import (
    models,
    recipes,
    serving_plan,
    serving_rules,
    speed,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.rules import Fired, Profile
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import PlanError, plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_rules import Command

PATCHED = {"layers_uneven": "our image is made for three"}
ONE, TWO = [121.63 * GIB], [121.63 * GIB] * 2
NGC = "nvcr.io/nvidia/vllm:26.04-py3"  # vLLM 0.19.0


def forbids(severity: str) -> serving_plan.Judge:
    def judge(_command: Command, accepted: tuple[tuple[str, str], ...]) -> list[Fired]:
        said = dict(accepted).get("some_rule")
        return [Fired("some_rule", severity, "what is", "what to do", ("seed 1",), True, said)]

    return judge


def test_one_host() -> None:
    found = plan("openai/gpt-oss-120b", ONE, NGC)
    assert found.checkpoint and found.checkpoint.id == "openai/gpt-oss-120b"
    assert found.version == "0.19.0" and found.utilization == 0.62 and found.max_model_len == 131072
    words = found.args
    for flag, value in {
        "--max-model-len": "131072", "--max-num-seqs": "4", "--gpu-memory-utilization": "0.62",
        "--kv-cache-dtype": "fp8", "--attention-backend": "TRITON_ATTN", "--reasoning-parser": "openai_gptoss",
    }.items():  # fmt: skip
        assert words[words.index(flag) + 1] == value
    assert "--enable-auto-tool-choice" in words and "--tensor-parallel-size" not in words and None not in words
    assert found.measured and found.measured.text == "32 to 35 tok/s", "no 57 to 60: the memory allows 55"
    assert not found.refused


def test_the_default_image_is_one_by_digest_that_the_maker_measured_on_a_spark() -> None:
    found = plan("Qwen/Qwen3.6-27B", ONE)
    measured = {each.digest: each for each in recipes.recipes() if each.measured}
    assert found.known_image and found.known_image.digest in measured
    assert found.version == measured[found.known_image.digest].version
    assert not found.refused and "vllm_allow_tag" not in "\n".join(found.inventory_lines)


def test_two_hosts_say_how_they_work_together() -> None:
    native = plan("Qwen/Qwen3-235B-A22B", TWO)
    assert native.arguments["--tensor-parallel-size"] == "2" and native.arguments["--nnodes"] == "2"
    assert native.arguments["--distributed-executor-backend"] == "mp" and not native.refused
    ray = plan("Qwen/Qwen3-235B-A22B", TWO, executor="ray")
    assert "--nnodes" not in ray.arguments and ray.environment["RAY_memory_monitor_refresh_ms"] == "0"
    assert "vllm_environment" not in ray.variables and ray.variables["vllm_executor"] == "ray"
    assert "vllm_executor" not in native.variables


def test_hosts_that_do_not_divide_the_heads_share_the_layers() -> None:
    found = plan("Qwen/Qwen3.5-397B-A17B", ONE * 3)
    assert (found.arguments["--tensor-parallel-size"], found.arguments["--pipeline-parallel-size"]) == ("1", "3")
    assert found.variables["vllm_tensor_parallel_size"] == 1


def test_three_hosts_share_a_layer_only_where_vllm_can_divide_it() -> None:
    asked = plan("openai/gpt-oss-120b", ONE * 3, settings={"tensor-parallel-size": "3"})
    assert [rule.id for rule in asked.fired if rule.refuses] == ["layers_uneven"]
    assert "64 query heads and 8 KV heads do not divide by 3" in asked.fired[0].text
    free = plan("openai/gpt-oss-120b", ONE * 3)
    assert not free.refused and free.because["--tensor-parallel-size"].startswith("64 query heads and 8 KV heads")
    built = plan("openai/gpt-oss-120b", ONE * 3, settings={"tensor-parallel-size": "3"}, accepted=PATCHED)
    assert not built.refused and "--pipeline-parallel-size" not in built.arguments
    assert built.variables["vllm_tensor_parallel_size"] == 3, "else the role would plan stages"


def test_hosts_that_share_a_layer_in_groups_have_a_stage_for_each_group() -> None:
    found = plan("openai/gpt-oss-120b", ONE * 4, settings={"tensor-parallel-size": "2"})
    assert not found.refused and found.arguments["--pipeline-parallel-size"] == "2"
    one, two, four = (plan("openai/gpt-oss-120b", ONE * hosts).bound for hosts in (1, 2, 4))
    assert found.bound.plain == two.plain == one.plain * 2 == four.plain / 2 and found.bound.exchange == two.exchange
    assert "one after the other" in plan("openai/gpt-oss-120b", TWO, settings={"tensor-parallel-size": "1"}).bound.text


def test_the_smallest_host_counts() -> None:
    alike = plan("Qwen/Qwen3-235B-A22B", TWO)
    smaller = plan("Qwen/Qwen3-235B-A22B", [ONE[0], 100 * GIB])
    assert smaller.fit and smaller.fit.total == 100 and smaller.utilization > alike.utilization


def test_nothing_fits() -> None:
    found = plan("Qwen/Qwen3-235B-A22B", ONE)
    assert found.refused and found.checkpoint is None and found.variables == {} and found.args == ()
    text = "\n".join(found.lines(explain=True))
    assert "no checkpoint of it can be served like this" in text and "weights 109.9 GiB" in text
    assert "Fix: 2 hosts of this memory (--hosts 2)" in text


def test_the_way_out_is_a_number_of_hosts_only_where_one_helps() -> None:
    assert plan("zai-org/GLM-5", TWO, version="0.23.0").hosts_needed is None  # no kernels, on any number
    assert plan("zai-org/GLM-5", TWO, version="0.24.0").hosts_needed == 7
    assert plan("Qwen/Qwen3.5-397B-A17B-FP8", TWO).hosts_needed == 4
    assert plan("openai/gpt-oss-120b", [64 * GIB]).hosts_needed == 2


def test_a_checkpoint_by_its_own_id_is_the_only_one() -> None:
    found = plan("nvidia/Qwen3.6-35B-A3B-NVFP4", ONE, NGC)
    assert found.refused and [name for name, _reason in found.rejected] == ["nvidia/Qwen3.6-35B-A3B-NVFP4"]
    newer = plan("nvidia/qwen3.6-35b-a3b-nvfp4", ONE, image="nvcr.io/nvidia/vllm:26.10-py3")
    assert newer.checkpoint and newer.checkpoint.quantization == "nvfp4" and not newer.refused


def test_settings_take_the_place_of_what_the_plan_would_say() -> None:
    settings = {"kv_cache_dtype": "auto", "--max-num-seqs": "8", "gpu-memory-utilization": "0.5"}
    found = plan("Qwen/Qwen3-30B-A3B", ONE, settings={**settings, "enable-expert-parallel": None})
    assert found.arguments["--kv-cache-dtype"] == "auto" and "--attention-backend" not in found.arguments
    assert found.fit and found.fit.concurrency == 8 and found.utilization == 0.5
    assert found.args[-1] == "--enable-expert-parallel"


def test_an_unknown_image_goes_by_the_version_that_is_said() -> None:
    unknown = plan("Qwen/Qwen3.6-35B-A3B", ONE, image="localhost/mine:1")
    assert unknown.version is None and unknown.checkpoint and unknown.checkpoint.quantization == "fp8"
    assert "version of vLLM unknown" in "\n".join(unknown.lines())
    said = plan("Qwen/Qwen3.6-35B-A3B", ONE, image="localhost/mine:1", version="0.33.0")
    assert said.version == "0.33.0" and said.checkpoint and said.checkpoint.quantization == "nvfp4"


@pytest.mark.parametrize("severity", ["error", "warn", "info"])
def test_rules_refuse_by_severity_and_are_accepted_with_a_reason(severity: str) -> None:
    judged = plan("openai/gpt-oss-120b", ONE, judge=forbids(severity))
    assert judged.refused is (severity == "error")
    assert f"  {severity}: some_rule: what is" in judged.lines()
    accepted = plan("openai/gpt-oss-120b", ONE, judge=forbids(severity), accepted={"some_rule": "ticket 7"})
    assert not accepted.refused and "    because: ticket 7" in accepted.lines()


def test_what_is_judged_is_what_would_start() -> None:
    seen: list[Profile] = []

    def judge(command: Command, _accepted: tuple[tuple[str, str], ...]) -> list[Fired]:
        seen.append(serving_rules.profile(command))
        return []

    found = plan("Sehyo/Qwen3.5-122B-A10B-NVFP4", TWO, NGC, executor="ray", driver="580.142", judge=judge)
    (profile,) = seen
    assert profile.args == found.args and found.environment.items() <= profile.environment.items()
    assert (profile.hosts, profile.executor, profile.driver, profile.version) == (2, "ray", "580.142", "0.19.0")
    assert profile.quantization == "nvfp4" and {"moe", "gdn_hybrid"} <= profile.traits and "ray" in profile.contains


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize(
    "image", ["", "nvcr.io/nvidia/vllm:26.03-py3", "nvcr.io/nvidia/vllm:26.10-py3", "vllm/vllm-openai:v0.22.0"]
)
def test_no_plan_breaks_a_rule(image: str, hosts: int) -> None:
    for model in models.models():
        found = plan(model.id, ONE * hosts, image)
        errors = [rule for rule in found.fired if rule.severity == "error"]
        assert not errors, f"{model.id}: {errors}"


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (
            {"model_name": "Qwen/Qwen3.6-72B"},
            "Qwen/Qwen3.6-72B is not in catalog/models.yml; near it: Qwen/Qwen3.6-27B",
        ),
        ({"model_name": "qqqqqq"}, "qqqqqq is not in catalog/models.yml. `gb10 plan --all`"),
        ({"memories_bytes": []}, "memories: name the memory of each host"),
        ({"memories_bytes": [0]}, "memories: name the memory of each host"),
        ({"executor": "uni"}, "executor 'uni' is none of mp, ray"),
        ({"only": "awq_int4"}, "Qwen/Qwen3-30B-A3B has no checkpoint 'awq_int4'; it has Qwen/Qwen3-30B-A3B (bf16)"),
        ({"settings": {"max-model-len": "many"}}, "--max-model-len is 'many'; give a number above 0"),
        ({"settings": {"gpu_memory_utilization": "-1"}}, "--gpu-memory-utilization is '-1'"),
    ],
)
def test_a_wrong_question_is_named(said: dict[str, object], says: str) -> None:
    with pytest.raises(PlanError) as refused:
        plan(**{"model_name": "Qwen/Qwen3-30B-A3B", "memories_bytes": ONE, **said})  # type: ignore[arg-type]
    assert says in str(refused.value)


def test_the_explanation_has_evidence_and_the_lines_for_the_inventory() -> None:
    text = "\n".join(plan("Qwen/Qwen3.6-35B-A3B", ONE, NGC).lines(explain=True))
    for part in ("how the checkpoint was chosen", "why these flags", "claim, not followed: Pure MoE", "against it:"):
        assert part in text
    assert 'vllm_model: "Qwen/Qwen3.6-35B-A3B-FP8"' in text and "vllm_gpu_memory_utilization: 0.42" in text


def test_variables_leave_out_what_the_role_says_itself() -> None:
    words = plan("Qwen/Qwen3-235B-A22B", TWO).variables["vllm_extra_args"]
    assert "--kv-cache-dtype" in words
    assert not [word for word in words if word in ("--tensor-parallel-size", "--nnodes", "--max-model-len", "mp")]


def test_variables_say_what_the_plan_was_told() -> None:
    reason = 'a "graph" hangs, ticket 7'
    asked: dict[str, Any] = {"settings": {"--enforce-eager": None}, "accepted": {"enforce_eager": reason}}
    found = plan("openai/gpt-oss-120b", ONE, "registry.example/mine:1", "0.19.0", **asked)
    assert found.variables["vllm_accept"] == {"enforce_eager": reason} and found.variables["vllm_version"] == "0.19.0"
    lines = found.lines(explain=True)
    written = yaml.safe_load("\n".join(lines[lines.index("  for the inventory") + 1 :]))
    assert written == found.variables
    assert not {"vllm_accept", "vllm_version"} & plan("openai/gpt-oss-120b", ONE).variables.keys()


def test_a_program_reads_the_same() -> None:
    found = plan("Qwen/Qwen3.5-122B-A10B", ONE)
    data = json.loads(json.dumps(found.as_dict()))
    assert data["checkpoint"] == "Qwen/Qwen3.5-122B-A10B-GPTQ-Int4" and data["args"] == list(found.args)
    assert data["fit"]["need"]["weights"] == 68.9 and data["refused"] is False
    assert json.loads(json.dumps(plan("Qwen/Qwen3-235B-A22B", ONE).as_dict()))["refused"] is True


@pytest.mark.parametrize(
    ("said", "key"),
    [
        (None, "common"),
        ({}, "common"),
        ({"kind": "vllm"}, "common"),
        ({"api_key": "own"}, "own"),
        ({"kind": "container"}, ""),
        ({"kind": "container", "api_key": "own"}, "own"),
        ({"api_key": None}, ""),
    ],
    ids=str,
)
def test_a_container_of_another_program_never_gets_the_key_of_vllm(said: dict[str, Any] | None, key: str) -> None:
    assert serving.key({"embed": said} if said is not None else {}, "embed", "common") == key


def test_bandwidth_bounds_what_nobody_measured() -> None:
    """273 GB/s over 26.9 GB of FP8 a token; seed 000's 14 to 21 need speculative decoding, and are not expected."""
    model = models.find("Qwen/Qwen3.6-27B")
    assert model
    one = model.checkpoint("Qwen/Qwen3.6-27B-FP8")
    assert one and round(speed.bandwidth_limit(model, one), 1) == 10.2
    assert speed.expected(model, one, 1) is None
    assert ", not measured: " in plan("Qwen/Qwen3.5-122B-A10B", TWO).speed


@pytest.mark.parametrize("version", ["v0.28.0", "0.28", "newest", "-1"])
def test_a_version_that_the_role_would_refuse_is_no_line_of_a_plan(version: str) -> None:
    with pytest.raises(PlanError, match="whole version"):
        plan("Qwen/Qwen3-8B", ONE, "my/own:1", version)


def test_too_many_requests_are_answered_with_the_most_that_fit() -> None:
    found = plan("Qwen/Qwen3-8B", ONE, concurrency=100_000)
    said = re.search(r"ask for what fits: --concurrency ([0-9]+)", "\n".join(found.lines()))
    assert said and plan("Qwen/Qwen3-8B", ONE, concurrency=int(said[1])).checkpoint


def test_a_context_that_nobody_says_is_vllms_own_or_what_is_asked_for(tmp_path: Path) -> None:
    said = {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(said))
    facts = sources.find(str(tmp_path))
    for asked, taken in ((0, 2048), (8192, 8192)):
        found = plan(str(tmp_path), ONE, facts=facts, max_model_len=asked)
        assert found.fit and found.fit.max_model_len == taken and found.fit.need["kv_cache"] > 0


def test_weights_that_nobody_says_do_not_fit_and_are_not_0_gib(tmp_path: Path) -> None:
    said = {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}
    (tmp_path / "config.json").write_text(json.dumps(said))
    found = plan(str(tmp_path), ONE, facts=sources.find(str(tmp_path))).lines()[0:4]
    text = " ".join(" ".join(found).partition("image ")[0].split())
    assert "its size is not known" in text and "fits" not in text and "0 GiB" not in text


def test_a_published_figure_names_the_method_of_its_drafts() -> None:
    ngram = {"speculative-config": '{"method": "ngram", "num_speculative_tokens": 3}'}
    assert "3 draft tokens by mtp" in plan("Qwen/Qwen3.6-35B-A3B", ONE, settings=ngram).published
