"""What the catalog says that owners serve leads to a recipe that is there."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.known import ENGINES

RECIPES = Path(__file__).resolve().parents[3] / "examples" / "recipes"


def test_what_the_catalog_has_leads_to_recipes_that_are_there() -> None:
    for each in catalog.load("engines")["served"]:
        assert each["engine"] in ENGINES and {"source", "date", "confidence"} <= each.keys()
        assert "recipe" not in each or (RECIPES / f"{each['recipe']}.yml").exists()
