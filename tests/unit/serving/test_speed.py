"""How fast one request is: measured, or bound by the memory; drafts and a second Spark as somebody measured them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models, recipes, speed
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import Parts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import plan

from tests.support.speed_runs import AGAIN, FRESH, RUNS, UNSEEN, Run

MANUAL = Path(__file__).parents[3] / "docs/models.md"
SPARK = 121.63 * GIB
DENSE = "nvidia/Qwen3.6-27B-NVFP4"
MEASURED = [each for each in recipes.recipes() if each.measured]


def of(name: str) -> tuple[models.Model, models.Checkpoint]:
    model = models.find(name)
    checkpoint = model.checkpoint(name) if model else None
    assert model and checkpoint
    return model, checkpoint


def test_no_bound_where_nobody_says_how_much_is_active() -> None:
    model, checkpoint = of(DENSE)
    unknown = replace(model, parameters_active=0.0, parts=Parts()), replace(checkpoint, basis="facts")
    assert speed.bandwidth_limit(*unknown) == 0
    assert speed.bound(*unknown, 1, {}).text.startswith("its active parameters are not known")


def test_a_dense_model_reads_all_that_was_loaded() -> None:
    """26.02 GiB without embedding and encoder, and not the 15.6 GB that its parameters would take in 4.5 bits."""
    model, checkpoint = of(DENSE)
    assert speed.read_gb(model, checkpoint) == pytest.approx(26.02 * 2**30 / 1e9 - 2 * model.parts.unread / 1e9)
    assert speed.read_gb(model, replace(checkpoint, basis="recipe")) == pytest.approx(
        (17.11 * 4.5 + (7.238 + 1.271) * 16) / 8
    ), "as makers of NVFP4 usually leave attention"


def test_the_small_parts_of_a_mixture_are_what_was_loaded_without_its_experts() -> None:
    """Nemotron 3 Nano in NVFP4 loaded 18.21 GiB and ran at 63 tok/s, which attention in BF16 would not allow."""
    parts = Parts(
        feeding=29_368_516_608, chosen=1_376_649_216, sides=1_504_739_328, head=352_321_536, unread=352_321_536
    )
    model, checkpoint = of("Qwen/Qwen3-30B-A3B")
    model, nano = replace(model, parts=parts), replace(checkpoint, quantization="nvfp4", weight_gib=18.21)
    guessed, counted = (speed.bandwidth_limit(model, replace(nano, basis=basis)) for basis in ("recipe", "loaded"))
    assert guessed == pytest.approx(61, abs=1) and counted == pytest.approx(88, abs=1)
    assert 0.6 < 63.14 / counted < 0.85
    tiny = speed.read_gb(model, replace(nano, basis="loaded", weight_gib=1))
    assert tiny == pytest.approx((1.3767 + 1.5047) * 4.5 / 8 + 0.3523 * 2, rel=0.001), "never less than all in 4.5 bits"


@pytest.mark.parametrize(("hosts", "times"), [(1, 1), (2, 1.32), (4, 1.58)])
def test_another_spark_brings_what_the_fabric_leaves_of_it(hosts: int, times: float) -> None:
    model, checkpoint = of("openai/gpt-oss-120b")
    assert speed.bandwidth_limit(model, checkpoint, hosts) == speed.bandwidth_limit(model, checkpoint) * hosts
    one, several = (speed.predicted(speed.bound(model, checkpoint, count, {})) for count in (1, hosts))
    assert one and several and several.middle == pytest.approx(one.middle * times, rel=0.05)


def test_stages_of_layers_bring_nothing_to_one_request() -> None:
    model, checkpoint = of("openai/gpt-oss-120b")
    assert speed.bandwidth_limit(model, checkpoint, 3) == speed.bandwidth_limit(model, checkpoint)


@pytest.mark.parametrize(
    ("hosts", "says", "not_said"),
    [
        (1, "bandwidth allows", "Spark"),
        (2, "2 Sparks together, which exchange for 6.7 ms a step", "as on one"),
        (3, "as on one Spark: 3 of them share the layers", "ms a step"),
        (4, "4 Sparks together, which exchange for 10.0 ms a step", "as on one"),
    ],
)
def test_the_words_are_of_that_many_sparks(hosts: int, says: str, not_said: str) -> None:
    text = speed.bound(*of("openai/gpt-oss-120b"), hosts, {}).text
    assert says in text and not_said not in text.partition("allows")[2]


def test_what_a_second_spark_brings_is_near_what_the_recipes_have() -> None:
    """They were not fitted on, and have drafts, of which a step brings as many on two Sparks as on one."""
    by = {(each.model, each.hosts): each.measured.decode for each in MEASURED if each.measured}
    pairs = [(by[model, 1], by[model, 2]) for model, hosts in by if hosts == 1 and (model, 2) in by]
    exchange = speed.bound(*of("nvidia/Qwen3.6-27B-NVFP4"), 2, {}).exchange
    assert len(pairs) == 2 and exchange == pytest.approx(0.0119, rel=0.01)
    for one, two in pairs:
        step = speed.predicted(speed.bound(*of("nvidia/Qwen3.6-27B-NVFP4"), 1, {}))
        assert step and two == pytest.approx(one * (1 / step.middle) / (1 / step.middle / 2 + exchange), rel=0.1)


@pytest.mark.parametrize(
    ("draft", "says", "never"),
    [
        ({}, "11 tok/s for one request without draft tokens is what", "accepted"),
        (
            {"method": "mtp", "num_speculative_tokens": 4},
            "34 tok/s for one request with 4 draft tokens (3.1 tokens a step) or 11",
            "does not know",
        ),
        ({"method": "mtp", "num_speculative_tokens": 5}, "of 5 are accepted, the catalog does not know", "a step"),
        ({"method": "ngram", "num_speculative_tokens": 4}, "of 4 are accepted, the catalog does not know", "a step"),
    ],
)  # fmt: skip
def test_a_bound_says_that_it_is_one_and_counts_drafts(draft: dict[str, Any], says: str, never: str) -> None:
    model, checkpoint = of(DENSE)
    bound = speed.bound(model, replace(checkpoint, id="nvidia/Gemma-4-26B-A4B-NVFP4"), 1, draft)
    assert says in bound.text and never not in bound.text
    assert bound.text.endswith("is what the memory's bandwidth allows")


def test_a_bound_of_two_sparks_says_how_the_second_is_counted() -> None:
    said = plan("Qwen/Qwen3.5-122B-A10B", [SPARK] * 2)
    assert "2 Sparks together, which exchange for 8.9 ms a step" in said.speed


DRAFTS = {"speculative-config": '{"method": "mtp", "num_speculative_tokens": 5}'}


def test_a_plan_without_draft_tokens_does_not_promise_what_they_bring() -> None:
    plain = plan(DENSE, [SPARK])
    assert plain.expectation == "7.6 to 9.7 tok/s" and ", not measured: 24.6 GB of weights a token" in plain.speed
    assert "28.41 tok/s (with draft tokens, 5 draft tokens" in plain.published
    drafts = plan(DENSE, [SPARK], settings=DRAFTS)
    assert drafts.expectation == "28.41 tok/s" and drafts.speed.startswith("28.41 tok/s") and not drafts.published


def test_what_was_measured_with_another_version_is_no_expectation() -> None:
    older = plan(DENSE, [SPARK], "vllm/vllm-openai:v0.26.0", settings=DRAFTS)
    assert older.version == "0.26.0" and older.measured is None and "28.41" in older.published
    assert older.speed.startswith("7.6 to 9.7 tok/s for one request, not measured")
    assert "how many of 5 are accepted, the catalog does not know" in older.speed


def test_draft_tokens_are_seen_however_they_are_written() -> None:
    found = plan(DENSE, [SPARK], settings={"--spec-method": "mtp", "--spec-tokens": "5"})
    assert found.expectation == "28.41 tok/s" and not found.published


@pytest.mark.parametrize(
    "draft", ['{"method": "ngram", "num_speculative_tokens": 5}', '{"method": "mtp", "num_speculative_tokens": 2}']
)
def test_what_was_measured_with_other_draft_tokens_is_no_expectation(draft: str) -> None:
    found = plan(DENSE, [SPARK], settings={"speculative-config": draft})
    assert found.measured is None and "28.41" in found.published and found.expectation == "7.6 to 9.7 tok/s"


def test_accepted_draft_tokens_count_where_they_are_known() -> None:
    bound = speed.Bound(plain=10, accepted=3.0, drafts=4, read=27.3)
    found, plain = speed.predicted(bound), speed.predicted(replace(bound, accepted=0.0))
    assert found and plain and found.middle == 3 * plain.middle == pytest.approx(24, abs=0.1)


def test_nothing_is_expected_that_the_memory_does_not_allow() -> None:
    for model in models.models():
        for checkpoint in model.checkpoints:
            found = speed.expected(model, checkpoint, 1)
            if found and not found.drafts:
                assert found.tokens[1] <= speed.bandwidth_limit(model, checkpoint), (checkpoint.id, found.text)


# --- runs on Sparks that nobody asked us to expect: tokens a second of one request, without draft tokens


@pytest.mark.parametrize("run", (*RUNS, *FRESH, *AGAIN, *UNSEEN), ids=lambda run: run.what)
def test_a_prediction_is_near_the_run(run: Run) -> None:
    assert (run.predicted == pytest.approx(run.measured, rel=0.25)) == (not run.why)


def test_a_model_that_reads_much_uses_more_of_the_bandwidth() -> None:
    """Qwen3.5-4B reaches 63 % of it, and Qwen3.6-27B 85 %: with one share for both, one of them is 15 % off."""
    near = [run for run in (*RUNS, *FRESH, *AGAIN) if run.predicted == pytest.approx(run.measured, rel=0.1)]
    assert len(near) >= 0.8 * len((*RUNS, *FRESH, *AGAIN))
    shares = [speed.predicted(speed.Bound(plain=1.0, read=read)) for read in (0.1, 8, 19, 30, 200)]
    middles = [each.middle for each in shares if each]
    assert middles == pytest.approx([0.66, 0.66, 0.74, 0.82, 0.82])


def test_what_a_checkpoint_leaves_in_16_bits_is_read_so() -> None:
    """Qwen's own GPTQ leaves attention as it was: 38.9 and 8.6 tok/s, where 78 and 12.6 were expected."""
    for name, measured in (("Qwen/Qwen3.5-35B-A3B-GPTQ-Int4", 38.9), ("Qwen/Qwen3.5-27B-GPTQ-Int4", 8.6)):
        found = speed.predicted(speed.bound(*of(name), 1, {}))
        assert found and found.middle == pytest.approx(measured, rel=0.1)
