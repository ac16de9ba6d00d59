"""Models that do not chat: their task is said, their memory counted, their flags given, and the role judges alike."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.serving.other_canaries import OTHER_KINDS
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, models, tasks
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import document, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.serving_plan import Plan, plan

from tests.support.model_folders import CASES
from tests.unit.serving.test_plan_and_role import by_the_role, judged, lines, role

IMAGE = "vllm/vllm-openai:v0.32.0"
BGE, QWEN, WHISPER = "BAAI/bge-m3", "Qwen/Qwen3-Embedding-8B", "openai/whisper-large-v3"


def facts(name: str, root: Path, **config: Any) -> ModelFacts:
    folder = next(case for case in CASES if case.id == name).folder(root / "m")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    return sources.find(str(folder))


def planned(found: ModelFacts, version: str = "", **settings: str | None) -> Plan:
    flags = {f"--{name.replace('_', '-')}": value for name, value in settings.items()}
    return plan(found.id, [121.69 * GIB], IMAGE if not version else "acme/vllm:1", version, facts=found, settings=flags)


def test_a_plan_says_the_task_and_the_proof(tmp_path: Path) -> None:
    made = planned(facts(BGE, tmp_path))
    text = "\n".join(made.lines())
    assert "task         vectors of texts (/v1/embeddings); it does not chat" in text
    assert "proof        three sentences" in text and "tok/s" not in text and "bandwidth" not in text
    assert made.as_dict()["task"] == {
        "id": "embed",
        "path": "/v1/embeddings",
        "proof": "three sentences, of which the two of one meaning must be the nearest",
    }
    assert made.as_dict()["bandwidth_limit"] == 0


def test_a_chat_has_no_line_of_a_task(tmp_path: Path) -> None:
    made = planned(facts("microsoft/phi-4", tmp_path))
    assert made.as_dict()["task"] == {"id": "generate", "path": None, "proof": None}
    assert "--runner" not in made.args and not any("proof" in line for line in made.lines())


RERANKER = '{"architectures": ["Qwen3ForSequenceClassification"], "is_original_qwen3_reranker": true}'


@pytest.mark.parametrize(
    ("settings", "task"),
    [
        ({"runner": "pooling", "hf_overrides": RERANKER}, "classify"),
        ({"hf_overrides.architectures": '["Qwen3ForSequenceClassification"]'}, "classify"),
        ({"hf_overrides": '{"rope_theta": 1}'}, "generate"),
        ({"hf_overrides": "{"}, "generate"),
        ({"hf_overrides": "[]"}, "generate"),
    ],
)
def test_the_flags_of_a_reranker_make_it_one(settings: dict[str, str], task: str, tmp_path: Path) -> None:
    """The way out of `reranker_as_chat`; without it a plan has the cache and the parsers of a chat."""
    made = planned(replace(facts("microsoft/phi-4", tmp_path), id="a/Reranker-1B"), **settings)
    assert made.model.task == task
    assert ("--kv-cache-dtype" in made.args) == (task == "generate")
    assert made.as_dict()["task"]["path"] == ("/v1/rerank" if task == "classify" else None)


def test_every_task_is_one_that_the_proof_can_ask() -> None:
    paths = {kind.path for kind in OTHER_KINDS}
    assert {entry["path"] for entry in catalog.load("models")["tasks"].values()} == paths


@pytest.mark.parametrize(("version", "flag"), [("0.32.0", ["--runner", "pooling"]), ("0.9.1", ["--task", "embed"])])
def test_the_flag_of_the_task_follows_the_version(version: str, flag: list[str], tmp_path: Path) -> None:
    args = list(planned(facts(QWEN, tmp_path), version).args)
    at = args.index(flag[0])
    assert args[at : at + 2] == flag and "--kv-cache-dtype" not in args and "--reasoning-parser" not in args


def test_speech_needs_no_flag(tmp_path: Path) -> None:
    assert not {"--runner", "--task"} & set(planned(facts(WHISPER, tmp_path)).args)


def test_an_encoder_keeps_no_cache_and_reads_a_prompt_at_once(tmp_path: Path) -> None:
    made = planned(facts(BGE, tmp_path))
    assert made.fit and made.fit.need["kv_cache"] == 0 and made.fit.max_model_len == 8194
    assert made.arguments["--max-num-batched-tokens"] == "8194", "vLLM ends a start where it is below the context"
    short = planned(facts(BGE, tmp_path / "b"), max_model_len="512")
    assert short.arguments["--max-num-batched-tokens"] == "8192"
    own = planned(facts(BGE, tmp_path / "c"), max_num_batched_tokens="9000")
    assert own.arguments["--max-num-batched-tokens"] == "9000"


def test_a_decoder_for_vectors_keeps_its_cache(tmp_path: Path) -> None:
    made = planned(facts(QWEN, tmp_path))
    assert made.fit and made.fit.need["kv_cache"] > 10


@pytest.mark.parametrize(
    ("config", "bidirectional"),
    [
        ({}, False),
        ({"is_causal": False}, True),
        ({"use_bidirectional_attention": True}, True),
        ({"use_bidirectional_attention": "vision"}, False),
    ],
)
def test_what_the_configuration_says_of_its_attention(
    config: dict[str, Any], bidirectional: bool, tmp_path: Path
) -> None:
    assert facts(QWEN, tmp_path, **config).bidirectional is bidirectional


def test_a_family_of_encoders_that_decodes_is_none(tmp_path: Path) -> None:
    assert facts(BGE, tmp_path).bidirectional and not facts(BGE, tmp_path / "b", is_decoder=True).bidirectional
    assert not facts("microsoft/phi-4", tmp_path / "c", is_causal=False).bidirectional, "it chats"


def test_the_sound_of_each_request_is_counted(tmp_path: Path) -> None:
    one = models.of_facts(facts(WHISPER, tmp_path, max_source_positions=1500))
    # 32 layers keep keys and values of 20 heads of 64 numbers in two bytes, of 1,500 positions.
    assert memory_fit.state_bytes(one.geometry) == 32 * 1500 * 2 * 20 * 64 * 2
    assert "gdn_hybrid" not in one.traits
    assert memory_fit.state_bytes(models.of_facts(facts(WHISPER, tmp_path / "b")).geometry) == 0


@pytest.mark.parametrize("name", [BGE, QWEN, WHISPER])
def test_the_role_judges_alike(name: str, tmp_path: Path) -> None:
    for more in ({}, {"reasoning_parser": "qwen3"}, {"runner": "generate"}):
        made = planned(
            facts(name, tmp_path / str(len(more))) if not more else facts(name, tmp_path / min(more)), **more
        )
        by_role = role(lines(made))
        assert by_role.refusals == () and by_the_role(by_role) == judged(made)
    assert ("task_runner" in judged(made)) == (name != WHISPER)


def test_facts_by_hand_without_layers_are_refused() -> None:
    said = {"id": "a/b", "architecture": "LlamaForCausalLM", "context": 8192, "weights": {"gib": 8}}
    with pytest.raises(FactsError, match=r"f\.json lacks attention, the layers that keep a KV cache"):
        document.read(json.dumps(said).encode(), "f.json")
    found = document.read(json.dumps({**said, "task": "embed", "bidirectional": True}).encode(), "f.json")
    assert tasks.as_dict(models.of_facts(found))["id"] == "embed"
    with pytest.raises(FactsError, match="task is 'sing'; expected one of generate, embed, classify, transcribe"):
        document.read(json.dumps({**said, "task": "sing"}).encode(), "f.json")
