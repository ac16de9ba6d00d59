# SPDX-License-Identifier: GPL-3.0-or-later
"""Speculative decoding: what is asked of vLLM, what speaks against it (catalog/speculation.yml), and its memory."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import architectures, lora, models, vllm_cli
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.draft_wish import FLAG, Config
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB, Draft, Load
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Flags, Model

# The same field by field, from vLLM 0.22 on.
_SHORT = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}


def said(flags: Flags) -> Config:
    """--speculative-config, as JSON or field by field."""
    found: dict[str, Any] = {}
    try:
        whole = json.loads(flags.get(FLAG) or "{}")
    except ValueError:
        whole = {}  # the rules say what is wrong with it
    found.update(whole if isinstance(whole, dict) else {})
    found |= {name: flags[flag] for flag, name in _SHORT.items() if flag in flags}
    prefix = f"{FLAG}."
    return found | {name.removeprefix(prefix): value for name, value in flags.items() if name.startswith(prefix)}


def draft_model(flags: Flags) -> str:
    """The id or path of a second model; empty where there is none."""
    config = said(flags)
    name = config.get("model")
    entry = _methods().get(method(config), {})
    return name if isinstance(name, str) and entry.get("drafts") != "none" else ""


def method(config: Config) -> str:
    """Its name in the catalog; where none is given, by the name of the second model, which may say none."""
    name = str(config.get("method") or "") or _by_draft(str(config.get("model") or ""))
    pattern: str = catalog.load("speculation")["mtp_names"]["value"]
    return "mtp" if re.fullmatch(pattern, name) else name


def _by_draft(model: str) -> str:
    patterns: Mapping[str, str] = catalog.load("speculation")["by_draft"]["value"]
    return next((name for name, pattern in patterns.items() if re.search(pattern, model, re.IGNORECASE)), "")


def needs_tokens(name: str) -> bool:
    """Return whether vLLM has no number of its own for this method."""
    return bool(_methods().get(name, {}).get("tokens", True))


def too_many(tokens: Any) -> str:
    """What speaks against so many draft tokens for each step; empty where nothing does."""
    most = catalog.load("speculation")["most_tokens"]["value"]
    number = int(tokens) if re.fullmatch(r"[0-9]{1,30}", str(tokens)) else 0
    return f"at most {most} tokens are drafted for each step, and {tokens} are asked for" if number > most else ""


# --- memory


def load(flags: Flags, model: Model, draft: ModelFacts | None) -> Load:
    """What the memory has to hold for these flags. `draft`: facts of the second model, where they are known."""
    return Load(
        batched=_size(flags, "--max-num-batched-tokens"),
        pinned_gib=_size(flags, "--kv-cache-memory-bytes") / GIB,
        draft=_draft(flags, model, draft),
        ranks=lora.ranks(flags),
        tensor=int(_size(flags, "--tensor-parallel-size")),
    )


def _draft(flags: Flags, model: Model, facts: ModelFacts | None) -> Draft | None:
    config = said(flags)
    name = draft_model(flags)
    drafts = _methods().get(method(config), {}).get("drafts", "model" if name else "none")
    if drafts == "none":
        return None
    if not name:
        return _own_layers(model)
    second = models.of_facts(facts) if facts else models.find(name)
    checkpoint = second.checkpoint(facts.id if facts else name) if second else None
    if second is None or checkpoint is None:
        return None  # `objections` says so
    alone = str(config.get("draft_tensor_parallel_size", "")) == "1"
    return Draft(checkpoint.weight_gib, checkpoint.basis, second.geometry.layers, second.geometry, alone)


def _own_layers(model: Model) -> Draft:
    """Layers that the checkpoint brings. Without headers each is as large as one of the model's own layers."""
    facts = model.facts
    layers = (facts.draft_layers if facts else 0) or 1
    if facts and facts.weights.draft:
        return Draft(facts.weights.draft / GIB, facts.weights.basis, layers)
    return Draft(None, "estimate", layers)


def _size(flags: Flags, flag: str) -> int:
    try:
        return max(0, vllm_cli.size(flags.get(flag) or "0"))
    except ValueError:
        return 0  # the rules say what is wrong with it


# --- what speaks against it


def objections(flags: Flags, version: str | None, model: Model | None, draft: ModelFacts | None) -> dict[str, str]:
    """{kind: fact}, the kinds of the condition `speculation` in catalog/rules.yml."""
    config = said(flags)
    return dict(_objections(config, draft_model(flags), version, model, draft)) if config else {}


def _objections(
    config: Config, name: str, version: str | None, model: Model | None, draft: ModelFacts | None
) -> Iterator[tuple[str, str]]:
    chosen = method(config)
    entry = _methods().get(chosen)
    if many := too_many(config.get("num_speculative_tokens")):
        yield "too_many", many
    if chosen and entry is None:
        near = difflib.get_close_matches(chosen, _methods(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_methods())}"
        yield _sure("method_unknown", version), f"no vLLM that we know has the method {chosen}; {hint}"
    if entry is not None:
        if not models.within(version, entry["value"], unknown=True):
            yield _sure("method_version", version), f"the method {chosen} is in vLLM {entry['value']}"
        if entry["drafts"] == "model" and not name:
            yield "no_model", f"the method {chosen} needs a second model"
        if entry["drafts"] == "either" and not name and model is not None:
            yield from _against_layers(chosen, version, model)
    if not name:
        return
    if draft is None and models.find(name) is None:
        yield "draft_uncounted", f"the files of {name} are not known here"
    found = architectures.objection(draft.architecture, version) if draft else None
    if found and found[0] != "unknown":
        yield _sure("draft_version", version), f"{name}: {found[1]}"


def _against_layers(chosen: str, version: str | None, model: Model) -> Iterator[tuple[str, str]]:
    """Of a model that is to draft for itself."""
    facts = model.facts
    if chosen == "mtp" and facts and not facts.draft_layers:
        yield "no_layers", f"the config.json of {model.id} names no layers for draft tokens"
    elif chosen == "mtp" and facts and facts.weights.basis == "headers" and not facts.weights.draft:
        yield (
            "layers_missing",
            f"the weights of {model.id} lack the draft layers that its config.json names",
        )
    name = catalog.load("speculation")["own_layers"]["value"].get(model.architecture)
    found = architectures.objection(name, version) if chosen == "mtp" and name else None
    if found:
        yield _sure("method_version", version), found[1]


def _sure(kind: str, version: str | None) -> str:
    """A fork or a build between releases may have what no release has."""
    return f"{kind}_unsure" if vllm_cli.is_development(version) or vllm_cli.release(version) is None else kind


def _methods() -> Mapping[str, Any]:
    found: Mapping[str, Any] = catalog.load("speculation")["methods"]
    return found
