"""Speculative decoding: the words for vLLM, what speaks against a method, and what the draft takes of the memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.service import ServicePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, models, speculation, vllm_cli
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.draft_wish import Wish, is_flag, wish
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB, Draft, Load
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import document, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from packaging.version import Version

from tests.support.model_folders import CASES
from tests.support.proofs import facts as host_facts
from tests.support.services import only_service

IMAGE = "registry.example/vllm@sha256:" + "0" * 64
SAID: dict[str, Any] = {"vllm_image": IMAGE, "vllm_version": "0.28.0", "vllm_model": "openai/gpt-oss-120b"}
MTP = {"method": "mtp", "tokens": 2}
EAGLE = {"method": "eagle3", "model": "acme/eagle", "tokens": 3}


def plan(speculative: dict[str, Any], **variables: Any) -> ServicePlan:
    known = {**host_facts(), "memory_bytes": int(121.7 * GIB)}
    return only_service(View("spark-a", known, SAID | {"vllm_speculative": speculative} | variables))


def folder(name: str, root: Path) -> Path:
    return next(case for case in CASES if case.id == name).folder(root)


def facts(name: str, root: Path) -> ModelFacts:
    return sources.find(str(folder(name, root)))


def config(made: ServicePlan) -> dict[str, Any]:
    words = dict(zip(made.argv, made.argv[1:], strict=False))
    found: dict[str, Any] = json.loads(words["--speculative-config"])
    return found


# --- the words


def test_the_setting_becomes_vllms_own_json() -> None:
    made = plan({**EAGLE, "revision": "v2", "further": {"draft_tensor_parallel_size": 1}})
    assert made.refusals == ()
    assert config(made) == {
        "method": "eagle3", "model": "acme/eagle", "revision": "v2", "num_speculative_tokens": 3,
        "draft_tensor_parallel_size": 1,
    }  # fmt: skip
    assert made.files.draft == {"model": "acme/eagle", "revision": "v2"}
    none = plan({})
    assert "--speculative-config" not in none.argv and none.files.draft is None


def test_layers_of_the_model_are_of_its_own_revision() -> None:
    """vLLM reads them once more, and without a network only that revision is there."""
    made = plan(MTP, vllm_model_revision="v1", vllm_accept={"speculative_no_layers": "a test"})
    assert config(made) == {"method": "mtp", "revision": "v1", "num_speculative_tokens": 2}
    assert made.files.draft is None, "there is nothing more to fetch"


@pytest.mark.parametrize(
    ("speculative", "more", "says"),
    [
        (MTP, {"vllm_extra_args": ["--speculative-config", "{}"]}, "vllm_extra_args holds --speculative-config"),
        (MTP, {"vllm_extra_args": ["--speculative_config.method=mtp"]}, "holds --speculative_config.method"),
        (MTP, {"vllm_extra_args": ["-sc", "{}"]}, "vllm_extra_args holds -sc"),
        (MTP, {"vllm_extra_args": ["--spec-tokens", "2"]}, "vllm_extra_args holds --spec-tokens"),
        ({"tokens": 2}, {}, "vllm_speculative has no method"),
        ({"method": "mtp"}, {}, "vllm_speculative.tokens is 0"),
        ({**EAGLE, "model": "/models/x"}, {}, "vllm_speculative.model /models/x is no id of the hub"),
        ({**EAGLE, "model": "a b"}, {}, "vllm_speculative.model is 'a b'"),
        ({**MTP, "revision": "v1"}, {}, "there is no vllm_speculative.model"),
        ({**EAGLE, "revision": "../x"}, {}, "vllm_speculative.revision is '../x'"),
        ({**MTP, "further": {"num_speculative_tokens": 3}}, {}, "further holds num_speculative_tokens"),
        ({**MTP, "tokns": 2}, {}, "tokns"),
    ],
)
def test_what_is_wrong_is_refused_by_name(speculative: dict[str, Any], more: dict[str, Any], says: str) -> None:
    try:
        texts = "\n".join(plan(speculative, **more).refusals)
    except ValueError as error:  # of the settings
        texts = str(error)
    assert says in texts


def test_suffix_decoding_has_a_number_of_its_own() -> None:
    assert plan({"method": "suffix"}).refusals == ()


def test_only_flags_of_speculative_decoding_are_taken_for_one() -> None:
    for version in vllm_cli.versions():
        names = vllm_cli.cli(version).flags | vllm_cli.cli(version).aliases
        found = {name for name in names if is_flag(name)}
        assert found <= {"--speculative-config", "-sc", "--spec-method", "--spec-model", "--spec-tokens"}
        assert "--speculative-config" in found


@pytest.mark.parametrize(
    "given",
    [
        {"method": "mtp", "num_speculative_tokens": 2},
        {"method": "eagle3", "model": "a/b", "revision": "x", "num_speculative_tokens": 3, "moe_backend": "triton"},
        {"model": "a/b", "num_speculative_tokens": 5},
    ],
)
def test_the_inventory_says_what_the_flag_said(given: dict[str, Any]) -> None:
    assert {"method": "draft_model"} | given == json.loads(Wish(**wish(given)).config()) | {
        "method": given.get("method", "draft_model")
    }


# --- methods


def objections(said: dict[str, Any], version: str | None, model: ModelFacts | None = None, **more: Any) -> set[str]:
    entry = models.of_facts(model) if model else None
    return set(speculation.objections({"--speculative-config": json.dumps(said)}, version, entry, more.get("draft")))


@pytest.mark.parametrize(
    ("said", "version", "kinds"),
    [
        ({"method": "ngram"}, "0.17.0", set()),
        ({"method": "qwen3_next_mtp"}, "0.17.0", set()),
        ({"method": "dflash", "model": "z-lab/x"}, "0.19.0", {"method_version", "draft_uncounted"}),
        ({"method": "dflash", "model": "z-lab/x"}, "0.20.0", {"draft_uncounted"}),
        ({"method": "dspark"}, "0.24.0", {"method_version"}),
        ({"method": "dspark"}, "0.23.1rc1.dev790+g85d955ed5", {"method_version_unsure"}),
        ({"method": "dspark"}, "0.1.dev20482+g83cb22a0e", set()),
        ({"method": "dspark"}, None, set()),
        ({"method": "medusa", "model": "a/b"}, "0.33.0", {"method_version", "draft_uncounted"}),
        ({"method": "eagle3"}, "0.28.0", {"no_model"}),
        ({"method": "eagel3", "model": "a/b"}, "0.28.0", {"method_unknown", "draft_uncounted"}),
        ({"method": "new_one"}, "0.1.dev20482+g83cb22a0e", {"method_unknown_unsure"}),
        ({"model": "openai/gpt-oss-120b"}, "0.28.0", set()),
        ({"method": "ngram", "num_speculative_tokens": 64}, "0.28.0", set()),
        ({"method": "ngram", "num_speculative_tokens": 10**9}, "0.28.0", {"too_many"}),
        ({"method": "ngram", "num_speculative_tokens": "65"}, "0.28.0", {"too_many"}),
    ],
)
def test_a_method_by_version(said: dict[str, Any], version: str | None, kinds: set[str]) -> None:
    assert objections(said, version) == kinds


def test_methods_are_those_of_the_released_parsers() -> None:
    """--spec-method lists them from 0.22 on."""
    known = catalog.load("speculation")["methods"]
    for version in vllm_cli.versions():
        flag = vllm_cli.cli(version).flags.get("--spec-method")
        if flag is None:
            continue
        taken = {name for name in flag["choices"] if name != "None" and speculation.method({"method": name}) == name}
        assert taken == {name for name, one in known.items() if models.within(str(version), one["value"])}, version
    assert Version("0.22.0") in vllm_cli.versions()


def test_a_method_by_the_files_of_the_model(tmp_path: Path) -> None:
    mtp = {"method": "mtp", "num_speculative_tokens": 1}
    plain = facts("Qwen/Qwen3-0.6B", tmp_path / "a")
    assert objections(mtp, "0.28.0", plain) == {"no_layers"}
    own = facts("deepseek-ai/DeepSeek-V4-Flash", tmp_path / "b")
    assert own.draft_layers and "method_version" in objections(mtp, "0.19.0", own)
    assert not objections(mtp, "0.28.0", own) & {"no_layers", "method_version"}


def test_a_draft_by_its_own_architecture(tmp_path: Path) -> None:
    layers = [{"kind": "full", "layers": 5, "kv_heads": 8, "key_dim": 128, "value_dim": 128}]
    said = {"id": "z-lab/d", "architecture": "DFlash2DraftModel", "context": 8, "weights": {"gib": 3.5}}
    text = json.dumps({**said, "attention": layers})
    draft = document.read(text.encode(), "d.json")
    said = {"method": "dflash", "model": "z-lab/d"}
    assert objections(said, "0.26.0", draft=draft) == {"draft_version"}
    assert objections(said, "0.26.1.dev3+g1", draft=draft) == {"draft_version_unsure"}
    assert objections(said, "0.28.0", draft=draft) == set()


def test_the_catalog_names_draft_classes_that_vllm_has() -> None:
    known = json.loads((catalog.collection_root() / "catalog/vllm_models.json").read_text())["architectures"]
    own = catalog.load("speculation")["own_layers"]["value"]
    assert own and all(name in known and layers in known for name, layers in own.items())
    jsonschema.validate(
        list(catalog.load("speculation")["methods"].values()),
        {"items": {"properties": {"drafts": {"enum": ["model", "own", "either", "none"]}}, "required": ["drafts"]}},
    )


# --- memory


def test_the_draft_is_a_term_of_its_own(tmp_path: Path) -> None:
    draft = facts("Qwen/Qwen3-0.6B", tmp_path / "d")
    model = models.of_facts(facts("Qwen/Qwen3-8B", tmp_path / "m"))
    flags = {"--speculative-config": json.dumps({"model": draft.id, "num_speculative_tokens": 4})}
    load = speculation.load(flags, model, draft)

    def need(load: Load, hosts: int = 1) -> memory_fit.Fit:
        return memory_fit.fit(model, model.checkpoints[0], 121.63 * GIB, hosts, 8192, 4, "fp8", 0.8, load)

    found = need(load)
    assert found.need["draft"] == pytest.approx(draft.weights_gib) and found.sure["draft"] == draft.weights.basis
    of_a_token = memory_fit.kv_bytes_per_token(models.of_facts(draft).geometry, "fp8")
    assert found.need["draft_kv_cache"] == pytest.approx(8192 * 4 * of_a_token / GIB)
    assert found.need["kv_cache"] == pytest.approx(need(Load()).need["kv_cache"])
    assert found.sequences < need(Load()).sequences, "its cache takes room of the model's"
    alone = speculation.load({**flags, "--speculative-config.draft_tensor_parallel_size": "1"}, model, draft)
    assert need(load, 2).need["draft"] == pytest.approx(found.need["draft"] / 2)
    assert need(alone, 2).need["draft"] == pytest.approx(found.need["draft"]), "whole on each host"


def test_layers_of_a_model_of_the_catalog_are_estimated() -> None:
    model = models.find("nvidia/Qwen3.6-27B-NVFP4")
    assert model
    load = speculation.load({"--speculative-config": '{"method": "mtp", "num_speculative_tokens": 5}'}, model, None)
    assert load.draft == Draft(None, "estimate", 1)
    one = model.checkpoint("nvidia/Qwen3.6-27B-NVFP4")
    assert one
    found = memory_fit.fit(model, one, 121.63 * GIB, 1, 8192, 4, "fp8", 0.8, load)
    assert found.need["draft"] == pytest.approx(one.weight_gib / model.geometry.layers)


def test_a_draft_that_has_no_room_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    layers = [{"kind": "full", "layers": 1, "kv_heads": 8, "key_dim": 128, "value_dim": 128}]
    said = {"id": "acme/eagle", "architecture": "LlamaForCausalLMEagle3", "context": 8, "weights": {"gib": 90}}
    file.write_text(json.dumps({**said, "attention": layers}))
    made = plan({**EAGLE, "facts": str(file)})
    assert any("rule memory_fit" in text for text in made.refusals), made.refusals
    assert plan(EAGLE).refusals == ()  # a draft that nobody has counted
