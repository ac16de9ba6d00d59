# SPDX-License-Identifier: GPL-3.0-or-later
"""Says what the layers of a model keep for a sequence, by kind of attention. Each family has its own fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import Attention
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.layers import (
    HIDDEN,
    QUERY_HEADS,
    Layer,
    sparse_attention,
    window,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError, Fields

_TYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_KV_HEADS = (
    *("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "kv_n_heads", "multi_query_group_num"),
    *("num_attention_groups", "num_query_groups", "decoder_num_key_value_heads"),
)
USUAL_HEAD = 128  # numbers, where nothing can be made of what is said
_HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels", "hidden_size_per_head", "d_kv")
# Families that have a latent in their weights and whole keys and values in vLLM's cache.
_EXPANDED = ("minicpm3",)
_INDEX_NUMBERS = 128  # of the index in FP8 that share a scale of four bytes
# A token of DeepSeek-V4's cache: 448 numbers in FP8, 64 in BF16, 8 bytes of scales; of its index: 128 in FP8, a scale.
_V4_TOKEN, _V4_INDEX = 584, 132


def kept(config: Fields, layers: Sequence[Layer], empty: bool = False) -> tuple[Attention, ...]:
    """What all layers keep; those that keep the same together, in the order of their first layer.

    `empty`: of a model that may keep nothing. In any other, attention that keeps nothing is a field not known here.
    """
    if ratios := _ratios(config):
        return _compressed(config, ratios[: len(layers)])
    counts: Counter[Attention] = Counter()
    for layer in layers:
        for each in of_layer(layer) if layer.own else ():
            counts[each if empty or each.keeps else _careful(layer.config, each)] += layer.passes
    return tuple(replace(each, layers=number) for each, number in counts.items())


def of_layer(layer: Layer) -> Iterator[Attention]:
    """What one layer keeps, by kind."""
    makers = {"full": _full, "sliding": _sliding, "linear": _linear}
    for kind in layer.mixers:
        yield makers[kind](layer)


def _careful(config: Fields, found: Attention) -> Attention:
    """Where nothing said how much is kept: keys and values as wide as the model."""
    hidden = config.whole(*HIDDEN)
    if not hidden:
        why = "; ".join(config.doubts or ()) or "no heads, and no hidden_size"
        raise FactsError(
            f"{config.file} says nothing of what a token leaves in the KV cache: {why}. Write a file of facts (--facts "
            "FILE) with its attention layers"
        )
    config.doubt(
        f"{config.file} names no heads that are known here, so keys and values as wide as the model are counted"
    )
    return Attention("sliding" if found.window else "full", 1, 1, hidden, hidden, window=found.window)


def _full(layer: Layer) -> Attention:
    config = layer.config
    index = _index(config) if layer.indexed else 0
    if _is_latent(config):
        return _with_index(Attention("mla", 1, latent=_latent(config)), index)
    heads = kv_heads(config)
    key = config.whole("global_head_dim", default=_key_dim(config))
    value = key if config.has("global_head_dim") else _value_dim(config, key)
    return _with_index(
        Attention("full", 1, config.whole("num_global_key_value_heads", default=heads), key, value), index
    )


def _with_index(found: Attention, size: int) -> Attention:
    return replace(found, index_bytes=size) if size else found


def _sliding(layer: Layer) -> Attention:
    config = layer.config
    if _is_latent(config):
        return Attention("sliding", 1, latent=_latent(config), window=window(config))
    key = config.whole("swa_head_dim", default=_key_dim(config))
    value = config.whole("swa_v_head_dim", default=_value_dim(config, key))
    heads = config.whole("swa_num_key_value_heads", "num_swa_key_value_heads", default=kv_heads(config))
    return Attention("sliding", 1, heads, key, value, window=window(config))


def _is_latent(config: Fields) -> bool:
    expanded = config.text("model_type").startswith(_EXPANDED) or not config.flag("use_mla", default=True)
    return config.whole("kv_lora_rank") > 0 and not expanded


def _latent(config: Fields) -> int:
    return config.whole("kv_lora_rank") + config.whole("qk_rope_head_dim")


def _index(config: Fields) -> int:
    """Bytes of a token in the index of sparse attention."""
    if config.has("indexer_n_heads"):  # Qwen: keys in BF16, and their means over a few tokens
        numbers = config.whole("indexer_head_dim") * config.whole("indexer_kv_heads", default=1)
        return 2 * numbers + 2 * numbers // max(1, config.whole("indexer_compress_ratio", default=1))
    if sparse := sparse_attention(config):  # MiniMax: a key in BF16
        return 2 * sparse.whole("sparse_index_dim")
    if not (config.has("index_topk") or config.has("index_topk_blocks")):
        return 0
    numbers = config.whole("index_head_dim")
    size = numbers + 4 * -(-numbers // _INDEX_NUMBERS)
    return -(-size // max(1, config.whole("index_kpool", default=1)))


def kv_heads(config: Fields) -> int:
    """Heads of keys and values; as many as there are queries where nothing is said."""
    if config.flag("multi_query") and not config.flag("new_decoder_architecture"):
        return 1
    return config.whole(*_KV_HEADS, default=query_heads(config))


def query_heads(config: Fields) -> int:
    return config.whole(*QUERY_HEADS)


def _key_dim(config: Fields) -> int:
    if plain := config.whole("qk_nope_head_dim"):  # without a latent in the cache
        return plain + config.whole("qk_rope_head_dim")
    if said := next((size for name in _HEAD_DIM if (size := config.whole(name))), 0):
        return said
    queries, hidden = query_heads(config), config.whole(*HIDDEN)
    if queries and hidden % queries:
        config.doubt(
            f"{config.file} does not say how wide a head is, and {hidden} numbers are not {queries} heads of one width:"
            f" {USUAL_HEAD} are counted"
        )
        return max(USUAL_HEAD, hidden // queries)
    return hidden // queries if queries else 0


def _value_dim(config: Fields, key: int) -> int:
    expanded = config.text("model_type").startswith(_EXPANDED)  # vLLM fills values up to the width of keys
    return (0 if expanded else config.whole("v_head_dim")) or key


# --- layers that keep a state of one size


def _linear(layer: Layer) -> Attention:
    """The state of one sequence in each of these layers: what recurs, and the last tokens of the convolution."""
    config = layer.config
    size = _TYPE_BYTES.get(config.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype"), 4)
    recurrent, convolution = _delta_net(config) or _mamba(config) or _kimi(config) or _short(config)
    return Attention("linear", 1, state_bytes=recurrent * size + convolution * 2)


def _delta_net(config: Fields) -> tuple[int, int] | None:
    if not config.has("linear_num_value_heads"):
        return None
    values = config.whole("linear_num_value_heads") * config.whole("linear_value_head_dim")
    keys = config.whole("linear_num_key_heads") * config.whole("linear_key_head_dim")
    tokens = max(0, config.whole("linear_conv_kernel_dim") - 1)
    state = values * config.whole("linear_key_head_dim")
    return (state, tokens * (2 * keys + values)) if state else None


def _mamba(config: Fields) -> tuple[int, int] | None:
    state = config.whole("ssm_state_size", "mamba_d_state", "state_size", "mamba_state_dim", "d_state")
    if not state:
        return None
    heads, inner = mamba_heads(config), mamba_inner(config)
    tokens = max(0, config.whole("conv_kernel", "mamba_d_conv", default=4) - 1)
    groups = config.whole("n_groups", "mamba_n_groups", "mamba_ngroups") if heads else 0
    return inner * state, tokens * (inner + 2 * groups * state)


def mamba_heads(config: Fields) -> int:
    own = ("num_heads",) if config.text("model_type") == "mamba2" else ()  # of a model that has no other heads
    return config.whole("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", *own)


def mamba_inner(config: Fields) -> int:
    """Numbers of a token inside of Mamba."""
    own = ("head_dim",) if config.text("model_type") == "mamba2" else ()
    wide = mamba_heads(config) * config.whole("mamba_head_dim", "mamba_d_head", "mamba_headdim", *own)
    hidden = config.whole(*HIDDEN)
    if not wide and not query_heads(config) and (width := config.whole("intermediate_size")):  # Mamba is all there is
        return width
    return wide or config.whole("mamba_d_ssm") or int(config.number("mamba_expand", "expand", default=2) * hidden)


def kimi(config: Fields) -> tuple[int, int] | None:
    """(heads, numbers of each) of Kimi's delta attention and its like."""
    if (own := config.child("linear_attn_config")) is not None:
        return own.whole("num_heads"), own.whole("head_dim")
    if config.has("linear_num_heads"):
        return config.whole("linear_num_heads"), config.whole("linear_head_dim")
    return None


def _kimi(config: Fields) -> tuple[int, int] | None:
    found = kimi(config)
    if not found or not all(found):
        return None
    heads, size = found
    own = config.child("linear_attn_config") or config
    tokens = max(0, own.whole("short_conv_kernel_size", "linear_conv_kernel_dim", default=4) - 1)
    return heads * size * size, 3 * tokens * heads * size


def _short(config: Fields) -> tuple[int, int]:
    """A convolution alone (LFM2), a recurrence of numbers (RecurrentGemma), or a matrix for each head (MiniMax)."""
    if kept_tokens := config.whole("conv_L_cache"):
        return 0, kept_tokens * config.whole(*HIDDEN)
    if width := config.whole("lru_width"):
        return width, max(0, config.whole("conv1d_width", default=4) - 1) * width
    return query_heads(config) * _key_dim(config) ** 2, 0


# --- DeepSeek-V4


def _ratios(config: Fields) -> list[int]:
    """Return how many tokens share an entry of the cache, by layer (DeepSeek-V4); 0 is a window alone."""
    if found := config.wholes("compress_ratios"):
        return found
    rates = config.child("compress_rates")
    words = config.texts("layer_types") if rates else []
    return [rates.whole(word) for word in words] if rates else []


def _compressed(config: Fields, ratios: Iterable[int]) -> tuple[Attention, ...]:
    ratios = list(ratios)
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
    size = config.whole("sliding_window", "window_size", default=128)
    return (*found, Attention("sliding", len(ratios), token_bytes=_V4_TOKEN, window=size))
