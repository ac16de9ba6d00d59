"""Configurations of many families, and what is right for each: tests/fixtures/model_configs has them."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import engine, memory_fit, models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts

CONFIGS = Path(__file__).parents[1] / "fixtures/model_configs"
# What vLLM 0.32.0 says of them on a CPU, by the program of `gb10 plan --ask` (model_configs/README.md).
ANSWERS: dict[str, dict[str, Any]] = json.loads(CONFIGS.with_name("engine_answers.json").read_text(encoding="utf-8"))
NEAR = 0.03


@dataclass(frozen=True)
class Right:
    """`kv` are bytes a token in BF16 of the layers that grow; `billions` the parameters by transformers 5.24.0 on
    the meta device; `gib` the weights as published or logged. 0: nobody has told. `why`: what is far from it, and why.
    """

    name: str
    kv: int
    source: str
    billions: float = 0.0
    gib: float = 0.0
    task: str = "generate"
    why: str = ""
    apart: str = ""  # why vLLM says something else than what is counted

    @property
    def engine(self) -> dict[str, Any]:
        """What vLLM says; nothing where this build of it refuses the model."""
        said = ANSWERS.get(self.name, {})
        return {} if "refusal" in said else said

    @property
    def row(self) -> str:
        with tempfile.TemporaryDirectory() as root:
            found = of(self.name, Path(root), self.task == "embed")
        gib = f"{self.gib:g}" if self.gib else ""
        told = f"{self.source}. Far from it: {self.why}" if self.why else self.source
        told = f"{told}. vLLM differs: {self.apart}" if self.apart else told
        said = self.engine
        of_vllm = (f"{engine.token_bytes(said):.0f}", f"{engine.weights_gib(said):.2f}") if said else ("", "")
        cache, weights = (
            f"{kv(found):.0f} | {of_vllm[0]} | {self.kv:.0f}",
            f"{found.weights_gib:.2f} | {of_vllm[1]} | {gib}",
        )
        return f"| {self.name} | {cache} | {weights} | {told} |"


COUNTED, CACHE = "counted by hand", "the cache of transformers 5.24.0"
LOGGED = "a log of a GB10: 4.34 GiB for a request of 262,144 tokens"
RIGHT = (
    Right("ERNIE-4.5-default", 57344, CACHE, 21.825),
    Right("EmbeddingGemma2-default", 0, "an encoder, modeling_embedding_gemma2.py", 0.271, task="embed"),
    Right("Falcon-H1-default", 131072, CACHE, 8.515),
    Right("GLM-4.5-Air", 188416, f"{CACHE}; vLLM 0.32.0 on the meta device: 199.07 GiB", 106.852, 199),
    Right("GLM-5-default", 89900, "78 x 576 x 2", 743.911, why="the index of sparse attention, 132 bytes a layer"),
    Right("GLM-5.3-Flash-transformers5.18", 11330, "told with the configuration", 313.787),
    Right("HunYuan-V3-default", 327680, CACHE, 295.034),
    Right("HunYuan-V4-default", 34 * 576 * 2 + 10 * 132, f"{COUNTED}: an index in 10 of 34 layers", 58.278),
    Right("Kimi-K2-Instruct", 70272, f"{COUNTED}: 61 x 576 x 2", gib=958),
    Right("Kimi-K2.5-default", 70272, f"{COUNTED}: 61 x 576 x 2"),
    Right("Kimi-Linear-48B-A3B", 8064, f"{COUNTED}: 7 x 576 x 2", 49.123, 91.4),
    Right("LFM2-default", 81920, CACHE, 2.705),
    Right("LLaDA-8B-Instruct", 0, "diffusion of text keeps nothing", 8.02),
    Right("Ling-3-default", 8064, f"{COUNTED}: 7 x 576 x 2"),
    Right("Llama-4-Scout-17B-16E", 49152, f"{COUNTED}: 12 layers that see all x 8 x 128 x 2 x 2", gib=203),
    Right("MiMo-V2-Flash", 23040, f"{CACHE}: 9 x 4 x (192 + 128) x 2", 308.779),
    Right(
        *("Ministral-3-8B-Instruct-2512", 139264, f"{COUNTED}: 34 x 8 x 128 x 2 x 2"),
        apart="it makes one table for embedding and head of this cut configuration, and its encoder for images in FP8",
    ),
    Right("Nemotron-3-Nano-30B-A3B-BF16", 6144, CACHE, 31.578, 58.8),
    Right("Nemotron-3-Nano-4B", 16384, f"{CACHE}; vLLM's log: 7.43 GiB", 3.974, 7.43),
    Right("Qwen3-VL-Embedding-8B", 147456, CACHE, task="embed"),
    Right("Qwen3-VL-Reranker-8B", 147456, CACHE, 8.758),
    Right("Qwen3.5-35B-A3B-default", 20480, f"{COUNTED}: 10 x 2 x 256 x 2 x 2", 35.114),
    Right("Qwen3.5-9B-default", 32768, f"{COUNTED}: 8 x 4 x 256 x 2 x 2", 9.407),
    Right("Qwen3.6-35B-A3B", 20480, "vLLM's log on a GB10: 64.69 GiB", 35.114, 64.69),
    Right("Qwen3.8-Flash-Next", 24576 + 12 * 320, LOGGED, 142.3),
    Right("Qwen3.8-Flash-Next-NVFP4-roundtrip", 24576 + 12 * 320, LOGGED),
    Right("Seed-OSS-36B", 262144, CACHE, 36.151, 67.3),
    Right("Step-3.5-Flash-hub", 49152, f"{COUNTED}: 12 of 45 layers x 8 x 128 x 2 x 2"),
    Right("Zamba2-default", 184320, CACHE, 2.482, why="adapters of its shared block", apart="it has them"),
    Right("bge-m3", 0, "an encoder", 0.568, 1.06, task="embed"),
    Right("bge-reranker-v2-m3", 0, "an encoder", 0.568, 1.06, task="classify"),
    Right("gemma-3n-default", 8192, f"{COUNTED}: 4 layers that see all and have a cache x 2 x 256 x 2 x 2"),
    Right("gemma-4-E4B-saved-by-transformers-5", 16384, f"{COUNTED}: 4 such layers x 2 x 512 x 2 x 2", 8.004, 15),
    Right("gpt-oss-20b", 24576, CACHE, 20.915, 12.8, why="vLLM pads its experts from 2,880 to 3,072"),
    Right("jina-v3-default", 0, "an encoder", 0.559, 1.06, task="embed"),
    Right("phi-4", 204800, CACHE, 14.66, 27.3),
    Right("whisper-large-v3", 163840, f"{COUNTED}: 32 x 20 x 64 x 2 x 2", 1.543, 2.9, task="transcribe"),
)  # fmt: skip


def facts(content: dict[str, Any], root: Path, embeds: bool = False) -> ModelFacts:
    (root / "config.json").write_text(json.dumps(content), encoding="utf-8")
    if embeds:
        (root / "modules.json").write_text("[]", encoding="utf-8")
    return sources.find(str(root))


def of(name: str, root: Path, embeds: bool = False) -> ModelFacts:
    return facts(json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8")), root, embeds)


def kv(found: ModelFacts) -> float:
    return memory_fit.kv_bytes_per_token(models.of_facts(found).geometry)
