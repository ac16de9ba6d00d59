# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many parameters a model has by its configuration, and how many of them one token uses.

Norms and biases are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import Attention, Experts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import Fields

# Two matrices instead of three: a layer without a gate.
_UNGATED = (
    "nemotron",
    "nemotron_h",
    "gpt2",
    "gpt_neox",
    "opt",
    "bloom",
    "falcon",
    "bert",
    "roberta",
    "xlm-roberta",
    "whisper",
)


@dataclass(frozen=True)
class Count:
    total: int
    active: int
    tables: int  # embeddings and the output layer, which no format quantizes
    feeding: int  # experts, or the dense layers of a model without any


def experts(config: Fields) -> Experts:
    count = config.layered("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_moe_experts")
    if count < 2:
        return Experts()
    per_token = config.layered(
        *("num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_topk", "moe_k", "num_experts_per_token"),
        default=1,
    )
    shared = config.layered("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
    wide = config.whole("shared_expert_intermediate_size", "shared_intermediate_size")
    return Experts(count, min(per_token, count), shared or int(wide > 0))


def count(config: Fields, attention: tuple[Attention, ...], layers: int) -> Count:
    """`config` is that of the text; what an encoder has is counted apart."""
    hidden = config.whole("hidden_size", "n_embd", "d_model")
    tables = 1 if config.flag("tie_word_embeddings", default=_tied(config)) else 2
    words = tables * config.whole("vocab_size") * hidden
    total = words + sum(_attention(config, each, hidden) * each.layers for each in attention)
    dense, sparse = _split(config, layers)
    matrices = 2 if config.text("model_type") in _UNGATED else 3
    one = matrices * hidden * config.whole("intermediate_size", "ffn_hidden_size", "n_inner", default=4 * hidden)
    total += dense * one
    feeding = dense * one
    found = experts(config)
    each = _expert(config, hidden, matrices)
    total += sparse * (found.count * each + _shared(config, hidden, matrices, each) + found.count * hidden)
    if config.flag("enable_moe_block"):  # Gemma 4: a dense layer beside the experts
        total += sparse * one
    feeding = sparse * found.count * each or feeding
    return Count(total, total - sparse * (found.count - found.per_token) * each, words, feeding)


def vision(config: Fields | None) -> int:
    """Of an encoder for images."""
    if config is None:
        return 0
    hidden = config.whole("hidden_size", "embed_dim", "width", "d_model")
    depth = config.whole("depth", "num_hidden_layers", "layers", "encoder_layers")
    wide = config.whole("intermediate_size", "mlp_hidden_size", "encoder_ffn_dim", default=4 * hidden)
    return depth * (4 * hidden * hidden + 2 * hidden * wide)


def _tied(config: Fields) -> bool:
    return config.text("model_type").startswith(("gemma", "cohere"))


def _split(config: Fields, layers: int) -> tuple[int, int]:
    """Layers that compute a token with one network, and those that choose experts."""
    if pattern := config.text("hybrid_override_pattern"):
        return pattern.count("-"), pattern.count("E")
    words = config.texts("layers_block_type")
    if "moe" in words or "mlp" in words:
        return words.count("mlp"), words.count("moe")
    if not experts(config).count:
        return layers, 0
    frequencies = config.items("moe_layer_freq") if isinstance(config.data.get("moe_layer_freq"), list) else []
    if frequencies:
        sparse = sum(1 for each in frequencies[:layers] if each)
    elif every := config.whole("interleave_moe_layer_step", "expert_layer_period", "decoder_sparse_step", default=1):
        first = config.whole("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
        sparse = (layers - first) // every - len(config.wholes("mlp_only_layers"))
    else:
        sparse = layers
    return layers - sparse, sparse


def _expert(config: Fields, hidden: int, matrices: int) -> int:
    names = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size", "intermediate_size")
    width = config.layered(*names)
    return matrices * (config.whole("moe_latent_size") or hidden) * width


def _shared(config: Fields, hidden: int, matrices: int, one: int) -> int:
    width = config.whole(
        "moe_shared_expert_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size"
    )
    number = experts(config).shared
    return (
        matrices * hidden * width * max(1, number if config.has("n_shared_experts") else 1) if width else number * one
    )


def _attention(config: Fields, kind: Attention, hidden: int) -> int:
    """Of one layer."""
    if kind.kind == "linear":
        return _linear(config, hidden)
    queries = config.whole("num_attention_heads", "n_head", "num_heads", "decoder_attention_heads")
    if kind.token_bytes:  # DeepSeek-V4: counted with the layers of the window, which are all
        return _low_rank(config, hidden, queries) if kind.kind == "sliding" else 0
    if kind.latent:
        return _latent(config, hidden, queries)
    gate = 2 if config.flag("attn_output_gate", default=config.text("model_type") == "qwen3_next") else 1
    own = hidden * queries * kind.key_dim * gate + queries * kind.value_dim * hidden
    shares = 1 if config.flag("attention_k_eq_v") and kind.kind == "full" else 2
    return own + hidden * kind.kv_heads * (kind.key_dim + (kind.value_dim if shares == 2 else 0))


def _latent(config: Fields, hidden: int, queries: int) -> int:
    plain, rotary = config.whole("qk_nope_head_dim"), config.whole("qk_rope_head_dim")
    value, rank, query_rank = config.whole("v_head_dim"), config.whole("kv_lora_rank"), config.whole("q_lora_rank")
    wide = queries * (plain + rotary)
    asked = hidden * query_rank + query_rank * wide if query_rank else hidden * wide
    index = config.whole("index_n_heads") * config.whole("index_head_dim") * (query_rank or hidden)
    return asked + hidden * (rank + rotary) + rank * queries * (plain + value) + queries * value * hidden + index


def _low_rank(config: Fields, hidden: int, queries: int) -> int:
    head = config.whole("head_dim")
    asked, answered, groups = (
        config.whole("q_lora_rank"),
        config.whole("o_lora_rank"),
        config.whole("o_groups", default=1),
    )
    wide = queries * head
    return hidden * asked + asked * wide + hidden * head + wide * answered + groups * answered * hidden


def _linear(config: Fields, hidden: int) -> int:
    if config.has("linear_num_value_heads"):
        values = config.whole("linear_num_value_heads") * config.whole("linear_value_head_dim")
        keys = config.whole("linear_num_key_heads") * config.whole("linear_key_head_dim")
        return hidden * (2 * keys + 2 * values) + 2 * hidden * config.whole("linear_num_value_heads") + values * hidden
    if (kimi := config.child("linear_attn_config")) is not None:
        return 4 * hidden * kimi.whole("num_heads") * kimi.whole("head_dim")
    heads = config.whole("mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
    inner = heads * config.whole("mamba_head_dim", "mamba_d_head", "mamba_headdim")
    inner = inner or int(config.number("mamba_expand", default=2) * hidden)
    state = config.whole("ssm_state_size", "mamba_d_state") * config.whole("n_groups", "mamba_n_groups", default=1)
    if config.has("conv_L_cache"):
        return 4 * hidden * hidden
    return hidden * (2 * inner + 2 * state + heads) + inner * hidden
