"""The facts of a model for `gb10 plan`: of a file, a folder, the hub's cache, or the hub."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models, serving_plan, speculation
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import document, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError

__all__ = ["FactsError", "draft", "facts", "written"]


def facts(model: str, revision: str, file: Path | None) -> ModelFacts | None:
    """The facts of a model. None where the catalog has the model and its files are not on this machine."""
    entry = models.find(model) if file is None else None
    if entry and not entry.checkpoint(model):
        return None  # no weights have this name: the plan chooses among the checkpoints
    try:
        return sources.find(model, revision, file, network=entry is None)
    except FactsError as error:
        if entry:
            return None
        near = models.nearest(model)
        raise FactsError(f"{error}" + (f"; near it: {', '.join(near)}" if near else "")) from None


def written(model: str, revision: str, file: Path | None) -> str:
    """The file of facts, of what is here or on the hub, whatever the catalog has."""
    return document.written(sources.find(model, revision, file))


def draft(flags: models.Flags) -> ModelFacts | None:
    """The facts of the second model that --speculative-config names."""
    name = speculation.draft_model({serving_plan.canonical(flag): value for flag, value in flags.items()})
    return sources.find(name) if name else None
