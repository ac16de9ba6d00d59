"""A model that only the host has: the role judges it from what the host says of its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading.model_folders import read_models
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import on_host, sources

from tests.support.model_folders import CASES
from tests.support.proofs import facts as host_facts

CACHE, IMAGE = "/var/cache/gb10-vllm", "vllm/vllm-openai:v0.32.0"
PATH = f"{CACHE}/huggingface/hub/models--acme--new/refs/main"


def described(name: str, root: Path, gib: float) -> dict[str, Any]:
    """A folder of this model as a host describes it, with weights of that size."""
    folder = next(case for case in CASES if case.id == name).folder(root / "models/new")
    with (folder / "model-1.safetensors").open("wb") as file:
        file.truncate(int(gib * GIB))
    (found,) = read_models(HostReader(system=System(root)), ["/models/new"]).values()
    assert found is not None
    return found


def made(said: dict[str, Any] | None, **variables: Any) -> tuple[vllm.VllmPlan, View]:
    facts = {**host_facts(), "memory_bytes": int(121.69 * GIB), "model_folders": {PATH: said}}
    view = View("spark-a", facts, {"vllm_model": "acme/new", "vllm_image": IMAGE, "vllm_allow_tag": True, **variables})
    return vllm.plan(view), view


def test_what_the_host_has_is_judged(tmp_path: Path) -> None:
    fits = described("Qwen/Qwen3-30B-A3B", tmp_path, 57)
    plan, _ = made(fits, vllm_max_model_len=8192)
    assert plan.refusals == () and "model_unmeasured" in {each["id"] for each in plan.findings}
    large = described("Qwen/Qwen3-30B-A3B", tmp_path / "b", 130)
    (text,) = made(large, vllm_max_model_len=8192)[0].refusals
    assert text.startswith("rule memory_fit: weights 130.0 GiB")
    old = made(described("deepseek-ai/DeepSeek-V4-Flash", tmp_path / "c", 60), vllm_image="vllm/vllm-openai:v0.19.0")
    assert any("architecture_too_new" in text for text in old[0].refusals)


def test_a_word_that_nobody_knows_is_said_by_role_and_doctor(tmp_path: Path) -> None:
    said = described("Qwen/Qwen3-30B-A3B", tmp_path, 57)
    config = json.loads(said["texts"]["config.json"])
    config["layer_types"] = ["quantum_attention"] * config["num_hidden_layers"]
    said["texts"]["config.json"] = json.dumps(config)
    plan, _ = made(said, vllm_max_model_len=8192)
    (found,) = (each for each in plan.findings if each["id"] == "configuration_doubted")
    assert found["severity"] == "warn" and "'quantum_attention', not known here" in found["fact"]
    accepted = made(said, vllm_max_model_len=8192, vllm_accept={"configuration_doubted": "seen on ours"})[0].findings
    assert [each["accepted"] for each in accepted if each["id"] == "configuration_doubted"] == ["seen on ours"]


def test_it_is_the_same_model_as_from_the_folder(tmp_path: Path) -> None:
    said = described("nvidia/MiniMax-M2.7-NVFP4", tmp_path, 30)
    found = on_host.facts(said, "acme/new", "", "spark-a")
    folder = tmp_path / "models/new"
    (folder / "model-1.safetensors").unlink()
    here = sources.find(str(folder))
    assert found and (found.attention, found.formats, found.context) == (here.attention, here.formats, here.context)
    assert found.weights.basis == "files" and found.weights_gib == pytest.approx(30)


@pytest.mark.parametrize(
    "said",
    [
        None,
        {"names": [], "texts": {}, "weights_bytes": 5},
        {"names": ["config.json"], "texts": {"config.json": "{"}, "weights_bytes": 5},
        {
            "names": ["config.json"],
            "texts": {"config.json": json.dumps({"num_hidden_layers": 4})},
            "weights_bytes": None,
        },
    ],
)
def test_what_nobody_can_read_is_as_unknown_as_before(said: dict[str, Any] | None) -> None:
    plan, _ = made(said, vllm_max_model_len=8192)
    assert plan.refusals == () and "model_unmeasured" not in {each["id"] for each in plan.findings}


def test_the_plan_remembers_that_it_read_the_fact() -> None:
    assert "model_folders" in made(None)[1].expect
    known = {"vllm_model": "openai/gpt-oss-120b"}
    assert "model_folders" not in made(None, **known)[1].expect, "the catalog has it"


@pytest.mark.parametrize(
    ("model", "revision", "path"),
    [
        ("acme/new", "", PATH),
        ("acme/new", "v1", PATH.replace("main", "v1")),
        ("acme/new", "a" * 40, f"{CACHE}/huggingface/hub/models--acme--new/snapshots/{'a' * 40}"),
        ("/models/new", "", "/models/new"),
        ("/models/../etc", "", ""),
        ("./new", "", ""),
        ("acme/new\n", "", ""),
        ("acme/new", "../x", ""),
        ("openai/gpt-oss-120b", "", ""),
        ("", "", ""),
    ],
)
def test_where_the_host_is_asked_to_look(model: str, revision: str, path: str) -> None:
    assert on_host.wanted(model, revision, "", CACHE) == path


def test_each_service_of_a_host_is_asked_for() -> None:
    services = {
        "chat": {"model": "acme/chat"},
        "known": {"model": "openai/gpt-oss-120b"},
        "odd": 7,
        "web": {"kind": "container"},
    }
    said = {"vllm_services": services, "vllm_model": "acme/new", "vllm_cache_directory": "/srv"}
    options = {name: {"default": ""} for name in ("vllm_model", "vllm_model_revision", "vllm_model_facts")}
    options["vllm_cache_directory"] = {"default": CACHE}
    found = on_host.of_services(said.get, options)
    assert found == [f"/srv/huggingface/hub/models--acme--{name}/refs/main" for name in ("new", "chat")]
    assert on_host.of_services({}.get, options) == on_host.of_services({"vllm_services": "x"}.get, options) == []
