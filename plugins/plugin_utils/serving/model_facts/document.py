# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of a model as a file that a person can write: JSON, of which only id and architecture and sizes are needed."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import (
    KINDS,
    Attention,
    Experts,
    ModelFacts,
    Parts,
    Weights,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import (
    FactsError,
    Fields,
    budget,
    parse,
)

VERSION = 1
_BY_HAND = (
    "weights",
    "attention",
    "experts",
    "formats",
    "sampling",
    "doubts",
    "parts",
    "widths",
)  # fields of a kind of their own


def written(facts: ModelFacts) -> str:
    """The file. What is empty is left out."""
    content = {"version": VERSION, **_plain(asdict(facts))}
    return json.dumps(content, indent=2) + "\n"


def read(text: bytes, file: str) -> ModelFacts:
    """The facts of a file; an unknown field is an error, so that a typing error does not pass for a fact."""
    said = parse(text, file, budget(file))
    if said.whole("version", default=VERSION) != VERSION:
        raise said.wrong("version", said.data["version"], str(VERSION))
    _only(said, {"version", *(each.name for each in fields(ModelFacts))})
    if not said.text("id") or not said.text("architecture"):
        raise FactsError(f"{file} needs id and architecture")
    kind = said.text("format", default="bf16")
    if kind not in catalog.load("models")["bits"]:
        raise said.wrong("format", kind, f"one of {', '.join(catalog.load('models')['bits'])}")
    values: dict[str, Any] = {}
    for each in fields(ModelFacts):
        if said.has(each.name) and each.name not in _BY_HAND:
            values[each.name] = _value(said, each.name, each.type)
    found = ModelFacts(
        **{"source": file, **values},
        formats=tuple(said.texts("formats")) or (kind,),
        weights=_weights(said),
        attention=tuple(_attention(said, index) for index in range(len(said.items("attention")))),
        experts=_experts(said.child("experts")),
        parts=_parts(said.child("parts")),
        sampling=_numbers(said.child("sampling")),
        doubts=tuple(said.texts("doubts")),
        widths=_widths(said),
    )
    _complete(found, file)
    return found


def _complete(facts: ModelFacts, file: str) -> None:
    """Without these fields memory would be counted as none at all, and anything would fit."""
    tasks = catalog.load("models")["tasks"]
    if facts.task != "generate" and facts.task not in tasks:
        raise FactsError(f"{file}: task is {facts.task!r}; expected one of generate, {', '.join(tasks)}")
    if not facts.attention and not facts.bidirectional:
        raise FactsError(
            f"{file} lacks attention, the layers that keep a KV cache, so no memory could be counted for it. Write for "
            'each kind of layer, for example, {"kind": "full", "layers": 40, "kv_heads": 8, "key_dim": 128, '
            '"value_dim": 128}'
        )


def _value(said: Fields, name: str, kind: Any) -> Any:
    if kind == "int":
        return said.whole(name)
    return said.flag(name) if kind == "bool" else said.text(name)


def _only(said: Fields, names: set[str]) -> None:
    unknown = next((name for name in said.data if name not in names), None)
    if unknown is not None:
        raise FactsError(f"{said.where(unknown)} is no field of a file of facts; there are {', '.join(sorted(names))}")


def _weights(said: Fields) -> Weights:
    found = said.child("weights")
    if found is None:
        return Weights()
    _only(found, {"by_type", "draft", "vision", "basis", "gib"})
    types = found.child("by_type")
    by_type = {name: types.whole(name) for name in types.data} if types else {}
    if found.has("gib"):
        if found.number("gib") <= 0:
            raise found.wrong("gib", found.data["gib"], "a number above 0")
        by_type = {"": int(found.number("gib") * 2**30)}
    return Weights(by_type, found.whole("draft"), found.whole("vision"), found.text("basis", default="facts"))


def _attention(said: Fields, index: int) -> Attention:
    item = said.items("attention")[index]
    if not isinstance(item, dict):
        raise said.wrong(f"attention[{index}]", item, "an object")
    found = Fields(item, said.file, f"attention[{index}].")
    _only(found, {each.name for each in fields(Attention)})
    if (kind := found.text("kind")) not in KINDS:
        raise found.wrong("kind", kind, f"one of {', '.join(KINDS)}")
    numbers = {
        each.name: found.whole(each.name) for each in fields(Attention) if each.name != "kind" and found.has(each.name)
    }
    layers = Attention(kind, **{"layers": 0, **numbers, "every": max(1, numbers.get("every", 1))})
    if kind != "linear" and layers.layers and not (layers.numbers or layers.token_bytes):
        # A cache of no size would let any context fit.
        raise FactsError(
            f"{found.where('kind')} is {kind}, and needs kv_heads, key_dim and value_dim, or latent, or token_bytes"
        )
    return layers


def _experts(said: Fields | None) -> Experts:
    return Experts(said.whole("count"), said.whole("per_token"), said.whole("shared")) if said else Experts()


def _parts(said: Fields | None) -> Parts:
    if said is None:
        return Parts()
    _only(said, {each.name for each in fields(Parts)})
    values: dict[str, Any] = {
        name: said.number(name) if name.endswith("_bits") else said.whole(name) for name in said.data
    }
    return Parts(**values)


def _widths(said: Fields) -> tuple[int, ...]:
    items = said.items("widths")
    wrong = next((item for item in items if isinstance(item, bool) or not isinstance(item, int) or item < 1), None)
    if wrong is not None:
        raise said.wrong("widths", wrong, "whole numbers above 0")
    return tuple(items)


def _numbers(said: Fields | None) -> dict[str, float]:
    return {name: said.number(name) for name in said.data} if said else {}


def _plain(node: Any) -> Any:
    """Without what is empty, so that the file stays short."""
    if isinstance(node, dict):
        return {
            name: value
            for name, item in node.items()
            if (value := _plain(item)) not in ("", 0, {}, [], False) or name in _KEPT
        }
    return [_plain(item) for item in node] if isinstance(node, list | tuple) else node


_KEPT = ("chat_template",)
