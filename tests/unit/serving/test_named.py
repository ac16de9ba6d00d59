"""What a model's name alone says, and that it warns at most."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models, named
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.rules import judge

from tests.support.rule_profiles import only, profile

SPARK = 121.69 * GIB
NVFP4 = frozenset({"moe"})


@pytest.mark.parametrize(
    ("name", "quantization", "traits", "parameters"),
    [
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", "nvfp4", {"moe", "mamba_hybrid"}, 30),
        ("nvidia/NVIDIA-Nemotron-Labs-3-Puzzle-75B-A9B-NVFP4", "nvfp4", {"moe", "mamba_hybrid"}, 75),
        ("unsloth/Qwen3.8-27B-NVFP4", "nvfp4", {"gdn_hybrid", "dense"}, 27),
        ("nvidia/Llama-3.1-405B-Instruct-FP4", "nvfp4", {"dense"}, 405),
        ("acme/Model-9B-MXFP4", "mxfp4", set(), 9),
        ("acme/Qwen3.5-397B-A17B-int4-AutoRound", "autoround_int4", {"moe", "gdn_hybrid"}, 397),
        ("acme/Large-2.4T-A95B-FP8", "fp8", {"moe"}, 2400),
        ("acme/tiny-0.6b", None, set(), 0.6),
        ("google/gemma-4-E4B-it", "bf16", set(), 0),
        ("mistralai/Mixtral-8x7B", None, {"moe"}, 0),
        ("acme/A17B-words", None, set(), 0),
        ("/models/mine", None, set(), 0),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "bf16", {"moe"}, 109),
        ("lukealonso/GLM-4.6-NVFP4", "nvfp4", {"moe"}, 355),
        ("zai-org/GLM-4.7-Flash", "bf16", {"moe", "mla"}, 0),
        ("zai-org/GLM-4.6-FP8", "fp8", {"moe"}, 355),
        ("Qwen/Qwen3-8B-MLX-4bit", None, {"dense"}, 8),
        ("Qwen/Qwen3-30B-A3B", "bf16", {"moe"}, 30),
        ("google/gemma-3-27b-it-qat-q4_0-gguf", None, {"dense"}, 27),
        ("deepseek-ai/DeepSeek-R1", "fp8", {"moe", "mla"}, 671),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "bf16", set(), 70),
        ("moonshotai/Kimi-K2-Thinking", "int4", {"moe", "mla"}, 1026),
        ("someone/DeepSeek-R1", None, {"moe", "mla"}, 671),
    ],
)
def test_a_name_is_read(name: str, quantization: str | None, traits: set[str], parameters: float) -> None:
    assert named.read(name) == named.Named(quantization, frozenset(traits), parameters)


@pytest.mark.parametrize(
    ("name", "hosts", "says"),
    [
        ("acme/Model-400B", 1, "400 billion parameters take 198 GiB in mxfp4, 198 on each of 1 host"),
        ("acme/Model-400B-FP8", 2, "take 373 GiB in fp8, 186 on each of 2 hosts"),
        ("acme/Model-400B-FP8", 4, ""),
        ("acme/Model-120B-NVFP4", 1, ""),
        ("acme/Model", 1, ""),
        ("RadixArk/Qwen3.8-Flash-Next-NVFP4", 1, "the files take 126 GiB, 126 on each of 1 host"),
        ("RadixArk/Qwen3.8-Flash-Next-NVFP4", 2, ""),
        ("nvidia/MiniMax-M2.7-NVFP4", 1, "229 billion parameters take 120 GiB in nvfp4"),
        ("MiniMaxAI/MiniMax-M2.7", 1, "229 billion parameters take 213 GiB in fp8"),
        ("MiniMaxAI/MiniMax-M2.7", 4, ""),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 1, "80 billion parameters take 149 GiB in bf16"),
        ("acme/Qwen3-Next-80B-A3B-Instruct", 1, ""),
    ],
)
def test_weights_that_a_name_promises(name: str, hosts: int, says: str) -> None:
    found = named.too_small(name, SPARK, hosts)
    assert says in found and bool(says) == bool(found)


def test_the_share_that_vllm_is_told_to_take_is_what_is_there() -> None:
    """105 billion parameters of 8 bits take 98 GiB, and vLLM some beside them: 0.85 of a Spark is enough, 0.84 not."""
    found = named.too_small("acme/Air-105B-FP8", SPARK, 1, 0.84)
    assert "98 on each of 1 host, with 5 beside them, and 102 of 122 GiB are there to take" in found
    assert named.too_small("acme/Air-105B-FP8", SPARK, 1, 0.85) == ""
    assert named.too_small("acme/Air-105B-FP8", SPARK, 2, 0.5) == ""


def test_what_vllm_quantizes_as_it_loads_is_not_counted_as_it_lies_there() -> None:
    assert named.too_small("Qwen/Qwen2.5-72B-Instruct", SPARK, 1, 0.8)
    assert named.too_small("Qwen/Qwen2.5-72B-Instruct", SPARK, 1, 0.8, narrowed=True) == ""


def test_the_names_of_the_catalog_say_what_the_catalog_says() -> None:
    """Where a name has a format at all: the pattern that is found first is the right one."""
    for model in models.models():
        for checkpoint in model.checkpoints:
            said = named.read(checkpoint.id)
            assert said.quantization in (None, checkpoint.quantization), checkpoint.id
            assert said.traits <= model.traits | {"mamba_hybrid"}, checkpoint.id


def test_what_a_name_says_warns_and_says_so() -> None:
    guessed = profile(model="acme/M-NVFP4", quantization="nvfp4", traits=NVFP4, version="0.19.0", by_name=True)
    sure = dataclasses.replace(guessed, by_name=False)
    assert [only("nvfp4_moe", each).severity for each in (sure, guessed)] == ["error", "warn"]
    assert only("nvfp4_moe", guessed).text.endswith("(by the model's name alone)")
    large = profile(memory="400 billion parameters take 198 GiB", by_name=True)
    assert only("memory_fit", large).severity == "warn"


def test_what_was_said_otherwise_is_no_guess() -> None:
    found = only("enforce_eager", profile("--enforce-eager", by_name=True))
    assert "name alone" not in found.text
    assert only("utilization_above_090", profile("--gpu-memory-utilization 0.95", by_name=True)).refuses


def test_a_name_and_an_unknown_version_refuse_nothing_and_are_no_silence() -> None:
    said: dict[str, Any] = {
        "model": "acme/M-NVFP4",
        "quantization": "nvfp4",
        "traits": NVFP4 | {"gdn_hybrid"},
        "by_name": True,
    }
    unknown = profile("--kv-offloading-backend lmcache", version=None, cuda="12.9", **said)
    found = {each.id: each.severity for each in judge(unknown) if "name alone" in each.text}
    assert (found["lmcache_hybrid"], found["cuda12_nvfp4"]) == ("warn", "info")
