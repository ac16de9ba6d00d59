"""Models of which it is known whether they fit into a GB10."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Checkpoint, Geometry, Model

SPARK = 121.63 * GIB
MINIMAX = Geometry(layers=62, kv_layers=62, query_heads=48, kv_heads=8, head_dim=128, context=196608)


def known(name: str) -> tuple[Model, Checkpoint]:
    model = models.find(name)
    assert model
    checkpoint = model.checkpoint(name)
    assert checkpoint
    return model, checkpoint


def fit(
    name: str, hosts: int = 1, length: int = 0, requests: int = 0, dtype: str = "fp8", **other: float
) -> memory_fit.Fit:
    model, checkpoint = known(name)
    return memory_fit.fit(model, checkpoint, other.pop("total", SPARK), hosts, length, requests, dtype, **other)


@dataclass(frozen=True)
class Case:
    """GiB on each host: what the source says, and what we say."""

    what: str
    said: float
    found: float
    at_most: float  # error in GiB that we accept

    @property
    def error(self) -> float:
        return self.found - self.said

    @property
    def row(self) -> str:
        return f"| {self.what} | {self.said:.2f} | {self.found:.2f} | {self.error:+.2f} |"


def computed(what: str, said: float, name: str, hosts: int, length: int, requests: int, dtype: str = "fp8") -> Case:
    """What was computed by hand leaves out the 2 GiB of an image encoder."""
    model, _one = known(name)
    return Case(
        what, said, fit(name, hosts, length, requests, dtype).needed, 2.1 if "multimodal" in model.traits else 0.1
    )


def request(geometry: Geometry, length: int, dtype: str, hosts: int = 1) -> float:
    """GiB of one request: its KV cache and its state."""
    kv_cache = length * memory_fit.kv_bytes_per_token(geometry, dtype, hosts)
    return (kv_cache + memory_fit.state_bytes(geometry, hosts)) / GIB


LARGE, SUPER = known("Sehyo/Qwen3.5-122B-A10B-NVFP4"), known("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4")
CASES = [
    computed("Qwen3.6-35B-A3B-FP8, 8 requests of 65,536", 43.1, "Qwen/Qwen3.6-35B-A3B-FP8", 1, 65536, 8),
    computed("Qwen3.6-27B-FP8, 8 of 65,536", 50.1, "Qwen/Qwen3.6-27B-FP8", 1, 65536, 8),
    computed("Qwen3.5-122B-A10B NVFP4, 4 of 65,536", 79.9, "Sehyo/Qwen3.5-122B-A10B-NVFP4", 1, 65536, 4),
    computed("Qwen3-30B-A3B BF16, 8 of 40,960", 76.8, "Qwen/Qwen3-30B-A3B", 1, 40960, 8),
    computed("gpt-oss-120b, BF16 KV cache, 4 of 131,072", 83.8, "openai/gpt-oss-120b", 1, 131072, 4, "auto"),
    computed("Qwen3-235B GPTQ-Int4 on 2 hosts, 4 of 32,768", 68.5, "Qwen/Qwen3-235B-A22B-GPTQ-Int4", 2, 32768, 4),
    computed("Qwen3.5-397B NVFP4 on 2 hosts, 2 of 32,768", 116.5, "nvidia/Qwen3.5-397B-A17B-NVFP4", 2, 32768, 2),
    # vLLM's log of a Spark, 2026-09-07: 12 GiB hold 1.94 requests of 262,144.
    Case(
        "log: one request of 262,144, Qwen3.5-122B, BF16 KV cache",
        12 / 1.94,
        request(LARGE[0].geometry, 262144, "auto"),
        0.1,
    ),
    # eugr/spark-vllm-docker issue 396, two Sparks: "23.25 GiB KV cache is needed".
    Case(
        "log: one request of 196,608, MiniMax-M2.7 on 2 hosts, BF16 KV cache",
        23.25,
        request(MINIMAX, 196608, "auto", 2),
        0.01,
    ),
    # The same log of 2026-09-07: 86,263 and 80,364 MiB by nvidia-smi, with KV caches of 12 and 6 GiB.
    Case("process: Qwen3.5-122B NVFP4 with 12 GiB of KV cache", 86263 / 1024, 71.32 + 12 + 7, 6.5),
    Case("process: Nemotron-3-Super NVFP4 with 6 GiB of KV cache", 80364 / 1024, 69.62 + 6 + 5, 2.5),
]
