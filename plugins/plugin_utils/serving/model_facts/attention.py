# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layers of a model by kind of attention, from its configuration. Each family says it in its own fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import Attention
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError, Fields, limit

# Words of `layer_types` and `layers_block_type`. A layer of a word that is not here keeps no state for a sequence.
_WORDS = {
    **dict.fromkeys(("full_attention", "attention", "global_attention", "deepseek_sparse_attention"), "full"),
    **dict.fromkeys(("sliding_attention", "sliding_window", "local_attention", "local"), "sliding"),
    **dict.fromkeys(("sliding_window_attention", "chunked_attention"), "sliding"),
    **dict.fromkeys(("linear_attention", "linear", "mamba", "mamba2", "recurrent", "conv", "kda"), "linear"),
    "compressed_sparse_attention": "compressed",
    "heavily_compressed_attention": "compressed",
}
_STATELESS = ("mlp", "moe", "feedforward", "ffn", "-")
# Of hybrid_override_pattern: Mamba, attention, and layers without a state.
_PATTERN = {"M": "linear", "*": "full", "-": "mlp", "E": "mlp"}
_TYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# A token of DeepSeek-V4's cache: 448 numbers in FP8, 64 in BF16, 8 bytes of scales; of its index: 128 in FP8, a scale.
_V4_TOKEN, _V4_INDEX = 584, 132


def layers(config: Fields, count: int) -> tuple[Attention, ...]:
    """Layers of one kind together, in the order of their first layer."""
    if ratios := _ratios(config):
        return _compressed(config, ratios[:count])
    kinds = _kinds(config, count)
    by_kind = Counter(kind for kind in kinds if kind != "mlp")
    makers = {"full": _full, "sliding": _sliding, "linear": _linear}
    found = [makers[kind](config, number) for kind, number in by_kind.items()]
    if config.text("model_type").startswith("falcon_h1"):  # each layer has both
        found.append(_linear(config, count))
    return tuple(each for each in found if each.layers)


def _kinds(config: Fields, count: int) -> list[str]:
    """The kind of each layer; those that share another layer's cache have none of their own."""
    found = _named(config) or _patterned(config, count) or _periodic(config, count) or ["full"] * count
    own = len(found) - config.whole("num_kv_shared_layers")
    return [kind if index < own or kind == "linear" else "mlp" for index, kind in enumerate(found)]


def _named(config: Fields) -> list[str]:
    """Lists with a word or a number for each layer."""
    for name in ("layer_types", "layers_block_type", "block_types"):
        if words := config.texts(name):
            unknown = next((word for word in words if word not in _WORDS and word not in _STATELESS), None)
            if unknown is not None:
                raise FactsError(
                    f"{config.where(name)} has layers of the kind {unknown[: limit('shown')]!r}, which is not known "
                    "here. Write a file of facts (--facts FILE) with its attention layers"
                )
            return [_WORDS.get(word, "mlp") for word in words]
    if pattern := config.text("hybrid_override_pattern"):
        return [_PATTERN.get(letter, "mlp") for letter in pattern if letter != "|"]
    if numbers := config.wholes("hybrid_layer_pattern"):  # MiMo: 1 is a sliding window
        return ["sliding" if number else "full" for number in numbers]
    if numbers := config.wholes("attn_type_list"):  # MiniMax: 0 is linear
        return ["full" if number else "linear" for number in numbers]
    if (chunk := config.whole("attention_chunk_size")) and (numbers := config.wholes("no_rope_layers")):
        return ["sliding" if number and chunk else "full" for number in numbers]
    return []


def _patterned(config: Fields, count: int) -> list[str]:
    """Lists of the indices that are one kind."""
    if (linear := config.child("linear_attn_config")) is not None:  # Kimi counts from 1
        full = set(linear.wholes("full_attn_layers"))
        return ["full" if index + 1 in full else "linear" for index in range(count)]
    for name in ("attn_layer_indices", "hybrid_layer_ids", "full_attn_idxs"):
        if indices := set(config.wholes(name)):
            return ["full" if index in indices else "linear" for index in range(count)]
    return []


def _periodic(config: Fields, count: int) -> list[str]:
    """One layer in so many."""
    if every := config.whole("full_attention_interval"):
        return ["full" if (index + 1) % every == 0 else "linear" for index in range(count)]
    if every := config.whole("attn_layer_period"):
        offset = config.whole("attn_layer_offset")
        return ["full" if index % every == offset else "linear" for index in range(count)]
    if not _window(config):
        return []
    if every := config.whole("sliding_window_pattern", "_sliding_window_pattern"):
        return ["full" if (index + 1) % every == 0 else "sliding" for index in range(count)]
    family = config.text("model_type")
    if family.startswith("gemma3"):
        return ["full" if (index + 1) % 6 == 0 else "sliding" for index in range(count)]
    if family in ("gemma2", "gpt_oss"):
        return ["full" if index % 2 else "sliding" for index in range(count)]
    return ["sliding"] * count


def _window(config: Fields) -> int:
    """Tokens of a sliding window; 0 where there is none, or it is as long as the context or switched off."""
    if config.has("use_sliding_window") and not config.flag("use_sliding_window"):
        return 0
    window = config.whole("sliding_window", "sliding_window_size", "attention_chunk_size")
    return window if window < config.whole("max_position_embeddings", default=window + 1) else 0


def _full(config: Fields, count: int) -> Attention:
    if rank := config.whole("kv_lora_rank"):
        index = config.whole("index_head_dim") if config.has("index_topk") else 0
        # One scale of four bytes for each 128 numbers of the index in FP8.
        index_bytes = index + 4 * -(-index // 128)
        return Attention("mla", count, latent=rank + config.whole("qk_rope_head_dim"), index_bytes=index_bytes)
    heads = _heads(config)
    key = config.whole("global_head_dim", default=_head_dim(config))
    value = key if config.has("global_head_dim") else config.whole("v_head_dim", default=key)
    return Attention("full", count, config.whole("num_global_key_value_heads", default=heads), key, value)


def _sliding(config: Fields, count: int) -> Attention:
    key = config.whole("swa_head_dim", default=_head_dim(config))
    value = config.whole("swa_v_head_dim", default=key)
    heads = config.whole("swa_num_key_value_heads", default=_heads(config))
    return Attention("sliding", count, heads, key, value, window=_window(config))


def _heads(config: Fields) -> int:
    queries = config.whole("num_attention_heads", "n_head", "num_heads", "decoder_attention_heads")
    if config.flag("multi_query"):
        return 1
    return config.whole("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", default=queries)


def _head_dim(config: Fields) -> int:
    queries = config.whole("num_attention_heads", "n_head", "num_heads", "decoder_attention_heads")
    hidden = config.whole("hidden_size", "n_embd", "d_model")
    return config.whole("head_dim", "attention_head_dim", "kv_channels", default=hidden // queries if queries else 0)


def _linear(config: Fields, count: int) -> Attention:
    """The state of one sequence in each of these layers: what recurs, and the last tokens of the convolution."""
    size = _TYPE_BYTES.get(config.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype"), 4)
    recurrent, convolution = _delta_net(config) or _mamba(config) or _kimi(config) or _short(config)
    return Attention("linear", count, state_bytes=recurrent * size + convolution * 2)


def _delta_net(config: Fields) -> tuple[int, int] | None:
    if not config.has("linear_num_value_heads"):
        return None
    values = config.whole("linear_num_value_heads") * config.whole("linear_value_head_dim")
    keys = config.whole("linear_num_key_heads") * config.whole("linear_key_head_dim")
    tokens = max(0, config.whole("linear_conv_kernel_dim") - 1)
    return values * config.whole("linear_key_head_dim"), tokens * (2 * keys + values)


def _mamba(config: Fields) -> tuple[int, int] | None:
    state = config.whole("ssm_state_size", "mamba_d_state", "state_size", "mamba_state_dim")
    if not state:
        return None
    hidden = config.whole("hidden_size", "d_model")
    heads = config.whole("mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
    wide = heads * config.whole("mamba_head_dim", "mamba_d_head", "mamba_headdim")
    inner = wide or config.whole("mamba_d_ssm") or int(config.number("mamba_expand", "expand", default=2) * hidden)
    tokens = max(0, config.whole("conv_kernel", "mamba_d_conv", default=4) - 1)
    groups = config.whole("n_groups", "mamba_n_groups", "mamba_ngroups") if heads else 0
    return inner * state, tokens * (inner + 2 * groups * state)


def _kimi(config: Fields) -> tuple[int, int] | None:
    linear = config.child("linear_attn_config")
    if linear is None:
        return None
    wide = linear.whole("num_heads") * linear.whole("head_dim")
    return wide * linear.whole("head_dim"), 3 * max(0, linear.whole("short_conv_kernel_size", default=4) - 1) * wide


def _short(config: Fields) -> tuple[int, int]:
    """A convolution alone (LFM2), or a state of one matrix for each head (MiniMax-Text-01)."""
    if kept := config.whole("conv_L_cache"):
        return 0, kept * config.whole("hidden_size")
    return config.whole("num_attention_heads") * _head_dim(config) ** 2, 0


def _ratios(config: Fields) -> list[int]:
    """How many tokens share an entry of the cache, by layer (DeepSeek-V4); 0 is a window alone."""
    if found := config.wholes("compress_ratios"):
        return found
    rates = config.child("compress_rates")
    words = config.texts("layer_types") if rates else []
    return [rates.whole(word) for word in words] if rates else []


def _compressed(config: Fields, ratios: Sequence[int]) -> tuple[Attention, ...]:
    window = config.whole("sliding_window", "window_size", default=128)
    counts = Counter(ratio for ratio in ratios if ratio > 1)
    shortest = min(counts, default=1)  # pages are of one size: a layer that keeps less pays as much
    found = [
        Attention(
            "compressed",
            number,
            token_bytes=_V4_TOKEN,
            every=shortest,
            index_bytes=_V4_INDEX if ratio == shortest else 0,
        )
        for ratio, number in counts.items()
    ]
    return (*found, Attention("sliding", len(ratios), token_bytes=_V4_TOKEN, window=window))
