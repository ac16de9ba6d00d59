"""Folders of models in small: their config.json by published figures, and headers of weights without the weights.

Each case names what its maker publishes of it: parameters, active parameters, context. The counts of the code must
come near to them, so that a wrong figure of a configuration shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
FP8_BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
AUTOROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": {"lm_head": {"bits": 16}}}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}
MODELOPT_MIXED = {
    "quant_method": "modelopt",
    "quant_algo": "MIXED_PRECISION",
    "quantized_layers": {"layers.0.mixer": {"quant_algo": "FP8"}, "layers.1.mixer": {"quant_algo": "NVFP4"}},
}
MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}


def compressed(kind: str, bits: int, **other: Any) -> dict[str, Any]:
    weights = {"type": kind, "num_bits": bits, **other}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


@dataclass(frozen=True)
class Case:
    """A model in small. `billions` are (all, active) as published; `kinds` the layers by kind of attention."""

    id: str
    architecture: str
    config: Mapping[str, Any]
    billions: tuple[float, float]
    kinds: Mapping[str, int]
    context: int
    format: str = "bf16"
    kv_bytes: float = 0  # of one token in BF16, by the figures; 0: not told
    quantization: Mapping[str, Any] = field(default_factory=dict)
    vision: Mapping[str, Any] = field(default_factory=dict)
    nested: str = ""  # the field below which the text's configuration is
    size_gb: float = 0.0  # of the files as published
    files: tuple[str, ...] = ()
    tolerance: float = 0.03  # of the parameters
    task: str = "generate"

    def folder(self, root: Path) -> Path:
        """The folder as it would be downloaded, without its weights."""
        text = dict(self.config)
        whole: dict[str, Any] = {"architectures": [self.architecture], "torch_dtype": "bfloat16"}
        whole |= {self.nested: text, "model_type": text.get("model_type", "x")} if self.nested else text
        if self.quantization:
            whole["quantization_config"] = dict(self.quantization)
        if self.vision:
            whole["vision_config"] = dict(self.vision)
        root.mkdir(parents=True, exist_ok=True)
        (root / "config.json").write_text(json.dumps(whole), encoding="utf-8")
        for name in self.files:
            (root / name).write_text("{}", encoding="utf-8")
        if self.size_gb:
            index = {"metadata": {"total_size": int(self.size_gb * 1e9)}, "weight_map": {"x": "model-1.safetensors"}}
            (root / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
        return root


def text(
    kind: str,
    hidden: int,
    layers: int,
    heads: int,
    kv: int,
    head: int,
    wide: int,
    words: int,
    context: int,
    **other: Any,
) -> dict[str, Any]:
    return {
        "model_type": kind, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "head_dim": head, "intermediate_size": wide, "vocab_size": words,
        "max_position_embeddings": context, **other,
    }  # fmt: skip


def every(count: int, period: int, rare: str, usual: str) -> list[str]:
    return [rare if (index + 1) % period == 0 else usual for index in range(count)]


def gdn(values: int, **other: Any) -> dict[str, Any]:
    return {
        "linear_num_value_heads": values, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "attn_output_gate": True, **other,
    }  # fmt: skip


def mla(query: int, plain: int, value: int, **other: Any) -> dict[str, Any]:
    return {
        "q_lora_rank": query, "kv_lora_rank": 512, "qk_nope_head_dim": plain, "qk_rope_head_dim": 64,
        "v_head_dim": value, **other,
    }  # fmt: skip


def moe(count: int, per_token: int, wide: int, **other: Any) -> dict[str, Any]:
    return {"num_experts": count, "num_experts_per_tok": per_token, "moe_intermediate_size": wide, **other}


def routed(count: int, per_token: int, wide: int, **other: Any) -> dict[str, Any]:
    return {
        "n_routed_experts": count, "num_experts_per_tok": per_token, "moe_intermediate_size": wide,
        "n_shared_experts": 1, **other,
    }  # fmt: skip


def mamba(heads: int, size: int, groups: int, **other: Any) -> dict[str, Any]:
    return {
        "mamba_num_heads": heads, "mamba_head_dim": size, "ssm_state_size": 128, "n_groups": groups, "conv_kernel": 4,
        **other,
    }  # fmt: skip


SIGLIP = {"hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304}
QWEN_VISION = {"hidden_size": 1152, "depth": 27, "intermediate_size": 4304}
QWEN35 = "Qwen3_5MoeForConditionalGeneration"
NANO_9B = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"
NANO_30B = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
# 40 layers of Mamba, 40 of experts and 8 of attention; their order is not published with these figures.
SUPER = ("M" * 5 + "E" * 5 + "*") * 8

CASES = (
    # --- dense, full attention
    Case("Qwen/Qwen3-0.6B", "Qwen3ForCausalLM",
         text("qwen3", 1024, 28, 16, 8, 128, 3072, 151936, 40960, tie_word_embeddings=True),
         (0.6, 0.6), {"full": 28}, 40960, kv_bytes=114688, size_gb=1.5),
    Case("Qwen/Qwen3-8B", "Qwen3ForCausalLM", text("qwen3", 4096, 36, 32, 8, 128, 12288, 151936, 40960),
         (8.2, 8.2), {"full": 36}, 40960, kv_bytes=147456, size_gb=16.4),
    Case("Qwen/Qwen3-32B-AWQ", "Qwen3ForCausalLM", text("qwen3", 5120, 64, 64, 8, 128, 25600, 151936, 40960),
         (32.8, 32.8), {"full": 64}, 40960, "awq_int4", 262144, AWQ, size_gb=19.3),
    Case("meta-llama/Llama-3.1-8B-Instruct", "LlamaForCausalLM",
         text("llama", 4096, 32, 32, 8, 128, 14336, 128256, 131072, rope_scaling=LLAMA3),
         (8.03, 8.03), {"full": 32}, 131072, kv_bytes=131072, size_gb=16.1),
    Case("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "LlamaForCausalLM",
         text("llama", 8192, 80, 64, 8, 128, 28672, 128256, 131072, rope_scaling=LLAMA3),
         (70.6, 70.6), {"full": 80}, 131072, "fp8", 327680, compressed("float", 8), size_gb=72.7),
    Case("hugging-quants/Meta-Llama-3.1-405B-Instruct-AWQ-INT4", "LlamaForCausalLM",
         text("llama", 16384, 126, 128, 8, 128, 53248, 128256, 131072, rope_scaling=LLAMA3),
         (405.9, 405.9), {"full": 126}, 131072, "awq_int4", 516096, AWQ, size_gb=214.0),
    Case("microsoft/phi-4", "Phi3ForCausalLM", text("phi3", 5120, 40, 40, 10, 128, 17920, 100352, 16384),
         (14.7, 14.7), {"full": 40}, 16384, kv_bytes=204800, size_gb=29.3),
    Case("microsoft/Phi-3.5-mini-instruct", "Phi3ForCausalLM",
         text("phi3", 3072, 32, 32, 32, 96, 8192, 32064, 131072, sliding_window=262144,
              rope_scaling={"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]},
              original_max_position_embeddings=4096),
         (3.8, 3.8), {"full": 32}, 131072, kv_bytes=393216, size_gb=7.6),
    Case("ByteDance-Seed/Seed-OSS-36B-Instruct", "SeedOssForCausalLM",
         text("seed_oss", 5120, 64, 80, 8, 128, 27648, 155136, 524288),
         (36.2, 36.2), {"full": 64}, 524288, kv_bytes=262144, size_gb=72.3),
    Case("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "Mistral3ForConditionalGeneration",
         text("mistral", 5120, 40, 32, 8, 128, 32768, 131072, 131072),
         (24.0, 23.6), {"full": 40}, 131072, kv_bytes=163840, nested="text_config",
         vision={"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}, size_gb=48.0),
    # --- sliding windows
    Case("mistralai/Mistral-7B-v0.1", "MistralForCausalLM",
         text("mistral", 4096, 32, 32, 8, 128, 14336, 32000, 32768, sliding_window=4096),
         (7.24, 7.24), {"sliding": 32}, 32768, size_gb=14.5),
    Case("google/gemma-2-9b-it", "Gemma2ForCausalLM",
         text("gemma2", 3584, 42, 16, 8, 256, 14336, 256000, 8192, sliding_window=4096),
         (9.24, 9.24), {"sliding": 21, "full": 21}, 8192, kv_bytes=172032, size_gb=18.5),
    Case("google/gemma-3-27b-it", "Gemma3ForConditionalGeneration",
         text("gemma3_text", 5376, 62, 32, 16, 128, 21504, 262208, 131072, sliding_window=1024,
              sliding_window_pattern=6, rope_scaling={"rope_type": "linear", "factor": 8.0}),
         (27.4, 27.0), {"sliding": 52, "full": 10}, 131072, kv_bytes=81920, nested="text_config", vision=SIGLIP,
         size_gb=54.9),
    Case("nvidia/Gemma-4-26B-A4B-NVFP4", "Gemma4ForConditionalGeneration",
         text("gemma4_text", 2816, 30, 16, 8, 256, 2112, 262144, 262144, sliding_window=1024,
              layer_types=every(30, 6, "full_attention", "sliding_attention"), global_head_dim=512,
              num_global_key_value_heads=2, attention_k_eq_v=True, enable_moe_block=True, num_kv_shared_layers=0,
              tie_word_embeddings=True, **moe(128, 0, 704, top_k_experts=8, num_experts_per_tok=None)),
         (25.8, 4.0), {"sliding": 25, "full": 5}, 262144, "nvfp4", 20480, NVFP4, nested="text_config",
         vision=SIGLIP, size_gb=18.8, tolerance=0.06),
    Case("CohereForAI/c4ai-command-r7b-12-2024", "Cohere2ForCausalLM",
         text("cohere2", 4096, 32, 32, 8, 128, 14336, 256000, 132096, sliding_window=4096, sliding_window_pattern=4),
         (8.03, 8.03), {"sliding": 24, "full": 8}, 132096, kv_bytes=32768, size_gb=16.1),
    Case("allenai/Olmo-3-32B-Think", "Olmo3ForCausalLM",
         text("olmo3", 5120, 64, 40, 8, 128, 27648, 100278, 65536, sliding_window=4096,
              layer_types=every(64, 4, "full_attention", "sliding_attention"),
              rope_scaling={"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}),
         (32.2, 32.2), {"sliding": 48, "full": 16}, 65536, kv_bytes=65536, size_gb=64.5),
    Case("openai/gpt-oss-20b", "GptOssForCausalLM",
         text("gpt_oss", 2880, 24, 64, 8, 64, 2880, 201088, 131072, sliding_window=128,
              num_local_experts=32, experts_per_token=4,
              layer_types=["sliding_attention", "full_attention"] * 12,
              rope_scaling={"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}),
         (20.9, 3.6), {"sliding": 12, "full": 12}, 131072, "mxfp4", 24576, MXFP4, size_gb=13.8),
    Case("openai/gpt-oss-120b", "GptOssForCausalLM",
         text("gpt_oss", 2880, 36, 64, 8, 64, 2880, 201088, 131072, sliding_window=128,
              num_local_experts=128, experts_per_token=4,
              layer_types=["sliding_attention", "full_attention"] * 18,
              rope_scaling={"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}),
         (116.8, 5.7), {"sliding": 18, "full": 18}, 131072, "mxfp4", 36864, MXFP4, size_gb=65.25),
    Case("XiaomiMiMo/MiMo-V2-Flash", "MiMoV2FlashForCausalLM",
         text("mimo_v2_flash", 4096, 48, 64, 4, 192, 16384, 152576, 262144, v_head_dim=128, sliding_window=128,
              swa_num_key_value_heads=8, swa_head_dim=192, swa_v_head_dim=128,
              hybrid_layer_pattern=[0, *([1] * 5 + [0]) * 7, 1, 1, 1, 1, 0], moe_layer_freq=[0] + [1] * 47,
              n_routed_experts=256, num_experts_per_tok=8, moe_intermediate_size=2048),
         (309.0, 15.0), {"full": 9, "sliding": 39}, 262144, "fp8", 23040, FP8_BLOCKS, tolerance=0.04),
    # --- mixtures of experts, full attention
    Case("Qwen/Qwen3-30B-A3B", "Qwen3MoeForCausalLM",
         text("qwen3_moe", 2048, 48, 32, 4, 128, 6144, 151936, 40960, **moe(128, 8, 768)),
         (30.5, 3.3), {"full": 48}, 40960, kv_bytes=98304, size_gb=61.1),
    Case("Qwen/Qwen3-235B-A22B-GPTQ-Int4", "Qwen3MoeForCausalLM",
         text("qwen3_moe", 4096, 94, 64, 4, 128, 12288, 151936, 40960, **moe(128, 8, 1536)),
         (235, 22), {"full": 94}, 40960, "gptq_int4", 192512, GPTQ, size_gb=118.0),
    Case("mistralai/Mixtral-8x7B-Instruct-v0.1", "MixtralForCausalLM",
         text("mixtral", 4096, 32, 32, 8, 128, 14336, 32000, 32768, num_local_experts=8, num_experts_per_tok=2),
         (46.7, 12.9), {"full": 32}, 32768, kv_bytes=131072, size_gb=93.4),
    Case("zai-org/GLM-4.5-Air-FP8", "Glm4MoeForCausalLM",
         text("glm4_moe", 4096, 46, 96, 8, 128, 10944, 151552, 131072, first_k_dense_replace=1,
              num_nextn_predict_layers=1, **routed(128, 8, 1408)),
         (106, 12), {"full": 46}, 131072, "fp8", 188416, compressed("float", 8), size_gb=112.6, tolerance=0.04),
    Case("nvidia/MiniMax-M2.7-NVFP4", "MiniMaxM2ForCausalLM",
         text("minimax_m2", 3072, 62, 48, 8, 128, 1536, 200064, 196608, attn_type_list=[1] * 62,
              num_local_experts=256, num_experts_per_tok=8),
         (229, 10), {"full": 62}, 196608, "nvfp4", 253952, NVFP4, size_gb=131.0, tolerance=0.04),
    Case("meta-llama/Llama-4-Scout-17B-16E-Instruct", "Llama4ForConditionalGeneration",
         text("llama4_text", 5120, 48, 40, 8, 128, 8192, 202048, 10485760, num_local_experts=16,
              num_experts_per_tok=1, num_shared_experts=1, interleave_moe_layer_step=1, attention_chunk_size=8192,
              no_rope_layers=[1, 1, 1, 0] * 12, rope_scaling={**LLAMA3, "factor": 16.0}),
         (109, 17), {"sliding": 36, "full": 12}, 10485760, kv_bytes=49152, nested="text_config",
         vision={"hidden_size": 1408, "num_hidden_layers": 34, "intermediate_size": 5632}, size_gb=217.3),
    Case("Qwen/Qwen3-VL-30B-A3B-Instruct", "Qwen3VLMoeForConditionalGeneration",
         text("qwen3_vl_moe_text", 2048, 48, 32, 4, 128, 6144, 151936, 262144, **moe(128, 8, 768)),
         (31.1, 3.3), {"full": 48}, 262144, kv_bytes=98304, nested="text_config", vision=QWEN_VISION, size_gb=62.1),
    # --- MLA and sparse attention
    Case("deepseek-ai/DeepSeek-V3", "DeepseekV3ForCausalLM",
         text("deepseek_v3", 7168, 61, 128, 128, 128, 18432, 129280, 163840, first_k_dense_replace=3,
              num_nextn_predict_layers=1, **mla(1536, 128, 128), **routed(256, 8, 2048), auto_map={"AutoConfig": "x.y"},
              rope_scaling={"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}),
         (671, 37.5), {"mla": 61}, 163840, "fp8", 70272, FP8_BLOCKS, size_gb=688.6),
    Case("deepseek-ai/DeepSeek-V3.2", "DeepseekV32ForCausalLM",
         text("deepseek_v32", 7168, 61, 128, 128, 128, 18432, 129280, 163840, first_k_dense_replace=3,
              num_nextn_predict_layers=1, index_topk=2048, index_n_heads=64, index_head_dim=128,
              **mla(1536, 128, 128), **routed(256, 8, 2048)),
         (671, 37.5), {"mla": 61}, 163840, "fp8", 78324, FP8_BLOCKS, size_gb=688.6),
    Case("zai-org/GLM-5-FP8", "GlmMoeDsaForCausalLM",
         text("glm_moe_dsa", 6144, 78, 64, 64, 64, 12288, 154880, 202752, first_k_dense_replace=3,
              num_nextn_predict_layers=1, index_topk=2048, index_n_heads=32, index_head_dim=128,
              **mla(2048, 192, 256), **routed(256, 8, 2048)),
         (744, 40), {"mla": 78}, 202752, "fp8", 100152, FP8_BLOCKS, size_gb=756.0),
    Case("moonshotai/Kimi-K2-Thinking", "DeepseekV3ForCausalLM",
         text("kimi_k2", 7168, 61, 64, 64, 112, 18432, 163840, 262144, first_k_dense_replace=1,
              **mla(1536, 128, 128), **routed(384, 8, 2048)),
         (1026, 32.9), {"mla": 61}, 262144, "int4", 70272, compressed("int", 4, group_size=32), size_gb=594.0),
    Case("deepseek-ai/DeepSeek-V4-Flash", "DeepseekV4ForCausalLM",
         text("deepseek_v4", 4096, 43, 64, 1, 512, 2048, 129280, 1048576, sliding_window=128, q_lora_rank=1024,
              o_lora_rank=1024, o_groups=8, qk_rope_head_dim=64, index_head_dim=128, index_n_heads=64,
              index_topk=512, num_nextn_predict_layers=1, expert_dtype="fp4",
              compress_ratios=[0, 0, *[4, 128] * 20, 4, 0], **routed(256, 6, 2048),
              rope_scaling={"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536}),
         (284, 13), {"compressed": 41, "sliding": 43}, 1048576, "mxfp4", quantization=FP8_BLOCKS, size_gb=159.6,
         tolerance=0.08),
    # --- hybrids
    Case("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8", "Qwen3NextForCausalLM",
         text("qwen3_next", 2048, 48, 16, 2, 256, 5120, 151936, 262144, full_attention_interval=4,
              **gdn(32), **moe(512, 10, 512, shared_expert_intermediate_size=512)),
         (80, 3.9), {"linear": 36, "full": 12}, 262144, "fp8", 24576, FP8_BLOCKS, size_gb=82.1),
    Case("Qwen/Qwen3.5-35B-A3B", QWEN35,
         text("qwen3_5_moe_text", 2048, 40, 16, 2, 256, 0, 248320, 262144, mtp_num_hidden_layers=1,
              layer_types=every(40, 4, "full_attention", "linear_attention"), mamba_ssm_dtype="float32",
              **gdn(32), **moe(256, 8, 512, shared_expert_intermediate_size=512)),
         (35, 3.5), {"linear": 30, "full": 10}, 262144, kv_bytes=20480, nested="text_config", vision=QWEN_VISION,
         size_gb=71.9),
    Case("Sehyo/Qwen3.5-122B-A10B-NVFP4", QWEN35,
         text("qwen3_5_moe_text", 3072, 48, 32, 2, 256, 0, 248320, 262144, mtp_num_hidden_layers=1,
              layer_types=every(48, 4, "full_attention", "linear_attention"),
              **gdn(64), **moe(256, 8, 1024, shared_expert_intermediate_size=1024)),
         (122, 10.5), {"linear": 36, "full": 12}, 262144, "nvfp4", 24576,
         compressed("float", 4, group_size=16), QWEN_VISION, "text_config", 76.9),
    Case("Intel/Qwen3.5-397B-A17B-int4-AutoRound", QWEN35,
         text("qwen3_5_moe_text", 4096, 60, 32, 2, 256, 0, 248320, 262144, mtp_num_hidden_layers=1,
              layer_types=every(60, 4, "full_attention", "linear_attention"),
              **gdn(64), **moe(512, 10, 1024, shared_expert_intermediate_size=1024)),
         (397, 17.5), {"linear": 45, "full": 15}, 262144, "autoround_int4", 30720, AUTOROUND, QWEN_VISION,
         "text_config", 214.0),
    Case("nvidia/Qwen3.6-27B-NVFP4", "Qwen3_5ForConditionalGeneration",
         text("qwen3_5_text", 5120, 64, 24, 4, 256, 17408, 248320, 262144, mtp_num_hidden_layers=1,
              layer_types=every(64, 4, "full_attention", "linear_attention"), **gdn(48)),
         (27.8, 27.2), {"linear": 48, "full": 16}, 262144, "nvfp4", 65536, NVFP4, QWEN_VISION, "text_config", 28.6),
    Case("moonshotai/Kimi-Linear-48B-A3B-Instruct", "KimiLinearForCausalLM",
         text("kimi_linear", 2304, 27, 32, 32, 72, 9216, 163840, 1048576, first_k_dense_replace=1,
              linear_attn_config={"full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
                                  "kda_layers": [each for each in range(1, 27) if each % 4],
                                  "short_conv_kernel_size": 4},
              model_max_length=1048576, **mla(0, 128, 128), num_experts=256, num_experts_per_token=8,
              moe_intermediate_size=1024, num_shared_experts=1),
         (48, 3.0), {"linear": 20, "mla": 7}, 1048576, kv_bytes=8064, size_gb=98.2, tolerance=0.06),
    Case("MiniMaxAI/MiniMax-Text-01", "MiniMaxText01ForCausalLM",
         text("minimax_text_01", 6144, 80, 64, 8, 128, 9216, 200064, 10240000, attn_type_list=[0] * 7 + [1],
              num_local_experts=32, num_experts_per_tok=2) | {"attn_type_list": ([0] * 7 + [1]) * 10},
         (456, 45.9), {"linear": 70, "full": 10}, 10240000, kv_bytes=40960, tolerance=0.06),
    Case("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "NemotronHForCausalLM",
         text("nemotron_h", 4480, 56, 40, 8, 128, 15680, 131072, 131072, hybrid_override_pattern=NANO_9B,
              **mamba(128, 80, 8)),
         (8.9, 8.9), {"linear": 27, "full": 4}, 131072, kv_bytes=16384, size_gb=17.8),
    Case("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", "NemotronHForCausalLM",
         text("nemotron_h", 2688, 52, 32, 2, 128, 1856, 131072, 262144, hybrid_override_pattern=NANO_30B,
              moe_shared_expert_intermediate_size=3712, **mamba(64, 64, 8), **routed(128, 6, 1856)),
         (31.6, 3.6), {"linear": 23, "full": 6}, 262144, "fp8", 6144,
         {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, size_gb=32.7),
    Case("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "NemotronHForCausalLM",
         text("nemotron_h", 4096, 88, 32, 2, 128, 2688, 131072, 262144, hybrid_override_pattern=SUPER,
              moe_latent_size=1024, moe_shared_expert_intermediate_size=5376, num_nextn_predict_layers=1,
              **mamba(128, 64, 8), **routed(512, 22, 2688)),
         (120, 12.5), {"linear": 40, "full": 8}, 262144, "nvfp4", 8192, MODELOPT_MIXED, size_gb=80.4),
    Case("ibm-granite/granite-4.0-h-small", "GraniteMoeHybridForCausalLM",
         text("granitemoehybrid", 4096, 40, 32, 8, 128, 768, 100352, 131072, shared_intermediate_size=1536,
              layer_types=["attention" if index in (5, 15, 25, 35) else "mamba" for index in range(40)],
              num_local_experts=72, num_experts_per_tok=10, tie_word_embeddings=True, mamba_n_heads=128,
              mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1, mamba_d_conv=4),
         (32.2, 9.0), {"linear": 36, "full": 4}, 131072, kv_bytes=16384, size_gb=64.4),
    Case("ai21labs/AI21-Jamba-1.5-Mini", "JambaForCausalLM",
         text("jamba", 4096, 32, 32, 8, 128, 14336, 65536, 262144, num_experts=16, num_experts_per_tok=2,
              expert_layer_period=2, expert_layer_offset=1, attn_layer_period=8, attn_layer_offset=4,
              mamba_d_state=16, mamba_d_conv=4, mamba_expand=2),
         (51.6, 12.1), {"linear": 28, "full": 4}, 262144, kv_bytes=16384, size_gb=103.1, tolerance=0.04),
    Case("LiquidAI/LFM2-1.2B", "Lfm2ForCausalLM",
         text("lfm2", 2048, 16, 32, 8, 64, 8192, 65536, 128000, conv_L_cache=3, tie_word_embeddings=True,
              layer_types=["full_attention" if index in (2, 5, 8, 10, 12, 14) else "conv" for index in range(16)]),
         (1.17, 1.17), {"linear": 10, "full": 6}, 128000, kv_bytes=12288, size_gb=2.34),
    # --- other tasks
    Case("BAAI/bge-m3", "XLMRobertaModel",
         text("xlm-roberta", 1024, 24, 16, 16, 64, 4096, 250002, 8194, tie_word_embeddings=True),
         (0.57, 0.57), {"full": 24}, 8194, files=("modules.json",), size_gb=2.27, task="embed"),
    Case("Qwen/Qwen3-Embedding-8B", "Qwen3ForCausalLM",
         text("qwen3", 4096, 36, 32, 8, 128, 12288, 151665, 40960, tie_word_embeddings=True),
         (7.6, 7.6), {"full": 36}, 40960, files=("modules.json",), size_gb=15.1, task="embed"),
    Case("openai/whisper-large-v3", "WhisperForConditionalGeneration",
         {"model_type": "whisper", "d_model": 1280, "decoder_layers": 32, "encoder_layers": 32,
          "decoder_attention_heads": 20, "decoder_ffn_dim": 5120, "vocab_size": 51866, "max_target_positions": 448,
          "num_hidden_layers": 32, "intermediate_size": 5120, "tie_word_embeddings": True},
         (1.55, 0.69), {"full": 32}, 448, size_gb=3.1, task="transcribe"),
    Case("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2_5_VLForConditionalGeneration",
         text("qwen2_5_vl", 3584, 28, 28, 4, 128, 18944, 152064, 128000, use_sliding_window=False, sliding_window=32768,
              rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}),
         (8.3, 7.6), {"full": 28}, 128000, kv_bytes=57344,
         vision={"hidden_size": 1280, "depth": 32, "intermediate_size": 3420}, size_gb=16.6),
    Case("OpenGVLab/InternVL3-8B", "InternVLChatModel",
         text("qwen2", 3584, 28, 28, 4, 128, 18944, 151674, 32768, use_sliding_window=False),
         (7.9, 7.6), {"full": 28}, 32768, kv_bytes=57344, nested="llm_config",
         vision={"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}, size_gb=15.9),
    Case("tencent/Hunyuan-A13B-Instruct", "HunYuanMoEV1ForCausalLM",
         text("hunyuan_v1_moe", 4096, 32, 32, 8, 128, 3072, 128167, 32768, tie_word_embeddings=True, num_experts=64,
              moe_topk=[8] * 32, num_shared_expert=[1] * 32, moe_intermediate_size=[3072] * 32),
         (80.4, 13.0), {"full": 32}, 32768, kv_bytes=131072, size_gb=160.8),
)  # fmt: skip
