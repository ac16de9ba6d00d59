# SPDX-License-Identifier: GPL-3.0-or-later
"""What vLLM itself says of a model (gb10.fleet.engine_answer), judged and set beside what is counted here. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NotRequired, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system.values import Between
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, models, vllm_cli
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import GIB, Measured
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import Attention
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Geometry, Model

NEAR = 0.03  # a difference below is rounding and padding
_ASKED = {
    flag: flag.lstrip("-").replace("-", "_")
    for flag in (
        *("--kv-cache-dtype", "--quantization", "--dtype", "--runner", "--convert", "--config-format"),
        *("--hf-overrides", "--trust-remote-code"),
    )
}


QUESTION = ("images", "model", "revision", "flags")


_Count = Annotated[int, Between(0, 2**63)]


class Layers(TypedDict):
    """What a token keeps in them, or a request."""

    kind: str
    layers: _Count
    token_bytes: NotRequired[Annotated[float, Between(0, 2**63)]]
    request_bytes: NotRequired[_Count]
    window: NotRequired[_Count]


class Answer(TypedDict):
    model: str
    seconds: float
    image: NotRequired[str]
    version: NotRequired[str]
    refusal: NotRequired[str]
    unasked: NotRequired[str]
    firm: NotRequired[bool]
    architectures: NotRequired[list[str]]
    task: NotRequired[str]
    context: NotRequired[_Count]
    dtype: NotRequired[str]
    quantization: NotRequired[str | None]
    cache_dtype: NotRequired[str]
    weights: NotRequired[dict[str, _Count]]
    layers: NotRequired[list[Layers]]
    backends: NotRequired[list[str]]


def problem(said: Any) -> str | None:
    """The first value that is none of ours."""
    if wrong := schema.problem(said, Answer, "engine"):
        return wrong
    bare = (each for each in said.get("layers", ()) if not {"token_bytes", "request_bytes"} & each.keys())
    return next((f"engine.layers of the kind {each['kind']!r} do not say what they keep" for each in bare), None)


def kept(answers: Iterable[Mapping[str, Any]], wanted: Mapping[str, Any]) -> Asked | None:
    """Find the first answer to this question; `wanted` has the one image that is asked for."""
    for each in answers:
        question, said = each.get("question"), each.get("said")
        if not isinstance(question, dict) or not isinstance(said, dict) or problem(said):
            continue
        same = all(question.get(name) == wanted[name] for name in QUESTION if name != "images")
        if same and wanted["image"] in (question.get("images") or ()):
            return Asked(str(each.get("host")), said)
    return None


def refusal(said: Mapping[str, Any], model: str) -> str:
    """In its own words; empty where it takes the model."""
    version = said.get("version", "of an unknown version")
    return f"vLLM {version} does not take {model}: {said['refusal']}" if said.get("refusal") else ""


def unlike(said: Mapping[str, Any], model: str, dtype: str) -> list[str]:
    """Where it differs from what is counted here of a model of the catalog."""
    known = models.find(model)
    checkpoint = known.checkpoint(model) if known else None
    if known is None or checkpoint is None or not Asked("", said).counts:
        return []
    return list(differences(said, known.geometry, checkpoint.weight_gib, dtype))


def flags(arguments: Mapping[str, str | None]) -> dict[str, Any]:
    """Of a plan's flags those that the engine is asked with, as fields of its EngineArgs."""
    said = {field: _value(arguments[flag]) for flag, field in _ASKED.items() if flag in arguments}
    return {field: value for field, value in said.items() if value != ""}


def flags_of(version: str | None, words: Sequence[str]) -> dict[str, Any]:
    """The same of the words of `vllm serve MODEL`; of two equal flags the last one holds."""
    given = vllm_cli.words(version, words).values
    found = flags({flag: values[-1] or None for flag, values in given.items() if values})
    if given.get("--hf-overrides") == []:  # by paths alone
        by_path = {name.partition(".")[2]: values[-1] for name, values in given.items() if "--hf-overrides." in name}
        found["hf_overrides"] = _nested(by_path)
    return found


def _nested(by_path: Mapping[str, str]) -> dict[str, Any]:
    """Return `{"a": {"b": 1}}` of `a.b: "1"`, as vLLM reads `--hf-overrides.a.b 1`."""
    found: dict[str, Any] = {}
    for path, text in by_path.items():
        *above, last = path.split(".")
        at = found
        for name in above:
            if not isinstance(at.get(name), dict):
                at[name] = {}
            at = at[name]
        try:
            at[last] = json.loads(text)
        except ValueError:
            at[last] = text
    return found


def _value(text: str | None) -> Any:
    if text in (None, "true"):  # a flag without a value
        return True
    try:
        return json.loads(text) if text and text.startswith("{") else text
    except ValueError:
        return text


def weights_gib(said: Mapping[str, Any]) -> float:
    return float(sum((said.get("weights") or {}).values())) / GIB


def token_bytes(said: Mapping[str, Any]) -> float:
    """Of the layers that keep the whole context."""
    growing = (each for each in said.get("layers") or [] if "token_bytes" in each and "window" not in each)
    return float(sum(each["token_bytes"] * each["layers"] for each in growing))


@dataclass(frozen=True)
class Asked:
    """The answer of a host, for a plan to count with: vLLM's own layers in the place of ours."""

    host: str
    said: Mapping[str, Any]

    @property
    def counts(self) -> bool:
        return bool(weights_gib(self.said)) and "refusal" not in self.said

    def geometry(self, ours: Geometry) -> Geometry:
        layers = tuple(map(_attention, self.said.get("layers") or ()))
        return replace(ours, attention=layers or ours.attention, context=self.said.get("context") or ours.context)

    @property
    def measured(self) -> Measured:
        return Measured(f"vLLM on {self.host}", weights_gib(self.said), {}, 0, 0.0, how="said by", layers=True)


def counted_with(
    model: Model, known: Measured | None, asked: Asked | None, hosts: int
) -> tuple[Model, Measured | None]:
    """A measured start, else what vLLM says, whose layers go in the place of ours, else the model as it is read."""
    if known is None and asked and asked.counts and hosts == 1:  # how several share it, vLLM was not asked
        return replace(model, geometry=asked.geometry(model.geometry)), asked.measured
    return model, known


def _attention(layers: Mapping[str, Any]) -> Attention:
    if "request_bytes" in layers:
        return Attention("linear", layers["layers"], state_bytes=layers["request_bytes"])
    kind, size = "sliding" if "window" in layers else "full", math.ceil(layers["token_bytes"])
    return Attention(kind, layers["layers"], window=layers.get("window", 0), token_bytes=size)


def lines(said: Mapping[str, Any], host: str, geometry: Geometry, counted_gib: float, dtype: str) -> Iterator[str]:
    """What it says, and where it differs from what is counted here."""
    asked = f"vLLM {said.get('version', 'of an unknown version')} on {host}"
    if refusal := said.get("refusal"):
        yield f"{asked} does not take it: {refusal}"
        return
    if unasked := said.get("unasked"):
        yield f"{asked} cannot be asked: {unasked}"
        return
    kinds = ", ".join(f"{each['layers']} {each['kind']}" for each in said.get("layers") or []) or "none"
    yield (
        f"{asked}: weights {weights_gib(said):.1f} GiB, {token_bytes(said):,.0f} bytes of cache a token, context"
        f" {said.get('context', 0):,}, layers {kinds}"
    )
    if said.get("backends"):
        yield f"it would compute with {', '.join(said['backends'])}"
    yield from differences(said, geometry, counted_gib, dtype)


def differences(said: Mapping[str, Any], geometry: Geometry, counted_gib: float, dtype: str) -> Iterator[str]:
    """Where what it says is not what is counted here."""
    ours = memory_fit.kv_bytes_per_token(geometry, dtype)
    pairs = (("weights (GiB)", counted_gib, weights_gib(said)), ("bytes of cache a token", ours, token_bytes(said)))
    for what, counted, told in pairs:
        if abs(counted - told) > NEAR * max(told, 1e-9):
            yield f"it differs from what is counted here: {what} {told:,.1f}, counted {counted:,.1f}; vLLM's holds"
