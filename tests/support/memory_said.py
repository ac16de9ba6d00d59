"""What logs of vLLM say of memory, beside what we count: cases with their sources."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB, Load
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Model

from tests.support.model_folders import CASES

SPARK = 121.69 * GIB


def facts(name: str) -> ModelFacts:
    case = next(case for case in CASES if case.id == name)
    with tempfile.TemporaryDirectory() as root:
        found = sources.find(str(replace(case, size_gb=0).folder(Path(root) / "m")))
    return replace(found, id=f"somebody/{name.rpartition('/')[2]}")  # no figure of the catalog


def model(name: str) -> Model:
    return models.of_facts(facts(name))


def fit(
    name: str, hosts: int, length: int, requests: int, dtype: str, share: float, load: Load | None = None
) -> memory_fit.Fit:
    one = model(name)
    return memory_fit.fit(one, one.checkpoints[0], SPARK, hosts, length, requests, dtype, share, load)


def weights(name: str, hosts: int = 1) -> float:
    return facts(name).weights_gib / hosts


def request(name: str, length: int, dtype: str, hosts: int = 1) -> float:
    """GiB of one request, with its state and window."""
    geometry = model(name).geometry
    cache = length * memory_fit.kv_bytes_per_token(geometry, dtype, hosts)
    return (
        cache + memory_fit.window_bytes(geometry, length, dtype, hosts) + memory_fit.state_bytes(geometry, hosts)
    ) / GIB


@dataclass(frozen=True)
class Said:
    """GiB on each host: what a log says, and what we count."""

    what: str
    source: str
    said: float
    found: float

    @property
    def near(self) -> bool:
        """Within 3 GiB or 5 %."""
        return abs(self.found - self.said) <= max(3.0, 0.05 * self.said)

    @property
    def row(self) -> str:
        error = self.found - self.said
        cells = (f"{self.said:.2f}", f"{self.found:.2f}", f"{error:+.2f}", f"{error / self.said:+.0%}")
        return f"| {' | '.join((self.what, *cells, self.source))} |"


GPTQ, LARGE = "Qwen/Qwen3-235B-A22B-GPTQ-Int4", "Sehyo/Qwen3.5-122B-A10B-NVFP4"
SUPER, FLASH = "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "deepseek-ai/DeepSeek-V4-Flash"
DENSE, MINIMAX = "nvidia/Qwen3.6-27B-NVFP4", "nvidia/MiniMax-M2.7-NVFP4"
SAID = (
    Said("weights of Qwen3-8B, BF16", "a log on an RTX 5090", 15.27, weights("Qwen/Qwen3-8B")),
    Said("weights of Llama 3 8B, BF16", "vllm PR 10511", 14.96, weights("meta-llama/Llama-3.1-8B-Instruct")),
    Said("weights of gpt-oss-120b, MXFP4", "vllm issue 33155", 64.38, weights("openai/gpt-oss-120b")),
    Said("weights of Qwen3-235B GPTQ-Int4 on each of 2 hosts", "seed 000", 57.64, weights(GPTQ, 2)),
    Said("weights of Qwen3.5-122B, NVFP4", "project lmds", 71.32, weights(LARGE)),
    Said("weights of Qwen3.6-27B, NVFP4 of NVIDIA", "vLLM's log", 26.02, weights(DENSE)),
    Said("weights of Nemotron 3 Super, NVFP4 and FP8", "project lmds", 69.62, weights(SUPER)),
    Said("one request of 262,144, Qwen3.5-122B, BF16 cache", "project lmds", 12 / 1.94, request(LARGE, 262144, "auto")),
    Said("one request of 262,144, Nemotron 3 Super, FP8 cache", "project lmds", 6 / 4.5, request(SUPER, 262144, "fp8")),
    Said("one request of 196,608, MiniMax M2.7 on 2 hosts, BF16 cache", "eugr/spark-vllm-docker issue 396", 23.25,
         request(MINIMAX, 196608, "auto", 2)),
    Said("1,487,645 tokens of DeepSeek-V4-Flash on 2 hosts", "MiaAI-Lab/DeepSeek-v4-Flash-DSpark issue 32", 10.02,
         request(FLASH, 1487645, "fp8", 2)),
    Said("Nemotron 3 Super with a cache of 6 GiB, the whole process", "project lmds", 78.48,
         fit(SUPER, 1, 131072, 2, "fp8", 0.85, Load(2048, 6.0)).needed),
    Said("Qwen3.5-122B NVFP4 with a cache of 12 GiB, the whole process", "project lmds", 84.24,
         fit(LARGE, 1, 131072, 2, "auto", 0.85, Load(2048, 12.0)).needed),
)  # fmt: skip
