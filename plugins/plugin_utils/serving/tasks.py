# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model does that does not chat: its words, flags and proof are `tasks` of catalog/models.yml."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, models, quantization
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import build
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Flags, Model


def chats(model: Model) -> bool:
    return model.task == models.CHAT


def by_flags(facts: ModelFacts | None, flags: Flags) -> ModelFacts | None:
    """With the task of the architecture that --hf-overrides names: vLLM then serves that one, whatever the files say.

    Qwen3-Reranker and its like say a chat in their files.
    """
    named = _overridden(flags)
    return replace(facts, task=build.task_of(named)) if facts and named else facts


def _overridden(flags: Flags) -> str:
    """The first architecture of --hf-overrides, whole or by its field."""
    try:
        whole = json.loads(flags.get("--hf-overrides") or "{}")
        named = json.loads(flags.get("--hf-overrides.architectures") or "null")
    except ValueError:
        return ""  # the rules say what is wrong with it
    named = named or (whole.get("architectures") if isinstance(whole, dict) else None)
    return named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""


def kv_dtype(model: Model, flags: Flags) -> str:
    """Of the KV cache. Nobody has measured vectors or transcripts with a narrow one, so these keep the model's own."""
    usual = str(catalog.load("models")["fit"]["kv_cache_dtype"]["value"]) if chats(model) else "auto"
    return flags.get("--kv-cache-dtype") or usual


def load(model: Model, asked: memory_fit.Load, length: int) -> memory_fit.Load:
    """With the prompt that is computed at once: all of it, where each token sees those after it."""
    if asked.batched or not (model.facts and model.facts.bidirectional):
        return asked
    usual = int(catalog.load("models")["fit"]["batched_tokens"]["value"])
    return replace(asked, batched=max(usual, length or model.geometry.context))


def flags(model: Model, version: str | None) -> tuple[dict[str, str | None], str]:
    """The flags that the task needs in this version of vLLM, and why."""
    if chats(model):
        return {}, ""
    entry = quantization.in_version(_task(model)["flags"], version)
    return dict(entry.get("all", {})), f"{entry['because']} ({entry['source']})"


def lines(model: Model) -> list[str]:
    """For a person: the task, and what the proof will ask."""
    if chats(model):
        return []
    entry = _task(model)
    return [f"  task         {entry['value']} ({entry['path']}); it does not chat", f"  proof        {entry['proof']}"]


def speed(model: Model) -> str:
    return f"not measured; tokens a second of a chat say nothing of {_task(model)['value']}"


def as_dict(model: Model) -> dict[str, Any]:
    entry = {} if chats(model) else _task(model)
    return {"id": model.task, "path": entry.get("path"), "proof": entry.get("proof")}


def _task(model: Model) -> Mapping[str, Any]:
    found: Mapping[str, Any] = catalog.load("models")["tasks"][model.task]
    return found
