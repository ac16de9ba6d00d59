# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the flags of a server say of its memory: draft tokens, the chunk of a prompt, and a pinned KV cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import vllm_cli
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB, Load
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Flags, Model

_FLAG = "--speculative-config"


def said(flags: Flags) -> Mapping[str, Any]:
    """--speculative-config, as JSON or field by field."""
    found: dict[str, Any] = {}
    try:
        whole = json.loads(flags.get(_FLAG) or "{}")
    except ValueError:
        whole = {}  # the rules say what is wrong with it
    found.update(whole if isinstance(whole, dict) else {})
    prefix = f"{_FLAG}."
    return found | {name.removeprefix(prefix): value for name, value in flags.items() if name.startswith(prefix)}


def draft_model(flags: Flags) -> str:
    """The id or path of a second model; empty where there is none."""
    name = said(flags).get("model")
    return name if isinstance(name, str) else ""


def load(flags: Flags, model: Model, draft: ModelFacts | None) -> Load:
    """What the memory has to hold for these flags."""
    method = str(said(flags).get("method") or ("draft_model" if draft_model(flags) else ""))
    return Load(
        batched=_size(flags, "--max-num-batched-tokens"),
        pinned_gib=_size(flags, "--kv-cache-memory-bytes") / GIB,
        draft_gib=_weights(model, draft, method),
        draft_layers=(draft.layers if draft else _own_layers(model)) if method and method != "ngram" else 0,
    )


def _weights(model: Model, draft: ModelFacts | None, method: str) -> float:
    """GiB of the draft: a second model, or the layers for it that the checkpoint brings."""
    if draft is not None:
        return draft.weights_gib
    if not method or method == "ngram" or model.facts is None:
        return 0.0
    files = model.facts.weights.draft / GIB
    # Without headers: as large as one layer of the model, for each layer of the draft.
    return files or model.facts.weights_gib / max(1, model.facts.layers) * _own_layers(model)


def _own_layers(model: Model) -> int:
    return model.facts.draft_layers if model.facts else 1


def _size(flags: Flags, flag: str) -> int:
    try:
        return max(0, vllm_cli.size(flags.get(flag) or "0"))
    except ValueError:
        return 0  # the rules say what is wrong with it
