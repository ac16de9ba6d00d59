"""Memory fit: against what others computed, and against what vLLM said on Sparks. docs/models.md shows the errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, speculation
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import Attention

from tests.support.memory_fit import CASES, Case, fit, known

MANUAL = Path(__file__).parents[3] / "docs/models.md"


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


@pytest.mark.parametrize(
    ("change", "hosts", "parts", "said"),
    [
        ({}, 2, 2, "8 KV heads on 2 hosts leave no 2 copies"),
        ({"kv_heads": 2}, 4, 2, ""),
        ({"kv_heads": 2}, 4, 4, "2 KV heads on 4 hosts leave no 4 copies"),
        ({"kv_heads": 0, "latent": 576}, 2, 2, ""),
        ({"kv_heads": 0, "latent": 576}, 4, 3, "4 hosts do not divide by 3 parts of a context"),
    ],
)
def test_a_part_of_a_context_takes_all_kv_heads(change: dict[str, Any], hosts: int, parts: int, said: str) -> None:
    geometry = replace(known("openai/gpt-oss-120b")[0].geometry, **change)
    assert memory_fit.context_parts(geometry, hosts, parts) == said


@pytest.mark.parametrize(
    ("change", "hosts", "said"),
    [
        ({}, 4, ""),
        ({}, 3, "64 query heads and 8 KV heads do not divide by 3"),
        ({"query_heads": 48}, 3, "8 KV heads do not divide by 3"),
        ({"query_heads": 48, "kv_heads": 1}, 3, ""),  # the one KV head is on each host
        ({"query_heads": 48, "kv_heads": 0, "latent": 576}, 3, ""),  # so is the latent of MLA
        ({"query_heads": 48, "kv_heads": 12, "widths": (1536, 2048)}, 3, "a width of 2048 do not divide by 3"),
        ({"query_heads": 48, "kv_heads": 12, "widths": (1536,)}, 3, ""),
    ],
)
def test_what_three_hosts_cannot_divide(change: dict[str, Any], hosts: int, said: str) -> None:
    geometry = replace(known("openai/gpt-oss-120b")[0].geometry, **change)
    assert memory_fit.uneven(geometry, hosts) == said
    assert memory_fit.parallel(geometry, hosts) == ((1, hosts) if said else (hosts, 1))
    assert memory_fit.parallel(geometry, hosts, hosts) == (hosts, 1), "who asks for it gets it, and the rule's word"


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


def test_hosts_that_share_layers_by_wish_hold_half_of_the_latents_each() -> None:
    """Each layer on both hosts keeps its latent on both; half of the layers on each keep half."""
    model, checkpoint = known("deepseek-ai/DeepSeek-V3")
    loads = [speculation.load(flags, model, None) for flags in ({}, {"--tensor-parallel-size": "1"})]
    both, half = (memory_fit.fit(model, checkpoint, 10**13, 2, 8192, 1, load=each).need["kv_cache"] for each in loads)
    assert both == 2 * half > 0


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
