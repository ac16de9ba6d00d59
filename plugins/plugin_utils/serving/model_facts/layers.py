# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a configuration layer by layer: what mixes the tokens of each, what computes them, and the fields it goes by.

A word that is not known here is read with care: as full attention, and with a doubt that a person reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import Fields, limit

Mixers = tuple[str, ...]  # of one layer: full, sliding, linear, or two of them; () of one that keeps no state
FULL: Mixers = ("full",)
_SLIDING: Mixers = ("sliding",)
_LINEAR: Mixers = ("linear",)

# How the same number is called by different makers; the first that is there counts.
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "embedding_dim", "emb_dim", "embed_dim", "dim")
QUERY_HEADS = (
    *("num_attention_heads_per_layer", "num_attention_heads", "n_head", "n_heads", "num_query_heads", "num_heads"),
    *("attention_heads", "decoder_attention_heads", "num_decoder_attention_heads", "decoder_num_attention_heads"),
)
WORDS = ("vocab_size", "padded_vocab_size", "n_vocab")
COUNT = (
    *("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers", "num_decoder_layers"),
    *("decoder_num_hidden_layers", "num_blocks", "layers"),
)
# A list with a word for each layer, and objects whose fields belong to the rest.
LISTS = ("layer_types", "layers_block_type", "layer_block_types", "attention_layers")
_LISTS = (*LISTS, "block_types")
_INLINE = ("attn_config", "attention_config", "ffn_config", "ssm_cfg")
_BLOCKS = ("attention", "ffn")
INDEXED = ("indexed_attention", "deepseek_sparse_attention", "qwen_sparse_attention", "minimax_m3_sparse")

_WORDS: dict[str, Mixers] = {
    **dict.fromkeys(("full_attention", "attention", "global_attention", "global", "full", *INDEXED), FULL),
    **dict.fromkeys(("compressed_sparse_attention", "heavily_compressed_attention"), FULL),
    "reference_sliding_attention": FULL,  # Unlimited-OCR: of the prompt it keeps all
    **dict.fromkeys(("sliding_attention", "sliding_window", "sliding_window_attention", "chunked_attention"), _SLIDING),
    **dict.fromkeys(("local_attention", "local"), _SLIDING),
    **dict.fromkeys(("linear_attention", "linear", "mamba", "mamba2", "recurrent", "conv", "kda"), _LINEAR),
    "hybrid": ("full", "linear"),
    "hybrid_sliding": ("sliding", "linear"),
    **dict.fromkeys(("mlp", "moe", "feedforward", "ffn", "-"), ()),
}
# Of hybrid_override_pattern: Mamba, attention, and layers without a state. Of sliding_window_pattern: local, global.
_LETTERS: dict[str, Mixers] = {"M": _LINEAR, "*": FULL, "-": (), "E": (), "L": _SLIDING, "G": FULL}
# Families without attention, and those that have it beside a recurrence in each layer.
_RECURRENT = ("mamba", "falcon_mamba", "rwkv", "xlstm")
_BOTH = ("falcon_h1",)
_USUAL_PATTERN = {"gemma3": 6, "cohere2": 4, "gemma2": 2, "gpt_oss": 2}  # one layer in so many is full
_LLAMA4_INTERVAL = 4  # of no_rope_layers, where the list is empty or not there


@dataclass(frozen=True)
class Layer:
    """One layer. `config` has the fields as they are for it alone."""

    config: Fields
    mixers: Mixers
    feed: str = "dense"  # dense | sparse, or nothing
    own: bool = True  # keeps a cache of its own, and does not read that of another layer
    passes: int = 1  # how often a token goes through it, each time with a cache of its own
    indexed: bool = True  # an index of sparse attention chooses what it reads


def flat(text: Fields) -> Fields:
    """With what some makers put one level lower."""
    lower: dict[str, Any] = {}
    for name in _INLINE:
        lower |= _object(text.data.get(name))
    return replace(text, data={**lower, **text.data}) if lower else text


def read(config: Fields, count: int) -> tuple[Layer, ...]:
    """All layers. What of it is in doubt, the configuration keeps."""
    words = _words(config, count)
    mixers = [_mixers(config, word) for word in words] or _by_rule(config, count)
    if config.text("model_type").startswith(_BOTH):
        mixers = [("full", "linear")] * count
    if config.has("cca_time0"):  # Zaya: what it calls hybrid is attention behind a short convolution
        mixers = [each[:1] for each in mixers]
    feeds, own, passes = _feeds(config, count, words), _own(config, count), _passes(config, count)
    indexed, views = _indexed(config, count, words), _Views(config, count)
    found = (
        Layer(
            config, mixers[index], feeds[index], own[index] or "linear" in mixers[index], passes[index], indexed[index]
        )
        for index in range(count)
    )
    return tuple(views.of(layer, index, words[index] if words else "") for index, layer in enumerate(found))


def _words(config: Fields, count: int) -> list[str]:
    """A word for each layer; a longer list also names draft layers, which come last."""
    for name in _LISTS:
        words = config.texts(name)
        if not words:
            continue
        if name == "block_types":  # of RecurrentGemma: what repeats
            words = words * -(-count // len(words))
        if len(words) < count:
            where = config.where(name)
            config.doubt(f"{where} has {len(words)} of {count} layers, so the rest counts as full attention")
        return [*words, *["full_attention"] * (count - len(words))][:count]
    return []


def _mixers(config: Fields, word: str) -> Mixers:
    """What a word or letter stands for; full attention where nobody knows, which is the most that it can take."""
    if word not in _WORDS and word not in _LETTERS:
        name = next((name for name in _LISTS if config.items(name)), "hybrid_override_pattern")
        shown = ascii(word[: limit("shown")])
        config.doubt(f"{config.where(name)} has layers of the kind {shown}, not known here: full attention is counted")
    return _WORDS.get(word, _LETTERS.get(word, FULL))


def _by_rule(config: Fields, count: int) -> list[Mixers]:
    """Without a word for each layer: a pattern, a list of some layers, or one layer in so many."""
    found = _patterned(config) or _listed(config, count) or _periodic(config, count) or [FULL] * count
    if len(found) < count:
        config.doubt(f"{config.file}: {count - len(found)} of {count} layers are not described: full attention")
    return [*found, *[FULL] * (count - len(found))][:count]


def _patterned(config: Fields) -> list[Mixers]:
    """A letter or a number for each layer."""
    if pattern := config.text("hybrid_override_pattern"):
        return [_mixers(config, letter) for letter in pattern if letter != "|"]
    if numbers := config.wholes("hybrid_layer_pattern"):  # MiMo: 1 is a sliding window
        return [_SLIDING if number else FULL for number in numbers]
    if numbers := config.wholes("attn_type_list"):  # MiniMax: 0 is linear
        return [FULL if number else _LINEAR for number in numbers]
    return []


def _listed(config: Fields, count: int) -> list[Mixers]:
    """Lists of the layers that are one kind."""
    if (linear := config.child("linear_attn_config")) is not None and linear.has("full_attn_layers"):
        full, linears = set(linear.wholes("full_attn_layers")), set(linear.wholes("kda_layers"))  # Kimi counts from 1
        if linears and (lost := {*range(1, count + 1)} - full - linears):
            config.doubt(f"{linear.where('kda_layers')} and full_attn_layers lack {len(lost)} layers: full attention")
            full |= lost
        return [FULL if index + 1 in full or not full else _LINEAR for index in range(count)]
    for name in ("attn_layer_indices", "hybrid_layer_ids", "full_attn_idxs", "full_attention_layers"):
        if indices := set(config.wholes(name)):
            return [FULL if index in indices else _LINEAR for index in range(count)]
    for name in ("local_layer_ids", "sliding_window_layers"):
        if indices := set(config.wholes(name)):
            return [_SLIDING if index in indices else FULL for index in range(count)]
    return []


def _periodic(config: Fields, count: int) -> list[Mixers]:
    """One layer in so many."""
    family = config.text("model_type")
    if family.startswith(_RECURRENT):
        return [_LINEAR] * count
    if every := config.whole("full_attention_interval"):
        return _every(count, every, _LINEAR)
    if every := config.whole("layer_group_size"):  # Ling: what is left over after the last whole group is full too
        whole = count // every * every
        return _every(whole, every, _LINEAR) + [FULL] * (count - whole)
    if every := config.whole("attn_layer_period"):
        offset = config.whole("attn_layer_offset")
        return [FULL if index % every == offset else _LINEAR for index in range(count)]
    if every := config.whole("mamba_step"):  # PLaMo 2
        return [FULL if index % every == every // 2 else _LINEAR for index in range(count)]
    told = config.has("compress_ratios")  # of each layer, by DeepSeek-V4
    return _windowed(config, count, family) if window(config) and not told else []


def _windowed(config: Fields, count: int, family: str) -> list[Mixers]:
    if config.has("attention_chunk_size"):  # Llama 4: 0 is a layer without rotary embedding, which sees everything
        rotary = config.wholes("no_rope_layers")
        interval = config.whole("no_rope_layer_interval", default=_LLAMA4_INTERVAL)
        return [_SLIDING if number else FULL for number in rotary] or _every(count, interval, _SLIDING)
    if isinstance(config.data.get("sliding_window"), list):  # a number for each layer that has a window
        return [_SLIDING if number else FULL for number in config.items("sliding_window")]
    named = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers", "layer_switch")
    said = next((name for name in named if config.has(name)), "")
    if said and isinstance(config.data[said], str):  # EXAONE: a letter for each layer of what repeats
        letters = config.text(said)
        return [_LETTERS.get(letters[index % len(letters)], FULL) for index in range(count if letters else 0)]
    usual = next((every for start, every in _USUAL_PATTERN.items() if family.startswith(start)), 0)
    if every := config.whole(said, default=usual):
        return _every(count, every, _SLIDING)
    if (
        not config.has("use_sliding_window")
        and family not in catalog.load("model_facts")["families"]["windowed"]["value"]
    ):
        config.doubt(f"{config.file} has a sliding window and does not say for which layers: full attention in all")
        return [FULL] * count
    first = config.whole("max_window_layers") if config.has("use_sliding_window") else 0  # Qwen2
    return [FULL] * min(first, count) + [_SLIDING] * max(0, count - first)


def _every(count: int, every: int, usual: Mixers) -> list[Mixers]:
    return [usual if (index + 1) % every else FULL for index in range(count)]


def window(config: Fields) -> int:
    """Tokens of a sliding window; 0 where there is none, or it is as long as the context or switched off."""
    if config.has("use_sliding_window") and not config.flag("use_sliding_window"):
        return 0
    names = ("sliding_window", "sliding_window_size", "attention_chunk_size", "attention_window_size", "window_size")
    said = config.data.get("sliding_window")
    found = max(filter(_is_number, said), default=0) if isinstance(said, list) else config.layered(*names)
    return found if found < config.whole("max_position_embeddings", default=found + 1) else 0


def number(config: Fields, named: int) -> int:
    """Return how many layers there are, each once. `named`: those that have a word."""
    if config.has("num_layers_per_stack"):
        return 2 * config.whole("num_layers_per_stack")
    if twofold(config) and config.has("num_layers"):
        return 2 * config.whole("num_layers")
    return config.whole(*COUNT, default=named)


def twofold(config: Fields) -> bool:
    """Return whether a layer of the maker's is two: each with attention and a network, and one with experts too."""
    return config.text("model_type").startswith("longcat_flash")


# --- what reads the cache of another layer, what has an index


def _own(config: Fields, count: int) -> list[bool]:
    """Return whether each layer keeps a cache of its own."""
    if sources := config.wholes("kv_source_layers"):
        return [sources[index : index + 1] in ([], [index]) for index in range(count)]
    if config.flag("use_cla"):  # Hunyuan: each group of layers reads the cache of its first
        factor = max(1, config.whole("cla_share_factor", default=1))
        return [index % factor == 0 for index in range(count)]
    shared = config.whole("num_kv_shared_layers")
    if shared >= count:  # some layer must have what the others share
        config.doubt(f"{config.where('num_kv_shared_layers')} is {shared} of {count} layers, so it counts as not there")
        shared = 0
    return [index < count - shared for index in range(count)]


def _passes(config: Fields, count: int) -> list[int]:
    """Return how often a token goes through each layer, of models that repeat some of them."""
    first, last = config.whole("loop_layer_index_start"), config.whole("loop_layer_index_end")
    times = config.whole("loop_num_passes", "n_recurrent_loops", default=1)
    if config.has("num_layers_per_stack"):  # HRM: each high cycle has low ones, which all go through the first stack
        high, low = max(1, config.whole("H_cycles")), max(1, config.whole("L_cycles"))
        return [high * low] * (count // 2) + [high] * (count - count // 2)
    if config.has("total_ut_steps"):  # Ouro
        first, last, times = 0, count, config.whole("total_ut_steps")
    if config.has("n_recurrent_layers"):
        first = config.whole("n_input_layers")
        last = first + config.whole("n_recurrent_layers")
    return [max(1, times) if first <= index < last else 1 for index in range(count)]


def _indexed(config: Fields, count: int, words: Sequence[str]) -> list[bool]:
    """Where only some layers are called indexed, the others have no index; nor those that share one."""
    named = [word in INDEXED for word in words]
    found = named if any(named) else [True] * count
    types = config.texts("indexer_types") if isinstance(config.data.get("indexer_types"), list) else []
    if (sparse := sparse_attention(config)) and len(flags := sparse.wholes("sparse_attention_freq")) >= count:
        return [bool(flag) for flag in flags[:count]]
    return [each and types[index : index + 1] != ["shared"] for index, each in enumerate(found)]


# --- what computes a token


def sparse_attention(config: Fields) -> Fields | None:
    """Return what MiniMax says of it, where it is on."""
    own = config.child("sparse_attention_config")
    return own if own is not None and own.flag("use_sparse_attention", default=True) else None


def experts(config: Fields) -> int:
    """Return how many there are to choose from."""
    if config.has("is_moe") and not config.flag("is_moe"):
        return 0
    return config.layered(
        *("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_moe_experts")
    )


def _feeds(config: Fields, count: int, words: Sequence[str]) -> list[str]:
    """What computes a token in each layer: one network, or experts."""
    letters = {"-": "dense", "E": "sparse", "mlp": "dense", "moe": "sparse", "ffn": "dense", "feedforward": "dense"}
    named = words or [letter for letter in config.text("hybrid_override_pattern") if letter != "|"]
    if any(word in letters for word in named):
        return [letters.get(word, "") for word in named][:count] + [""] * (count - len(named))
    if config.has("num_mem_blocks"):  # Zamba: a few blocks of attention and network, which the hybrid layers share
        shared = [index for index, word in enumerate(words) if word == "hybrid"][: config.whole("num_mem_blocks")]
        return ["dense" if index in shared else "" for index in range(count)]
    if config.text("model_type").startswith(_RECURRENT[:2]):  # Mamba is all there is
        return [""] * count
    if experts(config) < 2:
        return ["dense"] * count
    sparse = set(range(0, count, 2)) if twofold(config) else _sparse(config, count)
    return ["sparse" if index in sparse else "dense" for index in range(count)]


def _sparse(config: Fields, count: int) -> set[int]:
    if words := config.texts("mlp_layer_types"):
        return {index for index, word in enumerate(words) if word != "dense"}
    for name in ("moe_layer_freq", "is_moe_layer"):
        if isinstance(config.data.get(name), list):
            return {index for index, each in enumerate(config.items(name)) if each}
    listed = config.data.get("moe_layers_enum", config.data.get("moe_layers"))  # Step writes "3,4,5"
    if isinstance(listed, str):
        named = {word.strip() for word in config.text("moe_layers_enum", "moe_layers").split(",")}
        return {index for index in range(count) if str(index) in named}
    if isinstance(listed, list) and listed:
        return set(config.wholes("moe_layers"))
    first = config.layered("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    last = config.layered("moe_layer_end_index", default=count - 1)
    every = config.layered(
        "interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_interval", "moe_every_n_layers", default=1
    )
    dense = set(config.wholes("mlp_only_layers"))
    if period := config.whole("expert_layer_period"):
        offset = config.whole("expert_layer_offset")
        return {index for index in range(count) if index % period == offset}
    chosen = range(first, min(last + 1, count))
    return {index for index in chosen if (index + 1) % max(1, every) == 0} - dense


# --- the fields of one layer alone


class _Views:
    """The configuration as it is for each layer: its own object, its item of lists, and what a kind has."""

    def __init__(self, config: Fields, count: int) -> None:
        self._config = config
        self._lists = {name: value for name, value in config.data.items() if _numbers(value, count)}
        self._own = dict(_per_layer(config))
        self._blocks = config.items("block_configs") if isinstance(config.data.get("block_configs"), list) else []
        self._other = _object(config.data.get("attention_other_setting"))  # Step: of the layers of that kind

    def of(self, layer: Layer, index: int, word: str) -> Layer:
        more: dict[str, Any] = {name: value[index] for name, value in self._lists.items()}
        if word and self._other.get("attention_type") == word:
            more |= self._other
        more |= self._own.get(index, {})
        layer = replace(layer, config=self._config.with_(more)) if more else layer
        block = self._blocks[index] if index < len(self._blocks) else None
        return _of_block(layer, block) if isinstance(block, dict) else layer


def _numbers(value: Any, count: int) -> bool:
    """Return whether it is a list with a number for each layer."""
    return isinstance(value, list) and len(value) >= count and all(map(_is_number, value[:count]))


def _per_layer(config: Fields) -> Iterator[tuple[int, dict[str, Any]]]:
    """`per_layer_config`: fields by the number of the layer, as a text."""
    said = config.child("per_layer_config")
    for name, value in (said.data if said else {}).items():
        if name.isdecimal() and len(name) <= len(str(limit("layers"))) and isinstance(value, dict):
            yield int(name), value
        else:
            config.doubt(f"{config.where('per_layer_config')}: {ascii(name)[: limit('shown')]} is no layer")


def _of_block(layer: Layer, block: dict[str, Any]) -> Layer:
    """Of a model that was pruned layer by layer (Nemotron NAS and Puzzle): what is left of attention and network."""
    config = layer.config
    attention, feed = (
        Fields(_object(block.get(name)), config.file, f"block_configs.{name}.", config.doubts) for name in _BLOCKS
    )
    own = {**block, **attention.data, **feed.data}
    more = {name: value for name, value in own.items() if _is_number(value)}
    if group := attention.whole("n_heads_in_group"):
        more["num_key_value_heads"] = config.whole(*QUERY_HEADS) // group
    if multiple := feed.number("ffn_mult"):  # as the model's own code has it: two thirds of it, in steps of 256
        more["intermediate_size"] = -(-int(2 * multiple * config.whole(*HIDDEN) / 3) // 256) * 256
    gone = any(attention.data.get(name) for name in ("no_op", "replace_with_linear"))
    return replace(
        layer,
        config=config.with_(more),
        mixers=() if gone else layer.mixers,
        feed="" if feed.data.get("no_op") else layer.feed,
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
