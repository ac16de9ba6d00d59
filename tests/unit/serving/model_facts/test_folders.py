"""Facts of fifty models from folders in small: parameters, layers, context and format are near what is published."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import document, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts

from tests.support.model_folders import CASES, Case

# Makers count the active parameters with or without embeddings and shared parts.
ACTIVE = 0.18


@pytest.fixture(params=CASES, ids=lambda case: case.id)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def facts(case: Case, root: Path) -> ModelFacts:
    return sources.find(str(case.folder(root / "model")))


def test_there_are_enough_and_none_twice() -> None:
    assert len(CASES) >= 40 and len({case.id for case in CASES}) == len(CASES)
    assert {kind for case in CASES for kind in case.kinds} == {"full", "sliding", "mla", "compressed", "linear"}
    assert {case.format for case in CASES} >= {
        "bf16",
        "fp8",
        "nvfp4",
        "mxfp4",
        "gptq_int4",
        "awq_int4",
        "autoround_int4",
        "int4",
    }


def test_parameters_come_near_the_published_figure(case: Case, tmp_path: Path) -> None:
    found = facts(case, tmp_path)
    assert found.parameters / 1e9 == pytest.approx(case.billions[0], rel=case.tolerance)
    assert found.active / 1e9 == pytest.approx(case.billions[1], rel=ACTIVE)


def test_layers_by_kind_and_what_a_token_takes(case: Case, tmp_path: Path) -> None:
    found = facts(case, tmp_path)
    kinds: dict[str, int] = {}
    for each in found.attention:
        kinds[each.kind] = kinds.get(each.kind, 0) + each.layers
    assert kinds == dict(case.kinds)
    if case.kv_bytes:
        growing = [each for each in found.attention if each.kind in ("full", "mla")]
        assert sum(each.layers * (2 * each.numbers + each.index_bytes) for each in growing) == case.kv_bytes


def test_context_format_and_task(case: Case, tmp_path: Path) -> None:
    found = facts(case, tmp_path)
    assert (found.context, found.format, found.task) == (case.context, case.format, case.task)
    assert found.vision is bool(case.vision)
    if case.size_gb:
        assert found.weights.total == int(case.size_gb * 1e9) and found.weights.basis == "index"


def test_the_file_of_facts_says_the_same(case: Case, tmp_path: Path) -> None:
    found = facts(case, tmp_path)
    assert document.read(document.written(found).encode(), "facts.json") == found
