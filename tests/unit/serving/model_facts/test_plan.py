"""A plan for each of the models in small, on one host and on two, and of a file of facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import document, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Plan, plan

from tests.support.model_folders import CASES, Case

NEW = "vllm/vllm-openai:v0.33.0"
SPARK = 121.69 * GIB


@pytest.fixture(params=CASES, ids=lambda case: case.id)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def facts(name: str, root: Path) -> ModelFacts:
    return sources.find(str(next(case for case in CASES if case.id == name).folder(root / "m")))


def planned(found: ModelFacts, hosts: int = 1, image: str = NEW, **more: object) -> Plan:
    return plan(found.id, [SPARK] * hosts, image, facts=found, **more)  # type: ignore[arg-type]


def fired(found: Plan) -> Iterator[str]:
    return (rule.id for rule in found.fired)


@pytest.mark.parametrize("hosts", [1, 2])
def test_there_is_an_answer(case: Case, hosts: int, tmp_path: Path) -> None:
    folder = case.folder(tmp_path / "m")
    known = sources.find(str(folder))
    found = planned(known, hosts)
    words = "\n".join(found.lines(explain=True))
    if found.checkpoint is None:  # too large for so many hosts: the reason and the way out are there
        assert found.refused and found.rejected and known.weights_gib / hosts > 90
        assert found.hosts_needed is None or found.hosts_needed > hosts
    else:
        assert found.fit and found.fit.needed < 0.9 * 121.69 and found.variables["vllm_model"] == str(folder)
        assert f"weights {found.fit.need['weights']:.1f} ({found.fit.sure['weights']})" in words
        assert "model_unmeasured" in fired(found)


def test_a_file_of_facts_plans_as_the_files_do(tmp_path: Path) -> None:
    found = facts("nvidia/Qwen3.6-27B-NVFP4", tmp_path)
    again = document.read(document.written(found).encode(), "facts.json")
    assert planned(again).as_dict() == planned(found).as_dict()


def test_a_checkpoint_of_the_catalog_keeps_its_claims(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.id == "openai/gpt-oss-120b")
    found = document.read(
        document.written(facts(case.id, tmp_path)).replace(str(tmp_path / "m"), case.id).encode(), "f"
    )
    assert found.id == case.id
    made = planned(found, image="")
    assert made.expected and made.expected.text == "33.81 tok/s" and "model_unmeasured" not in fired(made)
    assert made.arguments["--reasoning-parser"] == "openai_gptoss" and made.fit and made.fit.sure["weights"] == "index"


def test_a_stranger_of_a_known_family_gets_its_parsers(tmp_path: Path) -> None:
    assert planned(facts("nvidia/Qwen3.6-27B-NVFP4", tmp_path)).arguments["--reasoning-parser"] == "qwen3"
    assert "--reasoning-parser" not in planned(facts("microsoft/phi-4", tmp_path / "b")).arguments


def test_the_image_cannot_load_the_architecture(tmp_path: Path) -> None:
    found = facts("deepseek-ai/DeepSeek-V4-Flash", tmp_path)
    old = planned(found, 2, "vllm/vllm-openai:v0.19.0")
    (rule,) = (each for each in old.fired if each.id == "architecture_too_new")
    assert old.refused and rule.severity == "error" and "in vLLM from 0.20.1 on" in rule.text
    assert "architecture_too_new" not in fired(planned(found, 2, "vllm/vllm-openai:v0.24.0"))


def test_a_second_model_and_own_layers_for_draft_tokens_are_counted(tmp_path: Path) -> None:
    model = facts("nvidia/Qwen3.6-27B-NVFP4", tmp_path)
    plain = planned(model).fit
    mtp = planned(model, settings={"--speculative-config": '{"method": "mtp", "num_speculative_tokens": 2}'}).fit
    draft = facts("Qwen/Qwen3-0.6B", tmp_path / "draft")
    settings = {"--speculative-config.model": draft.id, "--speculative-config.num_speculative_tokens": "5"}
    second = planned(model, settings=settings, draft=draft).fit
    assert plain and mtp and second and "draft" not in plain.need
    assert mtp.need["draft"] == pytest.approx(model.weights_gib / 64)
    assert second.need["draft"] == pytest.approx(draft.weights_gib)


def test_an_encoder_that_the_weights_lack_is_missed(tmp_path: Path) -> None:
    found = facts("nvidia/Qwen3.6-27B-NVFP4", tmp_path)
    assert found.vision
    for basis, size, missed in (("headers", 0, True), ("headers", 1, False), ("config", 0, False)):
        here = replace(found, weights=replace(found.weights, basis=basis, vision=size))
        assert ("encoder_missing" in fired(planned(here))) is missed
        assert "encoder_missing" not in fired(planned(here, settings={"--language-model-only": None}))


def test_format_rules_fire_on_facts(tmp_path: Path) -> None:
    """Of seventy real runs seven named a checkpoint of the catalog; the rules of formats are for the others too."""
    found = facts("nvidia/MiniMax-M2.7-NVFP4", tmp_path)
    assert models.find(found.id) is None
    wrong = planned(found, 2, "vllm/vllm-openai:v0.24.0", settings={"--quantization": "gptq_marlin"})
    assert "quantization_overridden" in fired(wrong) and not wrong.refused
    plain = facts("Qwen/Qwen3-30B-A3B", tmp_path / "b")
    wrong = planned(plain, settings={"--quantization": "gptq_marlin"})
    assert "quantization_mismatch" in fired(wrong) and wrong.refused
    assert "moe_marlin_bf16" in fired(planned(plain, settings={"--moe-backend": "marlin"}))
