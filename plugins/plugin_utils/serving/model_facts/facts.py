# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of one model, typed. Sizes in bytes, counts of numbers as they are, context in tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KINDS = ("full", "sliding", "mla", "compressed", "linear")
GIB = 2**30
_STORED = 2  # bytes of a number in the cache of an encoder's output, whatever --kv-cache-dtype says
_OF_MAMBA = ("Mamba", "NemotronH", "Jamba", "Bamba", "Zamba", "Granite", "FalconH1")  # in names of architectures
PADDING = 256  # numbers: MXFP4 kernels take a hidden size that is a multiple of it


@dataclass(frozen=True)
class Attention:
    """Layers that keep the same kind of state for a sequence."""

    kind: str  # one of KINDS
    layers: int
    kv_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    window: int = 0  # tokens that a sliding layer keeps; 0: all
    latent: int = 0  # numbers for a token, of MLA: they are not split over hosts
    index_bytes: int = 0  # for a token, of the index of sparse attention
    token_bytes: int = 0  # for a token, where the type of the cache is the model's own
    every: int = 1  # tokens that share an entry of a compressed cache
    state_bytes: int = 0  # of one sequence, whatever its length

    @property
    def numbers(self) -> int:
        """Numbers that a token leaves in the cache of one layer, on one host that has all heads."""
        return self.latent or self.kv_heads * (self.key_dim + self.value_dim)

    @property
    def keeps(self) -> bool:
        return bool(self.numbers or self.token_bytes or self.state_bytes)


@dataclass(frozen=True)
class Experts:
    count: int = 0
    per_token: int = 0
    shared: int = 0


@dataclass(frozen=True)
class Parts:
    """Numbers of parameters by what a token does with them. 0 of all: not known."""

    feeding: int = 0  # of all experts, or of the layers of a model without any: what each format makes narrow
    chosen: int = 0  # of those, the ones that one token reads
    sides: int = 0  # that each token reads too: attention and what recurs, shared experts, routers
    head: int = 0  # of the output layer
    unread: int = 0  # tables that a token looks a row up in, and encoders, in 16 bits
    sides_bits: float = 0.0  # of one of the sides; 0: as makers of the format usually leave them
    head_bits: float = 0.0  # of one number of the output layer; 0: 16
    feeding_bits: float = 0.0  # of one that is fed with; 0: as many as the format has
    again: int = 0  # numbers that a token reads once more: of layers that it goes through several times

    @property
    def known(self) -> bool:
        return self.chosen > 0


@dataclass(frozen=True)
class Weights:
    """What is in the files. `basis` says how it is known: headers, index, files, config."""

    by_type: Mapping[str, int] = field(
        default_factory=dict, hash=False
    )  # bytes by the type of the header (BF16, F8_E4M3, ...)
    draft: int = 0  # bytes of draft layers (MTP), which vLLM loads only when they are asked for
    vision: int = 0  # bytes of encoders for images and sound
    basis: str = "config"

    @property
    def total(self) -> int:
        return sum(self.by_type.values())


@dataclass(frozen=True)
class ModelFacts:
    """What a model is, as far as its own files say."""

    id: str
    source: str  # where the files were
    architecture: str
    revision: str = ""
    model_type: str = ""
    dtype: str = "bfloat16"
    format: str = "bf16"  # what most of the weights are in: a format of catalog/models.yml
    formats: tuple[str, ...] = ()  # all of them
    kv_cache_dtype: str = ""  # that the checkpoint has scales for
    parameters: int = 0
    active: int = 0  # parameters that one token uses
    parts: Parts = field(default_factory=Parts)
    weights: Weights = field(default_factory=Weights)
    attention: tuple[Attention, ...] = ()
    layers: int = 0
    hidden: int = 0
    vocabulary: int = 0
    query_heads: int = 0
    widths: tuple[int, ...] = ()  # of the networks and experts between two layers of attention, each once
    context: int = 0
    scaling: str = ""  # how the context was stretched
    experts: Experts = field(default_factory=Experts)
    vision: bool = False
    audio: bool = False
    draft_layers: int = 0  # MTP layers that the checkpoint brings
    # generation_config.json: what vLLM takes unless told otherwise
    sampling: Mapping[str, float] = field(default_factory=dict, hash=False)
    chat_template: bool = True
    task: str = "generate"  # generate | embed | classify | transcribe
    bidirectional: bool = False  # each token sees those after it too, so nothing is kept between steps
    sound_positions: int = 0  # of an encoder for sound, whose keys and values a decoder keeps for each request
    remote_code: bool = False
    doubts: tuple[str, ...] = ()  # what of the configuration was read with care, as it is not known here

    @property
    def kept(self) -> tuple[Attention, ...]:
        """The layers that keep something for a sequence while it is served."""
        if self.bidirectional:
            return ()
        own = next((each for each in self.attention if each.kind == "full"), None)
        if not self.sound_positions or own is None:
            return self.attention
        size = _STORED * self.sound_positions * own.numbers
        return (*self.attention, Attention("linear", own.layers, state_bytes=size))

    @property
    def weights_gib(self) -> float:
        """As vLLM loads them: without draft layers, and those of gpt-oss padded for its kernels."""
        kept = self.weights.total - self.weights.draft
        if self.model_type == "gpt_oss" and self.format == "mxfp4" and self.hidden:
            # All but the tables is experts, near enough: 64.4 GiB in vLLM's log of files with 60.8 (vllm issue 33155).
            tables = 4 * self.vocabulary * self.hidden
            padded = -(-self.hidden // PADDING) * PADDING / self.hidden
            kept = int(tables + (kept - tables) * padded)
        return kept / GIB

    @property
    def encoder_missing(self) -> bool:
        """Return whether the configuration names an encoder for images and no tensor of the weights belongs to one."""
        return self.vision and self.weights.basis == "headers" and not self.weights.vision

    @property
    def traits(self) -> frozenset[str]:
        """Words of catalog/models.yml."""
        kinds = {each.kind for each in self.attention}
        found = {"moe" if self.experts.count else "dense"}
        found |= {"sliding"} if "sliding" in kinds else set()
        found |= {"mla"} if kinds & {"mla", "compressed"} else set()
        found |= {"multimodal"} if self.vision or self.audio else set()
        if "linear" in kinds:
            is_mamba = "mamba" in self.model_type or any(word in self.architecture for word in _OF_MAMBA)
            found.add("mamba_hybrid" if is_mamba else "gdn_hybrid")
        return frozenset(found)
