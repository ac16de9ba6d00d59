"""`gb10 plan` of a model in GGUF: what llama.cpp takes for it, by the header of the file."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.llama_cpp import FILE
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import gguf, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.build import Files
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError

_GIB = 2**30
_TYPES = ("--cache-type-k", "--cache-type-v")  # of the KV cache: keys, values
_USUAL = "f16"  # llama.cpp's own
_SUFFIX = ".gguf"


def is_one(model: str) -> bool:
    """Tell whether a file is named: a path on this machine, or OWNER/NAME/FILE.gguf of the hub."""
    return model.endswith(_SUFFIX)


def plan(
    model: str, revision: str, memory: float, context: int, slots: int, flags: Mapping[str, str | None]
) -> tuple[list[str], dict[str, Any]]:
    """Return the answer for a person, and as JSON. FactsError where the file cannot be read."""
    keys, values = _types(flags)
    repository, name = _place(model)
    with _files(model, repository, revision) as files:
        found, slots = gguf.read(files, name), slots or 1
    kept = _figure("compute_gib") * _GIB
    free = memory - catalog.load("models")["fit"]["reserve"]["value"] * _GIB
    longest = max(0, int((free - found.weights - kept) / (found.cache_bytes(1, keys, values) * slots)))
    context = context or min(found.context, longest)
    cache = found.cache_bytes(context * slots, keys, values)
    taken = found.weights + cache + kept
    fits = taken <= free and context > 0
    gib = math.ceil(taken / _GIB)
    said = {
        "model": model, "engine": "llama_cpp", "architecture": found.architecture, "fits": fits, "context": context,
        "slots": slots, "weights_gib": round(found.weights / _GIB, 2), "longest_context": min(longest, found.context),
        "cache_gib": round(cache / _GIB, 2), "cache_types": [keys, values], "memory_gib": gib,
    }  # fmt: skip
    verdict = "fits one Spark" if fits else f"does not fit: {free / _GIB:.1f} GiB are there for models"
    types = keys if keys == values else f"{keys} and {values}"
    entry = _entry(repository, revision, name, gib, context, slots)
    if flags:
        entry.append(f"    extra_args: [{_TYPES[0]}, {keys}, {_TYPES[1]}, {values}]")
    return [
        f"{name} ({found.architecture}) {verdict}.",
        f"Weights {said['weights_gib']} GiB, KV cache at most {said['cache_gib']} GiB for {slots} x {context} tokens "
        f"in {types}, {_figure('compute_gib'):g} GiB beside: {gib} GiB. The model was made for {found.context} tokens.",
        *([] if fits else [f"Fix: --max-model-len {said['longest_context']}, or a smaller quantization."]),
        *(entry if fits else []),
    ], said


def _types(flags: Mapping[str, str | None]) -> list[str]:
    """Return the types of keys and values, by flags of llama.cpp; FactsError for another flag or type."""
    for flag, value in flags.items():
        if flag not in _TYPES:
            raise FactsError(f"--set {flag!a}: of a model in GGUF it takes {' and '.join(_TYPES)}")
        if value not in gguf.CACHE:
            raise FactsError(f"--set {flag} is {value!a}: it is one of {', '.join(gguf.CACHE)}")
    return [flags.get(flag) or _USUAL for flag in _TYPES]


def _place(model: str) -> tuple[str, str]:
    """The repository of a file, and its name there."""
    here = sources.is_path(model)
    owner, _, rest = model.partition("/")
    name, _, file = rest.partition("/")
    file = Path(model).name if here else file
    if not FILE.match(file):  # a stranger may have named it, and it goes into a line to paste
        raise FactsError(f"{file!a} is no name for an inventory; name the file by letters, digits and . _ + -")
    return "OWNER/NAME" if here else f"{owner}/{name}", file


def _files(model: str, repository: str, revision: str) -> contextlib.AbstractContextManager[Files]:
    if sources.is_path(model):
        return contextlib.nullcontext(sources.Folder(Path(model).parent))
    return sources.hub(repository, revision, os.environ)


def _entry(repository: str, revision: str, name: str, gib: int, context: int, slots: int) -> list[str]:
    return [
        "",
        "vllm_services:",
        "  small:",
        "    engine: llama_cpp",
        "    image: ghcr.io/ggml-org/llama.cpp@sha256:...    # of full-cuda13",
        f"    model: {repository}",
        f"    model_revision: {revision or '...'}    # the commit",
        f"    gguf: {name}",
        "    port: 8001",
        f"    memory_gib: {gib}",
        f"    max_model_len: {context}",
        f"    slots: {slots}",
    ]


def _figure(name: str) -> float:
    return float(catalog.load("engines")["llama_memory"][name]["value"])
