# SPDX-License-Identifier: GPL-3.0-or-later
"""Models and images as catalog/models.yml and catalog/images.yml know them. Units are those of the catalog."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import names, vllm_cli
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import Attention, ModelFacts, Parts

with contextlib.suppress(ImportError):  # ansible-core brings it, but ansible-test imports plugins without it
    from packaging.specifiers import SpecifierSet

Flags = Mapping[str, str | None]
CHAT = "generate"  # the task of a model that answers in text; all others are in `tasks` of catalog/models.yml


@dataclass(frozen=True)
class Linear:
    """Layers of linear attention (gated DeltaNet): a state of fixed size for each sequence instead of a KV cache."""

    layers: int
    value_heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True)
class Geometry:
    """What the sizes of KV cache and state follow from."""

    layers: int
    kv_layers: int
    query_heads: int
    context: int  # tokens
    kv_heads: int = 0
    head_dim: int = 0
    latent: int = 0  # numbers per token and layer, of MLA
    linear: Linear | None = None
    state_mib: float = 0.0  # of one sequence, where it was measured as a whole
    attention: tuple[
        Attention, ...
    ] = ()  # by kind, where the model's own files say it; then the fields above are not used
    hidden: int = 0
    vocabulary: int = 0
    widths: tuple[int, ...] = ()  # of the networks and experts between two layers of attention; empty: not known


@dataclass(frozen=True)
class Checkpoint:
    """One set of weights, by its Hugging Face id."""

    id: str
    quantization: str
    weight_gib: float
    basis: str  # loaded | files | recipe | parameters | headers | index | config | facts: how weight_gib is known
    nodes: int  # Sparks that it takes, at least
    source: str
    date: str
    confidence: str
    on_host: Mapping[int, float] = field(default_factory=dict)  # GiB on each host, by the number of hosts, as measured
    min_version: str = ""
    sides_bits: float = 0.0  # of facts.Parts.sides, where the file says it; 0: as there
    verified: bool = False  # vLLM's recipes mark it as verified on a GB10
    avoid: str | None = None
    avoid_versions: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def avoided(self, version: str | None) -> str | None:
        """Return why not to take it with this version of vLLM; what is to be avoided in some is in an unknown one."""
        return self.avoid if self.avoid and within(version, self.avoid_versions, unknown=True) else None


@dataclass(frozen=True)
class Expected:
    """What was measured, and how."""

    tokens: tuple[float, float]  # tok/s, from and to: of one request, or of all `requests` in sum
    hosts: int
    conditions: str
    source: str
    date: str
    confidence: str
    quantization: str | None = None
    requests: int = 1
    at_most: bool = False
    version: str = ""  # of vLLM; empty: not said
    drafts: bool = False  # with draft tokens
    method: str = ""  # of them; empty: not said
    count: int = 0  # of them; 0: not said

    def drafting_alike(self, method: str, count: int) -> bool:
        """Return whether it was measured with draft tokens by this method, so many a step, as far as it is said."""
        if not (self.drafts and count):
            return self.drafts == bool(count)
        return self.method in ("", method) and self.count in (0, count)

    @property
    def text(self) -> str:
        low, high = (f"{value:g}" for value in self.tokens)
        words = f"up to {high}" if self.at_most else low if low == high else f"{low} to {high}"
        return f"{words} tok/s" + (f" in sum of {self.requests} requests" if self.requests > 1 else "")


@dataclass(frozen=True)
class Model:
    """A model with all its checkpoints."""

    id: str
    architecture: str
    traits: frozenset[str]
    parameters_active: float
    geometry: Geometry
    checkpoints: tuple[Checkpoint, ...]
    source: str
    date: str
    confidence: str
    parts: Parts = field(default_factory=Parts)
    min_version: str = ""
    arguments: Flags = field(default_factory=dict)
    expected: tuple[Expected, ...] = ()
    claims: tuple[Mapping[str, Any], ...] = ()
    notes: str = ""
    measured: bool = True  # the catalog has it; else all of it is from the model's own files
    facts: ModelFacts | None = None
    said_task: str = ""  # what the catalog says that it does, where that is no chat

    @property
    def task(self) -> str:
        return self.said_task or (self.facts.task if self.facts else CHAT)

    @property
    def kind(self) -> str:
        return "moe" if "moe" in self.traits else "dense"

    def checkpoint(self, name: str) -> Checkpoint | None:
        return next((found for found in self.checkpoints if found.id.lower() == name.lower()), None)


@dataclass(frozen=True)
class Image:
    """What is known about a container image; None: not known."""

    reference: str
    name: str
    version: str | None  # of vLLM
    digest: str | None
    contains: frozenset[str]
    lacks: frozenset[str]
    source: str
    confidence: str
    cuda: str | None = None


def within(version: str | None, specifier: str, unknown: bool = False) -> bool:
    """Whether a version of vLLM is in a PEP 440 range; a nightly or release candidate counts as what it leads to.

    `unknown`: the answer for a version that tells no release.
    """
    if not specifier:
        return True
    here = vllm_cli.release(version)
    return unknown if here is None else SpecifierSet(specifier).contains(here)


@cache
def models() -> tuple[Model, ...]:
    """All models, in the order of the catalog."""
    return tuple(_model(entry) for entry in catalog.load("models")["models"])


def find(name: str) -> Model | None:
    """The model with this Hugging Face id, or that has a checkpoint with it; capitals do not count."""
    wanted = name.lower()
    return next((model for model in models() if model.id.lower() == wanted or model.checkpoint(name)), None)


def in_recipes(name: str) -> bool:
    """Return whether the vendor has a recipe of this checkpoint, be its figures in the catalog or not."""
    return name.lower() in (entry["model"].lower() for entry in catalog.load("recipes")["recipes"])


def ids() -> tuple[str, ...]:
    """Every id that the catalog knows, of models, of their checkpoints, and of the vendor's recipes."""
    served = (entry["model"] for entry in catalog.load("recipes")["recipes"])
    named = (name for model in models() for name in (model.id, *(one.id for one in model.checkpoints)))
    return tuple(dict.fromkeys((*named, *served)))


def task_of_name(name: str) -> str:
    """The task that a model's name says; that of a model that chats says none."""
    tasks = catalog.load("models")["tasks"].items()
    return next((task for task, entry in tasks if any(word in name.lower() for word in entry["names"])), CHAT)


def nearest(name: str, count: int = 3) -> tuple[str, ...]:
    """The ids of the catalog most like a name that it does not have, of the same task.

    A recipe is also found by its own name, and by what the vendor calls its model.
    """
    task = task_of_name(name)
    same_task = [one for one in catalog.load("recipes")["recipes"] if task_of_name(one["model"]) == task]
    called = {alias: one["model"] for one in same_task for alias in (one["id"], vendor_name(one["path"]))}
    known = [each for each in ids() if task_of_name(each) == task]
    found = names.nearest(name, [*known, *called], count + len(called))
    return tuple(dict.fromkeys(called.get(each, each) for each in found))[:count]


def vendor_name(path: str) -> str:
    """Return a recipe's model as the vendor's repository names it: qwen/qwen3.8-27b."""
    return "/".join(path.split("/")[1:3])


def of_facts(facts: ModelFacts, length: int = 0) -> Model:
    """The model of these facts, with what the catalog claims of it, or else of its family.

    `length`: tokens that are asked for, which vLLM takes where the files do not say how many the model was made for.
    """
    known = find(facts.id)
    checkpoint = known.checkpoint(facts.id) if known else None
    mine = Checkpoint(
        id=facts.id,
        quantization=facts.format,
        weight_gib=facts.weights_gib,
        basis=facts.weights.basis,
        nodes=1,
        source=facts.source,
        date="",
        confidence="derived",
    )
    geometry = Geometry(
        layers=facts.layers,
        kv_layers=sum(each.layers for each in facts.kept if each.kind in ("full", "mla", "compressed")),
        query_heads=facts.query_heads,
        context=facts.context or length or int(catalog.load("model_facts")["usual"]["context"]["value"]),
        attention=facts.kept,
        hidden=facts.hidden,
        vocabulary=facts.vocabulary,
        widths=facts.widths,
    )
    if known and checkpoint:
        one = checkpoint  # what a log says of loaded weights is better than any sum
        if checkpoint.basis != "loaded":
            one = replace(checkpoint, weight_gib=mine.weight_gib, basis=mine.basis)
        parts = facts.parts if facts.parts.known else known.parts
        return replace(known, geometry=geometry, checkpoints=(one,), traits=facts.traits, parts=parts, facts=facts)
    return Model(
        id=facts.id,
        architecture=facts.architecture,
        traits=facts.traits,
        parameters_active=facts.active / 1e9,
        parts=facts.parts,
        geometry=geometry,
        checkpoints=(mine,),
        source=facts.source,
        date="",
        confidence="derived",
        arguments=_of_family(facts.architecture) if facts.task == CHAT else {},  # parsers of its chat
        measured=in_recipes(facts.id),
        facts=facts,
    )


def _of_family(architecture: str) -> Flags:
    """The flags of this architecture, where all its models in the catalog have the same, and it is of one family."""
    if architecture in catalog.load("models")["shared_architectures"]["value"]:
        return {}
    family = [model.arguments for model in models() if model.architecture == architecture]
    return family[0] if family and all(each == family[0] for each in family) else {}


def image(reference: str) -> Image | None:
    """What the catalog knows about an image reference: by a digest that it lists, else by name and tag."""
    name, __, digest = reference.partition("@")
    entries = catalog.load("images")["images"]
    for entry in entries:
        if digest and digest in entry.get("digests", ()):
            return _image(entry, reference, digest, entry.get("version"))
    for entry in entries:
        if "value" in entry and (found := re.fullmatch(entry["value"], name)):
            return _image(entry, reference, digest, found.groupdict().get("version") or entry.get("version"))
    return None


def entrypoint(reference: str) -> str:
    """The path of the image's own entrypoint, where its programs must be started by it; empty where none must."""
    entries = catalog.load("images")["entrypoints"]
    name = reference.partition("@")[0]
    return next((str(entry["path"]) for entry in entries if re.fullmatch(entry["value"], name)), "")


def _image(entry: Mapping[str, Any], reference: str, digest: str, version: str | None) -> Image:
    return Image(
        reference=reference,
        name=entry["name"],
        version=version,
        digest=digest or None,
        contains=frozenset(entry.get("contains", ())),
        lacks=frozenset(entry.get("lacks", ())),
        source=entry["source"],
        confidence=entry["confidence"],
        cuda=entry.get("cuda"),
    )


def _model(entry: Mapping[str, Any]) -> Model:
    geometry = dict(entry["geometry"])
    linear = geometry.pop("linear", None)
    return Model(
        id=entry["id"],
        architecture=entry["architecture"],
        traits=frozenset(entry["traits"]),
        parameters_active=entry["parameters"]["active"],
        parts=Parts(**{name: round(value * 1e9) for name, value in entry["parameters"]["parts"].items()}),
        geometry=Geometry(**geometry, linear=Linear(**linear) if linear else None),
        checkpoints=tuple(Checkpoint(**item) for item in entry["checkpoints"]),
        source=entry["source"],
        date=entry["date"],
        confidence=entry["confidence"],
        min_version=entry.get("min_version", ""),
        said_task=entry.get("task", ""),
        arguments=entry.get("arguments", {}),
        expected=tuple(
            Expected(**{**item, "tokens": (item["tokens"][0], item["tokens"][1])}) for item in entry.get("expected", ())
        ),
        claims=tuple(entry.get("claims", ())),
        notes=entry.get("notes", ""),
    )
