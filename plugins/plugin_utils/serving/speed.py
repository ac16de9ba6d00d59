# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast one request is: as somebody measured it, and what the bandwidth of the memory allows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, recipes, speculation
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import formats
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Checkpoint, Expected, Model

# How weights were counted, where it was what is read for each token.
_COUNTED = ("loaded", "headers", "index")
_GB = 1e9


@dataclass(frozen=True)
class Predicted:
    """Tokens a second of one request: what nine of ten measured runs were between, and one figure for all."""

    low: float
    middle: float
    high: float

    @property
    def text(self) -> str:
        low, high = (f"{value:.2g}" if value < 10 else f"{value:.0f}" for value in (self.low, self.high))
        return f"{low} to {high} tok/s"


@dataclass(frozen=True)
class Bound:
    """What the memory's bandwidth allows, in tokens a second of one request. Nothing is as fast: it is no estimate."""

    plain: float = 0.0  # one token for each reading of the active weights
    accepted: float = 0.0  # tokens of one step with these draft tokens; 0: none, or nobody knows
    drafts: int = 0  # draft tokens that were asked for
    method: str = ""  # that proposes them
    hosts: int = 1
    tensor: int = 1  # of them, how many share each layer
    read: float = 0.0  # GB of weights for each token
    layers: int = 0

    @property
    def text(self) -> str:
        if not self.plain:
            return "its active parameters are not known (`active` of the facts), so there is no upper bound either"
        plain = f"{self.plain:.0f} tok/s for one request without draft tokens"
        if self.accepted:
            with_drafts = f"{self.plain * self.accepted:.0f} tok/s for one request with {self.drafts} draft tokens"
            found = f"{with_drafts} ({self.accepted:g} tokens a step) or {plain}"
        elif self.drafts:
            found = f"{plain} (how many of {self.drafts} are accepted, the catalog does not know)"
        else:
            found = plain
        return f"{found} is what the memory's bandwidth allows{self._fabric}"

    @property
    def why(self) -> str:
        """Return how an expectation follows from it."""
        low, __, high = _used(self.read)
        bandwidth = catalog.load("sm")["chip"]["memory_bandwidth"]["value"]
        said = f"{self.read:.3g} GB of weights a token, at {low * 100:.0f} to {high * 100:.0f} % of {bandwidth} GB/s"
        if self.accepted:
            said += f", times {self.accepted:g} tokens a step with {self.drafts} draft tokens"
        elif self.drafts:
            said += f", without draft tokens (how many of {self.drafts} are accepted, the catalog does not know)"
        return f"{said}{self._fabric}"

    @property
    def _fabric(self) -> str:
        """Return how more than one Spark was counted."""
        if self.hosts == 1:
            return ""
        if self.tensor == 1:
            return f", as on one Spark: {self.hosts} of them share the layers of a request one after the other"
        return f", {self.tensor} Sparks together, which exchange for {self.exchange * 1000:.1f} ms a step"

    @property
    def exchange(self) -> float:
        """Seconds of one step in which Sparks that share each layer wait for the fabric: twice in a layer."""
        if self.tensor == 1:
            return 0.0
        once: float = catalog.load("models")["fit"]["exchange"]["value"] / 1e6
        return 2 * self.layers * once * (1 + math.log2(self.tensor)) / 2  # as measured with two and with four


def bound(model: Model, checkpoint: Checkpoint, hosts: int, draft: Mapping[str, Any], tensor: int = 0) -> Bound:
    """`draft`: the fields of --speculative-config. `tensor`: the hosts that share a layer; 0: as the plan chooses."""
    asked = str(draft.get("num_speculative_tokens"))  # a text where a flag of its own says it
    tokens = int(asked) if re.fullmatch("[0-9]{1,9}", asked) else 0
    tensor = tensor or memory_fit.parallel(model.geometry, hosts)[0]
    limit = bandwidth_limit(model, checkpoint) * tensor
    step, read = accepted(checkpoint.id, speculation.method(draft), tokens), read_gb(model, checkpoint)
    return Bound(limit, step, tokens, speculation.method(draft), hosts, tensor, read, model.geometry.layers)


def bandwidth_limit(model: Model, checkpoint: Checkpoint, hosts: int = 1) -> float:
    """Tokens a second that reading the active weights once for each allows, without speculative decoding.

    0: nobody knows, for facts that somebody wrote by hand may lack the active parameters.
    """
    gigabytes = read_gb(model, checkpoint)
    if not gigabytes:
        return 0.0
    limit: float = catalog.load("sm")["chip"]["memory_bandwidth"]["value"] / gigabytes
    return limit * memory_fit.parallel(model.geometry, hosts)[0]


def read_gb(model: Model, checkpoint: Checkpoint) -> float:
    """GB of weights that one token reads: each part in its own format, and of the embedding a row, which is nothing."""
    bits, parts = catalog.load("models")["bits"], model.parts
    narrow, wide = (parts.feeding_bits or bits[checkpoint.quantization]) / 8, bits["bf16"] / 8
    if not parts.known:
        return float(model.parameters_active * narrow)
    head = parts.head * (parts.head_bits / 8 or wide)
    rest = head + parts.unread * wide
    said = (checkpoint.sides_bits or parts.sides_bits) / 8
    sides = parts.sides * (said or (wide if checkpoint.quantization in formats.PARTIAL else narrow))
    if checkpoint.basis in _COUNTED and narrow < wide:  # what is there, less what is known of it
        sides = checkpoint.weight_gib * memory_fit.GIB - parts.feeding * narrow - rest
        if model.kind == "moe":  # a hundred times as many experts: a small error of their bits would be all of it
            sides = min(max(sides, parts.sides * narrow), parts.sides * wide)
    return float((parts.chosen + parts.again) * narrow + sides + head) / _GB


def predicted(bound: Bound) -> Predicted | None:
    """Of one request, where nobody has measured."""
    if not bound.plain:
        return None
    steps = (1 / (1 / (bound.plain * share) + bound.exchange) for share in _used(bound.read))
    return Predicted(*((bound.accepted or 1) * each for each in steps))


def _used(read: float) -> tuple[float, float, float]:
    """Shares of the bandwidth, low, middle and high, of a model that reads so many GB for a token.

    A small model has small matrices, and waits longer between them for each byte of them.
    """
    fit = {name: entry["value"] for name, entry in catalog.load("models")["fit"].items()}
    way = (read - fit["used_small_gb"]) / (fit["used_large_gb"] - fit["used_small_gb"])
    middle = fit["used_small"] + min(1.0, max(0.0, way)) * (fit["used_large"] - fit["used_small"])
    return middle * fit["used_low"], middle, middle * fit["used_high"]


def accepted(checkpoint: str, method: str, tokens: int) -> float:
    """Tokens of one step with so many draft tokens, where the catalog knows; else 0."""
    wanted = (checkpoint.lower(), method, tokens)
    for entry in catalog.load("models")["drafts"]:
        if (entry["model"].lower(), entry["method"], entry["tokens"]) == wanted:
            return float(entry["value"])
    return 0.0


def expected(model: Model, checkpoint: Checkpoint, hosts: int, version: str | None = None) -> Expected | None:
    """What is published of one request on as many hosts: with this version of vLLM, by the vendor, with this format.

    What no memory allows without draft tokens was measured with something else than is said, and is left out.
    """
    found = [_of(each, checkpoint) for each in recipes.of(checkpoint.id) if each.hosts == hosts and each.measured]
    limit = bandwidth_limit(model, checkpoint, hosts)
    others = [item for item in model.expected if item.hosts == hosts and item.requests == 1]
    possible = [item for item in others if not limit or item.tokens[1] <= limit]
    for wanted in (checkpoint.quantization, None):
        found += [item for item in possible if item.quantization == wanted]
    said = [item for item in found if item]
    return min(said, key=lambda item: item.version != version) if said else None  # the first of equals


def _of(recipe: recipes.Recipe, checkpoint: Checkpoint) -> Expected | None:
    if recipe.measured is None:
        return None
    method = speculation.method(recipe.draft)
    by = f" by {method}" if method else ""
    drafts = f"{recipe.draft['num_speculative_tokens']} draft tokens{by}" if recipe.draft else "no draft tokens"
    return Expected(
        tokens=(recipe.measured.decode, recipe.measured.decode),
        hosts=recipe.hosts,
        conditions=f"{drafts}, {recipe.measured.conditions}, vLLM {recipe.version}",
        source=f"recipe {recipe.id} of the vendor, {recipe.measured.date}: --recipe {recipes.VENDOR}",
        date=recipe.measured.date,
        confidence=recipe.confidence,
        quantization=checkpoint.quantization,
        drafts=bool(recipe.draft),
        method=method,
        count=recipe.draft.get("num_speculative_tokens", 0),
        version=recipe.version,
    )
