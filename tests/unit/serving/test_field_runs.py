"""Starts of vLLM on Sparks that others have published, as the role would judge them: what ended badly is objected to.

Models and flags are those of the reports that catalog/rules.yml names. Nothing that worked is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import serving_plan, serving_rules

from tests.support.proofs import spark

CU129 = "vllm/vllm-openai:v0.26.0-aarch64-cu129-ubuntu2404"
CU130 = "vllm/vllm-openai:v0.28.0"
OWN = "registry.example/fork:1"
DRAFTS = '--speculative-config {"method":"mtp","num_speculative_tokens":4}'
DFLASH = '--speculative-config {"method":"dflash","model":"z-lab/Qwen3.6-27B-DFlash","num_speculative_tokens":5}'
DEVELOPMENT = "0.1.dev20073+g8e685d198"
MTP_3 = '--speculative-config {"method":"mtp","num_speculative_tokens":3,"moe_backend":"triton"}'
RAY = "RAY_memory_monitor_refresh_ms=0 RAY_AUTH_MODE=token"


@dataclass(frozen=True)
class Run:
    model: str
    args: str = ""
    image: str = CU130
    version: str = ""
    hosts: int = 1
    environment: str = ""
    driver: str = "580.142"

    def judged(self) -> serving_rules.Verdict:
        names = [f"spark-{letter}" for letter in "abcdefgh"[: self.hosts]]
        facts = {name: spark(host=name, driver=self.driver) for name in names}
        others = {name: facts[name] for name in names[1:]}
        return serving_rules.judge(
            View(names[0], facts[names[0]], {}, names, others, {name: {} for name in others}),
            model=self.model,
            image=self.image,
            version=self.version,
            args=["--gpu-memory-utilization", "0.8", *self.args.split()],
            environment={
                **serving_plan.OF_EACH_HOST,
                **dict(pair.split("=") for pair in self.environment.split()),
            },
            api_key="",
            accepted={},
            container=frozenset(),
        )


def said(run: Run) -> set[str]:
    verdict = run.judged()
    return {each.id for each in verdict.refusals} | {each["id"] for each in verdict.findings}


FAILED = {
    "cuda12_fp8_blocks": Run("Qwen/Qwen3.6-35B-A3B-FP8", "--moe-backend marlin", CU129),
    "cuda12_nvfp4": Run("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", "--moe-backend marlin", CU129),
    "gemma_4_moe_mtp": Run("google/gemma-4-26B-A4B-it", DRAFTS, CU129),
    "gemma_4_per_layer": Run("google/gemma-4-26B-A4B-it", image="vllm/vllm-openai:v0.27.1-aarch64"),
    # vLLM issues 50707 and 48234
    "dflash_attention_026": Run(
        "a/Qwen3.5-122B-A10B-NVFP4", DFLASH, "vllm/vllm-openai:v0.26.0-aarch64-ubuntu2404", "0.26.0"
    ),
    "dflash_unfilled_024": Run("nvidia/Qwen3.6-27B-NVFP4", DFLASH, OWN, "0.24.0"),
    "glm_5_2_garbage": Run("nvidia/GLM-5.2-NVFP4", "-pp 6", "vllm/vllm-openai:v0.26.0", hosts=6),
    "mxfp4_marlin_memory": Run("openai/gpt-oss-120b", "--enforce-eager", OWN, "0.23.0"),
    "nvfp4_young": Run("nvidia/Qwen3.6-35B-A3B-NVFP4", "--max-model-len 131072", OWN, "0.20.1"),
    "mtp_async": Run("nvidia/Qwen3.6-35B-A3B-NVFP4", DRAFTS, "vllm/vllm-openai:v0.24.0"),
    "context_parallel_heads": Run("openai/gpt-oss-120b", "-tp 2 -dcp 2", "vllm/vllm-openai:v0.33.0", hosts=2),
    "utilization_above_085": Run("a/b", "-tp 2 --gpu-memory-utilization 0.86", hosts=2),
    "batched_tokens_memory": Run(
        "a/Qwen3.6-27B-NVFP4", "--max-num-batched-tokens 32768 --kv-cache-memory-bytes 36G", OWN, "0.24.0"
    ),
    "hybrid_drafts_default": Run("unsloth/Qwen3.8-27B-NVFP4", DRAFTS),
    "lmcache_hybrid": Run("nvidia/Qwen3.6-27B-NVFP4", "--kv-offloading-backend lmcache", version="0.26.0"),
    # vLLM issue 50454, triton issue 8539, inference-atlas PR 53, spark-vllm-docker issue 67
    "kv_offloading": Run("Qwen/Qwen3.6-27B-FP8", "--kv-offloading-size 32", version="0.25.1"),
    "ptxas_old": Run("nvidia/Cosmos-Reason2-2B", image="vllm/vllm-openai:v0.11.2", version="0.11.2"),
    "flash_next_drafts": Run(
        "RadixArk/Qwen3.8-Flash-Next-NVFP4",
        '-tp 2 --speculative-config {"method":"mtp","num_speculative_tokens":5}',
        version=DEVELOPMENT,
        hosts=2,
    ),
    "mla_kernels": Run("lukealonso/GLM-5-NVFP4", "-tp 4", OWN, "0.16.0", hosts=4),
    "disaggregated": Run("a/b", '--kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_both"}'),
    "nccl_2_28_9": Run("a/b", "-tp 2", OWN, "0.25.1", hosts=2),
    "world_too_large": Run("a/b", "-tp 2 -dp 2", hosts=2),
    "cuda_13_2_driver": Run("a/b", image="nvcr.io/nvidia/vllm:26.05-py3"),
    "gid_index_by_hand": Run("a/b", "-tp 2", hosts=2, environment="NCCL_IB_GID_INDEX=3"),
    # vLLM issues 41477, 40260, 50331 and 54173, dgx-spark-playbooks issue 77,
    # spark-vllm-docker issues 233 and 377 and PR 90
    "mxfp4_backend": Run("openai/gpt-oss-120b", "--moe-backend triton", OWN, "0.20.0"),
    "mistral_small_4_mla": Run("mistralai/Mistral-Small-4-119B-2603-NVFP4", "", OWN, "0.19.2rc1.dev134"),
    "flashinfer_eager_fp8": Run("Qwen/Qwen3.6-35B-A3B-FP8", "--enforce-eager --kv-cache-dtype fp8", OWN, "0.26.0"),
    "flash_next_prefix": Run(
        "RadixArk/Qwen3.8-Flash-Next-NVFP4", "-tp 2 --enable-prefix-caching", OWN, DEVELOPMENT, hosts=2
    ),
    "modelopt_mixed": Run(
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", image="nvcr.io/nvidia/vllm:26.02-py3", version=""
    ),
    "ray_pipeline": Run(
        "Intel/Qwen3.5-397B-A17B-int4-AutoRound",
        "-tp 1 -pp 3 --distributed-executor-backend ray",
        OWN,
        "0.20.1rc1.dev152",
        hosts=3,
    ),
    "instanttensor_drafts": Run(
        "RedHatAI/GLM-5.3-Flash-NVFP4", f"-tp 2 --load-format instanttensor {DRAFTS}", OWN, DEVELOPMENT, hosts=2
    ),
    "marlin_width": Run("Intel/Qwen3.5-397B-A17B-int4-AutoRound", "-tp 4", OWN, "0.17.1", hosts=4),
    "memory_fit": Run("acme/Model-400B-A20B-FP8", "-tp 2", hosts=2),
    "nvfp4_moe": Run("acme/Model-30B-A3B-NVFP4", image="vllm/vllm-openai:v0.19.0"),
    "limit_below_one": Run("Qwen/Qwen3-VL-8B-Instruct", '--limit-mm-per-prompt {"image":-1}'),
}

WORKED = {
    "no images at all": Run("Qwen/Qwen3-VL-8B-Instruct", '--limit-mm-per-prompt {"image":0,"video":0}'),
    "marlin for both kinds of layers": Run(
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", "--moe-backend marlin --linear-backend marlin", CU129
    ),
    "FP8 with one scale for each tensor": Run("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", image=CU129),
    "Gemma 4 with a newer runner": Run(
        "google/gemma-4-26B-A4B-it", DRAFTS, CU129, environment="VLLM_USE_V2_MODEL_RUNNER=1"
    ),
    "drafts on a build of the main branch": Run(
        "deepseek-ai/DeepSeek-V4-Flash-0731", DRAFTS + " -tp 2", OWN, "0.25.2.dev0+g752a3a504.d20260714", hosts=2
    ),
    "a fork without a release": Run("RadixArk/Qwen3.8-Flash-Next-NVFP4", DRAFTS + " -tp 3", OWN, DEVELOPMENT, hosts=3),
    "its own kernels": Run(
        "deepseek-ai/DeepSeek-V4-Flash-0731", "-tp 2 --moe-backend flashinfer_b12x", OWN, DEVELOPMENT, hosts=2
    ),
    "GLM-5.2 on eight": Run("nvidia/GLM-5.2-NVFP4", "-tp 8 --kv-cache-dtype fp8_ds_mla", OWN, hosts=8),
    # vLLM recipes pull request 632, vLLM pull request 41834, NVIDIA/dgx-spark-playbooks issue 79, conselara.dev
    "Nemotron 3 Super on one": Run(
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "--max-model-len 131072 --max-num-seqs 4"
    ),
    "DeepSeek V4 with drafts on two": Run(
        "deepseek-ai/DeepSeek-V4-Flash",
        "-tp 2 --kv-cache-dtype fp8 --block-size 256 " + DRAFTS,
        OWN,
        "0.21.1rc1.dev751+g8725eb974.d20260605",
        hosts=2,
    ),
    "a dense 70B": Run("nvidia/Llama-3.3-70B-Instruct-NVFP4", "--max-model-len 16384", "nvcr.io/nvidia/vllm:26.02-py3"),
    "GPTQ over Ray": Run(
        "Qwen/Qwen3-235B-A22B-GPTQ-Int4",
        "-tp 2 --enable-expert-parallel --attention-backend TRITON_ATTN --quantization gptq_marlin",
        "nvcr.io/nvidia/vllm:26.04-py3",
        hosts=2,
    ),
    # inference-atlas PR 13 and 14, spark-vllm-docker issues 186 and 256, recipe-registry issue 13
    "Gemma 4 E2B with 0.27.1": Run("google/gemma-4-E2B-it", image="vllm/vllm-openai:v0.27.1"),
    "int4 without drafts": Run(
        "Intel/Qwen3.5-122B-A10B-int4-AutoRound",
        "--enable-prefix-caching --load-format fastsafetensors",
        OWN,
        "0.19.1rc1.dev219",
    ),
    "AWQ over Ray in an image of one's own": Run(
        "cyankiwi/MiniMax-M2.7-AWQ-4bit",
        "-tp 2 --distributed-executor-backend ray",
        OWN,
        "0.20.1rc1.dev152",
        hosts=2,
        environment="RAY_memory_monitor_refresh_ms=0",
    ),
    "drafts of Qwen3.8-Flash-Next on two": Run(
        "RadixArk/Qwen3.8-Flash-Next-NVFP4", "-tp 2 " + DRAFTS, OWN, DEVELOPMENT, hosts=2
    ),
    "a small one with NGC 26.08": Run(
        "Qwen/Qwen2.5-1.5B-Instruct", "--kv-cache-memory-bytes 4G", "nvcr.io/nvidia/vllm:26.08-py3"
    ),
    "fp4 of ModelOpt": Run("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "--quantization fp4", version="0.26.0"),
    "fp4 of an unknown checkpoint": Run("acme/Model-NVFP4", "--quantization fp4", version="0.26.0"),
}

# What served well, and rules that are about something close to it: none of them warns. Of owners, NVIDIA and vLLM:
# tonyd2wild, MiaAI-Lab, AEON-7, luisefigueroa/pulsar-gb10-vllm-stack, sumner-harris/gb10-llm-docker-recipes,
# djangodevreng/dgx-spark-benchmarks, al-engr.com, eugr/spark-vllm-docker, vllm-project/recipes.
QUIET = {
    "an image of which nothing is known": (
        Run(
            "LibertAIDAI/GLM-5.3-Flash-NVFP4",
            '-tp 4 --kv-cache-dtype fp8 --speculative-config {"method":"dflash","model":"incoai/GLM-5.3-DFlash2"}',
            OWN,
            hosts=4,
        ),
        "async_first_request attention_fp8_kv nvfp4_linear nvfp4_moe dflash_attention_026 speculative_draft_uncounted",
    ),
    "... of DeepSeek V4 with drafts": (
        Run(
            "deepseek-ai/DeepSeek-V4-Flash-0731",
            '-tp 2 --speculative-config {"method":"dspark","num_speculative_tokens":5}',
            OWN,
            hosts=2,
        ),
        "deepseek_v4_early deepseek_v4_027 deepseek_v4_drafts deepseek_v4_drafts_028",
    ),
    "... of DeepSeek V4.1": (Run("deepseek-ai/DeepSeek-V4.1-Flash", "-tp 4", OWN, hosts=4), "deepseek_v4_1"),
    "... of gpt-oss": (Run("openai/gpt-oss-120b", "--max-num-seqs 256", OWN), "mxfp4_marlin_memory"),
    "... of Qwen3.8": (Run("nvidia/Qwen3.8-Flash-Next-NVFP4", DRAFTS, OWN), "transformers_5 mtp_async"),
    "... that loads and shares by what nobody has looked for": (
        Run(
            "cyankiwi/MiniMax-M2.7-AWQ-4bit",
            "-tp 2 --load-format fastsafetensors --distributed-executor-backend ray",
            OWN,
            hosts=2,
            environment=RAY,
        ),
        "ray_missing fastsafetensors_missing fastsafetensors_pair",
    ),
    "a build after the last release of a range": (
        Run("nvidia/Qwen3.6-35B-A3B-NVFP4", DRAFTS, OWN, "0.26.1rc1.dev608"),
        "mtp_async nccl_2_28_9",
    ),
    "... after 0.23.0": (Run("a/coder-30B-A3B-FP8", "", OWN, "0.23.1rc1.dev861"), "cold_load_023"),
    "... after 0.29.0": (Run("deepseek-ai/DeepSeek-V4.1-Flash", "-tp 4", OWN, "0.29.1rc1.dev200", 4), "deepseek_v4_1"),
    "drafts of Gemma": (
        Run(
            "google/gemma-4-26B-A4B-it",
            '--speculative-config {"model":"google/gemma-4-26B-A4B-it-assistant","num_speculative_tokens":4}',
            OWN,
            "0.21.0",
        ),
        "mtp_async speculative_draft_uncounted",
    ),
    "drafts of Nemotron": (
        Run("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", MTP_3, version="0.24.0"),
        "mtp_async",
    ),
    "two with an NCCL of their own": (
        Run("deepseek-ai/DeepSeek-V4-Flash-0731", "-tp 2", OWN, "0.25.2.dev0", hosts=2),
        "nccl_2_28_9",
    ),
    "two without graphs": (
        Run("google/gemma-4-31B-it", "-tp 2 --enforce-eager", "vllm/vllm-openai:v0.20.0", hosts=2),
        "nccl_2_28_9",
    ),
    "kernels of FP4 that were chosen": (
        Run("nvidia/MiniMax-M2.7-NVFP4", "-tp 2 --moe-backend cutlass", OWN, "0.20.1rc1.dev200", hosts=2),
        "nvfp4_young",
    ),
    "FP4 by NVIDIA's image": (Run("local/Qwen3.6-27B-NVFP4", "", "nvcr.io/nvidia/vllm:26.05.post1-py3"), "nvfp4_young"),
    "0.90 on one": (Run("google/gemma-4-E4B-it", "--gpu-memory-utilization 0.90"), "utilization_above_085"),
    "long prompts": (
        Run("RedHatAI/GLM-5.3-Flash-NVFP4", "-tp 2 --max-model-len 786432", OWN, DEVELOPMENT, hosts=2),
        "long_prompt_wedge",
    ),
    "many captured sizes": (Run("openai/gpt-oss-120b", "--max-cudagraph-capture-size 2048"), "capture_size_above_512"),
    "driver 590": (Run("a/b", driver="590.48.01"), "driver_590"),
    "Laguna by Marlin": (
        Run("poolside/Laguna-S-2.1-NVFP4", "--moe-backend marlin", "vllm/vllm-openai:v0.26.0"),
        "nvfp4_copies",
    ),
    "long chunks": (
        Run("Qwen/Qwen3.6-35B-A3B-FP8", "--max-num-batched-tokens 32768", "vllm/vllm-openai:v0.28.0"),
        "batched_tokens_memory",
    ),
    "eugr's image of January": (
        Run("QuantTrio/Qwen3-VL-30B-A3B-Instruct-AWQ", "", "vllm-node", "0.14.0rc2.dev200"),
        "async_first_request ptxas_old",
    ),
    "Laguna with its draft": (
        Run(
            "poolside/Laguna-S-2.1-NVFP4",
            '--speculative-config {"method":"dflash","model":"poolside/Laguna-S-2.1-DFlash-NVFP4"}',
            "vllm/vllm-openai:v0.26.0",
        ),
        "dflash_attention_026",
    ),
    "FP8 with 0.24.0": (Run("a/coder-30B-A3B-FP8", "", OWN, "0.24.0"), "deep_gemm_024"),
    "Gemma 4 E2B with 0.28.0": (Run("google/gemma-4-E2B-it", image="vllm/vllm-openai:v0.28.0"), "gemma_4_per_layer"),
    "CUDA 12 with Marlin for both": (WORKED["marlin for both kinds of layers"], "cuda12_nvfp4"),
    "CUDA 12 with one scale": (WORKED["FP8 with one scale for each tensor"], "cuda12_fp8_blocks"),
}


@pytest.mark.parametrize(("run", "names"), QUIET.values(), ids=QUIET)
def test_what_worked_is_not_warned_of_a_fault_beside_it(run: Run, names: str) -> None:
    assert not said(run) & set(names.split())


@pytest.mark.parametrize("name", FAILED)
def test_what_ended_badly_is_objected_to(name: str) -> None:
    assert name in said(FAILED[name])


def test_a_draft_model_alone_tells_how_it_drafts() -> None:
    """vLLM issue 48848: Gemma's draft models draft by MTP, and nobody has to say so."""
    draft = '--speculative-config {"model":"google/gemma-4-26B-A4B-it-assistant","num_speculative_tokens":4}'
    assert "gemma_4_moe_mtp" in said(Run("google/gemma-4-26B-A4B-it", draft, OWN, "0.25.1"))


@pytest.mark.parametrize("run", WORKED.values(), ids=WORKED)
def test_what_worked_is_not_refused(run: Run) -> None:
    assert run.judged().refusals == ()


def test_what_is_not_judged_without_a_version_is_said_once() -> None:
    """Of an image of which nothing is known, as of a build without a release, old ranges are one line."""
    fork = WORKED["a fork without a release"]
    for version in ("", DEVELOPMENT):
        found = Run(fork.model, fork.args, OWN, version, fork.hosts).judged().findings
        (one,) = [each["fact"] for each in found if each["id"] == "version_unknown"]
        assert "transformers_5" in one and "transformers_5" not in {each["id"] for each in found}
        assert "cold_load_023" not in one  # nothing that was said makes it match
