"""Every rule of serving fires for one profile, and is silent for one close to it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import architectures, rules
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.rules import Profile, judge

from tests.support.rule_profiles import bare, ids, profile

MOE, DENSE = frozenset({"moe"}), frozenset({"dense"})
GDN, MLA, SEES = frozenset({"moe", "gdn_hybrid"}), frozenset({"moe", "mla"}), frozenset({"dense", "multimodal"})
MAMBA = frozenset({"moe", "mamba_hybrid"})
FP8_CACHE = "--kv-cache-dtype fp8"
MTP = '--speculative-config {"method":"mtp"}'
DSPARK = '--speculative-config {"method":"dspark","num_speculative_tokens":5}'
SUPER = "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4"
DFLASH = '--speculative-config {"method":"dflash","model":"a/b","num_speculative_tokens":8'
KV_TRANSFER = "--kv-transfer-config"
RAY: dict[str, Any] = {"hosts": 2, "executor": "ray"}
LAN = "192.0.2.7"
RENDEZVOUS = ("VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
# An architecture that 0.17.0 has and the newest release has not.
GONE = next(name for name, spans in architectures._content()["architectures"].items() if len(spans[-1]) == 2)


def made(args: str = "", **changes: Any) -> Profile:
    return profile(args, **changes)


def env(**names: str) -> dict[str, Any]:
    return {"environment": names}


def inside(word: str) -> dict[str, Any]:
    return {"container": frozenset({word})}


def drafting(kind: str) -> dict[str, Any]:
    return {"speculation": ((kind, "a fact"),)}


def nv(traits: frozenset[str] = MOE, **changes: Any) -> dict[str, Any]:
    return {"traits": traits, "quantization": "nvfp4", **changes}


# By rule: a profile that it is about, and its neighbour.
PAIRS: dict[str, tuple[Profile, Profile]] = {
    "utilization_above_090": (made("--gpu-memory-utilization 0.91"), made("--gpu-memory-utilization 0.90")),
    "utilization_above_085": (made("--gpu-memory-utilization 0.86", hosts=2), made("--gpu-memory-utilization 0.86")),
    "utilization_above_085_one": (made("--gpu-memory-utilization 0.86"), made("--gpu-memory-utilization 0.85")),
    "utilization_unset": (bare(version="0.19.0"), made(version="0.19.0")),
    "utilization_unset_092": (bare(version="0.24.0"), bare(version="0.19.0")),
    "memory_fit": (made(memory="too small by 3 GiB"), made()),
    "model_unmeasured": (made(measured=False), made()),
    "task_runner": (made("--runner generate", task="embed"), made("--runner generate")),
    "task_chat_flags": (made("--reasoning-parser qwen3", task="classify"), made("--reasoning-parser qwen3")),
    "reranker_as_chat": (made(model="a/Reranker-1B"), made(model="a/Reranker-1B", task="classify")),
    "kv_cache_pinned": (made("--kv-cache-memory-bytes 8G"), made()),
    "cpu_offload": (made("--cpu-offload-gb 4"), made("--cpu-offload-gb 0")),
    "limits_contradict": (
        made("--max-num-batched-tokens 64 --max-num-seqs 128"),
        made("--max-num-batched-tokens 128 --max-num-seqs 128"),
    ),
    "limit_below_one": (made("--max-num-seqs 0"), made("--max-num-seqs 1")),
    "threshold_above_context": (
        made("--max-model-len 8k --long-prefill-token-threshold 16384", version="0.28.0"),
        made("--max-model-len 32k --long-prefill-token-threshold 16384", version="0.28.0"),
    ),
    "port_beyond": (made("--port 70000"), made("--port 65535")),
    "optimization_unknown": (made("-O4"), made("-O3")),
    "block_size_odd": (made("--block-size 17"), made("--block-size 1")),
    "float16_refused": (made("--dtype half", quantization="mxfp4"), made("--dtype half")),
    "kv_role_missing": (
        made(f'{KV_TRANSFER} {{"kv_connector":"a"}}'),
        made(f'{KV_TRANSFER} {{"kv_connector":"a","kv_role":"kv_both"}}'),
    ),
    "speculative_tensor_parallel": (
        made(MTP.replace("}", ',"tensor_parallel_size":1}')),
        made(MTP.replace("}", ',"draft_tensor_parallel_size":1}')),
    ),
    "speculative_no_tokens": (made(MTP.replace("mtp", "ngram")), made(MTP)),
    "tls_without_certificate": (made("--ssl-keyfile /k"), made("--ssl-keyfile /k --ssl-certfile /c")),
    "variable_no_number": (
        made(**env(VLLM_ENGINE_READY_TIMEOUT_S="1h")),
        made(**env(VLLM_ENGINE_READY_TIMEOUT_S="3600")),
    ),
    "log_level_unknown": (made(**env(VLLM_LOGGING_LEVEL="VERBOSE")), made(**env(VLLM_LOGGING_LEVEL="debug"))),
    "executor_unknown": (made("--distributed-executor-backend rays"), made("--distributed-executor-backend a.b.C")),
    "experts_not_shared": (made("--enable-eplb", traits=MOE), made("--enable-eplb -ep", traits=MOE)),
    "all2all_nvlink": (
        made("--all2all-backend deepep_low_latency"),
        made("--all2all-backend allgather_reducescatter"),
    ),
    "batched_tokens_memory": (made("--max-num-batched-tokens 65536"), made("--max-num-batched-tokens 32768")),
    "profiling_unbounded": (
        made(model="google/gemma-4-26B-A4B-it"),
        made(model="google/gemma-4-26B-A4B-it", version="0.26.0"),
    ),
    "long_prompt_wedge": (
        made("--max-model-len 262144", model="RedHatAI/GLM-5.3-Flash-NVFP4"),
        made("--max-model-len 131072", model="RedHatAI/GLM-5.3-Flash-NVFP4"),
    ),
    "mxfp4_marlin_memory": (
        made(model="openai/gpt-oss-120b", quantization="mxfp4", version="0.22.0"),
        made(model="openai/gpt-oss-120b", quantization="mxfp4", version="0.28.0"),
    ),
    "sleep_mode": (made("--enable-sleep-mode"), made("--no-enable-sleep-mode")),
    "container_memory_limit": (made(**inside("memory_limit")), made()),
    "context_unset": (bare(), made()),
    "batch_limits_unset": (bare(), made()),
    "enforce_eager": (made("--enforce-eager"), made("--no-enforce-eager")),
    "cudagraphs_off": (made("-O0"), made("-O1")),
    "capture_size_above_512": (made("--max-cudagraph-capture-size 1024"), made("--max-cudagraph-capture-size 512")),
    "capture_size_gdn": (
        made("--max-cudagraph-capture-size 1024", traits=GDN, version="0.17.0"),
        made("--max-cudagraph-capture-size 1024", traits=MOE, version="0.17.0"),
    ),
    "moe_marlin_bf16": (made("--moe-backend marlin", traits=MOE), made("--moe-backend triton", traits=MOE)),
    "experts_absent": (made("--enable-expert-parallel"), made("--enable-expert-parallel", traits=MOE)),
    "moe_kernel_absent": (made("--moe-backend flashinfer_trtllm"), made("--moe-backend triton")),
    "moe_deep_gemm": (made("--moe-backend deep_gemm"), made("--moe-backend triton")),
    "mxfp4_backend": (
        made("--moe-backend triton", quantization="mxfp4"),
        made("--moe-backend marlin", quantization="mxfp4"),
    ),
    "nvfp4_moe": (made(**nv(version="0.19.0")), made("--moe-backend marlin", **nv(version="0.19.0"))),
    "nvfp4_linear": (
        made(**nv(DENSE, version="0.19.0")),
        made(**nv(DENSE, version="0.19.0", **env(VLLM_NVFP4_GEMM_BACKEND="marlin"))),
    ),
    "nvfp4_young": (made(**nv(version="0.22.0")), made("--moe-backend cutlass", **nv(version="0.22.0"))),
    "nvfp4_native": (made(**nv()), made("--moe-backend marlin", **nv())),
    "flashinfer_fp4_switched_off": (
        made(version="0.19.0", **env(VLLM_USE_FLASHINFER_MOE_FP4="0")),
        made(version="0.19.0", **env(VLLM_USE_FLASHINFER_MOE_FP4="1")),
    ),
    "flashinfer_moe_latency": (
        made(version="0.19.0", **env(VLLM_FLASHINFER_MOE_BACKEND="latency")),
        made(version="0.19.0", **env(VLLM_FLASHINFER_MOE_BACKEND="throughput")),
    ),
    "force_fp8_marlin": (
        made(version="0.24.0", **env(VLLM_TEST_FORCE_FP8_MARLIN="1")),
        made(version="0.24.0", **env(VLLM_TEST_FORCE_FP8_MARLIN="0")),
    ),
    "moe_marlin_idle": (
        made("--moe-backend marlin", traits=MOE, quantization="gptq_int4"),
        made("--moe-backend marlin", traits=MOE, quantization="fp8"),
    ),
    "marlin_width": (
        made("-tp 4", traits=GDN, quantization="autoround_int4", version="0.19.1", hosts=4),
        made("-tp 2", traits=GDN, quantization="autoround_int4", version="0.19.1", hosts=2),
    ),
    "fp8_moe_flashinfer": (
        made("--moe-backend flashinfer_cutlass", quantization="fp8", version="0.19.0"),
        made("--moe-backend flashinfer_cutlass", quantization="fp8", version="0.24.0"),
    ),
    "attention_kernel_absent": (made("--attention-backend FLASHMLA"), made("--attention-backend TRITON_MLA")),
    "flash_attention_version": (
        made("--attention-config.flash_attn_version 3"),
        made("--attention-config.flash_attn_version 2"),
    ),
    "flash_attention_fp8_kv": (
        made(f"--attention-backend FLASH_ATTN {FP8_CACHE}"),
        made("--attention-backend FLASH_ATTN"),
    ),
    "fp8_e5m2_quantized": (
        made("--kv-cache-dtype fp8_e5m2", quantization="fp8"),
        made("--kv-cache-dtype fp8_e4m3", quantization="fp8"),
    ),
    "attention_fp8_kv": (
        made(FP8_CACHE, version="0.19.0"),
        made(f"{FP8_CACHE} --attention-backend TRITON_ATTN", version="0.19.0"),
    ),
    "flashinfer_fp8_cudnn": (
        made(model=SUPER, version="0.28.0"),
        made(model=SUPER, version="0.28.0", **env(VLLM_DISABLED_KERNELS="FlashInferFP8ScaledMMLinearKernel")),
    ),
    "flashinfer_eager_fp8": (
        made(f"{FP8_CACHE} --enforce-eager", traits=GDN, version="0.26.0"),
        made(FP8_CACHE, traits=GDN, version="0.26.0"),
    ),
    "attention_flashinfer": (
        made("--attention-backend FLASHINFER", version="0.22.0"),
        made("--attention-backend FLASHINFER", version="0.24.0"),
    ),
    "attention_sinks": (
        made("--attention-backend FLASHINFER", model="openai/gpt-oss-20b", version="0.19.0"),
        made("--attention-backend FLASHINFER", model="a/model", version="0.19.0"),
    ),
    "mla_kernels": (
        made(traits=MLA, version="0.22.0"),
        made("--attention-backend TRITON_MLA", traits=MLA, version="0.22.0"),
    ),
    "deepseek_v4_early": (
        made(model="deepseek-ai/DeepSeek-V4-Flash", version="0.22.0"),
        made(model="deepseek-ai/DeepSeek-V4-Flash", version="0.28.0"),
    ),
    "deepseek_v4_drafts": (
        made(DSPARK, model="deepseek-ai/DeepSeek-V4-Flash-0731", version="0.26.0"),
        made(MTP, model="deepseek-ai/DeepSeek-V4-Flash-0731", version="0.26.0"),
    ),
    "deepseek_v4_drafts_028": (
        made(DSPARK, model="deepseek-ai/DeepSeek-V4-Flash-0731", version="0.28.0", hosts=2),
        made(DSPARK, model="deepseek-ai/DeepSeek-V4-Flash-0731", version="0.28.0"),
    ),
    "deepseek_v4_027": (
        made(model="deepseek-ai/DeepSeek-V4-Flash", version="0.27.1"),
        made(model="deepseek-ai/DeepSeek-V4-Flash", version="0.28.0"),
    ),
    "glm_5_3_stock": (
        made(model="a/GLM-5.3-Flash-NVFP4", image="vllm/vllm-openai:glm53-flash-arm64-cu130", version="0.28.0"),
        made(model="a/GLM-5.3-Flash-NVFP4", image="a/vllm-glm53-flash:sm121", version="0.28.0"),
    ),
    "gemma_4_flashinfer": (
        made("--attention-backend FLASHINFER", model="google/gemma-4-31B-it", version="0.19.1"),
        made("--attention-backend TRITON_ATTN", model="google/gemma-4-31B-it", version="0.19.1"),
    ),
    "deepseek_v4_1": (
        made(model="deepseek-ai/DeepSeek-V4.1-Flash", version="0.29.0"),
        made(model="deepseek-ai/DeepSeek-V4-Flash", version="0.29.0"),
    ),
    "mistral_small_4_mla": (
        made(model="mistralai/Mistral-Small-4-119B-2603-NVFP4", version="0.19.2"),
        made(model="mistralai/Mistral-Small-4-119B-2603-NVFP4", version="0.26.0"),
    ),
    "nvfp4_kv_cache": (made("--kv-cache-dtype nvfp4"), made(FP8_CACHE)),
    "turboquant_hybrid": (
        made("--kv-cache-dtype turboquant_k8v4", traits=GDN, version="0.26.0"),
        made("--kv-cache-dtype turboquant_k8v4", version="0.26.0"),
    ),
    "cuda12_fp8_blocks": (
        made(quantization="fp8", cuda="12.9"),
        made("--linear-backend marlin", quantization="fp8", cuda="12.9"),
    ),
    "b12x_over_hosts": (
        made("--moe-backend flashinfer_b12x", **nv(hosts=2)),
        made("--moe-backend flashinfer_b12x", **nv()),
    ),
    "cuda12_nvfp4": (made("--moe-backend marlin", **nv(cuda="12.9")), made("--moe-backend marlin", **nv(cuda="13.0"))),
    "glm_5_2_garbage": (made(model="nvidia/GLM-5.2-NVFP4", version="0.26.0"), made(model="nvidia/GLM-5.2-NVFP4")),
    "context_parallel_garbage": (
        made("-dcp 4", model="zai-org/GLM-5.3", version="0.29.0"),
        made("-dcp 4", model="zai-org/GLM-5.3", version="0.26.0"),
    ),
    "kv_offloading": (
        made("--kv-offloading-size 32", traits=GDN, version="0.25.1"),
        made("--kv-offloading-size 32", version="0.25.1"),
    ),
    "flash_next_drafts": (
        made('--speculative-config {"method":"mtp","num_speculative_tokens":5}', model="a/Qwen3.8-Flash-Next"),
        made('--speculative-config {"method":"mtp","num_speculative_tokens":4}', model="a/Qwen3.8-Flash-Next"),
    ),
    "flash_next_prefix": (
        made("--enable-prefix-caching", model="a/Qwen3.8-Flash-Next"),
        made("--no-enable-prefix-caching", model="a/Qwen3.8-Flash-Next"),
    ),
    "ptxas_old": (made(version="0.12.0"), made(version="0.12.0", image="nvcr.io/nvidia/vllm:25.11-py3")),
    "fp8_kv_ministral": (
        made(FP8_CACHE, model="mistralai/Ministral-3-3B-Instruct-2512"),
        made(f"{FP8_CACHE} --attention-backend TRITON_ATTN", model="mistralai/Ministral-3-3B-Instruct-2512"),
    ),
    "fp8_kv_scales": (made(FP8_CACHE), made("--kv-cache-dtype auto")),
    "mxfp4_other_model": (
        made("--quantization mxfp4", version="0.19.0"),
        made("--quantization mxfp4", model="openai/gpt-oss-20b", version="0.19.0"),
    ),
    "mxfp4_other_model_new": (
        made("--quantization mxfp4"),
        made("--quantization mxfp4", model="openai/gpt-oss-20b"),
    ),
    "quantization_mismatch": (
        made("--quantization gptq_marlin", quantization="fp8"),
        made("--quantization gptq_marlin", quantization="gptq_int4"),
    ),
    "format_of_another": (made(model="mlx-community/A-8B-4bit"), made(model="a/Mlxer-8B")),
    "gguf_plugin": (made(model="a/B-8B-GGUF:Q4_K_M"), made(model="a/B-8B-GGUF:Q4_K_M", version="0.23.0")),
    "bnb_plugin": (
        made(model="a/B-8B-bnb-4bit", version="0.28.0"),
        made(model="a/B-8B-bnb-4bit", version="0.27.1"),
    ),
    "quantization_overridden": (
        made("--quantization gptq_marlin", quantization="nvfp4"),
        made("--quantization modelopt_fp4", quantization="nvfp4"),
    ),
    "quantization_named": (made("--quantization fp8", quantization="fp8"), made(quantization="fp8")),
    "fp8_on_the_fly": (made("--quantization fp8"), made("--quantization fp8", quantization="fp8")),
    "nvfp4_235b": (
        made(model="nvidia/Qwen3-235B-A22B-NVFP4", version="0.19.0"),
        made(model="nvidia/Qwen3-30B-A3B-NVFP4", version="0.19.0"),
    ),
    "nvfp4_235b_new": (
        made(model="nvidia/Qwen3-235B-A22B-NVFP4"),
        made(model="nvidia/Qwen3-30B-A3B-NVFP4"),
    ),
    "nvfp4_397b": (
        made(model="nvidia/Qwen3.5-397B-A17B-NVFP4", **nv(hosts=2)),
        made(model="nvidia/Qwen3.5-397B-A17B-NVFP4", **nv(hosts=4)),
    ),
    "bf16_122b": (
        made(model="Qwen/Qwen3.5-122B-A10B"),
        made(model="Qwen/Qwen3.5-122B-A10B-GPTQ-Int4", quantization="gptq_int4"),
    ),
    "gdn_hybrid": (made(traits=GDN), made(traits=MOE)),
    "gemma_4_per_layer": (
        made(model="google/gemma-4-E2B-it", version="0.27.1"),
        made(model="google/gemma-3-27b-it", version="0.27.1"),
    ),
    **{
        f"fabric_{name}": (made(fabric=((kind, "a fact"),)), made())
        for name, kind in (("name_absent", "absent"), ("name_empty", "empty"), ("rails_idle", "idle"))
    },
    "configuration_doubted": (made(doubts=("layers of a new kind",)), made()),
    "engine_refused": (made(engine="vLLM 0.32.0 does not take a/b"), made()),
    "encoder_missing": (made(encoder_missing=True), made("--language-model-only", encoder_missing=True)),
    "hybrid_drafts": (
        made(f"{MTP} --enable-prefix-caching", traits=GDN),
        made(f"{MTP} --enable-prefix-caching --no-async-scheduling", traits=GDN),
    ),
    "hybrid_drafts_default": (made(MTP, traits=MAMBA, version="0.28.0"), made(MTP, traits=MAMBA, version="0.26.0")),
    "drafts_pipeline": (
        made(f"{MTP} -pp 2", hosts=2, version="0.22.0"),
        made(f"{MTP} -tp 2", hosts=2, version="0.22.0"),
    ),
    "ngram_hybrid": (
        made('--speculative-config {"method":"ngram","num_speculative_tokens":3}', traits=GDN),
        made('--speculative-config {"method":"ngram","num_speculative_tokens":3}', traits=MOE),
    ),
    "dflash_attention_026": (
        made(f"{DFLASH}}}", version="0.26.0", traits=GDN),
        made(f'{DFLASH},"attention_backend":"FLEX_ATTENTION"}}', version="0.26.0", traits=GDN),
    ),
    "dflash_unfilled_024": (made(f"{DFLASH}}}", version="0.24.0"), made(f"{DFLASH}}}", version="0.25.0")),
    "lora_nvfp4": (made("--enable-lora", **nv()), made("--enable-lora --moe-backend marlin", **nv())),
    "lora_experts": (
        made("--enable-lora", traits=MOE, quantization="awq_int4", version="0.17.0"),
        made("--enable-lora", traits=MOE, quantization="awq_int4", version="0.18.0"),
    ),
    "nvfp4_copies": (
        made(model="poolside/Laguna-S-2.1-NVFP4", version="0.26.0"),
        made("--moe-backend flashinfer_cutlass", model="poolside/Laguna-S-2.1-NVFP4", version="0.26.0"),
    ),
    "modelopt_mixed": (made(version="0.15.1", model=SUPER), made(version="0.17.1", model=SUPER)),
    "modelopt_w4a16": (
        made(model="nvidia/Qwen3.6-27B-NVFP4", version="0.23.1"),
        made(model="nvidia/Qwen3.6-27B-NVFP4", version="0.24.0"),
    ),
    "wna16_repeats": (
        made(model="moonshotai/Kimi-K2.5", version="0.19.1"),
        made(model="nvidia/Kimi-K2.5-NVFP4", version="0.19.1"),
    ),
    "deep_gemm_024": (
        made(quantization="fp8", version="0.24.0"),
        made(quantization="fp8", version="0.24.0", **env(VLLM_USE_DEEP_GEMM="0")),
    ),
    "mtp_async": (made(MTP, traits=GDN), made(MTP, traits=MAMBA)),
    "async_first_request": (made(version="0.14.0"), made("--no-async-scheduling", version="0.14.0")),
    "gemma_4_moe_mtp": (
        made(MTP, model="google/gemma-4-26B-A4B-it", version="0.26.0"),
        made(MTP, model="google/gemma-4-26B-A4B-it", version="0.26.0", **env(VLLM_USE_V2_MODEL_RUNNER="1")),
    ),
    "lmcache_hybrid": (
        made(f"{KV_TRANSFER}.kv_connector LMCacheMPConnector", traits=MAMBA, version="0.26.0"),
        made(f"{KV_TRANSFER}.kv_connector LMCacheMPConnector", traits=MOE, version="0.26.0"),
    ),
    "lmcache_pair": (
        made("--kv-offloading-backend lmcache", hosts=2, version="0.25.1"),
        made("--kv-offloading-backend lmcache", version="0.25.1"),
    ),
    "disaggregated": (
        made(f"{KV_TRANSFER}.kv_connector NixlConnector"),
        made(f"{KV_TRANSFER}.kv_connector OffloadingConnector"),
    ),
    "draft_marlin": (
        made('--moe-backend marlin --speculative-config {"method":"mtp"}', traits=MOE, quantization="fp8"),
        made(
            '--moe-backend marlin --speculative-config {"method":"mtp","moe_backend":"triton"}',
            traits=MOE,
            quantization="fp8",
        ),
    ),
    "architecture_too_new": (
        made(architecture="DeepseekV4ForCausalLM", version="0.19.0"),
        made(architecture="DeepseekV4ForCausalLM"),
    ),
    "architecture_unknown": (made(architecture="MadeUpForCausalLM"), made(architecture="Qwen3ForCausalLM")),
    "speculative_method": (made(**drafting("method_unknown")), made(**drafting("method_unknown_unsure"))),
    "speculative_method_fork": (made(**drafting("method_version_unsure")), made(**drafting("method_version"))),
    "speculative_too_many": (made(**drafting("too_many")), made()),
    "speculative_no_model": (made(**drafting("no_model")), made()),
    "speculative_no_layers": (made(**drafting("no_layers")), made()),
    "speculative_layers_missing": (made(**drafting("layers_missing")), made(**drafting("no_layers"))),
    "speculative_draft_version": (made(**drafting("draft_version")), made(**drafting("draft_version_unsure"))),
    "speculative_draft_fork": (made(**drafting("draft_version_unsure")), made(**drafting("draft_version"))),
    "speculative_draft_uncounted": (made(**drafting("draft_uncounted")), made()),
    "image_of_another": (
        made(image="vllm/vllm-openai:v0.28.0-x86_64"),
        made(image="vllm/vllm-openai:v0.28.0-aarch64"),
    ),
    "gpu_hidden": (made(**env(CUDA_VISIBLE_DEVICES="1")), made(**env(CUDA_VISIBLE_DEVICES="0"))),
    "debugging_left_on": (made(**env(CUDA_LAUNCH_BLOCKING="1")), made(**env(CUDA_LAUNCH_BLOCKING="0"))),
    "version_unknown": (made(version=None), made()),
    "driver_590": (made(driver="590.48.01"), made(driver="580.142")),
    "published_port": (made(**inside("published_port")), made()),
    "detached": (made(**inside("detached")), made()),
    "restart_policy": (made(**inside("restart_policy")), made()),
    "privileged": (made(**inside("privileged")), made()),
    "ray_object_store": (made(**RAY, **inside("ray_object_store_default")), made(**inside("ray_object_store_default"))),
    "transformers_5": (made(model="google/gemma-4-31b", version="0.19.0"), made(model="google/gemma-4-31b")),
    "trust_remote_code": (made("--trust-remote-code"), made("--no-trust-remote-code")),
    "fastsafetensors_missing": (
        made("--load-format fastsafetensors", version="0.19.0"),
        made("--load-format fastsafetensors", version="0.19.0", contains=frozenset({"fastsafetensors"})),
    ),
    "fastsafetensors_gemma": (
        made("--load-format fastsafetensors", model="google/gemma-4-31b", version="0.22.0"),
        made("--load-format fastsafetensors", model="google/gemma-4-31b", version="0.23.0"),
    ),
    "fastsafetensors_pair": (
        made("--load-format fastsafetensors", hosts=2, version="0.15.1"),
        made("--load-format fastsafetensors", version="0.15.1"),
    ),
    "instanttensor_drafts": (
        made(f"{MTP} --load-format instanttensor", model="a/GLM-5.3-Flash", hosts=2),
        made(f"{MTP} --load-format safetensors", model="a/GLM-5.3-Flash", hosts=2),
    ),
    "ready_timeout": (
        made(hosts=2, **env(VLLM_ENGINE_READY_TIMEOUT_S="900")),
        made(hosts=2, **env(VLLM_ENGINE_READY_TIMEOUT_S="1800")),
    ),
    "environment_unchecked": (bare(), made()),
    "architecture_gone": (made(architecture=GONE, version="0.33.0"), made(architecture=GONE, version="0.17.0")),
    "parser_of_another": (
        made("--reasoning-parser step3p5", model="nvidia/Nemotron-3.5-Lightning"),
        made("--reasoning-parser nemotron_v3", model="nvidia/Nemotron-3.5-Lightning"),
    ),
    "tool_choice_without_parser": (
        made("--enable-auto-tool-choice"),
        made("--enable-auto-tool-choice --tool-call-parser hermes"),
    ),
    "mistral_format": (
        made("--tokenizer-mode mistral", model="Qwen/Qwen3-8B"),
        made("--tokenizer-mode mistral", model="mistralai/Devstral-2"),
    ),
    "log_outputs_without_requests": (
        made("--enable-log-outputs"),
        made("--enable-log-outputs --enable-log-requests"),
    ),
    "headless_with_api": (made("--headless --api-server-count 1"), made("--headless --api-server-count 0")),
    "cold_load_023": (made(version="0.23.0"), made(version="0.23.0", model="nvidia/Gemma-4-26B-A4B-NVFP4")),
    "warm_up_025": (made(traits=GDN, version="0.25.0"), made(traits=MOE, version="0.25.0")),
    "forced_remote_code": (made(version="0.17.1"), made(version="0.18.0")),
    "cve_2026_9540": (made(version="0.19.0"), made(version="0.19.1")),
    "embed_bypass": (made(version="0.20.2"), made(version="0.20.1")),
    "host_header_bypass": (made(version="0.21.0", listen=LAN), made(version="0.22.0", listen=LAN)),
    "public_without_key": (made(listen=LAN), made(listen=LAN, api_key=True)),
    "key_guards_v1": (made(listen=LAN, api_key=True), made(api_key=True)),
    "key_in_argv": (made("--api-key k"), made(api_key=True)),
    "token_in_argv": (made("--hf-token k"), made("--hf-token")),
    "dev_mode": (made(**env(VLLM_SERVER_DEV_MODE="1")), made(**env(VLLM_SERVER_DEV_MODE="0"))),
    "alive_without_engine": (
        made(**env(VLLM_KEEP_ALIVE_ON_ENGINE_DEATH="1")),
        made(**env(VLLM_KEEP_ALIVE_ON_ENGINE_DEATH="0")),
    ),
    "media_from_anywhere": (
        made(traits=SEES, gateway=True),
        made("--allowed-media-domains example.com", traits=SEES, gateway=True),
    ),
    "cuda_13_2_driver": (
        made(cuda="13.2.1", driver="580.142"),
        made(cuda="13.4", driver="580.142", image="nvcr.io/nvidia/vllm:26.08-py3"),
    ),
    "cuda_13_2_entrypoint": (
        made(cuda="13.4", driver="580.142", image="nvcr.io/nvidia/vllm:26.08-py3"),
        made(cuda="13.4", driver="595.10", image="nvcr.io/nvidia/vllm:26.08-py3"),
    ),
    "world_too_large": (made("-tp 2"), made("-tp 2", hosts=2)),
    "layers_uneven": (made("-tp 3", hosts=3, uneven="8 KV heads do not divide by 3"), made("-tp 3", hosts=3)),
    "context_parallel_heads": (made("-tp 2 -dcp 2", hosts=2, context_parts="a fact"), made("-tp 2 -dcp 2", hosts=2)),
    "nccl_2_28_9": (made(hosts=2), made("--enforce-eager", hosts=2)),
    "nccl_inline": (
        made(hosts=2, **env(NCCL_IB_USE_INLINE="1", NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS="1")),
        made(hosts=2, **env(NCCL_IB_USE_INLINE="0", NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS="1")),
    ),
    "nnodes_with_ray": (made("--nnodes 2", **RAY), made("--nnodes 2", hosts=2)),
    "ray_missing": (made(**RAY, contains=frozenset()), made(**RAY)),
    "ray_pipeline": (
        made("-pp 2", **RAY, version="0.19.1"),
        made("-pp 2", hosts=2, version="0.19.1"),
    ),
    "ray_memory_monitor": (made(**RAY), made(**RAY, **env(RAY_memory_monitor_refresh_ms="0"))),
    "ray_token": (made(**RAY), made(**RAY, **env(RAY_AUTH_MODE="token"))),
    "rdma_off": (made(hosts=2, **env(NCCL_IB_DISABLE="1")), made(hosts=2, **env(NCCL_IB_DISABLE="0"))),
    "no_infiniband": (made(hosts=2, **inside("no_infiniband")), made(**inside("no_infiniband"))),
    "gpudirect": (made(hosts=2, **env(NCCL_NET_GDR_LEVEL="PHB")), made(hosts=2, **env(NCCL_NET_GDR_LEVEL="LOC"))),
    "gid_index_by_hand": (made(**env(NCCL_IB_GID_INDEX="0")), made(**env(NCCL_IB_GID_INDEX="-1"))),
    "rendezvous_address": (made(hosts=2), made(hosts=2, **env(**dict.fromkeys(RENDEZVOUS, "192.0.2.1")))),
    "data_parallel_headless": (made("-dp 2", hosts=2), made("-dp 1", hosts=2)),
    "build_for_12_1": (
        made(version="0.19.0", **env(TORCH_CUDA_ARCH_LIST="12.1")),
        made(version="0.19.0", **env(TORCH_CUDA_ARCH_LIST="12.0")),
    ),
    "build_for_12_1_filtered": (
        made(version="0.20.1", **env(TORCH_CUDA_ARCH_LIST="12.1")),
        made(version="0.19.0", **env(TORCH_CUDA_ARCH_LIST="12.1")),
    ),
    "build_patch_fp4": (made(contains=frozenset({"patch_fp4_120a"})), made()),
}


def test_the_table_has_every_rule() -> None:
    assert {rule["id"] for rule in rules.rules()} == PAIRS.keys()


@pytest.mark.parametrize("name", PAIRS)
def test_a_rule_fires_once_and_is_silent_beside_it(name: str) -> None:
    about, beside = PAIRS[name]
    assert ids(judge(about)).count(name) == 1
    assert name not in ids(judge(beside))


# What the command line itself can be wrong about: (words, environment, version) that it is about, and beside it.
WORDS: dict[str, tuple[tuple[str, dict[str, str], str], tuple[str, dict[str, str], str]]] = {
    "unknown_flag": (("--moe-bakend x", {}, "0.24.0"), ("--moe-backend triton", {}, "0.24.0")),
    "unsupported_flag": (("--swap-space 4", {}, "0.24.0"), ("--swap-space 4", {}, "0.17.0")),
    "ambiguous_flag": (("--max-num 4", {}, "0.24.0"), ("--max-num-seqs 4", {}, "0.24.0")),
    "stray_word": (("four", {}, "0.24.0"), ("--seed 4", {}, "0.24.0")),
    "missing_value": (("--seed", {}, "0.24.0"), ("--seed 4", {}, "0.24.0")),
    "bad_value": (("--seed four", {}, "0.24.0"), ("--seed 4", {}, "0.24.0")),
    "bad_quantization": (("--quantization fp4", {}, "0.24.0"), ("--quantization fp8", {}, "0.24.0")),
    "bad_choice": (("--kv-cache-dtype fp9", {}, "0.24.0"), ("--kv-cache-dtype fp8", {}, "0.24.0")),
    "unknown_environment": (("", {"VLLM_MADE_UP": "1"}, "0.24.0"), ("", {"VLLM_PORT": "1"}, "0.24.0")),
    "refused_environment": (
        ("--fail-on-environ-validation", {"VLLM_MADE_UP": "1"}, "0.24.0"),
        ("--fail-on-environ-validation", {"VLLM_PORT": "1"}, "0.24.0"),
    ),
    "stale_variable": (
        ("", {"VLLM_NVFP4_GEMM_BACKEND": "marlin"}, "0.24.0"),
        ("", {"VLLM_NVFP4_GEMM_BACKEND": "marlin"}, "0.19.0"),
    ),
}


def test_the_table_has_every_objection_to_the_command_line() -> None:
    assert WORDS.keys() == catalog.load("rules")["command_line"].keys()


@pytest.mark.parametrize("name", WORDS)
def test_an_objection_fires_and_is_silent_beside_it(name: str) -> None:
    about, beside = (
        Profile("a/model", DENSE, "bf16", "an/image:1", version, frozenset(), tuple(words.split()), environment)
        for words, environment, version in WORDS[name]
    )
    assert name in ids(judge(about)) and name not in ids(judge(beside))
