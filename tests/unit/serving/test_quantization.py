"""Which checkpoint is chosen: the seeds' decision tree line by line, and by version of vLLM."""

from __future__ import annotations

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models, quantization
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB

SPARK = 121.63 * GIB


def choice(name: str, hosts: int = 1, version: str | None = "0.19.0", **other: str) -> quantization.Choice:
    model = models.find(name)
    assert model
    return quantization.choose(model, SPARK, hosts, version, **other)  # type: ignore[arg-type]


def chosen(name: str, hosts: int = 1, version: str | None = "0.19.0") -> str | None:
    found = choice(name, hosts, version).checkpoint
    return found.quantization if found else None


@pytest.mark.parametrize(
    ("name", "hosts", "version", "quantization_"),
    [
        # seed 002: gpt-oss -> mxfp4; GPTQ-Int4 where there is one; else FP8; else BF16
        ("openai/gpt-oss-120b", 1, "0.19.0", "mxfp4"),
        ("openai/gpt-oss-120b", 1, "0.33.0", "mxfp4"),
        ("Qwen/Qwen3-235B-A22B", 2, "0.19.0", "gptq_int4"),
        ("Qwen/Qwen3-30B-A3B", 1, "0.19.0", "gptq_int4"),
        ("Qwen/Qwen3.6-27B", 1, "0.19.0", "fp8"),
        ("Qwen/Qwen3.6-35B-A3B", 1, "0.19.0", "fp8"),
        # seed 000 says NVFP4 is the only way; GPTQ-Int4 is there
        ("Qwen/Qwen3.5-122B-A10B", 1, "0.19.0", "gptq_int4"),
        # not on one host, and on two only what is small enough
        ("Qwen/Qwen3-235B-A22B", 1, "0.19.0", None),
        ("Qwen/Qwen3.5-397B-A17B", 1, "0.19.0", None),
        ("Qwen/Qwen3.5-397B-A17B", 2, "0.19.0", "autoround_int4"),
        ("Qwen/Qwen3.5-397B-A17B", 4, "0.19.0", "gptq_int4"),
        # NVFP4: verified checkpoints first from 0.24 on, the others last; release candidates count as what they lead to
        ("Qwen/Qwen3.6-35B-A3B", 1, "0.23.0", "fp8"),
        ("Qwen/Qwen3.6-35B-A3B", 1, "0.24.0", "nvfp4"),
        ("Qwen/Qwen3.6-35B-A3B", 1, "0.24.0rc2", "nvfp4"),
        ("Qwen/Qwen3.5-122B-A10B", 1, "0.33.0", "gptq_int4"),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B", 1, "0.19.0", "nvfp4"),
        # an unknown version is taken for an old one
        ("Qwen/Qwen3.6-35B-A3B", 1, None, "fp8"),
        # too old for the architecture
        ("Qwen/Qwen3.6-27B", 1, "0.11.1", None),
        ("Qwen/Qwen3.5-35B-A3B", 1, "0.17.0rc1.dev102+ge68de8adc", "gptq_int4"),
        # seed 003: no kernels for its attention, on any number of hosts; sparse MLA came with 0.24
        ("zai-org/GLM-5", 8, "0.23.0", None),
        ("zai-org/GLM-5", 8, "0.24.0", "fp8"),
        ("deepseek-ai/DeepSeek-V3", 8, "0.33.0", "fp8"),
    ],
)  # fmt: skip
def test_the_decision_tree(name: str, hosts: int, version: str | None, quantization_: str | None) -> None:
    assert chosen(name, hosts, version) == quantization_


def test_the_path_says_each_step_with_its_reason() -> None:
    found = choice("Qwen/Qwen3.5-397B-A17B", 2)
    assert (
        found.path[0].startswith("vLLM 0.19.0: mxfp4, gptq_int4")
        and "because int4 runs through Marlin" in found.path[0]
    )
    assert "weights 111.3 GiB" in dict(found.rejected)["Qwen/Qwen3.5-397B-A17B-GPTQ-Int4"]
    assert found.path[-1].startswith("Intel/Qwen3.5-397B-A17B-int4-AutoRound (autoround_int4): yes, 106.0 GiB")


def test_only_looks_at_nothing_else_but_reasons_against_it_count() -> None:
    asked = choice("Qwen/Qwen3-235B-A22B", 2, only="nvidia/qwen3-235b-a22b-nvfp4")
    assert asked.checkpoint is None and [name for name, _reason in asked.rejected] == ["nvidia/Qwen3-235B-A22B-NVFP4"]
    assert "22906" in asked.rejected[0][1]
    fixed = choice("Qwen/Qwen3-235B-A22B", 2, "0.20.0", only="nvfp4")
    assert fixed.checkpoint and fixed.checkpoint.id == "nvidia/Qwen3-235B-A22B-NVFP4"
    whole = choice("Qwen/Qwen3-30B-A3B", only="bf16")
    assert whole.checkpoint and whole.checkpoint.id == "Qwen/Qwen3-30B-A3B"


@pytest.mark.parametrize(
    ("checkpoint", "version", "flags", "environment"),
    [
        ("Sehyo/Qwen3.5-122B-A10B-NVFP4", "0.19.0", {"--moe-backend": "marlin"}, {"VLLM_NVFP4_GEMM_BACKEND": "marlin"}),
        ("Sehyo/Qwen3.5-122B-A10B-NVFP4", "0.22.1", {"--moe-backend": "marlin", "--linear-backend": "marlin"}, {}),
        ("Sehyo/Qwen3.5-122B-A10B-NVFP4", "0.24.0", {}, {}),
        ("Sehyo/Qwen3.5-122B-A10B-NVFP4", None, {"--moe-backend": "marlin"}, {"VLLM_NVFP4_GEMM_BACKEND": "marlin"}),
        ("nvidia/Qwen3.6-27B-NVFP4", "0.22.0", {"--linear-backend": "marlin"}, {}),  # dense: no MoE backend
        ("Qwen/Qwen3.6-35B-A3B-FP8", "0.19.0", {"--moe-backend": "marlin"}, {}),
        ("Qwen/Qwen3.6-35B-A3B-FP8", "0.24.0", {}, {}),
        ("Qwen/Qwen3.6-27B-FP8", "0.19.0", {}, {"VLLM_USE_DEEP_GEMM": "0"}),
        ("Qwen/Qwen3-30B-A3B", "0.19.0", {}, {}),  # BF16 with Marlin is refused by vLLM
        ("Qwen/Qwen3-30B-A3B-GPTQ-Int4", "0.19.0", {}, {}),
    ],
)
def test_what_a_checkpoint_needs_said(
    checkpoint: str, version: str | None, flags: dict[str, str], environment: dict[str, str]
) -> None:
    model = models.find(checkpoint)
    assert model
    one = model.checkpoint(checkpoint)
    assert one
    found = quantization.needs(model, one, version, "auto")
    backends = {flag: value for flag, value in found.arguments.items() if flag.endswith("-backend")}
    assert backends == flags and found.environment == environment
    assert "--quantization" not in found.arguments
    assert bool(found.reasons) == bool(flags or {"VLLM_NVFP4_GEMM_BACKEND"} & environment.keys())


@pytest.mark.parametrize(
    ("name", "version", "backend"),
    [
        ("Qwen/Qwen3-30B-A3B", "0.19.0", "TRITON_ATTN"),
        ("Qwen/Qwen3-30B-A3B", "0.24.0", None),
        ("openai/gpt-oss-120b", "0.24.0", "TRITON_ATTN"),
    ],
)
def test_attention_with_an_fp8_kv_cache(name: str, version: str, backend: str | None) -> None:
    model = models.find(name)
    assert model
    found = quantization.needs(model, model.checkpoints[0], version, "fp8")
    assert found.arguments.get("--attention-backend") == backend
