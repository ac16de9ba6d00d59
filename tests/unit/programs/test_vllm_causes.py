"""The verdict on a container that ended, and the sentence that a person reads: from real logs of vLLM, and from its source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.config import parse_config
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.log import Log, verdict_of_end
from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog

LOGS = Path(__file__).parents[2] / "fixtures/vllm_logs"
UNIT = "gb10-vllm: "  # begins the unit's own lines


def new_log() -> Log:
    said, figures = catalog.load("units")["vllm_log"], catalog.load("units")["supervisor"]
    raw = {
        **{"container": "gb10-vllm", "argv": ["docker"], "image": "image", "memory_gib": 7, "cache": "/", "disk_gib": 0},
        **{"env_file": None, "gid_file": None, "rails": [], "join": None},
        "timing": {name: figures[name]["value"] for name in ("heartbeat", "silence", "greeting", "retry", "gate", "stop", "gone")},
        "phases": [[each["phase"], each["value"]] for each in said["phases"]],
        "failures": [[each["verdict"], each["value"]] for each in said["failures"]],
        "gone": [each["value"] for each in said["gone"]],
    }
    return Log(parse_config(json.dumps(raw)), [])


def read(*lines: str) -> Log:
    log = new_log()
    for line in lines:
        if line.strip():
            log.feed(line)
    return log


def lines_of(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8").splitlines()


def of_the_container(name: str) -> list[str]:
    return [line for line in lines_of(name) if not line.startswith(UNIT)]


ENDED = "the container ended with exit status"
MODEL = "/root/.cache/huggingface/hub/models--tiny--broken/snapshots/c664b54592b1224167acd96ccd88fa3de4659545"
# Each log in which the container ended by itself: its exit status, the verdict, and what the sentence says after the status.
ENDS = {
    "bad_flag": (2, "refused_flag", "vllm: error: unrecognized arguments: --no-such-flag 1"),
    "bad_json": (
        *(2, "refused_flag"),
        "vllm serve: error: argument --compilation-config/-cc: 1 validation error for CompilationConfig:"
        " Invalid JSON: key must be a string",
    ),
    "bad_quantization": (
        *(1, "unknown_quantization"),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig:"
        " Value error, Unknown quantization method: nope. Must be one of",
    ),
    "bad_reasoning_parser": (1, "refused_flag", "KeyError: \"Reasoning parser 'nope' not found. Available parsers:"),
    "bad_tool_parser": (1, "refused_flag", "KeyError: 'invalid tool call parser: nope (chose from {"),
    "bad_utilization": (
        *(1, "refused_flag"),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig:"
        " gpu_memory_utilization: Input should be less than or equal to 1 [type=less_than_equal, input_value=1.5,",
    ),
    "blob_missing": (
        *(1, "model_incomplete"),
        f"FileNotFoundError: [Errno 2] No such file or directory: '{MODEL}/model-00002-of-00003.safetensors'",
    ),
    "kill_engine_loading": (1, "killed", "Failed core proc(s): {'EngineCore': -9}"),
    "kill_engine_ready": (0, "engine_died", "its log names no cause"),
    "kill_worker1-1": (0, "engine_died", "Worker proc VllmWorker-1 died unexpectedly (exit code: None),"),
    "kill_worker_ready": (0, "engine_died", "Worker proc VllmWorker-0 died unexpectedly (exit code: None),"),
    "kv_too_small": (
        *(1, "kv_cache_short"),
        "a context of 2097024 tokens fits; ValueError: To serve at least one request with the model's max seq len"
        " (4000000), (1.91 GiB KV cache is needed, which is larger than the available KV cache memory (1.0 GiB).",
    ),
    "no_config": (
        *(1, "model_incomplete"),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig:"
        f" Value error, Invalid repository ID or local directory specified: '{MODEL}'",
    ),
    "no_model_offline": (
        *(1, "model_missing"),
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder",
    ),
    "no_model_path": (
        *(1, "model_missing"),
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name':"
        " '/models/nope'",
    ),
    "no_tokenizer": (1, "model_incomplete", "IndexError: list index out of range (strategies.py, reply_label_ids)"),
    "port_busy": (1, "port_busy", "OSError: [Errno 98] Address already in use"),
    "shard_cut": (
        *(1, "model_incomplete"),
        "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata,"
        " file not fully covered",
    ),
    "shard_missing": (
        *(1, "model_incomplete"),
        f"FileNotFoundError: Weight files referenced in index but missing: {{'{MODEL}/model-00002-of-00003.safetensors'}}",
    ),
    "too_long": (
        *(1, "context_too_long"),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig: Value error, User-specified"
        " max_model_len (999999) is greater than the derived max_model_len (max_position_embeddings=4096.0",
    ),
    "tp_too_large": (
        *(1, "refused_flag"),
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig: Value error, Total number of"
        " attention heads (4) must be divisible by tensor parallel size (3).",
    ),
    "unknown_architecture": (
        *(1, "unknown_architecture"),
        f"Error parsing config for {MODEL}: The checkpoint you are trying to load has model type `nope9` but Transformers"
        " does not recognize this architecture.",
    ),
}
# Those in which the unit ended the container, or nobody did.
UNDISTURBED = {
    *("cable-0", "cable-1", "good", "kill_worker1-0", "pair-0", "pair-1", "reasoning", "stop_busy", "stop_loading"),
}


def test_every_log_has_its_row() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == ENDS.keys() | UNDISTURBED


@pytest.mark.parametrize("name", sorted(ENDS))
def test_a_real_log_names_the_cause(name: str) -> None:
    code, verdict, says = ENDS[name]
    failure = verdict_of_end(code, read(*of_the_container(name)), 0)
    assert (failure.verdict, failure.text.startswith(f"{ENDED} {code}")) == (verdict, True)
    assert failure.text.partition(f"{ENDED} {code}")[2].lstrip(":; ").startswith(says), failure.text


@pytest.mark.parametrize("name", sorted(UNDISTURBED))
def test_a_real_log_without_an_end_of_its_own_says_nothing_wrong(name: str) -> None:
    """Up to the moment at which the unit itself ends it."""
    lines = lines_of(name)
    end = next(at for at, line in enumerate([*lines, f"{UNIT}stopping"]) if line.startswith((f"{UNIT}stop", f"{UNIT}peer")))
    log = read(*(line for line in lines[:end] if not line.startswith(UNIT)))
    assert (log.fault, log.cause, log.gone_since) == (None, "", None)
