"""How old the catalog is, and what of it a newer measurement contradicts."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, catalog_age
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import comparison, models, recipes

ENTRY = {"source": "s", "date": "2026-11-01", "confidence": "vendor"}


def found(monkeypatch: pytest.MonkeyPatch, content: dict[str, Any]) -> list[catalog_age.Entry]:
    """The entries of a catalog that has nothing else, in one file."""
    monkeypatch.setattr(catalog_age.catalog, "load", lambda name: content if name == "images" else {})
    return catalog_age.entries()


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ({"images": [{**ENTRY, "name": "one"}]}, ["images[one]"]),
        ({"images": [{**ENTRY, "value": "x" * 99}]}, ["images[" + "x" * 60 + "...]"]),
        ({"images": [{**ENTRY, "name": "one", "claims": [{**ENTRY, "claim": "c"}]}]},
         ["images[one]", "images[one].claims[c]"]),
        ({"images": [{**ENTRY, "digests": ["sha256:1"]}]}, []),
        ({"a": {**ENTRY, "date": "2026-11"}}, ["a"]),
        ({"a": {"date": "2026-11-01"}, "b": {**ENTRY, "date": "soon"}}, []),
    ],
)  # fmt: skip
def test_an_entry_has_a_source_and_a_date(
    monkeypatch: pytest.MonkeyPatch, content: dict[str, Any], where: list[str]
) -> None:
    assert [entry.where for entry in found(monkeypatch, content)] == where


def test_it_is_past_its_date_the_day_after() -> None:
    entry = catalog_age.Entry("images", "x", date(2026, 11, 1))
    last = entry.date + timedelta(days=catalog_age.days("images"))
    assert catalog_age.past([entry], last) == []
    assert catalog_age.past([entry], last + timedelta(days=1)) == [entry]


def test_every_file_of_the_catalog_has_an_age() -> None:
    files = {entry.file for entry in catalog_age.entries()}
    assert {"images", "models", "rules", "software", "security_floors", "shelf_life"} <= files
    assert set(catalog.load("shelf_life")["days"]["value"]) <= {*files, "recipes"}


def test_a_measurement_contradicts_what_is_more_than_a_quarter_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.find("Qwen/Qwen3.6-27B")
    assert model and not [each for each in comparison.contradictions() if "Qwen3.6-27B" in each.what]
    mine = recipes.find("Qwen/Qwen3.6-27B").measured
    assert mine
    claim = models.Expected((50.0, 60.0), 1, "by hand", "s", "2026-01-01", "single_source", "nvfp4")
    monkeypatch.setattr(comparison.models, "find", lambda _name: replace(model, expected=(claim,)))
    texts = [each.text for each in comparison.contradictions()]
    assert any(
        "50 to 60 tok/s, by hand" in text and f"{mine.decode:g} tok/s with qwen3.6-27b-1" in text for text in texts
    )


@pytest.mark.parametrize(
    ("low", "high", "measured", "agree"),
    [(20, 20, 25, True), (20, 20, 25.1, False), (20, 30, 15, True), (20, 30, 14.9, False), (0, 51, 27, True)],
)
def test_a_quarter_is_the_tolerance(low: float, high: float, measured: float, agree: bool) -> None:
    assert comparison.agrees(low, high, measured) is agree


def test_a_rule_that_warns_of_what_was_measured_is_a_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is left; the advice of another list of rules would be one."""
    assert not [each for each in comparison.contradictions() if each.what.startswith("rules.yml")]
    silent = {**catalog.load("shelf_life"), "advice": {"value": []}}
    load = catalog.load
    monkeypatch.setattr(comparison.catalog, "load", lambda name: silent if name == "shelf_life" else load(name))
    assert "rules.yml, trust_remote_code" in {each.what for each in comparison.contradictions()}
