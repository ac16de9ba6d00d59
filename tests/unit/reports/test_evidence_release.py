"""The release of each host in the evidence: only where it was read, on the page with its score now and before."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import evidence
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import evidence_page, judge

from tests.support.proofs import NOW, ROOT, proof, thresholds
from tests.unit.releases.test_scores import RECIPES, machine

SCHEMA = json.loads((ROOT / "plugins/plugin_utils/reports/schemas/evidence.schema.json").read_text())


def document() -> dict[str, Any]:
    recipes = [{"file": "x", "sha256": "0" * 64, "content": dict(recipe.content)} for recipe in RECIPES]
    answers = {"spark-a": {"release": machine("a", recipes=recipes), "before": machine("b", recipes=[])}}
    told = evidence.told(answers, catalog.load("releases"))
    hosts = {name: {**each, "release": told.get(name)} for name, each in proof("pair").items()}
    return judge.build(hosts, {}, thresholds(), NOW)


def test_it_is_there_only_where_it_was_read_and_keeps_the_schema() -> None:
    found = document()
    assert found["hosts"]["spark-a"]["release"]["recipe"] == "0" * 64
    assert "release" not in found["hosts"]["spark-b"]
    jsonschema.validate(found, SCHEMA)


def test_the_page_has_a_line_of_it() -> None:
    page = evidence_page.render(document())
    assert (
        page.count(
            "OTA2607 (July 2026), current, torn 0 %; before: OTA2604 (April 2026), waiting for firmware, torn 0.6 %"
        )
        == 1
    )


def test_it_is_no_part_of_the_verdict() -> None:
    assert document()["verdict"] == judge.build(proof("pair"), {}, thresholds(), NOW)["verdict"]
