"""Which engines a plan compares, and which one it names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import serving_plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Expected
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Plan

GIB = 2**30
FASTER = {
    "models": ["Qwen/Qwen3.6-27B"], "engine": "sglang", "hosts": 1, "tokens": [32, 44], "conditions": "drafts",
    "source": "somebody", "date": "2026-09-10",
}  # fmt: skip


def planned(model: str = "Qwen/Qwen3.6-27B", gib: float = 121.6, hosts: int = 1) -> Plan:
    return serving_plan.plan(model, [gib * GIB] * hosts)


def served(monkeypatch: pytest.MonkeyPatch, *entries: object) -> None:
    monkeypatch.setitem(catalog.load("engines"), "served", list(entries))


def test_an_engine_that_knows_the_architecture_is_named_with_what_it_takes() -> None:
    found = planned().comparison
    assert [each.engine for each in found.choices] == ["vllm", "sglang"] and found.best == "vllm"
    assert "fits, memory_gib 67 with --kv-cache-dtype fp8_e4m3, speed not measured" in found.choices[1].text
    old = ("sglang_code_by_request (<0.5.19)", "sglang_open_store (<0.5.9)", "sglang_fp4_nonsense (==0.5.17)")
    assert found.choices[1].breaks == old
    assert ("recommended", f"vLLM: {found.why}") in list(found.labelled)


def test_a_model_that_vllm_alone_knows_is_not_compared() -> None:
    found = planned()
    alone = replace(found, model=replace(found.model, architecture="NobodyForCausalLM"))
    assert alone.comparison.choices == () and list(alone.comparison.labelled) == []
    assert alone.as_dict()["engines"] == [] and alone.as_dict()["recommended"] is None


def test_what_was_measured_faster_than_all_of_vllm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, FASTER)
    known = Expected((28.4, 28.4), 1, "drafts", "somebody", "2026-08-31", "vendor", drafts=True)
    slow = replace(planned(), expected=known)
    assert slow.comparison.best == "sglang"
    assert slow.comparison.why == "32 tok/s were measured, and vLLM has 28.4 at most"
    assert "32 to 44 tok/s measured (drafts; somebody, 2026-09-10)" in slow.comparison.choices[1].text
    assert replace(slow, expected=replace(known, tokens=(30.0, 36.0))).comparison.best == "vllm"


def test_what_does_not_fit_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, FASTER)
    found = replace(planned(gib=52), memory_gib=121)
    assert found.checkpoint is not None and found.fit is not None
    tight = replace(found, fit=replace(found.fit, need={**found.fit.need, "kv_cache": 30.0}))
    assert "GiB, and 40 are there" in tight.comparison.choices[1].text and tight.comparison.best == "vllm"


def test_where_vllm_cannot_another_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, {**FASTER, "engine": "llama_cpp", "recipe": "aa-ling-3.0-flash-dspark"})
    assert planned(gib=20).comparison.best == "", "a Spark's memory is not there"
    found = replace(planned(gib=20), memory_gib=121)
    assert found.checkpoint is None and found.comparison.best == "llama_cpp"
    assert any("examples/recipes/aa-ling-3.0-flash-dspark.yml" in text for _, text in found.comparison.labelled)


def test_a_warning_is_no_known_break() -> None:
    line = serving_plan.plan("Qwen/Qwen3-8B", [121 * GIB], "my/own:1").comparison.choices[0].line
    assert "version_unknown" in line and "known to break" not in line
