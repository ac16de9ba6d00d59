"""Memory by a model's own facts, held against what vLLM said on machines. docs/models.md shows the errors.

Each figure is a line of somebody's log; the facts are those of the folder in small, without the size of its files, so
that weights are counted from the configuration alone where the log is about weights.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB, Draft, Load
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import document

from tests.support.memory_said import DENSE, FLASH, GPTQ, LARGE, MINIMAX, SAID, SPARK, SUPER, Said, fit, model

MANUAL = Path(__file__).parents[4] / "docs/models.md"


# Counted too large: vLLM gives back most of what it took for its largest chunk before a server answers.
FAR = ("Qwen3.5-122B NVFP4 with a cache of 12 GiB, the whole process",)


@pytest.mark.parametrize("case", SAID, ids=lambda case: case.what)
def test_near_what_was_said(case: Said) -> None:
    if case.what in FAR:
        assert case.said < case.found < 1.07 * case.said, case.row
    else:
        assert case.near, case.row


def test_nine_of_ten_are_near() -> None:
    assert sum(case.near for case in SAID) >= 0.9 * len(SAID)


def test_the_manual_has_every_row() -> None:
    text = MANUAL.read_text(encoding="utf-8")
    missing = [case.row for case in SAID if case.row not in text]
    assert not missing, "docs/models.md lacks:\n" + "\n".join(missing)


# --- what ran fits, and what did not start or froze does not


@pytest.mark.parametrize(
    ("name", "hosts", "length", "requests", "dtype", "share", "batched"),
    [
        (DENSE, 1, 262144, 8, "fp8", 0.50, 8192),
        (LARGE, 1, 262144, 8, "fp8", 0.80, 8192),
        (SUPER, 1, 262144, 8, "fp8", 0.80, 16384),
        ("nvidia/Gemma-4-26B-A4B-NVFP4", 1, 262144, 8, "auto", 0.80, 8192),
        (MINIMAX, 2, 196608, 0, "fp8", 0.85, 0),
        (FLASH, 2, 500000, 4, "fp8", 0.85, 8192),
        ("openai/gpt-oss-120b", 1, 128000, 1, "fp8", 0.87, 0),
        (GPTQ, 2, 32768, 4, "fp8", 0.87, 0),
        ("Intel/Qwen3.5-397B-A17B-int4-AutoRound", 2, 16384, 1, "fp8", 0.90, 2048),
    ],
)
def test_what_ran_on_sparks_fits(
    name: str, hosts: int, length: int, requests: int, dtype: str, share: float, batched: int
) -> None:
    """NVIDIA's measured recipes (one request must fit; more share the cache), and the seeds."""
    found = fit(name, hosts, length, requests, dtype, share, Load(batched))
    assert found.fits, found.reason


@pytest.mark.parametrize("share", [0.70, 0.80, 0.90])
def test_what_froze_a_spark_does_not_fit(share: float) -> None:
    """Qwen3.8-Flash-Next, files of 126 GiB on one Spark: vllm issue 56824 (0.70), eugr/spark-vllm-docker issue 388."""
    said = {"id": "a/b", "architecture": "Qwen4Exp", "context": 262144, "hidden": 3072, "weights": {"gib": 126}}
    said["attention"] = [{"kind": "full", "layers": 1, "kv_heads": 1, "key_dim": 128, "value_dim": 128}]  # or more
    one = models.of_facts(document.read(json.dumps(said).encode(), "facts.json"))
    found = memory_fit.fit(one, one.checkpoints[0], SPARK, 1, 16384, 1, "fp8", share)
    assert not found.fits and "weights 126.0 GiB" in found.reason


def test_the_smallest_spark_decides() -> None:
    one = model("openai/gpt-oss-20b")
    assert memory_fit.fit(one, one.checkpoints[0], 58 * GIB, 1, 131072, 1, "fp8").fits  # a Spark of 64 GB
    large = model("openai/gpt-oss-120b")
    assert not memory_fit.fit(large, large.checkpoints[0], 58 * GIB, 1, 8192, 1, "fp8").fits


# --- the terms


def test_the_type_of_the_cache_counts() -> None:
    geometry = model("Qwen/Qwen3-8B").geometry
    by_type = {name: memory_fit.kv_bytes_per_token(geometry, name) for name in ("auto", "fp8", "nvfp4")}
    assert by_type == {"auto": 147456, "fp8": 73728, "nvfp4": 147456 * 4.5 / 16}


def test_a_window_does_not_grow_with_the_context() -> None:
    geometry = model("google/gemma-3-27b-it").geometry
    short, long = (memory_fit.window_bytes(geometry, length) for length in (512, 131072))
    assert long == 2 * short == 1024 * 52 * 16 * 256 * 2


def test_chunk_requests_and_draft_add_up() -> None:
    def need(load: Load, requests: int = 4) -> dict[str, float]:
        return dict(fit(LARGE, 1, 32768, requests, "fp8", 0.85, load).need)

    plain = need(Load())
    assert need(Load(batched=16384))["activations"] == pytest.approx(2 * plain["activations"], rel=0.01)
    assert need(Load(), 64)["graphs"] - plain["graphs"] == pytest.approx(1.2)
    drafted = need(Load(draft=Draft(2.5, "headers", 1)))
    assert drafted["draft"] == 2.5 and drafted["kv_cache"] == pytest.approx(plain["kv_cache"])
    assert drafted["kv_cache"] + drafted["draft_kv_cache"] == pytest.approx(plain["kv_cache"] * 13 / 12)
    assert drafted["graphs"] - plain["graphs"] == pytest.approx(0.08)


def test_a_pinned_cache_is_all_there_is() -> None:
    small = fit("Qwen/Qwen3-8B", 1, 40960, 1, "auto", 0.5, Load(pinned_gib=5.0))
    assert not small.fits and "--kv-cache-memory-bytes leaves 5.0 GiB" in small.reason
    roomy = fit("Qwen/Qwen3-8B", 1, 40960, 1, "auto", 0.5, Load(pinned_gib=6.0))
    assert roomy.fits and roomy.need["kv_cache"] == 6.0
    crowded = fit("openai/gpt-oss-120b", 1, 8192, 1, "auto", 0.8, Load(pinned_gib=50.0))
    assert not crowded.fits and "are safe to take" in crowded.reason


def test_each_term_says_how_it_is_known() -> None:
    sure = fit(DENSE, 1, 8192, 1, "fp8", 0.5, Load(draft=Draft(1.0, "headers", 1))).sure
    assert sure["weights"] == "config" and sure["kv_cache"] == "computed" and sure["draft"] == "headers"
    assert sure["draft_kv_cache"] == "estimate"
    assert {sure[part] for part in ("activations", "graphs", "context", "encoder")} == {"estimate"}


# --- what else is on the host


def test_a_second_service_takes_its_share_of_the_host() -> None:
    def found(others: float, requests: int) -> memory_fit.Fit:
        return fit("Qwen/Qwen3-8B", 1, 40960, requests, "auto", 0.0, Load(others_gib=others))

    alone, beside = found(0, 1), found(80.0, 1)
    assert "others" not in alone.need and beside.need["others"] == 80.0 and beside.sure["others"] == "asked"
    assert alone.fits and beside.fits and beside.utilization == alone.utilization, "vLLM's own share is what it was"
    assert beside.sequences < alone.sequences and beside.needed == pytest.approx(alone.needed + 80)
    assert found(80.0, 4).utilization < found(0, 4).utilization, "what the second service leaves"
    assert not found(100.0, 1).fits


def test_a_share_that_leaves_the_second_service_too_little_does_not_fit() -> None:
    found = fit("Qwen/Qwen3-8B", 1, 8192, 1, "auto", 0.8, Load(others_gib=40.0))
    assert not found.fits and "others 40.0" in found.reason and "are safe to take" in found.reason
    assert fit("Qwen/Qwen3-8B", 1, 8192, 1, "auto", 0.5, Load(others_gib=40.0)).fits


def test_a_spark_with_64_gb_is_counted_by_its_own_memory() -> None:
    """MemTotal of such a board is not published; 58 GiB is 64 GB less the carveouts of the larger one."""
    one = model("Qwen/Qwen3-8B")
    found = memory_fit.fit(one, one.checkpoints[0], 58 * GIB, 1)
    assert found.fits and found.total == 58 and found.utilization <= memory_fit.highest_utilization(58)
    assert memory_fit.highest_utilization(58) * 58 < 58 - 5, "the reserve is no share"
    large = model("Qwen/Qwen3-30B-A3B")
    assert not memory_fit.fit(large, large.checkpoints[0], 58 * GIB, 1, 8192, 1).fits
    assert memory_fit.fit(large, large.checkpoints[0], 58 * GIB, 2, 8192, 1).fits
    assert memory_fit.hosts_needed(large, large.checkpoints[0], 58 * GIB) == 2
