# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a model fits the memory of a Spark, or of each host of a cluster. CPU and GPU share it on a GB10.

Pure arithmetic; what it counts with is catalog/models.yml, `fit`. Sizes in GiB (2**30 bytes), context in tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Checkpoint, Geometry, Model

GIB = 2**30
# Of one number in the KV cache. "auto" is the model's own type, BF16 of all models here.
_BYTES = {"auto": 2, "bfloat16": 2, "float16": 2}
_STEP = 1024  # tokens: a context that was computed is a multiple of it


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

    @property
    def needed(self) -> float:
        return sum(self.need.values())


def parallel(geometry: Geometry, hosts: int) -> tuple[int, int]:
    """Tensor and pipeline parallel size: hosts share each layer where they divide the heads, else the layers."""
    heads = [geometry.query_heads] + ([geometry.linear.value_heads] if geometry.linear else [])
    return (hosts, 1) if all(count % hosts == 0 for count in heads) else (1, hosts)


def kv_bytes_per_token(geometry: Geometry, dtype: str = "auto", hosts: int = 1) -> float:
    """Of the KV cache, on each host. A KV head cannot be cut, and the latent of MLA is on every host."""
    tensor, pipeline = parallel(geometry, hosts)
    numbers = geometry.latent or 2 * max(1.0, geometry.kv_heads / tensor) * geometry.head_dim
    return geometry.kv_layers / pipeline * numbers * _BYTES.get(dtype, 1)


def state_bytes(geometry: Geometry, hosts: int = 1) -> float:
    """Of the state of linear attention of one sequence, on each host."""
    whole = geometry.state_mib * 2**20
    if geometry.linear:
        of_layer = geometry.linear.value_heads * geometry.linear.key_dim * geometry.linear.value_dim
        whole += geometry.linear.layers * of_layer * _constant("state_bytes")
    return whole / hosts


def highest_utilization(total_gib: float) -> float:
    """The largest share that is safe: what the catalog allows at most, and its reserve stays free."""
    highest: float = catalog.load("software")["vllm_gpu_memory_utilization"]["highest"]
    return min(highest, math.floor((total_gib - _constant("reserve")) / total_gib * 100) / 100)


def fit(
    model: Model,
    checkpoint: Checkpoint,
    total_bytes: float,
    hosts: int = 1,
    max_model_len: int = 0,
    concurrency: int = 0,
    kv_dtype: str = "auto",
    utilization: float = 0.0,
) -> Fit:
    """How `checkpoint` fits on `hosts` hosts, the smallest with `total_bytes` (MemTotal).

    0 leaves the choice: as much context as fits beside the catalog's number of requests, and the smallest share for it.
    """
    sizes = _Sizes(model, checkpoint, total_bytes / GIB, hosts, kv_dtype)
    ceiling = utilization or highest_utilization(sizes.total)
    requests = concurrency or int(_constant("concurrency"))
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

    def __init__(self, model: Model, checkpoint: Checkpoint, total: float, hosts: int, kv_dtype: str) -> None:
        geometry = model.geometry
        self.total, self.context = total, geometry.context
        self.weights = checkpoint.on_host.get(hosts, checkpoint.weight_gib / hosts)
        self.overhead = _constant("overhead") + ("multimodal" in model.traits) * _constant("multimodal_overhead")
        self.per_token = kv_bytes_per_token(geometry, kv_dtype, hosts) / GIB
        self.state = state_bytes(geometry, hosts) / GIB

    def parts(self, length: int, requests: int) -> dict[str, float]:
        return {
            "weights": self.weights,
            "kv_cache": length * requests * self.per_token,
            "state": requests * self.state,
            "overhead": self.overhead,
        }

    def longest(self, share: float, requests: int) -> int:
        """Tokens that each of `requests` can have; the whole context of the model or a multiple of 1024."""
        room = share * self.total - self.weights - self.overhead - requests * self.state
        tokens = int(room / (requests * self.per_token))
        return self.context if tokens >= self.context else max(0, tokens // _STEP * _STEP)

    def answer(self, ceiling: float, length: int, requests: int, chosen: float) -> Fit:
        need = self.parts(length, requests)
        share = math.ceil(sum(need.values()) / self.total * 100) / 100
        room = ceiling * self.total - self.weights - self.overhead
        sequences = room / (length * self.per_token + self.state)
        fits = sequences >= 1 and length <= self.context
        return Fit(
            fits=fits,
            utilization=chosen or (min(share, ceiling) if fits else share),
            max_model_len=length,
            concurrency=requests,
            sequences=max(0.0, sequences),
            longest_context=self.longest(ceiling, requests),
            need=need,
            total=self.total,
            reason=self._reason(ceiling, length, requests, sequences),
        )

    def _reason(self, ceiling: float, length: int, requests: int, sequences: float) -> str:
        limit = f"{ceiling:.2f} of {self.total:.1f} GiB is {ceiling * self.total:.1f} GiB"
        if length > self.context:
            return f"the model was made for {self.context} tokens, not for {length}"
        if self.weights + self.overhead > ceiling * self.total:
            return f"weights {self.weights:.1f} GiB and overhead {self.overhead:.1f} GiB on each host, but {limit}"
        if sequences < 1:
            one = sum(self.parts(length, 1).values())
            fit_tokens = self.longest(ceiling, 1)
            return f"one request of {length} tokens takes {one:.1f} GiB, but {limit}; {fit_tokens} tokens fit"
        if sequences < requests:
            return (
                f"{sequences:.1f} of {requests} requests fit at once with all of {length} tokens; with more, vLLM puts "
                f"some back and computes them again"
            )
        return ""


def hosts_needed(model: Model, checkpoint: Checkpoint, total_bytes: float, at_most: int = 8) -> int | None:
    """The smallest number of equal hosts on which one request of the shortest useful context fits."""
    length = min(int(_constant("shortest_context")), model.geometry.context)
    for hosts in range(1, at_most + 1):
        if fit(model, checkpoint, total_bytes, hosts, length, 1, "fp8").fits:
            return hosts
    return None


def _constant(name: str) -> float:
    value: float = catalog.load("models")["fit"][name]["value"]
    return value
