# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a model as far as this machine has them; `gb10 plan` and the role vllm ask here, so they judge alike."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError


def facts(model: str, revision: str, file: Path | None, network: bool) -> ModelFacts | None:
    """The facts of a model. None where the catalog has the model and its files are not on this machine.

    `network`: whether the hub is asked about a model that the catalog does not have.
    """
    entry = models.find(model) if file is None else None
    if entry and not entry.checkpoint(model):
        return None  # no weights have this name: the plan chooses among the checkpoints
    try:
        return sources.find(model, revision, file, network=network and entry is None)
    except FactsError:
        if entry:
            return None
        raise


@cache
def here(model: str, revision: str, file: str) -> ModelFacts | None:
    """The same without a network, and None where nothing is known. FactsError where a file was named and is wrong."""
    try:
        return facts(model, revision, Path(file).expanduser() if file else None, network=False)
    except FactsError:
        if file:
            raise
        return None
