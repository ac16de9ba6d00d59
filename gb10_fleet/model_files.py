"""The facts of a model for `gb10 plan`: of a file, a folder, the hub's cache, or the hub."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models, serving_plan, speculation
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import document, known, sources
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.facts import ModelFacts
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts.reading import FactsError

__all__ = ["FactsError", "draft", "facts", "file", "written"]


def absolute(model: str) -> str:
    """A folder as the inventory has to name it, for a host has no current folder; an id of the hub as it is."""
    return str(Path(model).expanduser().absolute()) if sources.is_path(model) else model


def facts(model: str, revision: str, file: Path | None) -> ModelFacts | None:
    """The facts of a model. None where the catalog has the model and its files are not on this machine."""
    try:
        found = known.facts(model, revision, file, network=True)
        if file and found and found.id.lower() != model.lower():
            raise FactsError(
                f"{file} has the facts of {found.id}, and not of {model}. Ask for that one, or correct its id"
            )
        return found
    except FactsError as error:
        near = [name for name in models.nearest(model) if name != model]
        raise FactsError(f"{error}" + (f"; near it: {', '.join(near)}" if near else "")) from None


def file(path: Path | None, found: ModelFacts | None) -> str:
    """The file for the inventory to name; empty where the role finds the same on this machine by itself."""
    if path is None or found is None or known.here(found.id, found.revision, "") == found:
        return ""
    return str(path.absolute())


def written(model: str, revision: str, file: Path | None) -> str:
    """The file of facts, of what is here or on the hub, whatever the catalog has."""
    try:
        return document.written(sources.find(model, revision, file))
    except FactsError as error:
        if not models.find(model):
            raise
        raise FactsError(f"{error}. A plan needs no facts of it: the catalog has {model}") from None


def draft(flags: models.Flags, file: Path | None = None) -> ModelFacts | None:
    """The facts of the second model that --speculative-config names."""
    by_flag = {serving_plan.canonical(flag): value for flag, value in flags.items()}
    name, revision = speculation.draft_model(by_flag), str(speculation.said(by_flag).get("revision") or "")
    return known.facts(name, revision, file, network=True) if name else None
