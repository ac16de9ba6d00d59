# SPDX-License-Identifier: GPL-3.0-or-later
"""`vllm_lora`: adapters of a model, as an inventory and as vLLM's command line have them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import name_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import vllm_cli
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Flags, Model

FLAG = "--lora-modules"
COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_MIXING, _FEEDING = 4, 3  # matrices of one layer: of attention, and of each of its networks


@dataclass(frozen=True)
class Adapter:
    """One of them."""

    name: str  # that clients ask for
    model: str  # id of the hub
    revision: str  # a commit; empty: main

    @property
    def place(self) -> str:
        """Where vLLM finds it: by its id, or the folder of its commit, for it takes no revision of an adapter."""
        return f"/root/.cache/{name_of(self.model)}/snapshots/{self.revision}" if self.revision else self.model


def adapter(said: Mapping[str, Any]) -> Adapter:
    """What an inventory says of one, as it stands there."""
    return Adapter(*(str(said.get(key) or "") for key in ("name", "model", "revision")))


def words(adapters: Sequence[Adapter]) -> list[str]:
    """Of `vllm serve`."""
    return ["--enable-lora", FLAG, *(f"{each.name}={each.place}" for each in adapters)] if adapters else []


def ranks(flags: Flags) -> int:
    """What vLLM keeps room for from its start, whichever adapters there are: adapters at once, times their rank."""
    if "--enable-lora" not in flags:
        return 0
    return _said(flags, "--max-loras", "lora_slots") * _said(flags, "--max-lora-rank", "lora_rank")


def _said(flags: Flags, flag: str, usual: str) -> int:
    try:
        return vllm_cli.size(flags.get(flag) or str(catalog.load("models")["fit"][usual]["value"]))
    except ValueError:
        return 0  # the rules say what is wrong with it


def numbers(model: Model, tensor: int) -> float:
    """Of one rank, on each of `tensor` hosts that share a layer; 0 of a model whose sizes are not known.

    Each matrix gets one of its input and one of its output. One side is the model's hidden size, which each host has
    whole, and the other side is what the parameters leave.
    """
    hidden, parts = model.geometry.hidden, model.parts
    if not hidden or not parts.known:
        return 0.0
    networks = max(1, model.facts.experts.count) if model.facts else 1
    whole = hidden * model.geometry.layers * (_MIXING + _FEEDING * networks)
    return whole + (parts.feeding + parts.sides) / hidden / tensor
