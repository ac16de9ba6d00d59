"""How fast one request is: measured, or bound by the memory; drafts and a second Spark as somebody measured them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import comparison, models, recipes, speed
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import plan

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
    unknown = replace(model, parameters_active=0.0), replace(checkpoint, basis="facts")
    assert speed.bandwidth_limit(*unknown) == 0
    assert speed.bound(*unknown, 1, {}).text.startswith("its active parameters are not known")


def test_a_dense_model_reads_all_that_was_loaded() -> None:
    """26.02 GiB at 273 GB/s, and not the 15.6 GB that its parameters would take in 4.5 bits."""
    assert speed.bandwidth_limit(*of(DENSE)) == pytest.approx(273 / (26.02 * 2**30 / 1e9))
    model, checkpoint = of(DENSE)
    assert speed.bandwidth_limit(model, replace(checkpoint, basis="recipe")) > 17


@pytest.mark.parametrize(("hosts", "times"), [(1, 1), (2, 1.53), (4, 1.53**2)])
def test_another_spark_brings_what_was_measured_and_not_twice_as_much(hosts: int, times: float) -> None:
    model, checkpoint = of("openai/gpt-oss-120b")
    one = speed.bandwidth_limit(model, checkpoint)
    assert speed.bandwidth_limit(model, checkpoint, hosts) == pytest.approx(one * times)


def test_stages_of_layers_bring_nothing_to_one_request() -> None:
    model, checkpoint = of("openai/gpt-oss-120b")
    assert speed.bandwidth_limit(model, checkpoint, 3) == speed.bandwidth_limit(model, checkpoint)


@pytest.mark.parametrize(
    ("hosts", "says", "not_said"),
    [
        (1, "bandwidth allows", "Spark"),
        (2, "a second Spark counted as 1.53 times one", "doubling"),
        (3, "as on one Spark: 3 of them share the layers", "1.53"),
        (4, "each doubling of the Sparks counted as 1.53 times, which was measured with two", "second"),
    ],
)
def test_the_words_are_of_that_many_sparks(hosts: int, says: str, not_said: str) -> None:
    text = speed.bound(*of("openai/gpt-oss-120b"), hosts, {}).text
    assert says in text and not_said not in text.partition("allows")[2]


def test_what_a_second_spark_brings_is_what_the_recipes_have() -> None:
    by = {(each.model, each.hosts): each.measured.decode for each in MEASURED if each.measured}
    pairs = [by[model, 2] / by[model, 1] for model, hosts in by if hosts == 1 and (model, 2) in by]
    assert len(pairs) == 2
    for ratio in pairs:
        assert ratio == pytest.approx(catalog.load("models")["fit"]["second_spark"]["value"], abs=0.02)


@pytest.mark.parametrize(
    ("draft", "says", "never"),
    [
        ({}, "10 tok/s for one request without draft tokens is what", "accepted"),
        (
            {"method": "mtp", "num_speculative_tokens": 4},
            "30 tok/s for one request with 4 draft tokens (3.1 tokens a step) or 10",
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
    assert "a second Spark counted as 1.53 times one, as measured" in plan("Qwen/Qwen3.5-122B-A10B", [SPARK] * 2).speed


@pytest.mark.parametrize("recipe", MEASURED, ids=lambda recipe: recipe.id)
def test_a_plan_expects_what_the_vendor_measured_or_the_table_names_a_conflict(recipe: recipes.Recipe) -> None:
    known = models.find(recipe.model)
    assert recipe.measured
    row = next(line for line in comparison.table() if f"`{recipe.id}`" in line)
    if known is None:  # no figures of its own: the recipe says it
        assert "the recipe's" in row and f"{recipe.measured.decode:g} tok/s" in recipe.speed
        return
    found = speed.expected(*of(recipe.model), recipe.hosts)
    assert found and found.tokens == (recipe.measured.decode,) * 2 and found.drafts == bool(recipe.draft)
    apart = [each for each in comparison.others(recipe) if not comparison.agrees(*each.tokens, recipe.measured.decode)]
    assert ("conflict" in row) == bool([each for each in apart if not each.at_most])


def test_a_plan_without_draft_tokens_does_not_promise_what_they_bring() -> None:
    plain = plan(DENSE, [SPARK])
    assert "28.41 tok/s (5 draft tokens" in plain.speed and "this plan has no draft tokens, and 10 tok/s" in plain.speed
    drafts = plan(DENSE, [SPARK], settings={"speculative-config": '{"method": "mtp", "num_speculative_tokens": 5}'})
    assert "28.41 tok/s" in drafts.speed and "no draft tokens" not in drafts.speed


def test_the_table_of_recipes_is_current() -> None:
    assert "\n".join(comparison.table()) in MANUAL.read_text(encoding="utf-8")
