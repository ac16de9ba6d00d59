# SPDX-License-Identifier: GPL-3.0-or-later
"""`vllm_speculative` and --speculative-config: the same wish in the words of an inventory and in those of vLLM."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FLAG = "--speculative-config"
# Any way to write one of these flags, shortened ones too.
_ANY_FLAG = re.compile(r"-sc|--spec-(method|model|tokens)|--specu[a-z-]*([.].*)?")
# What an inventory has a name of its own for.
NAMED = {"method": "method", "model": "model", "revision": "revision", "num_speculative_tokens": "tokens"}
Config = Mapping[str, Any]


@dataclass(frozen=True)
class Wish:
    """`vllm_speculative`: the fields of --speculative-config under the names of the inventory."""

    method: str = ""
    model: str = ""  # a second model; empty: the model's own layers, or no weights at all
    revision: str = ""
    tokens: int = 0
    further: Mapping[str, Any] = field(default_factory=dict)

    def config(self, model_revision: str = "") -> str:
        """JSON for vLLM. Layers of the model itself are read once more, so they need the model's own revision."""
        revision = self.revision if self.model else model_revision
        own = {"method": self.method, "model": self.model, "revision": revision, "num_speculative_tokens": self.tokens}
        return json.dumps({name: value for name, value in own.items() if value} | dict(self.further))


def wish(config: Config) -> dict[str, Any]:
    """The variable `vllm_speculative` that says the same as a --speculative-config."""
    found = {NAMED[name]: value for name, value in config.items() if name in NAMED}
    if found.get("model") and not found.get("method"):
        found = {"method": "draft_model", **found}  # as vLLM reads it
    if str(found.get("tokens", "")).isdigit():
        found["tokens"] = int(found["tokens"])
    further = {name: value for name, value in config.items() if name not in NAMED}
    return {**found, **({"further": further} if further else {})}


def is_flag(word: str) -> bool:
    """Return whether a word of a command line says something of speculative decoding."""
    return _ANY_FLAG.fullmatch(word.partition("=")[0].replace("_", "-")) is not None
