"""All that `python -m scripts.pages` writes is as the code, the catalog and the specifications say."""

from __future__ import annotations

import re
from functools import cache

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import comparison, models, recipes, speed

from scripts.pages import __main__ as pages
from scripts.pages import markdown
from scripts.pages import models as page_of_models

parts = cache(page_of_models.parts)


def test_each_page_is_as_it_is_written() -> None:
    old = [path for path, text in pages.written().items() if path.read_text(encoding="utf-8") != text]
    assert old == [], f"run python -m scripts.pages, which writes {', '.join(path.name for path in old)}"


@pytest.mark.parametrize(
    ("file", "group", "name", "figure", "least"),
    [
        ("health", "limits", "gpu_hot_c", "{} °C", 2),
        ("monitoring", "figures", "event_s", "{} s", 3),
        ("thresholds", "thresholds", "link_gbps", "{} Gb/s", 4),
    ],
)
def test_a_figure_that_changes_in_the_catalog_is_old_on_no_page(
    file: str, group: str, name: str, figure: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = catalog.load(file)[group][name]
    old = re.compile(rf"(?<![\d.]){re.escape(figure.format(entry['value']))}(?!\w)")
    monkeypatch.setitem(entry, "value", 4711)
    shown = {path: re.sub(r"<!-- (?:[\w-]+|/) -->", "", text) for path, text in pages.written().items()}
    assert [(path.name, line) for path, text in shown.items() for line in text.splitlines() if old.search(line)] == []
    assert sum(text.count(figure.format(4711)) for text in shown.values()) >= least


def test_a_mark_that_is_missing_or_at_a_wrong_place_is_named() -> None:
    with pytest.raises(ValueError, match="<!-- alert, by"):
        markdown.part("<!-- /alert -->", "alert", ["x"])
    with pytest.raises(ValueError, match="hang_s begins a line"):
        markdown.figures("after\n<!-- hang_s -->1<!-- / --> s", {"hang_s": 2})


def test_the_table_of_models_is_current() -> None:
    table = "\n".join(parts()["models"]).rstrip()
    assert table in page_of_models.PAGE.read_text(encoding="utf-8")
    assert table.count("\n") == 2 * len(models.models()) + 1


@pytest.mark.parametrize("recipe", [each for each in recipes.recipes() if each.measured], ids=lambda recipe: recipe.id)
def test_a_plan_expects_what_the_vendor_measured_or_the_table_names_a_conflict(recipe: recipes.Recipe) -> None:
    known = models.find(recipe.model)
    assert recipe.measured
    row = next(line for line in parts()["recipes"] if f"`{recipe.id}`" in line)
    if known is None:  # no figures of its own: the recipe says it
        assert "the recipe's" in row and f"{recipe.measured.decode:g} tok/s" in recipe.speed
        return
    checkpoint = known.checkpoint(recipe.model)
    assert checkpoint
    found = speed.expected(known, checkpoint, recipe.hosts)
    assert found and found.tokens == (recipe.measured.decode,) * 2 and found.drafts == bool(recipe.draft)
    apart = [each for each in comparison.others(recipe) if not comparison.agrees(*each.tokens, recipe.measured.decode)]
    assert ("conflict" in row) == bool([each for each in apart if not each.at_most])
