"""Families that have words of their own for how often a token goes through a layer, or leave out what is usual."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models, speed
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import parameters
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError, Fields

from tests.support.model_configurations import facts, kv

# Bytes of cache a token, billions of parameters, the configuration as on the hub in what says how large it is.
FAMILIES: dict[str, tuple[int, float, dict[str, Any]]] = {
    # vLLM 0.32.0 on the meta device: 62 layers of 15,360 bytes, 8.148 GB
    "MiniCPM3-4B": (952320, 4.074, {
        "model_type": "minicpm3", "hidden_size": 2560, "intermediate_size": 6400, "num_hidden_layers": 62,
        "num_attention_heads": 40, "num_key_value_heads": 40, "q_lora_rank": 768, "kv_lora_rank": 256,
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "vocab_size": 73448}),
    # 176 billion as published; each of 70 layers keeps a key and a value as wide as it is
    "BLOOM": (70 * 14336 * 2 * 2, 176.2, {
        "model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112, "vocab_size": 250880,
        "seq_length": 2048}),
    # the same: 128 layers of 6,144 bytes, 2.896 GB
    "HRM-Text": (786432, 1.448, {
        "model_type": "hrm_text", "hidden_size": 1536, "intermediate_size": 4096, "num_attention_heads": 12,
        "head_dim": 128, "H_cycles": 2, "L_cycles": 3, "num_layers_per_stack": 16, "num_hidden_layers": 128,
        "vocab_size": 151808, "tie_word_embeddings": False}),
    # the same: 14.571 GB; and a state of 4,255,744 bytes in each layer
    "Mamba-Codestral-7B": (0, 7.285, {
        "model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64,
        "state_size": 128, "n_groups": 8, "expand": 2, "conv_kernel": 4, "intermediate_size": 8192,
        "vocab_size": 32768, "tie_word_embeddings": False}),
    # 28 layers of two attentions each; 562 billion as published
    "LongCat-Flash": (28 * 2 * 576 * 2, 562, {
        "model_type": "longcat_flash", "hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64,
        "ffn_hidden_size": 12288, "expert_ffn_hidden_size": 2048, "kv_lora_rank": 512, "q_lora_rank": 1536,
        "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 512, "moe_topk": 12,
        "zero_expert_num": 256, "vocab_size": 131072}),
    # the same: 12 of 48 layers of 4,096 bytes, 473.14 GB; its first layer has no experts
    "K-EXAONE-236B": (49152, 236.6, {
        "model_type": "exaone_moe", "hidden_size": 6144, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "num_hidden_layers": 48, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
        "is_moe_layer": [False] + [True] * 47, "num_experts": 128, "num_experts_per_tok": 8, "num_shared_experts": 1,
        "sliding_window": 128, "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 12,
        "vocab_size": 153600}),
    # the same: 61 layers of 1,024 bytes, 632.59 GB; its queries go by way of 2,048 numbers
    "Step3-316B": (62464, 316.3, {
        "model_type": "step3_text", "hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 64,
        "num_attention_groups": 1, "num_hidden_layers": 61, "head_dim": 256, "share_q_dim": 2048,
        "share_expert_dim": 5120, "moe_intermediate_size": 5120, "moe_num_experts": 48, "moe_top_k": 3,
        "moe_layers_enum": ",".join(map(str, range(4, 60))), "vocab_size": 128815}),
    # as published: 2 billion, by far the most of them in a conformer
    "cohere-transcribe": (8 * 8 * 128 * 2 * 2, 2.0, {
        "architectures": ["CohereAsrForConditionalGeneration"], "vocab_size": 16384,
        "encoder": {"d_model": 1280, "n_layers": 48, "n_heads": 8, "conv_kernel_size": 9},
        "transf_decoder": {"config_dict": {"hidden_size": 1024, "inner_size": 4096, "num_layers": 8,
                                           "num_attention_heads": 8, "max_sequence_length": 1024}}}),
    # vLLM on the meta device: 10 of 62 layers of 8,192 bytes, 54.86 GB; the hub says no vocab_size
    "gemma-3-27b": (81920, 27.43, {
        "text_config": {
            "model_type": "gemma3_text", "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
            "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16, "sliding_window": 1024},
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
                          "num_hidden_layers": 27}}),
    # as published: 4.3 billion; the hub says no heads either
    "gemma-3-4b": (5 * 4 * 256 * 2 * 2, 4.3, {
        "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
                        "num_hidden_layers": 34, "sliding_window": 1024},
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
                          "num_hidden_layers": 27}}),
    # as published; its encoders are named, and say no sizes that tell how large they are
    "gemma-3n-E2B": (4 * 2 * 256 * 2 * 2, 5.44, {
        "audio_config": {"model_type": "gemma3n_audio", "hidden_size": 1536, "conf_num_hidden_layers": 12},
        "vision_config": {"model_type": "gemma3n_vision", "hidden_size": 2048},
        "text_config": {
            "model_type": "gemma3n_text", "hidden_size": 2048, "hidden_size_per_layer_input": 256, "head_dim": 256,
            "intermediate_size": [8192] * 30, "num_hidden_layers": 30, "num_attention_heads": 8,
            "num_key_value_heads": 2, "num_kv_shared_layers": 10, "sliding_window": 512, "vocab_size": 262400,
            "layer_types": [*["sliding_attention"] * 4, "full_attention"] * 6, "vocab_size_per_layer_input": 262144}}),
    # as published; its encoder is two, below `width`
    "DeepSeek-OCR": (12 * 10 * 128 * 2 * 2, 3.34, {
        "vision_config": {"model_type": "vision", "width": {"clip-l-14-224": {"layers": 24, "width": 1024},
                                                            "sam_vit_b": {"layers": 12, "width": 768}}},
        "language_config": {
            "hidden_size": 1280, "intermediate_size": 6848, "moe_intermediate_size": 896, "num_hidden_layers": 12,
            "num_attention_heads": 10, "num_key_value_heads": 10, "n_routed_experts": 64, "n_shared_experts": 2,
            "num_experts_per_tok": 6, "first_k_dense_replace": 1, "kv_lora_rank": None, "qk_nope_head_dim": 0,
            "qk_rope_head_dim": 0, "v_head_dim": 0, "use_mla": False, "vocab_size": 129280}}),
    # as published; the hub says of its text no head_dim
    "paligemma2-3b": (13 * 4 * 256 * 2 * 2, 3.03, {
        "text_config": {
            "model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8,
            "num_hidden_layers": 26, "num_key_value_heads": 4, "sliding_window": 4096, "vocab_size": 257216},
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
                          "num_hidden_layers": 27}}),
    # 3.84 billion of text; its encoders are in no configuration, and its two adapters vLLM does not load
    "Phi-4-multimodal": (131072, 4.71, {
        "model_type": "phi4mm", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 200064, "tie_word_embeddings": True,
        "vision_lora": {"r": 256}, "speech_lora": {"r": 320}, "embd_layer": {"embedding_cls": "image_audio"}}),
    # transformers 5.24.0 on the meta device: its attention has a gate; 14 of 56 times through a layer see everything
    "Dory": (14 * 4 * 256 * 2 * 2, 3.975, {
        "model_type": "dory", "hidden_size": 2560, "intermediate_size": 7168, "num_hidden_layers": 72,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "n_input_layers": 16,
        "n_recurrent_layers": 40, "n_output_layers": 16, "n_recurrent_loops": 2, "sliding_window": 1024,
        "layer_types": [*["sliding_attention", "mlp"] * 3, "full_attention", "mlp"] * 9, "vocab_size": 131072}),
    # the same, 29.399 without its resampler; a second set of experts is for what it sees
    "ERNIE-4.5-VL-28B": (28 * 4 * 128 * 2 * 2, 29.4, {
        "model_type": "ernie4_5_moe_vl", "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28,
        "num_attention_heads": 20, "num_key_value_heads": 4, "moe_num_experts": [64, 64],
        "moe_intermediate_size": [1536, 512], "moe_k": 6, "moe_num_shared_experts": 2, "vocab_size": 103424,
        "moe_layer_start_index": 1, "tie_word_embeddings": True,
        "vision_config": {"depth": 32, "hidden_size": 1280, "mlp_ratio": 4, "hidden_act": "quick_gelu"}}),
    # the same; three matrices between two layers of the encoder's attention
    "GLM-OCR": (16 * 8 * 64 * 2 * 2, 0.8075, {
        "text_config": {
            "model_type": "glm_ocr_text", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 16,
            "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 59392},
        "vision_config": {"model_type": "glm_ocr_vision", "depth": 24, "hidden_size": 1024, "num_heads": 16,
                          "intermediate_size": 4096, "hidden_act": "silu", "out_hidden_size": 1536,
                          "spatial_merge_size": 2}}),
    # the same: what it calls hybrid is attention behind a short convolution, and no Mamba
    "ZAYA1-8B": (40 * 2 * 128 * 2 * 2, 8.84, {
        "model_type": "zaya", "hidden_size": 2048, "moe_intermediate_size": 2048, "num_experts": 16,
        "num_experts_per_tok": 1, "num_hidden_layers": 40, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 128, "layer_types": ["hybrid"] * 40, "cca_time0": 2, "cca_time1": 2, "vocab_size": 262272,
        "tie_word_embeddings": True}),
    # the same: its encoder is two, one behind the other, and its layers keep all of the prompt
    "Unlimited-OCR": (12 * 10 * 128 * 2 * 2, 3.336, {
        "text_config": {
            "hidden_size": 1280, "intermediate_size": 6848, "moe_intermediate_size": 896, "num_hidden_layers": 12,
            "num_attention_heads": 10, "num_key_value_heads": 10, "head_dim": 128, "n_routed_experts": 64,
            "n_shared_experts": 2, "num_experts_per_tok": 6, "sliding_window": 128, "vocab_size": 129280,
            "layer_types": ["reference_sliding_attention"] * 12, "mlp_layer_types": ["dense", *["sparse"] * 11]},
        "vision_config": {
            "encoder_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24},
            "sam_config": {"hidden_size": 768, "mlp_dim": 3072, "num_hidden_layers": 12}}}),
    # vLLM on the meta device: 24 layers of 8,192 bytes, 18.52 GB; the hub says an empty object
    "moondream3": (196608, 9.26, {"model_type": "moondream3", "config": {}}),
    # as published; the hub says of its text a name and vocab_size
    "llava-1.5-7b": (32 * 32 * 128 * 2 * 2, 7.06, {
        "text_config": {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096},
        "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096,
                          "num_hidden_layers": 24}}),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_counted(name: str, tmp_path: Path) -> None:
    cache, billions, content = FAMILIES[name]
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 4096}')
    found = facts({"architectures": ["XForCausalLM"], "torch_dtype": "bfloat16", **content}, tmp_path)
    assert kv(found) == cache and found.doubts == ()
    near = 0.03 if billions == round(billions) else 0.02  # as published, which is rounded
    assert found.parameters / 1e9 == pytest.approx(billions, rel=near)


def test_the_state_of_mamba_2_is_what_vllm_keeps(tmp_path: Path) -> None:
    found = facts({"architectures": ["X"], **FAMILIES["Mamba-Codestral-7B"][2]}, tmp_path)
    assert [each.state_bytes for each in found.attention] == [4255744]


@pytest.mark.parametrize(
    ("more", "numbers"),
    [
        ({"hidden_act": "gelu"}, 4 * 64 * 64 + 2 * 64 * 128),
        ({"hidden_act": "silu"}, 4 * 64 * 64 + 3 * 64 * 128),
        ({"hidden_act": "silu", "num_key_value_heads": 2}, 3 * 64 * 64 + 3 * 64 * 128),  # EXAONE 4.5
        ({"hidden_act": "silu", "model_type": "glm4v_vision", "out_hidden_size": 96}, 4 * 64 * 64 + 3 * 64 * 96),
    ],
    ids=str,
)
def test_an_encoder_is_counted_by_what_it_computes_with(more: dict[str, Any], numbers: int) -> None:
    """Of transformers 5.24.0: CLIP, Qwen2.5-VL, EXAONE 4.5 and GLM-4.1V on the meta device."""
    said = {"hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "depth": 3, **more}
    assert parameters.senses(Fields(said, "config.json", "vision_config.", [])) == 3 * numbers


PLAIN: dict[str, Any] = {
    "architectures": ["X"], "model_type": "new", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000, "tie_word_embeddings": False,
}  # fmt: skip
LAYER = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128  # numbers


@pytest.mark.parametrize(
    ("more", "caches", "times"),
    [
        ({}, 4, 4),
        ({"total_ut_steps": 3}, 12, 12),  # Ouro
        ({"loop_num": 2, "loop_window_size": 8}, 4, 8),  # IQuest: the second time sees a window
        ({"num_layers_per_stack": 2, "H_cycles": 2, "L_cycles": 3}, 16, 16),
    ],
    ids=str,
)
def test_a_layer_that_is_gone_through_twice_is_read_twice_and_there_once(
    more: dict[str, Any], caches: int, times: int, tmp_path: Path
) -> None:
    found = facts({**PLAIN, **more}, tmp_path)
    model = models.of_facts(found)
    assert kv(found) == caches * 2 * 16 * 2 * 2
    assert found.parameters == 4 * LAYER + 2 * 64000
    assert speed.read_gb(model, model.checkpoints[0]) * 1e9 == pytest.approx(2 * (times * LAYER + 64000))


def test_a_format_that_is_not_known_has_the_bits_that_it_says(tmp_path: Path) -> None:
    """EXL3 at 3 bits, of all layers, and its head at 6: nothing of it is read in 16 bits."""
    said = {"quant_method": "exl3", "bits": 3.0, "head_bits": 6}
    found = facts({**PLAIN, "quantization_config": said}, tmp_path)
    model = models.of_facts(found)
    assert found.weights.total == pytest.approx((4 * LAYER * 3 + 64000 * (6 + 16)) / 8, rel=0.01)
    assert speed.read_gb(model, model.checkpoints[0]) * 1e9 == pytest.approx((4 * LAYER * 3 + 64000 * 6) / 8, rel=0.01)


def test_what_gptqmodel_leaves_out_is_read_in_16_bits(tmp_path: Path) -> None:
    """Qwen3.5-27B-GPTQ-Int4 ran at 8.6 tok/s on a GB10, where 12.6 were expected with attention in 4 bits."""
    said = {"quant_method": "gptq", "bits": 4, "dynamic": {"lm_head": {}, "-:.*attn.*": {}, "+:.*up_proj": {"bits": 8}}}
    parts = facts({**PLAIN, "quantization_config": said}, tmp_path).parts
    assert parts.sides_bits == 16
    assert facts({**PLAIN, "quantization_config": {**said, "dynamic": {}}}, tmp_path).parts.sides_bits == 4.25


@pytest.mark.parametrize(
    ("architecture", "task"),
    [
        ("JinaVLForRanking", "classify"),
        ("Qwen2ForProcessRewardModel", "classify"),
        ("ModernBertForTokenClassification", "classify"),
        ("ColPaliForRetrieval", "embed"),
        ("ColQwen3_5", "embed"),
        ("SiglipModel", "embed"),
        ("CohereForCausalLM", "generate"),
        ("InternVLChatModel", "generate"),
    ],
)
def test_what_does_not_chat_is_not_planned_as_a_chat(architecture: str, task: str, tmp_path: Path) -> None:
    seeing = {"architectures": [architecture], "vision_config": {"hidden_size": 8, "depth": 1}}
    assert facts({**PLAIN, **seeing}, tmp_path).task == task


@pytest.mark.parametrize(
    ("architecture", "task"), [("ChatGLMModel", "generate"), ("UltravoxModel", "generate"), ("Qwen2Model", "embed")]
)
def test_a_name_that_ends_in_model_may_chat(architecture: str, task: str, tmp_path: Path) -> None:
    assert facts({**PLAIN, "architectures": [architecture]}, tmp_path).task == task


def test_a_configuration_without_layers_has_a_way_out(tmp_path: Path) -> None:
    """All of it may be in code that nobody here has read."""
    with pytest.raises(FactsError, match=r"does not say how many layers the model has.*--facts FILE"):
        facts({"architectures": ["HfNewest"], "model_type": "newest", "config": {}}, tmp_path)
