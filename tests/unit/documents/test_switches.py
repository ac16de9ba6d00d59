"""Each value of a role's switches gives a document that the engine takes: no resource twice, none unknown."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import parse_documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from tests.support.role_documents import rendered

ROLES = catalog.declared_variables().roles
WITH_DOCUMENT = sorted(path.parent.name for path in catalog.collection_root().glob("roles/*/desired.yml"))
MOST = 128  # documents of a role; with more switches each is turned alone


def switches(role: str) -> dict[str, list[Any]]:
    """What each variable of a role that has few values may be."""
    return {
        name: option.get("choices") or [False, True]
        for name, option in ROLES[role].items()
        if option.get("choices") or option.get("type") == "bool"
    }


def settings(role: str) -> list[dict[str, Any]]:
    every = [[(name, value) for value in values] for name, values in switches(role).items()]
    together = [dict(chosen) for chosen in itertools.islice(itertools.product(*every), MOST + 1)]
    return together if len(together) <= MOST else [dict([pair]) for pairs in every for pair in pairs]


@pytest.mark.parametrize("role", WITH_DOCUMENT)
def test_the_engine_takes_every_document(role: str) -> None:
    for chosen in settings(role):
        made = rendered(role, **chosen)
        consents = {name: value for name, value in chosen.items() if "_allow_" in name}
        if not made.refusals and not made.unknown:
            parse_documents([(role, made.resources)], consents)
