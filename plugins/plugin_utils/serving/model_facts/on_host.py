# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a model from the host that serves it, where this machine knows nothing of the model.

The host says what lies in the folder (module_utils/reading/model_folders.py) only if it is asked, and only then is it
asked. Headers of weights stay there: the size of their files is enough for the memory, and never too small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.model_folders import TEXTS
from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_folder import name_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import build, known, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts, Weights
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError

_READ = (*TEXTS, "tokenizer_config.json")
_NAMES = ("vllm_model", "vllm_model_revision", "vllm_model_facts", "vllm_cache_directory")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*\Z")
_REVISION = re.compile(r"\w[\w.-]*\Z")


def path(model: str, revision: str, cache: str) -> str:
    """Where the host has it: a folder, or a reference or commit of the hub's cache. Empty for no sound name."""
    if sources.is_path(model):
        return model if model.startswith("/") and ".." not in model else ""
    revision = revision or "main"
    if not (_NAME.match(model) and _REVISION.match(revision)):
        return ""
    return f"{cache}/{name_of(model)}/{'snapshots' if _COMMIT.match(revision) else 'refs'}/{revision}"


def wanted(model: str, revision: str, file: str, cache: str) -> str:
    """What the host is to be asked for; empty where this machine knows the model, or nobody could."""
    try:
        is_known = not model or models.find(model) or known.here(model, revision, file)
    except FactsError:  # the role says it
        return ""
    return "" if is_known else path(model, revision, cache)


def of_services(setting: Callable[[str], Any], options: Mapping[str, Any]) -> list[str]:
    """What a host is to be asked for, of its one service or of each in `vllm_services`, whose keys overlay its own."""
    services = setting("vllm_services")
    entries = [{}, *services.values()] if isinstance(services, Mapping) else [{}]
    found = []
    for entry in (each for each in entries if isinstance(each, Mapping)):
        model, revision, file, cache = (
            str(entry.get(name.removeprefix("vllm_")) or setting(name) or options[name].get("default") or "")
            for name in _NAMES
        )
        found.append(wanted(model, revision, file, cache))
    return list(dict.fromkeys(path for path in found if path))


def facts(said: Mapping[str, Any] | None, model: str, revision: str, host: str) -> ModelFacts | None:
    """The facts that follow from what the host said. None where it has no such model, or one that nobody can read."""
    if not said or "config.json" not in said["texts"] or not said["weights_bytes"]:
        return None
    try:
        found = build.facts(_Said(said, host), model, revision)
    except FactsError:
        return None
    return replace(found, weights=Weights({"": said["weights_bytes"]}, basis="files"))


class _Said:
    """The folder of a model as a host described it."""

    def __init__(self, said: Mapping[str, Any], host: str) -> None:
        self.source = f"{host}'s cache"
        self._texts: dict[str, bytes] = {name: text.encode() for name, text in said["texts"].items()}
        # What we would read and did not get is as if it were not there; of weights the size alone is known.
        others = {name for name in said["names"] if name not in _READ and "safetensors" not in name}
        self._names = frozenset(self._texts) | others

    def names(self) -> frozenset[str]:
        return self._names

    def size(self, name: str) -> int:
        return len(self._texts[name])

    def part(self, name: str, start: int, length: int) -> bytes:
        return self._texts[name][start : start + length]
