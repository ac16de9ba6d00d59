# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a model fits the memory of a Spark, or of each host of a cluster. CPU and GPU share it on a GB10.

Pure arithmetic; what it counts with is catalog/models.yml, `fit`. Sizes in GiB (2**30 bytes), context in tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import lora
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import Attention
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Checkpoint, Geometry, Model

GIB = 2**30
MOST_HOSTS = 8  # that a plan looks for
# Of one number in the KV cache. "auto" is the model's own type, BF16 of all models here. NVFP4 has a scale of a byte
# for 16 numbers of half a byte.
_BYTES = {"auto": 2, "bfloat16": 2, "float16": 2, "nvfp4": 0.5625}
# Of a latent under sparse attention: vLLM's fp8_ds_mla has 656 bytes for 576 numbers, 64 of them in BF16.
_SPARSE_FP8 = 656 / 576
_STEP = 1024  # tokens: a context that was computed is a multiple of it
_GROWING = ("full", "mla", "compressed")


@dataclass(frozen=True)
class Draft:
    """What proposes tokens for the model: a second model, or layers that the checkpoint brings for it."""

    weights_gib: float | None  # None: each layer is as large as one of the model's own
    basis: str  # how that is known
    layers: int  # that keep a KV cache
    geometry: Geometry | None = None  # of a second model; else its layers keep what the model's own do
    alone: bool = False  # whole on each host, --speculative-config.draft_tensor_parallel_size 1


@dataclass(frozen=True)
class Measured:
    """What a start of the same took on a host. It goes before what is counted, part by part."""

    host: str
    weights_gib: float  # on each host, with the draft; 0: nobody said
    parts: Mapping[str, float]  # beside weights and cache; empty: of another batch, or nobody said
    length: int  # tokens of the request
    request_gib: float  # of the cache, that one request of this length takes; 0: nobody said
    how: str = "measured on"
    layers: bool = False  # the geometry is of the same source, so the cache is counted as it is


@dataclass(frozen=True)
class Load:
    """What is asked of the server beside the context; 0 is what a plan says."""

    batched: int = 0  # --max-num-batched-tokens
    pinned_gib: float = 0.0  # --kv-cache-memory-bytes
    draft: Draft | None = None
    measured: Measured | None = None
    ranks: int = 0  # of all LoRA adapters that it can have at once
    tensor: int = 0  # --tensor-parallel-size
    others_gib: float = 0.0  # the share of a second service on each host, and what is pinned elsewhere


@dataclass(frozen=True)
class Fit:
    """What one host of the cluster needs."""

    fits: bool
    utilization: float  # share of the host's memory to give to vLLM; of what does not fit, what it would take
    max_model_len: int  # tokens
    concurrency: int  # requests of that length that were asked for
    sequences: float  # requests of that length whose KV cache fits at once
    longest_context: int  # tokens, with this concurrency and the largest share that is safe
    need: Mapping[str, float]  # GiB on each host, by part
    total: float  # GiB, of the host
    reason: str  # why it does not fit, or what to know about how it fits
    sure: Mapping[str, str] = field(default_factory=dict)  # how each part is known

    @property
    def needed(self) -> float:
        return sum(self.need.values())


def parallel(geometry: Geometry, hosts: int, tensor: int = 0) -> tuple[int, int]:
    """Tensor and pipeline parallel size: hosts share each layer where vLLM can divide it by them, else the layers.

    `tensor` is the size that somebody asks for; 0 leaves the choice.
    """
    if tensor and hosts % tensor == 0:
        return tensor, hosts // tensor
    return (1, hosts) if uneven(geometry, hosts) else (hosts, 1)


def uneven(geometry: Geometry, hosts: int) -> str:
    """What of a layer vLLM cannot divide by so many hosts, at which its start ends; empty where there is nothing."""
    counts = {"query heads": geometry.query_heads, "heads of linear attention": 0}
    if geometry.linear:
        counts["heads of linear attention"] = geometry.linear.value_heads
    odd = [f"{count} {name}" for name, count in counts.items() if count % hosts]
    # Each host gets as many KV heads, or each KV head as many hosts.
    of_keys = {each.kv_heads for each in kinds(geometry) if each.kv_heads}
    odd += [f"{count} KV heads" for count in sorted(of_keys) if count % hosts and hosts % count]
    odd += [f"a width of {width}" for width in geometry.widths if width % hosts]
    return f"{' and '.join(odd)} do not divide by {hosts}" if odd else ""


def context_parts(geometry: Geometry, hosts: int, parts: int) -> str:
    """Why hosts that share each layer cannot keep so many parts of a context: each part takes all KV heads."""
    if hosts % parts:
        return f"{hosts} hosts do not divide by {parts} parts of a context"
    most = max((each.kv_heads for each in kinds(geometry)), default=0)
    return f"{most} KV heads on {hosts} hosts leave no {parts} copies" if most * parts > hosts else ""


def kinds(geometry: Geometry) -> tuple[Attention, ...]:
    """The layers by kind of attention; of a model without facts as the catalog has them, without sliding windows."""
    if geometry.attention:
        return geometry.attention
    plain = Attention("full", geometry.kv_layers, geometry.kv_heads, geometry.head_dim, geometry.head_dim)
    latent = Attention("mla", geometry.kv_layers, latent=geometry.latent)
    found = [latent if geometry.latent else plain]
    if geometry.linear:
        numbers = geometry.linear.value_heads * geometry.linear.key_dim * geometry.linear.value_dim
        state = int(numbers * _constant("state_bytes"))
        found.append(Attention("linear", geometry.linear.layers, state_bytes=state))
    if geometry.state_mib:
        found.append(Attention("linear", 1, state_bytes=int(geometry.state_mib * 2**20)))
    return tuple(found)


def kv_bytes_per_token(geometry: Geometry, dtype: str = "auto", hosts: int = 1, tensor: int = 0) -> float:
    """Of the KV cache, on each host, of the layers that keep the whole context. `tensor` as of parallel."""
    tensor, pipeline = parallel(geometry, hosts, tensor)
    return sum(_token(each, dtype, tensor) for each in kinds(geometry) if each.kind in _GROWING) / pipeline


def window_bytes(geometry: Geometry, length: int, dtype: str = "auto", hosts: int = 1, tensor: int = 0) -> float:
    """Of one sequence in the layers that keep a window, on each host. `tensor` as of parallel."""
    tensor, pipeline = parallel(geometry, hosts, tensor)
    sliding = [each for each in kinds(geometry) if each.kind == "sliding"]
    return sum(_token(each, dtype, tensor) * min(length, each.window or length) for each in sliding) / pipeline


def state_bytes(geometry: Geometry, hosts: int = 1) -> float:
    """Of the state of linear attention of one sequence, on each host."""
    return sum(each.state_bytes * each.layers for each in kinds(geometry)) / hosts


def _token(kind: Attention, dtype: str, tensor: int) -> float:
    """Bytes of one token in all of these layers. A KV head cannot be cut, and the latent of MLA is on every host."""
    if kind.token_bytes:
        return kind.layers * (kind.token_bytes + kind.index_bytes) / kind.every
    if kind.latent and kind.index_bytes and dtype.startswith("fp8"):
        return kind.layers * (kind.latent * _SPARSE_FP8 + kind.index_bytes)
    numbers = kind.latent or max(1.0, kind.kv_heads / tensor) * (kind.key_dim + kind.value_dim)
    return kind.layers * (numbers * _BYTES.get(dtype, 1) + kind.index_bytes)


def highest_utilization(total_gib: float, others_gib: float = 0.0) -> float:
    """The largest share that is safe: what the catalog allows at most, and its reserve stays free beside others."""
    highest: float = catalog.load("software")["vllm_gpu_memory_utilization"]["highest"]
    safe = math.floor((total_gib - _constant("reserve") - others_gib) / total_gib * 100) / 100
    return max(0.0, min(highest, safe))


def fit(
    model: Model,
    checkpoint: Checkpoint,
    total_bytes: float,
    hosts: int = 1,
    max_model_len: int = 0,
    concurrency: int = 0,
    kv_dtype: str = "auto",
    utilization: float = 0.0,
    load: Load | None = None,
) -> Fit:
    """Return how `checkpoint` fits on `hosts` hosts, the smallest with `total_bytes` (MemTotal).

    0 leaves the choice: as much context as fits beside the catalog's number of requests, and the smallest share for it.
    """
    requests = concurrency or int(_constant("concurrency"))
    sizes = _Sizes(model, checkpoint, total_bytes / GIB, hosts, kv_dtype, requests, load or Load())
    ceiling = utilization or highest_utilization(sizes.total, sizes.load.others_gib)
    length = max_model_len
    if not length:
        shortest = min(int(_constant("shortest_context")), model.geometry.context)
        usual: float = catalog.load("software")["vllm_gpu_memory_utilization"]["value"]
        length = sizes.longest(utilization or min(usual, ceiling), requests)
        if length < shortest:  # more than the usual share for no more than it takes, then fewer requests
            length = shortest
            requests = next((count for count in range(requests, 1, -1) if sizes.longest(ceiling, count) >= shortest), 1)
    return sizes.answer(ceiling, length, requests, chosen=utilization)


class _Sizes:
    """What does not depend on the context, and what follows from it."""

    def __init__(
        self, model: Model, checkpoint: Checkpoint, total: float, hosts: int, kv_dtype: str, requests: int, load: Load
    ) -> None:
        geometry = model.geometry
        self.total, self.context, self.load, self.times = total, geometry.context, load, 1.0
        self.weights = checkpoint.on_host.get(hosts, checkpoint.weight_gib / hosts)
        self.fixed, self.sure = fixed_parts(model, checkpoint, hosts, requests, load)
        self.sure |= {"weights": checkpoint.basis, "kv_cache": "computed", "state": "computed"}
        self.own_per_token = kv_bytes_per_token(geometry, kv_dtype, hosts, load.tensor) / GIB
        self.state = state_bytes(geometry, hosts) / GIB
        self.geometry, self.kv_dtype, self.hosts = geometry, kv_dtype, hosts
        self.draft_per_token = self._draft_per_token(load.draft)
        if load.draft:
            self.sure["draft_kv_cache"] = "computed" if load.draft.geometry else "estimate"
        if load.measured:
            self._learn(load.measured)

    def _learn(self, measured: Measured) -> None:
        """A start of the same goes before what is counted."""
        said = f"{measured.how} {measured.host}"
        if measured.weights_gib:
            self.weights = measured.weights_gib
            held = {"draft"} if measured.layers else {"draft", "adapters"}  # what vLLM says has no room for adapters
            self.fixed = {part: 0.0 if part in held else size for part, size in self.fixed.items()}
            self.sure["weights"] = said
        if measured.parts:
            self.fixed = dict(measured.parts)
            self.sure |= dict.fromkeys(measured.parts, said)
        counted = measured.length * self.per_token + self.state + self.window(measured.length, 1)
        if measured.layers:
            self.sure |= dict.fromkeys(("kv_cache", "state"), said)
        if measured.request_gib and counted:
            self.times = measured.request_gib / counted  # of what is counted
            self.own_per_token, self.draft_per_token = (
                self.own_per_token * self.times,
                self.draft_per_token * self.times,
            )
            self.state *= self.times
            self.sure |= dict.fromkeys(("kv_cache", "state", "draft_kv_cache"), said)

    def _draft_per_token(self, draft: Draft | None) -> float:
        if draft is None:
            return 0.0
        if draft.geometry:
            hosts = 1 if draft.alone else self.hosts
            return kv_bytes_per_token(draft.geometry, self.kv_dtype, hosts, self.load.tensor) / GIB
        keeping = sum(each.layers for each in kinds(self.geometry) if each.kind in _GROWING)
        return self.own_per_token * draft.layers / keeping if keeping else 0.0

    @property
    def per_token(self) -> float:
        return self.own_per_token + self.draft_per_token

    @property
    def overhead(self) -> float:
        return sum(self.fixed.values())

    def window(self, length: int, requests: int) -> float:
        """Of the model, and of a second model that drafts for it."""
        return self._window(self.geometry, length, requests, self.hosts) + self.draft_window(length, requests)

    def draft_window(self, length: int, requests: int) -> float:
        draft = self.load.draft
        if draft is None or draft.geometry is None:
            return 0.0
        return self._window(draft.geometry, length, requests, 1 if draft.alone else self.hosts)

    def _window(self, geometry: Geometry, length: int, requests: int, hosts: int) -> float:
        """A window for each request, and the chunk of a prompt that is being computed for one of them."""
        chunk = self.load.batched or int(_constant("batched_tokens"))
        sliding = tuple(
            replace(each, window=each.window + chunk) if each.kind == "sliding" and each.window else each
            for each in kinds(geometry)
        )
        how = (length, self.kv_dtype, hosts, self.load.tensor)
        one, largest = window_bytes(geometry, *how), window_bytes(replace(geometry, attention=sliding), *how)
        return self.times * ((requests - 1) * one + largest) / GIB

    def parts(self, length: int, requests: int) -> dict[str, float]:
        tokens = length * requests
        cache = tokens * self.own_per_token + self._window(self.geometry, length, requests, self.hosts)
        drafted = tokens * self.draft_per_token + self.draft_window(length, requests)
        state = requests * self.state
        if self.load.pinned_gib:  # state and draft live in the same pool
            cache, state, drafted = self.load.pinned_gib, 0.0, 0.0
        mine = {"weights": self.weights, "kv_cache": cache, "state": state}
        return {**mine, **({"draft_kv_cache": drafted} if self.load.draft else {}), **self.fixed}

    def longest(self, share: float, requests: int) -> int:
        """Tokens that each of `requests` can have; the whole context of the model or a multiple of 1024."""
        room = self.room(share) - requests * self.state - self.window(self.context, requests)
        tokens = int(room / (requests * self.per_token)) if self.per_token else (self.context if room >= 0 else 0)
        return self.context if tokens >= self.context else max(0, tokens // _STEP * _STEP)

    def room(self, share: float) -> float:
        """For KV cache and state."""
        return self.load.pinned_gib or share * self.total - self.weights - self.overhead

    def answer(self, ceiling: float, length: int, requests: int, chosen: float) -> Fit:
        need = self.parts(length, requests)
        taken, others = sum(need.values()), self.load.others_gib
        share = math.ceil(taken / self.total * 100) / 100
        one = length * self.per_token + self.state + self.window(length, 1)
        sequences = self.room(ceiling) / one if one else float(requests)
        # A pinned cache is taken whatever the share, and of a share all of it.
        whole = taken if self.load.pinned_gib else ceiling * self.total
        crowded = (self.load.pinned_gib + others > 0) and whole + others > self.total - _constant("reserve")
        fits = sequences >= 1 and length <= self.context and not crowded and self.weights + self.overhead <= self.total
        return Fit(
            fits=fits,
            utilization=chosen or (min(share, ceiling) if fits else share),
            max_model_len=length,
            concurrency=requests,
            sequences=max(0.0, sequences),
            longest_context=self.longest(ceiling, requests),
            need={**need, **({"others": others} if others else {})},
            total=self.total,
            reason=self._crowded(whole) if crowded else self._reason(ceiling, length, requests, sequences),
            sure={**{part: self.sure[part] for part in need}, **({"others": "asked"} if others else {})},
        )

    def _crowded(self, whole: float) -> str:
        safe = self.total - _constant("reserve")
        what = f"the share of vLLM takes {whole:.1f}"
        if self.load.pinned_gib:
            pinned = self.load.pinned_gib
            what = f"weights, overhead and the pinned KV cache of {pinned:.1f} GiB take {whole:.1f}"
        beside = f", others {self.load.others_gib:.1f}" if self.load.others_gib else ""
        return f"{what} GiB on each host{beside}, and {safe:.1f} of {self.total:.1f} GiB are safe to take"

    def _reason(self, ceiling: float, length: int, requests: int, sequences: float) -> str:
        limit = f"{ceiling:.2f} of {self.total:.1f} GiB is {ceiling * self.total:.1f} GiB"
        if ceiling <= 0:
            kept = f"{_constant('reserve'):g} GiB stay for the system"
            limit = f"the host's MemTotal is {self.total:.1f} GiB, of which {kept}"
        if self.load.pinned_gib:
            limit = f"--kv-cache-memory-bytes leaves {self.load.pinned_gib:.1f} GiB for it"
        if length > self.context:
            return f"the model was made for {self.context} tokens, not for {length}"
        if not self.load.pinned_gib and self.weights + self.overhead > ceiling * self.total:
            return f"weights {self.weights:.1f} GiB and overhead {self.overhead:.1f} GiB on each host, but {limit}"
        if sequences < 1:
            needed = (
                self.parts(length, 1) if not self.load.pinned_gib else {"one": length * self.per_token + self.state}
            )
            one = sum(needed.values())
            fit_tokens = self.longest(ceiling, 1)
            return f"one request of {length} tokens takes {one:.1f} GiB, but {limit}; {fit_tokens} tokens fit"
        if sequences < requests:
            return (
                f"{sequences:.1f} of {requests} requests fit at once with all of {length} tokens; with more, vLLM puts "
                f"some back and computes them again"
            )
        return ""


def fixed_parts(
    model: Model, checkpoint: Checkpoint, hosts: int, requests: int, load: Load
) -> tuple[dict[str, float], dict[str, str]]:
    """What vLLM takes beside weights and KV cache, by part, and how each is known; flat for a model without facts."""
    found, sure = {}, {}
    if load.draft:
        whole = load.draft.weights_gib
        if whole is None:
            whole = checkpoint.weight_gib / max(1, model.geometry.layers) * load.draft.layers
        found["draft"], sure["draft"] = whole / (1 if load.draft.alone else hosts), load.draft.basis
    if load.ranks:
        tensor, pipeline = parallel(model.geometry, hosts, load.tensor)
        found["adapters"] = load.ranks * lora.numbers(model, tensor) * _BYTES["auto"] / pipeline / GIB
    if not model.geometry.hidden:
        overhead = _constant("overhead") + ("multimodal" in model.traits) * _constant("multimodal_overhead")
        return {**found, "overhead": overhead}, {**dict.fromkeys(found, "estimate"), **sure, "overhead": "estimate"}
    found |= {"context": _constant("context") * (1 if hosts == 1 else 2)}
    found["activations"] = _activations(model, requests, load)
    drafting = 2 if load.draft else 1  # it has graphs of its own
    found["graphs"] = _constant("graphs") + _constant("graph_per_request") * requests * drafting
    if "multimodal" in model.traits:
        found["encoder"] = _constant("multimodal_overhead")
    return found, {**dict.fromkeys(found, "estimate"), **sure}


def _activations(model: Model, requests: int, load: Load) -> float:
    """Of the largest chunk of a prompt, and the logits of all requests; vLLM computes both once at the start."""
    tokens = load.batched or int(_constant("batched_tokens"))
    bytes_of_one = _constant("activation_moe" if model.kind == "moe" else "activation_dense") * model.geometry.hidden
    logits = requests * model.geometry.vocabulary * 4
    return (tokens * bytes_of_one + logits) / GIB


def hosts_needed(model: Model, checkpoint: Checkpoint, total_bytes: float, at_most: int = MOST_HOSTS) -> int | None:
    """The smallest number of equal hosts on which one request of the shortest useful context fits."""
    length = min(int(_constant("shortest_context")), model.geometry.context)
    for hosts in range(1, at_most + 1):
        if fit(model, checkpoint, total_bytes, hosts, length, 1, "fp8").fits:
            return hosts
    return None


def _constant(name: str) -> float:
    value: float = catalog.load("models")["fit"][name]["value"]
    return value
