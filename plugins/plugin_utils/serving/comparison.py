# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's measurements beside what else the catalog says: of speed, and what its rules warn of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models, recipes
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Expected
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.recipes import Recipe


@dataclass(frozen=True)
class Contradiction:
    """A claim of the catalog, and the newer measurement that says otherwise."""

    what: str
    date: str
    says: str
    against: str
    measured: str  # date

    @property
    def text(self) -> str:
        return f"{self.what} ({self.date}): {self.says}; against it: {self.against} ({self.measured})"


def agrees(low: float, high: float, measured: float) -> bool:
    """Return whether a measurement is within the tolerance of a range."""
    share = float(catalog.load("shelf_life")["agreement"]["value"])
    return low * (1 - share) <= measured <= high * (1 + share)


def others(recipe: Recipe) -> list[Expected]:
    """What others measured of the same model, format and number of Sparks, one request at a time."""
    known = models.find(recipe.model)
    checkpoint = known.checkpoint(recipe.model) if known else None
    if known is None or checkpoint is None:
        return []
    return [
        each
        for each in known.expected
        if (each.hosts, each.requests, each.quantization) == (recipe.hosts, 1, checkpoint.quantization)
    ]


def contradictions() -> Iterator[Contradiction]:
    """What the catalog says and a newer measurement of the vendor does not bear out."""
    dates = {rule["id"]: rule["date"] for rule in catalog.load("rules")["rules"]}
    advice = catalog.load("shelf_life")["advice"]["value"]
    for recipe in recipes.recipes():
        if recipe.measured is None:
            continue
        against = f"the vendor measured {recipe.measured.decode:g} tok/s with {recipe.id}"
        for each in others(recipe):
            low = 0.0 if each.at_most else each.tokens[0]
            if not agrees(low, each.tokens[1], recipe.measured.decode):
                what = f"models.yml, expected of {recipe.model}"
                yield Contradiction(what, each.date, f"{each.text}, {each.conditions}", against, recipe.measured.date)
        for fired in recipes.judged(recipe, {}).fired:
            if fired.severity in ("error", "warn") and fired.id not in advice:
                what = f"rules.yml, {fired.id}"
                yield Contradiction(what, dates.get(fired.id, ""), fired.text, against, recipe.measured.date)
