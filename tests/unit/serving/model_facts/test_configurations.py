"""Configurations of many families give the KV cache and the weights that were counted, published or logged.

`tests/fixtures/model_configs` has them. A figure more than 3 % from the right one needs a reason here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import engine, memory_fit, models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import document, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError

from tests.support.model_configurations import CONFIGS, NEAR, RIGHT, Right, facts, kv, of
from tests.support.model_folders import CASES, text


def test_each_configuration_has_its_right_values() -> None:
    assert {each.name for each in RIGHT} == {path.stem for path in CONFIGS.glob("*.json")}


@pytest.mark.parametrize("right", RIGHT, ids=lambda right: right.name)
def test_what_is_read_is_near_what_is_right(right: Right, tmp_path: Path) -> None:
    found = of(right.name, tmp_path, right.task == "embed")
    assert found.task == right.task and found.doubts == ()
    pairs = [(kv(found), right.kv)]
    pairs += [(found.parameters / 1e9, right.billions)] if right.billions else []
    pairs += [(found.weights_gib, right.gib)] if right.gib else []
    far = [(ours, theirs) for ours, theirs in pairs if ours != pytest.approx(theirs, rel=NEAR)]
    assert len(far) == bool(right.why), far
    assert document.read(document.written(found).encode(), "facts.json") == found


@pytest.mark.parametrize("right", [each for each in RIGHT if each.engine], ids=lambda right: right.name)
def test_what_is_counted_is_what_vllm_itself_says(right: Right, tmp_path: Path) -> None:
    found, said = of(right.name, tmp_path, right.task == "embed"), right.engine
    assert engine.problem({**said, "seconds": 0.0}) is None
    pairs = [(kv(found), engine.token_bytes(said)), (found.weights_gib, engine.weights_gib(said))]
    far = [(ours, theirs) for ours, theirs in pairs if ours != pytest.approx(theirs, rel=NEAR)]
    assert bool(far) == bool(right.apart), far


@pytest.mark.parametrize(
    ("name", "kv_bytes", "gib"),
    [
        ("ibm-granite/granite-4.0-h-small", 16384, 59.99),
        ("CohereForAI/c4ai-command-r7b-12-2024", 131072, 14.95),
        ("allenai/Olmo-3-32B-Think", 262144, 60.04),
        ("ai21labs/AI21-Jamba-1.5-Mini", 16384, 96.06),
    ],
)
def test_the_engine_says_the_same(name: str, kv_bytes: int, gib: float, tmp_path: Path) -> None:
    """vLLM 0.32.0 on the meta device: bytes a token of all layers with keys and values, windows too; BF16 weights."""
    case = next(case for case in CASES if case.id == name)
    found = sources.find(str(replace(case, quantization={}, size_gb=0).folder(tmp_path / "m")))
    assert sum(2 * each.numbers * each.layers for each in found.attention) == kv_bytes
    assert found.weights_gib == pytest.approx(gib, rel=0.003)


def test_a_request_of_sparse_attention_is_what_the_log_says(tmp_path: Path) -> None:
    """Qwen3.8-Flash-Next on a GB10: 16.46 GiB are 3.79 requests of 262,144 tokens, FP8 cache, one layer of drafts."""
    geometry = models.of_facts(of("Qwen3.8-Flash-Next", tmp_path)).geometry
    cache = 262144 * memory_fit.kv_bytes_per_token(geometry, "fp8") * 13 / 12
    assert (cache + memory_fit.state_bytes(geometry)) / 2**30 == pytest.approx(16.46 / 3.79, rel=NEAR)


def test_tables_of_word_groups_are_counted(tmp_path: Path) -> None:
    """Its NVFP4 files have 126 GiB (vllm issue 56824): 50 of layers, and 76 of 20 million groups x 2,048 in BF16."""
    narrow = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}}
    content = json.loads((CONFIGS / "Qwen3.8-Flash-Next.json").read_text(encoding="utf-8"))
    assert facts({**content, **narrow}, tmp_path).weights_gib == pytest.approx(126, rel=0.05)


def test_sparse_mla_in_fp8_has_scales_of_its_own(tmp_path: Path) -> None:
    """`fp8_ds_mla` of vLLM: 512 numbers, 4 scales, 64 numbers in BF16, and 132 bytes of the index."""
    geometry = models.of_facts(of("GLM-5-default", tmp_path)).geometry
    assert memory_fit.kv_bytes_per_token(geometry, "fp8") == 78 * (656 + 132)


# --- what nobody has seen

PLAIN: dict[str, Any] = {
    "architectures": ["NewForCausalLM"], "model_type": "new_family", "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000,
    "max_position_embeddings": 4096,
}  # fmt: skip
ONE = 2 * 16 * 2 * 2  # bytes of a layer


@pytest.mark.parametrize(
    ("more", "layers", "doubt"),
    [
        ({}, 4, ""),
        ({"layer_types": ["telepathy", "full_attention", "linear_attention", "telepathy"]}, 3, "the kind 'telepathy'"),
        ({"layer_types": ["linear_attention", "full_attention"]}, 3, "has 2 of 4 layers"),
        ({"layer_types": ["full_attention"] * 2 + ["mlp"] * 4}, 2, ""),
        ({"hybrid_override_pattern": "M*-?"}, 2, "the kind '?'"),
        ({"hybrid_layer_pattern": [1, 0], "sliding_window": 8}, 3, "2 of 4 layers are not described"),
        ({"sliding_window": 8, "sliding_window_pattern": "LLLG"}, 1, ""),
        ({"attention_chunk_size": 8, "no_rope_layers": []}, 1, ""),
        ({"attention_chunk_size": 8, "no_rope_layers": [1, 1, 0, 0]}, 2, ""),
        ({"sliding_window": [8, None, 8, 8]}, 1, ""),
        ({"layer_group_size": 3}, 2, ""),
        ({"use_mla": False, "kv_lora_rank": 8, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0}, 4, ""),
        ({"num_experts": [8, 8], "moe_layer_start_index": [1, 1], "moe_layer_end_index": [3, 3]}, 4, ""),
        ({"num_kv_shared_layers": 1}, 3, ""),
        ({"use_cla": True, "cla_share_factor": 2}, 2, ""),
        ({"kv_source_layers": [0, 0, 2, 2]}, 2, ""),
        ({"block_types": ["recurrent", "attention"]}, 2, ""),
        ({"loop_layer_index_start": 1, "loop_layer_index_end": 3, "loop_num_passes": 3}, 8, ""),
        ({"num_key_value_heads": [2, 2, 4, 4]}, 6, ""),
        ({"num_key_value_heads": None, "num_attention_groups": 1}, 2, ""),
        ({"per_layer_config": {"03": {"head_dim": 32}}}, 5, ""),
        ({"per_layer_config": {"all": {"head_dim": 32}}}, 4, "'all' is no layer"),
        ({"block_configs": [{"attention": {"no_op": True}}, {"attention": {"n_heads_in_group": 4}}]}, 2.5, ""),
        ({"intermediate_size": [128, 128, 64, 64]}, 4, ""),
        ({"num_attention_heads": None, "num_key_value_heads": None}, 8, "keys and values as wide as the model"),
        ({"layer_types": ["linear_attention", "full_attention"] * 2, "mamba_d_state": 8, "num_attention_heads": None,
          "num_key_value_heads": None}, 4, "keys and values as wide as the model"),
        ({"num_attention_heads": 6, "num_key_value_heads": 2}, 32, "6 heads of one width: 128 are counted"),
        ({"sliding_window": 8}, 4, "does not say for which layers"),
        ({"sliding_window": 8, "model_type": "mistral"}, 0, ""),
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3}, 3, ""),
        ({"linear_attn_config": {"full_attn_layers": [], "kda_layers": [1, 2, 3], "num_heads": 1, "head_dim": 8}}, 1,
         "lack 1 layers"),
        ({"linear_attn_config": {"full_attn_layers": [], "num_heads": 1, "head_dim": 8}}, 4, ""),
        ({"num_hidden_layers": None, "layer_types": ["full_attention"] * 3}, 3, ""),
        ({"hidden_size": 64.0, "use_sliding_window": 0, "sliding_window": 8}, 4, ""),
    ],
    ids=str,
)  # fmt: skip
def test_the_careful_reading(more: dict[str, Any], layers: float, doubt: str, tmp_path: Path) -> None:
    found = facts({**PLAIN, **more}, tmp_path)
    assert kv(found) == layers * ONE
    assert (doubt in " ".join(found.doubts)) if doubt else found.doubts == ()


def test_what_says_nothing_at_all_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(FactsError, match=r"says nothing of what a token leaves in the KV cache.*--facts FILE"):
        facts({"architectures": ["X"], "num_hidden_layers": 4}, tmp_path)


def test_the_text_is_found_below_a_name_that_is_not_known(tmp_path: Path) -> None:
    inner = {name: value for name, value in PLAIN.items() if name != "architectures"}
    assert kv(facts({"architectures": ["X"], "brain": inner, "eye": {"num_hidden_layers": 9}}, tmp_path)) == 4 * ONE


def test_layers_that_were_pruned_have_fewer_weights(tmp_path: Path) -> None:
    whole = facts(PLAIN, tmp_path).parameters
    gone = {"block_configs": [{"attention": {"no_op": True}, "ffn": {"no_op": True}}]}
    assert whole - facts({**PLAIN, **gone}, tmp_path).parameters == 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128


def test_each_block_may_have_experts_of_its_own_width_and_number(tmp_path: Path) -> None:
    """As NVIDIA-Nemotron-Labs-3-Puzzle-75B-A9B writes it: above its blocks it says neither, and no number of layers."""
    words = ["moe", "attention", "moe"]
    found = facts({
        **PLAIN, "num_hidden_layers": None, "layers_block_type": words, "mlp_hidden_act": "relu2",
        "n_routed_experts": 8,
        "block_configs": [
            {"block_type": "moe", "moe_intermediate_size": 128, "num_experts_per_tok": 2},
            {"block_type": "attention"},
            {"block_type": "moe", "moe_intermediate_size": 256, "num_experts_per_tok": 3},
        ],
    }, tmp_path)  # fmt: skip
    alone = {"num_hidden_layers": 1, "block_configs": [{"ffn": {"no_op": True}}]}  # attention, and words
    plain = facts({**PLAIN, **alone}, tmp_path).parameters
    routers = 2 * 8 * 64
    assert found.parameters - plain == routers + 8 * 2 * 64 * (128 + 256)
    assert found.active - plain == routers + 2 * 64 * (2 * 128 + 3 * 256)
    assert found.experts.per_token == 3 and found.widths == (128, 256)


@pytest.mark.parametrize(
    ("said", "kind", "doubt"),
    [
        ({"quant_method": "fp4"}, "nvfp4", ""),
        ({"quant_method": "modelopt_fp4"}, "nvfp4", ""),
        ({"quant_method": "modelopt", "quant_algo": "W4A4_NVFP4"}, "nvfp4", ""),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, "fp8", ""),
        ({"quant_method": "compressed_tensors", "format": "nvfp4-pack-quantized"}, "nvfp4", ""),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, "fp8", ""),
        ({"quant_method": "mxfp4_moe"}, "mxfp4", ""),
        ({"quant_method": "intel/auto_round", "bits": 4}, "autoround_int4", ""),
        ({"quant_method": "awq_marlin", "bits": 4}, "awq_int4", ""),
        ({"quant_method": "w8a8_something"}, "int8", ""),
        ({"quant_method": "exl3", "bits": 3.5}, "other", "quantized by 'EXL3', not known here: 3.5 bits, as it says,"),
        ({"quant_method": "exl3", "bits": 99}, "other", "not known here: 16 bits"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", ""),
        ({"quant_method": "bitsandbytes", "_load_in_8bit": True}, "int8", ""),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4}}}, "int4", ""),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "data_type": "int"}, "autoround_int4", ""),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "mx_fp"}, "mxfp4", ""),
        (
            {"quant_method": "auto-round", "bits": 4, "group_size": 16, "data_type": "nv_fp4_with_static_gs"},
            "nvfp4",
            "",
        ),
        ({"quant_method": "auto-round", "bits": 8, "group_size": -1, "data_type": "fp"}, "fp8", ""),
        ({"quant_method": "fp_quant", "forward_dtype": "nvfp4"}, "nvfp4", ""),
        ({"quant_method": "fp_quant"}, "mxfp4", ""),
        ({"quant_method": "quanto", "weights": "float8"}, "fp8", ""),
        ({"quant_method": "eetq", "weights": "int8"}, "int8", ""),
        ({"quant_method": "hqq", "quant_config": 4}, "other", "not known here: 16 bits"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}, "mxfp4", ""),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, "fp8", ""),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}}, "int4", ""),
        ({"quant_method": "torchao", "quant_type": "float8_weight_only"}, "fp8", ""),
        ({"quant_method": "newest"}, "other", "quantized by 'NEWEST', not known here: 16 bits"),
        ({}, "bf16", ""),
    ],
    ids=str,
)
def test_spellings_of_formats(said: dict[str, Any], kind: str, doubt: str, tmp_path: Path) -> None:
    found = facts({**PLAIN, "quantization_config": said}, tmp_path)
    assert found.format == kind
    assert (doubt in " ".join(found.doubts)) if doubt else found.doubts == ()


# --- what a checkpoint leaves as it was

LLAMA = next(case for case in CASES if case.id == "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic")
NARROW: dict[str, Any] = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
GROUP = {"weights": {"type": "float", "num_bits": 4, "group_size": 16}}
INTEGERS = {"type": "int", "num_bits": 4, "group_size": 32}
COMPRESSED = {"quant_method": "compressed-tensors", "ignore": ["lm_head"]}
ATTENTION = 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024)  # numbers


@pytest.mark.parametrize(
    ("said", "wide"),
    [
        ({**NARROW, "exclude_modules": ["lm_head"]}, 0),
        ({**NARROW, "ignore": ["lm_head"]}, 0),
        ({**NARROW, "ignore": ["lm_head", "model.layers.0.self_attn*"]}, 1 / 80),
        (NARROW, 1),
        ({**COMPRESSED, "config_groups": {"group_0": {**GROUP, "targets": ["Linear"]}}}, 0),
        ({**COMPRESSED, "config_groups": {"group_0": {**GROUP, "targets": ["re:.*experts.*"]}}}, 1),
        ({"quant_method": "fp8"}, 0),
        ({"quant_method": "fp8", "modules_to_not_convert": ["self_attn"]}, 1),
    ],
    ids=str,
)
def test_attention_is_as_wide_as_the_checkpoint_says(said: dict[str, Any], wide: float, tmp_path: Path) -> None:
    """Llama-3.3-70B in NVFP4 has 39.7 GiB, and not the 55.9 of attention in BF16."""
    found = facts({"architectures": ["LlamaForCausalLM"], **LLAMA.config, "quantization_config": said}, tmp_path)
    bits = 8 if said["quant_method"] == "fp8" else 4.5
    all_narrow = (68.45e9 * bits + 2 * 128256 * 8192 * 16) / 8 / 2**30
    more = wide * ATTENTION * (16 - bits) / 8 / 2**30
    assert found.weights_gib == pytest.approx(all_narrow + more, rel=0.005)
    assert found.weights_gib == pytest.approx(39.7, rel=NEAR) or wide or bits == 8


@pytest.mark.parametrize(
    ("said", "bits"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4.25),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, 4.25),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, 4.625),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, 8.5),
        ({"quant_method": "gptq", "bits": 8}, 8),
        ({**COMPRESSED, "config_groups": {"group_0": {"targets": ["Linear"], "weights": {**INTEGERS}}}}, 4.625),
    ],
    ids=str,
)
def test_small_groups_of_integers_have_more_scales(said: dict[str, Any], bits: float, tmp_path: Path) -> None:
    found = facts({"architectures": ["LlamaForCausalLM"], **LLAMA.config, "quantization_config": said}, tmp_path)
    assert found.weights_gib == pytest.approx((68.45e9 * bits + 2 * 128256 * 8192 * 16) / 8 / 2**30, rel=0.005)


def test_a_trillion_in_groups_of_32_is_as_large_as_its_files(tmp_path: Path) -> None:
    """Kimi-K2-Thinking: 594 GB on the hub."""
    case = next(case for case in CASES if case.id == "moonshotai/Kimi-K2-Thinking")
    found = sources.find(str(replace(case, size_gb=0).folder(tmp_path / "m")))
    assert found.weights_gib == pytest.approx(594e9 / 2**30, rel=NEAR)


def test_each_part_is_counted_in_the_format_that_its_modules_are_named_with(tmp_path: Path) -> None:
    """nvidia/Qwen3.6-35B-A3B-NVFP4, its 291 modules, and nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4, where 12 of 29
    layers stay as they were: 18.21 GiB in a log of a GB10, and 63 tok/s.
    """
    layers = {f"model.language_model.layers.{layer}.linear_attn.out_proj": "FP8" for layer in range(30)}
    layers |= {f"model.language_model.layers.{layer}.mlp.experts": "W4A16_NVFP4" for layer in range(40)}
    layers |= {f"model.language_model.layers.{layer}.mlp.shared_expert.up_proj": "NVFP4" for layer in range(40)}
    named = {name: {"quant_algo": algorithm} for name, algorithm in {**layers, "lm_head": "NVFP4"}.items()}
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": named}
    config = json.loads((CONFIGS / "Qwen3.6-35B-A3B.json").read_text(encoding="utf-8"))
    parts = facts({**config, "quantization_config": mixed}, tmp_path).parts
    assert 7.5 < parts.sides_bits < 8 and parts.head_bits == 4.5
    left = [f"backbone.layers.{layer}.mixer.{name}" for layer in (4, 5, 11, 12, 18, 19, 25, 26, 32, 33, 41, 42)
            for name in ("in_proj", "out_proj")]  # fmt: skip
    left += [f"backbone.layers.{layer}.mixer.conv1d" for layer in range(23)]
    nano = json.loads((CONFIGS / "Nemotron-3-Nano-30B-A3B-BF16.json").read_text(encoding="utf-8"))
    found = facts({**nano, "quantization_config": {**NARROW, "exclude_modules": ["lm_head", *left]}}, tmp_path)
    assert found.weights_gib == pytest.approx(18.21, rel=NEAR)


def test_an_index_of_sparse_attention_is_counted_where_it_is(tmp_path: Path) -> None:
    """MiniMax-M3: a key of 128 numbers in 57 of 60 layers."""
    sparse = [0, 0, 0, *[1] * 57]
    said = {"use_sparse_attention": True, "sparse_index_dim": 128, "sparse_attention_freq": sparse}
    plain = text("minimax_m3", 6144, 60, 64, 4, 128, 3072, 200064, 1048576)
    assert kv(facts({"architectures": ["X"], **plain, "sparse_attention_config": said}, tmp_path)) == 122880 + 57 * 256
    off = {**said, "use_sparse_attention": False}
    assert kv(facts({"architectures": ["X"], **plain, "sparse_attention_config": off}, tmp_path)) == 122880


@pytest.mark.parametrize(("function", "matrices"), [("swiglu", 3), ("gelu", 2)])
def test_nomic_has_a_gate_where_its_function_says_so(function: str, matrices: int, tmp_path: Path) -> None:
    """nomic-embed-text-v1.5 has 137 million parameters with it, v2-moe 475 without."""
    said = {"model_type": "nomic_bert", "n_embd": 64, "n_head": 4, "n_layer": 2, "n_inner": 256, "vocab_size": 100}
    found = facts({"architectures": ["NomicBertModel"], **said, "activation_function": function}, tmp_path)
    assert found.parameters == 100 * 64 + 2 * (4 * 64 * 64 + matrices * 64 * 256)


def test_experts_of_a_latent_are_as_wide_as_it(tmp_path: Path) -> None:
    """Kimi-K3: 896 experts of 3,584 numbers in 92 layers, 2.8 T in all."""
    said = {"num_experts": 896, "num_experts_per_token": 16, "moe_intermediate_size": 3072, "first_k_dense_replace": 1}
    plain = text("kimi_linear", 7168, 93, 96, 96, 128, 33792, 163840, 1048576, routed_expert_hidden_size=3584, **said)
    assert facts({"architectures": ["X"], **plain}, tmp_path).parameters == pytest.approx(2.8e12, rel=0.05)


def test_a_separate_file_of_the_format_says_what_was_left_out(tmp_path: Path) -> None:
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}), encoding="utf-8"
    )
    found = facts({"architectures": ["LlamaForCausalLM"], **LLAMA.config}, tmp_path)
    assert found.format == "nvfp4" and found.weights_gib == pytest.approx(39.7, rel=NEAR)


@pytest.mark.parametrize(("whole", "inner", "tied"), [(True, None, True), (None, True, True), (False, True, False)])
def test_the_whole_says_whether_the_output_layer_is_the_embedding(
    whole: bool | None, inner: bool | None, tied: bool, tmp_path: Path
) -> None:
    text = {**PLAIN, "tie_word_embeddings": inner}
    one = facts({"architectures": ["X"], "text_config": text, "tie_word_embeddings": whole}, tmp_path).parameters
    assert facts({**PLAIN, "tie_word_embeddings": False}, tmp_path).parameters - one == (64000 if tied else 0)


def test_encoders_at_any_level_are_counted(tmp_path: Path) -> None:
    sound = {"encoder_layers": 2, "d_model": 8, "encoder_ffn_dim": 16}
    inner = {
        "text_config": PLAIN,
        "audio_config": sound,
        "vision_config": {"embed_dim": 8, "hidden_size": 99, "depth": 2},
    }
    found = facts({"architectures": ["X"], "thinker_config": inner}, tmp_path)
    assert found.audio and found.vision
    assert found.parameters - facts(PLAIN, tmp_path).parameters == 2 * (4 * 64 + 2 * 8 * 16) + 2 * (4 * 64 + 2 * 8 * 32)


def test_widths_are_those_of_dense_networks_and_of_experts(tmp_path: Path) -> None:
    assert of("GLM-4.5-Air", tmp_path).widths == (1408, 10944)
    assert models.of_facts(of("Seed-OSS-36B", tmp_path)).geometry.widths == (27648,)


# Of families that no configuration of the folder has: bytes of cache a token, billions of parameters.
FRESH = [
    ("Falcon-Mamba-7B", 0, 7.27, {  # expand is 16 there, and 8,192 is what its layers have
        "model_type": "falcon_mamba", "architectures": ["FalconMambaForCausalLM"], "hidden_size": 4096, "expand": 16,
        "intermediate_size": 8192, "num_hidden_layers": 64, "state_size": 16, "time_step_rank": 256, "conv_kernel": 4,
        "vocab_size": 65024, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}),
    ("Trinity-Nano", 14 * 2 * 128 * 4, 6.06, {
        "model_type": "afmoe", "architectures": ["AfmoeForCausalLM"], "global_attn_every_n_layers": 4, "head_dim": 128,
        "hidden_size": 1024, "intermediate_size": 3072, "moe_intermediate_size": 256, "num_attention_heads": 8,
        "num_dense_layers": 2, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 56,
        "num_key_value_heads": 2, "num_shared_experts": 1, "sliding_window": 2048, "tie_word_embeddings": False,
        "max_position_embeddings": 131072, "vocab_size": 200192, "torch_dtype": "bfloat16"}),
    ("Qwen3-ASR-1.7B", 28 * 8 * 128 * 4, 2.02, {
        "model_type": "qwen3_asr", "architectures": ["Qwen3ASRForConditionalGeneration"], "thinker_config": {
            "audio_config": {"d_model": 1024, "encoder_layers": 24, "encoder_ffn_dim": 4096, "output_dim": 2048},
            "text_config": {"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "head_dim": 128,
                            "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
                            "max_position_embeddings": 65536, "tie_word_embeddings": True}}}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cache", "billions", "content"), FRESH, ids=lambda each: str(each)[:20])
def test_a_family_of_new_words_is_counted(
    name: str, cache: int, billions: float, content: dict[str, Any], tmp_path: Path
) -> None:
    found = facts(content, tmp_path)
    assert kv(found) == cache, name
    assert found.parameters / 1e9 == pytest.approx(billions, rel=NEAR)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", {"_class_name": "FluxTransformer2DModel", "_diffusers_version": "0.36.0", "num_layers": 19},
         "diffusion"),
        ("model_index.json", {"_class_name": "FluxPipeline"}, "diffusion"),
        ("adapter_config.json", {"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-32B"}, "adapter"),
        ("other.json", {}, "has no config.json"),
    ],
)  # fmt: skip
def test_what_is_no_language_model_is_called_so(name: str, content: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(FactsError, match=said):
        sources.find(str(tmp_path))
