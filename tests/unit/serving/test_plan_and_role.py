"""The lines of a plan in an inventory: what the role makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import document, known, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Given, plan

from tests.support.model_folders import CASES
from tests.support.plan_and_role import by_the_role, judged, lines, role
from tests.support.proofs import facts as host_facts
from tests.support.services import only_service

NEW, OLD = "vllm/vllm-openai:v0.33.0", "vllm/vllm-openai:v0.19.0"
SPARK = 121.69 * GIB


def test_a_model_too_large_is_refused_by_both(tmp_path: Path) -> None:
    facts = sources.find(str(next(case for case in CASES if case.id == "Qwen/Qwen3-30B-A3B").folder(tmp_path / "m")))
    assert plan(facts.id, [58 * GIB], NEW, facts=facts).refused
    made = role({"vllm_model": facts.id, "vllm_fetch": False, "vllm_image": NEW}, gib=(58.0,))
    (text,) = made.refusals
    assert text.startswith("rule memory_fit: weights") and "hosts of this memory" in text


def test_huge_pages_and_the_smallest_host_decide() -> None:
    said = {"vllm_model": "openai/gpt-oss-120b", "vllm_image": OLD, "vllm_max_model_len": 8192}
    assert role(said, 2).refusals == () and role(said, 2, gib=(121.69, 40.0)).refusals != ()
    known = {**host_facts(), "memory_bytes": int(SPARK), "memory_pinned_bytes": 0}
    assert only_service(View("spark-a", known, {**said, "vllm_allow_tag": True})).refusals == ()
    (text,) = only_service(
        View("spark-a", {**known, "memory_pinned_bytes": 60 * GIB}, {**said, "vllm_allow_tag": True})
    ).refusals
    assert text.startswith("rule memory_fit")


@pytest.mark.parametrize(
    ("flags", "accepted", "passes"),
    [
        ({"--load-format": "fastsafetensors"}, {}, False),
        ({"--load-format": "fastsafetensors"}, {"fastsafetensors_missing": "our image has it"}, True),
        ({"--load-format": "fastsafetensors"}, {"fastsafetensors_missing": " "}, False),
        ({}, {"fastsafetensors_mising": "a typing error"}, False),
        ({"--gpu-memory-utilization": "0.95"}, {"utilization_above_090": "tight"}, False),
        ({"--enforce-eager": None}, {"enforce_eager": "a graph hangs"}, True),
    ],
)
def test_an_acceptance_means_the_same(flags: dict[str, Any], accepted: dict[str, str], passes: bool) -> None:
    found = plan("openai/gpt-oss-120b", [SPARK], OLD, settings=flags, accepted=accepted)
    # Of a refused plan the lines lack what was accepted in vain, so the acceptances are given again.
    made = role(found.variables | {"vllm_accept": accepted})
    assert (found.refused, bool(made.refusals)) == (not passes, not passes), made.refusals
    if passes:
        by_plan = {rule.id: rule.accepted for rule in found.fired if rule.accepted}
        assert by_plan == accepted == {each["id"]: each["accepted"] for each in made.findings if each["accepted"]}


@pytest.mark.parametrize(
    ("flags", "variables"),
    [
        ({"--port": "8001"}, {"vllm_port": 8001}),
        ({"--served-model-name": "gpt"}, {"vllm_served_model_name": "gpt"}),
        ({"--max-model-len": "32k"}, {"vllm_max_model_len": 32000}),
        ({"--max-model-len": "8_192"}, {"vllm_max_model_len": 8192}),
        ({"--max-model-len": "auto"}, {"vllm_max_model_len": 131072}),
        ({"--tensor-parallel-size": "1", "--pipeline-parallel-size": "2"}, {"vllm_tensor_parallel_size": 1}),
        ({"--revision": "v1"}, {"vllm_model_revision": "v1"}),
    ],
)
def test_a_flag_becomes_the_variable_of_the_role(flags: dict[str, Any], variables: dict[str, Any]) -> None:
    hosts = 2 if "--tensor-parallel-size" in flags else 1
    found = plan("openai/gpt-oss-120b", [SPARK] * hosts, OLD, settings=flags)
    said = lines(found)
    assert variables.items() <= said.items() and not set(flags) & set(said.get("vllm_extra_args", []))
    assert role(said, hosts).refusals == ()


def test_revision_and_version_are_said_again() -> None:
    found = plan("openai/gpt-oss-120b", [SPARK], OLD, version="0.19.1", given=Given("v1"))
    said = lines(found)
    assert (said["vllm_model_revision"], said["vllm_version"]) == ("v1", "0.19.1")
    assert role(said).refusals == ()


def test_a_file_of_facts_is_named_again(tmp_path: Path) -> None:
    folder = next(case for case in CASES if case.id == "Qwen/Qwen3-30B-A3B").folder(tmp_path / "m")
    text = document.written(sources.find(str(folder))).replace(str(folder), "acme/new")
    file = tmp_path / "facts.json"
    file.write_text(text)
    facts = known.facts("acme/new", "", file, network=False)
    assert facts and models.find("acme/new") is None
    wrong = {"--quantization": "gptq_marlin"}
    for flags in ({}, wrong):
        found = plan("acme/new", [SPARK] * 2, NEW, settings=flags, facts=facts, given=Given(facts=str(file)))
        made = role(found.variables, 2)
        assert found.variables["vllm_model_facts"] == str(file)
        assert (found.refused, bool(made.refusals)) == (bool(flags), bool(flags)), made.refusals
        assert by_the_role(made) >= judged(found) - {"quantization_mismatch"}
    blind = role({**found.variables, "vllm_model_facts": ""}, 2)
    assert "quantization_mismatch" not in str(blind.refusals), "without facts no rule of formats fires"
    (text,) = role({**found.variables, "vllm_model_facts": str(tmp_path / "none.json")}, 2).refusals
    assert text.startswith(f"vllm_model_facts: {tmp_path}/none.json cannot be read")


def test_speculative_decoding_of_a_plan_passes_the_role(tmp_path: Path) -> None:
    folder = next(case for case in CASES if case.id == "nvidia/Qwen3.6-27B-NVFP4").folder(tmp_path / "m")
    facts = sources.find(str(folder))
    config = '{"method": "mtp", "num_speculative_tokens": 5, "moe_backend": "triton"}'
    found = plan(facts.id, [SPARK], NEW, settings={"--speculative-config": config}, facts=facts)
    said = lines(found)
    assert said["vllm_speculative"] == {"method": "mtp", "tokens": 5, "further": {"moe_backend": "triton"}}
    made = role(said)
    assert made.refusals == () and by_the_role(made) == judged(found)
    words = dict(zip(made.argv, made.argv[1:], strict=False))
    assert yaml.safe_load(words["--speculative-config"]) == yaml.safe_load(config)
