"""Memory fit: against what others computed, and against what vLLM said on Sparks. docs/models.md shows the errors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import Attention
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Checkpoint, Geometry, Model

MANUAL = Path(__file__).parents[3] / "docs/models.md"
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_known_cases(case: Case) -> None:
    assert abs(case.error) <= case.at_most, f"{case.error:+.2f} GiB"


def test_the_manual_states_the_error_of_every_case() -> None:
    text = MANUAL.read_text(encoding="utf-8")
    missing = [case.row for case in CASES if case.row not in text]
    assert not missing, "docs/models.md lacks:\n" + "\n".join(missing)


@pytest.mark.parametrize(
    ("name", "utilization"),
    [
        ("Qwen/Qwen3.6-35B-A3B-FP8", 0.38),  # the reference gives 0.35 without the encoder
        ("Qwen/Qwen3-30B-A3B", 0.64),
        ("openai/gpt-oss-120b", 0.62),
    ],
)
def test_the_utilization_is_what_it_takes_rounded_up(name: str, utilization: float) -> None:
    length, requests = (65536, 8) if "35B" in name else (40960, 8) if "30B" in name else (131072, 4)
    found = fit(name, 1, length, requests)
    assert found.fits and found.utilization == utilization
    assert 0 <= utilization * 121.63 - found.needed < 1.22


def test_seed_002_is_wrong_about_397b_on_two_hosts() -> None:
    found = fit("nvidia/Qwen3.5-397B-A17B-NVFP4", 2, 32768, 2)
    assert not found.fits and found.utilization == 0.98
    assert "weights 110.8 GiB" in found.reason and "0.90 of 121.6 GiB is 109.5 GiB" in found.reason


def test_working_configurations_of_the_seeds_fit() -> None:
    assert fit("openai/gpt-oss-120b", 1, 128000, 1, utilization=0.87).fits  # seed 000
    assert fit("Qwen/Qwen3-235B-A22B-GPTQ-Int4", 2, 32768, 4, utilization=0.87).fits  # seed 000
    assert fit("Qwen/Qwen3.5-35B-A3B-FP8", 1, 32768, 4, utilization=0.65).fits  # seed 004
    assert fit("Intel/Qwen3.5-397B-A17B-int4-AutoRound", 2, 16384, 1, utilization=0.9).fits  # eugr PR 89


# --- boundaries


def test_the_longest_context_fits_and_no_longer_one() -> None:
    name = "nvidia/Qwen3-235B-A22B-Instruct-2507-NVFP4"
    longest = fit(name, 2, 8192, 4).longest_context
    assert longest % 1024 == 0 and longest < 262144
    assert fit(name, 2, longest, 4).sequences >= 4 > fit(name, 2, longest + 1024, 4).sequences
    assert "requests fit at once" in fit(name, 2, longest + 1024, 4).reason


def test_one_request_must_fit() -> None:
    found = fit("Qwen/Qwen3-Coder-30B-A3B-Instruct", 1, 262144, 1, "auto", utilization=0.6)
    assert not found.fits and "one request of 262144 tokens takes 85.8 GiB" in found.reason
    assert "tokens fit" in found.reason


def test_more_than_the_model_was_made_for_does_not_fit() -> None:
    found = fit("Qwen/Qwen3-30B-A3B", 1, 65536, 1)
    assert not found.fits and found.reason == "the model was made for 40960 tokens, not for 65536"


def test_no_length_takes_the_usual_share_and_then_only_what_is_needed() -> None:
    roomy = fit("Qwen/Qwen3-Coder-30B-A3B-Instruct", dtype="auto")
    assert roomy.fits and roomy.utilization == 0.8 and 8192 < roomy.max_model_len < 262144
    tight = fit("Intel/Qwen3.5-397B-A17B-int4-AutoRound", 2)
    assert tight.fits and tight.max_model_len == 8192 and tight.concurrency == 4 and 0.8 < tight.utilization < 0.9


def test_the_smallest_share_is_bounded_by_the_reserve() -> None:
    """121.6 GiB of a Spark, 119 of a ThinkStation PGX, 64 of something smaller: 12 GiB stay free."""
    assert [memory_fit.highest_utilization(total) for total in (121.63, 119.0, 64.0)] == [0.9, 0.89, 0.81]


def test_hosts_share_layers_where_they_divide_the_heads() -> None:
    geometry = known("openai/gpt-oss-120b")[0].geometry
    assert [memory_fit.parallel(geometry, hosts) for hosts in (1, 2, 3, 4)] == [(1, 1), (2, 1), (1, 3), (4, 1)]


def test_hosts_share_layers_where_they_divide_the_kv_heads_too() -> None:
    """24 query heads and 48 of linear attention go into three, and 4 KV heads do not: vLLM would not start."""
    geometry = known("Qwen/Qwen3.6-27B")[0].geometry
    assert [memory_fit.parallel(geometry, hosts) for hosts in (2, 3, 4, 8)] == [(2, 1), (1, 3), (4, 1), (8, 1)]
    read = replace(geometry, linear=None, attention=(Attention("full", 16, kv_heads=4, key_dim=256, value_dim=256),))
    assert [memory_fit.parallel(read, hosts) for hosts in (2, 3, 4, 8)] == [(2, 1), (1, 3), (4, 1), (8, 1)]


def test_a_kv_head_is_not_cut_and_a_latent_is_everywhere() -> None:
    grouped = known("Qwen/Qwen3.5-122B-A10B")[0].geometry  # two KV heads
    assert memory_fit.kv_bytes_per_token(grouped, "auto") == 24576  # the reference's number
    assert memory_fit.kv_bytes_per_token(grouped, "fp8", 2) == 6144
    assert memory_fit.kv_bytes_per_token(grouped, "fp8", 4) == 6144
    latent = known("deepseek-ai/DeepSeek-V3")[0].geometry
    assert (
        memory_fit.kv_bytes_per_token(latent, "auto", 2)
        == memory_fit.kv_bytes_per_token(latent, "auto")
        == 61 * 576 * 2
    )


@pytest.mark.parametrize(
    ("name", "state_mib"),
    [
        ("Qwen/Qwen3.6-35B-A3B", 60),
        ("Qwen/Qwen3.6-27B", 144),
        ("Qwen/Qwen3.5-122B-A10B", 144),
        ("Qwen/Qwen3.5-397B-A17B", 180),
    ],
)
def test_the_state_of_linear_attention(name: str, state_mib: int) -> None:
    assert memory_fit.state_bytes(known(name)[0].geometry) / 2**20 == state_mib


def test_weights_on_each_host_are_what_was_measured_there() -> None:
    assert fit("Qwen/Qwen3-235B-A22B-GPTQ-Int4", 2, 8192, 1).need["weights"] == 57.64  # 118 GB halved are 54.95 GiB
