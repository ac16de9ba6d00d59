# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts the parameters of a model by its configuration, by part, and how many of them one token uses.

Norms and biases are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import attention
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import layers as layer_reader
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import Attention, Experts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.layers import HIDDEN, Layer
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import Fields

_WIDTH = (
    *("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "decoder_ffn_dim", "mlp_hidden_size", "dim_ff"),
    "inner_size",
)

# Functions between two matrices; others, as silu, multiply what a third one makes.
_PLAIN = ("relu", "relu2", "gelu", "gelu_new", "gelu_fast", "quick_gelu", "xielu")


@dataclass(frozen=True)
class Count:
    """Numbers of parameters. `sides` are those that each token uses beside the experts or dense layers."""

    routed: int  # of all experts
    chosen: int  # of the experts that one token uses
    dense: int  # of the layers that compute a token with one network
    sides: int  # attention and what recurs, shared experts, routers
    shared: int  # of the sides, the shared experts
    words: int  # the embedding
    looked_up: int  # tables beside it, of which a token reads a row each
    head: int  # of the output layer, which is the embedding again where the two are tied
    tied: bool
    again: int = 0  # of layers that a token goes through several times, for each time but the first

    @property
    def total(self) -> int:
        return self.routed + self.dense + self.sides + self.tables

    @property
    def active(self) -> int:
        return self.chosen + self.dense + self.sides + self.again + self.tables - self.looked_up

    @property
    def tables(self) -> int:
        """What no format quantizes."""
        return self.words + self.looked_up + (0 if self.tied else self.head)

    @property
    def feeding(self) -> int:
        """What each format makes narrow: experts, or the dense layers of a model without any."""
        return self.routed or self.dense


def experts(config: Fields) -> Experts:
    count = layer_reader.experts(config)
    if count < 2:
        return Experts()
    per_token = config.layered(
        *("num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_topk", "moe_k", "num_experts_per_token"),
        *("moe_top_k", "num_selected_experts", "top_k"),
        default=1,
    )
    shared = config.layered("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
    wide = config.whole(*_SHARED_WIDTH)
    if count and not per_token:
        config.doubt(f"{config.file} does not say how many of {count} experts a token goes through, so all are counted")
    return Experts(
        count, min(per_token or count, count), shared or int(wide > 0 or config.has("intermediate_size_mlp"))
    )


def count(config: Fields, layers: Sequence[Layer], chats: bool) -> Count:
    """`config` is that of the text; what an encoder has is counted apart. A model of vectors has no output layer."""
    hidden, words = config.whole(*HIDDEN), config.whole(*layer_reader.WORDS)
    tied = config.flag("tie_word_embeddings", "weight_tying", default=_is(config, "tied")) or not chats
    routed = chosen = dense = sides = shared = again = 0
    for layer in layers:
        before = chosen + dense + sides + shared
        sides += _mixing(layer, hidden)
        matrices = 2 if _is_ungated(layer.config) else 3
        if layer.feed == "sparse":
            found, one = experts(layer.config), _expert(layer.config, hidden, matrices)
            routed, chosen = routed + int(_sets(layer.config) * found.count * one), chosen + found.per_token * one
            shared += _shared(layer.config, hidden, matrices, one)
            sides += found.count * hidden
        if layer.feed == "dense" or (layer.feed and _has_both(config)):
            dense += matrices * hidden * _width(layer, hidden)
        times = max(layer.passes, config.whole("loop_num", default=1))  # IQuest: later times see a window
        again += (times - 1) * (chosen + dense + sides + shared - before)
    per_layer = config.whole("hidden_size_per_layer_input") * len(layers)  # Gemma: what each layer adds of a word
    sides += 3 * hidden * per_layer
    groups = config.whole("ngram_vocab_size_base") * config.whole("ple_embed_dim")  # Qwen: of two words, and of three
    looked_up = config.whole("vocab_size_per_layer_input") * per_layer + groups * len(config.items("ple_layer_ids"))
    table = words * hidden
    return Count(routed, chosen, dense, sides + shared, shared, table, looked_up, table if chats else 0, tied, again)


def _has_both(config: Fields) -> bool:
    """Return whether layers with experts have a dense network beside them."""
    return config.flag("enable_moe_block") or layer_reader.twofold(config)  # Gemma 4, LongCat


def widths(config: Fields, layers: Sequence[Layer]) -> tuple[int, ...]:
    """Of the dense networks and the experts, each once, the smallest first."""
    hidden = config.whole(*HIDDEN)
    found = {_width(layer, hidden) for layer in layers if layer.feed == "dense"}
    found |= {_expert_width(layer.config) for layer in layers if layer.feed == "sparse"}
    return tuple(sorted(found - {0}))


def senses(config: Fields | None) -> int:
    """Of an encoder for images or sound."""
    if config is None:
        return 0
    if known := known_encoder(config):
        return known
    if (several := config.child("width") if isinstance(config.data.get("width"), dict) else None) is not None:
        return sum(senses(several.child(name)) for name in several.data)  # DeepSeek-OCR
    hidden = config.layered("embed_dim", "hidden_size", "width", "d_model")  # of both, the second is what it gives on
    if not hidden:  # Unlimited-OCR: one behind another
        return sum(senses(config.child(name)) for name, each in config.data.items() if isinstance(each, dict))
    depth = config.layered("depth", "num_hidden_layers", "layers", "n_layers", "encoder_layers")
    usual = (
        int(config.number("mlp_ratio", default=4) * hidden) if not isinstance(config.data.get("mlp_ratio"), list) else 0
    )
    wide = config.layered("intermediate_size", "mlp_hidden_size", "encoder_ffn_dim", default=usual)
    merged, given = hidden * config.whole("spatial_merge_size") ** 2, config.whole("out_hidden_size")
    mergers = 1 + len(config.items("deepstack_visual_indexes")) if merged and given else 0  # Qwen-VL
    if _is(config, "seen_by_what_is_given"):
        wide = given
    heads = config.whole("num_heads", "num_attention_heads", default=1)
    shared = config.whole("num_key_value_heads", default=heads) / max(1, heads)
    gated = config.text("hidden_act") == "silu"
    layer = int(2 * hidden * hidden * (1 + shared)) + (3 if gated else 2) * hidden * wide
    if config.has("conv_kernel_size"):  # a conformer: two networks around the attention, positions and a convolution
        layer += 2 * hidden * wide + 4 * hidden * hidden
    return depth * layer + mergers * merged * (merged + given)


def known_encoder(config: Fields) -> int:
    """Of a family whose configuration says no sizes of its encoders; 0 of any other."""
    known = catalog.load("model_facts")["encoders"].get(config.text("model_type"))
    return int(known["value"]) if known else 0


def encoder(config: Fields) -> int:
    """Of an encoder whose decoder looks back at it (Whisper): its layers, and the decoder's second attention."""
    depth = config.whole("encoder_layers", "num_encoder_layers")
    hidden = config.whole(*HIDDEN)
    if not depth:
        return 0
    wide = config.whole("encoder_ffn_dim", "d_ff", default=4 * hidden)
    return depth * (4 * hidden * hidden + 2 * hidden * wide) + config.whole("decoder_layers") * 4 * hidden * hidden


def _is(config: Fields, trait: str) -> bool:
    """Return whether the family is on a list of catalog/model_facts.yml."""
    return config.text("model_type") in catalog.load("model_facts")["families"][trait]["value"]


def _is_ungated(config: Fields) -> bool:
    """Two matrices instead of three: by the function between them, and where that does not tell, by the family."""
    said = config.text("mlp_hidden_act", "hidden_act", "activation_function", "hidden_activation")
    return (said in _PLAIN and not _is(config, "gated_all_the_same")) or _is(config, "ungated")


# --- what computes a token


_SHARED_WIDTH = (
    *("moe_shared_expert_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size"),
    *("share_expert_dim", "shared_experts_intermediate_size"),
)


def _width(layer: Layer, hidden: int) -> int:
    config = layer.config
    names: tuple[str, ...] = _WIDTH
    if experts(config).count:  # of the layers that have none
        names = ("intermediate_size_mlp", "dense_intermediate_size", "prefix_dense_intermediate_size", *_WIDTH)
    width = config.layered(*names, default=4 * hidden)
    if config.flag("block_auto_adjust_ff_dim"):  # LFM2
        multiple = max(1, config.whole("block_multiple_of", default=256))
        width = -(-int(2 * width / 3 * config.number("block_ffn_dim_multiplier", default=1)) // multiple) * multiple
    return 2 * width if config.flag("use_double_wide_mlp") and not layer.own else width


def _expert(config: Fields, hidden: int, matrices: int) -> int:
    # Numbers of a token that the experts see, where these are fewer than the model's.
    seen = config.whole("moe_latent_size", "moe_hidden_size", "routed_expert_hidden_size")
    return matrices * (seen or hidden) * _expert_width(config)


def _expert_width(config: Fields) -> int:
    names = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size", "intermediate_size")
    return config.layered(*names, *_WIDTH)


def _sets(config: Fields) -> float:
    """How many sets of experts there are, each as wide as the first: ERNIE-VL has narrower ones for what it sees."""
    name = "moe_intermediate_size"
    widths = config.wholes(name) if isinstance(config.data.get(name), list) else []
    return sum(widths) / max(widths) if any(widths) else 1.0


def _shared(config: Fields, hidden: int, matrices: int, one: int) -> int:
    width, number = config.whole(*_SHARED_WIDTH), experts(config).shared
    if not width:
        return number * one
    return matrices * hidden * width * max(1, number if config.has("n_shared_experts") else 1)


# --- what mixes the tokens


def _mixing(layer: Layer, hidden: int) -> int:
    """Of attention and recurrence of one layer."""
    config = layer.config
    if config.has("compress_ratios") or config.has("compress_rates"):  # DeepSeek-V4
        return _low_rank(config, hidden)
    return sum(
        _linear(config, hidden) if each.kind == "linear" else _attention(layer, each, hidden)
        for each in attention.of_layer(layer)
    )


def _attention(layer: Layer, kind: Attention, hidden: int) -> int:
    config = layer.config
    index = _index(config, hidden) if layer.indexed else 0
    if kind.latent or config.whole("qk_nope_head_dim"):
        return _latent(config, hidden) + index
    names = ("swa_num_attention_heads", "num_swa_attention_heads", "num_sliding_attention_heads")
    if config.has("num_mem_blocks") and not layer.feed:
        return 0  # Zamba: its block is that of another layer
    queries, hidden = attention.query_heads(config), config.whole("attention_hidden_size", default=hidden)
    if kind.kind == "sliding":
        queries = config.whole(*names, default=queries)
    gate = 2 if config.flag("attn_output_gate", default=_is(config, "gated")) else 1
    wide, rank = queries * kind.key_dim * gate, config.whole("share_q_dim")  # Step 3: by way of fewer
    asked = (rank * (hidden + wide) if rank else hidden * wide) + queries * kind.value_dim * hidden
    same = config.flag("attention_k_eq_v") and kind.kind == "full"
    own = hidden * kind.kv_heads * (kind.key_dim + (0 if same else kind.value_dim))
    return asked + index + (own if layer.own else 0)


def _index(config: Fields, hidden: int) -> int:
    """Of the index of sparse attention: its queries, its key, and the weights of its heads."""
    heads = config.whole("index_n_heads", "indexer_n_heads")
    size = config.whole("index_head_dim", "indexer_head_dim")
    return heads * size * (config.whole("q_lora_rank") or hidden) + hidden * (size + heads) if heads else 0


def _latent(config: Fields, hidden: int) -> int:
    plain, rotary = config.whole("qk_nope_head_dim"), config.whole("qk_rope_head_dim")
    value, rank, query_rank = config.whole("v_head_dim"), config.whole("kv_lora_rank"), config.whole("q_lora_rank")
    queries = attention.query_heads(config)
    wide = queries * (plain + rotary)
    asked = hidden * query_rank + query_rank * wide if query_rank else hidden * wide
    return asked + hidden * (rank + rotary) + rank * queries * (plain + value) + queries * value * hidden


def _low_rank(config: Fields, hidden: int) -> int:
    asked, answered = config.whole("q_lora_rank"), config.whole("o_lora_rank")
    head, groups = config.whole("head_dim"), config.whole("o_groups", default=1)
    wide = attention.query_heads(config) * head
    return hidden * asked + asked * wide + hidden * head + wide * answered + groups * answered * hidden


def _linear(config: Fields, hidden: int) -> int:
    if config.has("linear_num_value_heads"):
        values = config.whole("linear_num_value_heads") * config.whole("linear_value_head_dim")
        keys = config.whole("linear_num_key_heads") * config.whole("linear_key_head_dim")
        return hidden * (2 * keys + 2 * values) + 2 * hidden * config.whole("linear_num_value_heads") + values * hidden
    if (kimi := attention.kimi(config)) is not None:
        return 4 * hidden * kimi[0] * kimi[1]
    if config.has("conv_L_cache"):
        return 4 * hidden * hidden
    if not (state := config.whole("ssm_state_size", "mamba_d_state", "state_size")):
        return 4 * hidden * hidden
    inner, heads = attention.mamba_inner(config), attention.mamba_heads(config)
    if not heads:  # the first Mamba
        rank = config.whole("mamba_dt_rank", "time_step_rank", default=-(-hidden // 16))
        return hidden * 2 * inner + inner * (2 * rank + 2 * state) + inner * hidden
    state *= config.whole("n_groups", "mamba_n_groups", "mamba_ngroups", default=1)
    return hidden * (2 * inner + 2 * state + heads) + inner * hidden
