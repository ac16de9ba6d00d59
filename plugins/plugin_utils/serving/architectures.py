# SPDX-License-Identifier: GPL-3.0-or-later
"""Which releases of vLLM load an architecture: catalog/vllm_models.json, read from vLLM's registries."""

from __future__ import annotations

import contextlib
import json
from functools import cache
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import vllm_cli

with contextlib.suppress(ImportError):  # ansible-core brings it, but ansible-test imports plugins without it
    from packaging.version import Version


@cache
def _content() -> dict[str, Any]:
    path = catalog.collection_root() / "catalog" / "vllm_models.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def releases() -> tuple[str, ...]:
    """Those whose registry was read, the oldest first."""
    return tuple(_content()["versions"])


def newest() -> str:
    return releases()[-1]


def objection(architecture: str, version: str | None) -> tuple[str, str] | None:
    """(kind, fact) of what speaks against loading it: too_new, gone or unknown. None: nothing that we know."""
    spans = _content()["architectures"].get(architecture)
    if spans is None:
        return "unknown", f"{architecture} is in no registry of vLLM up to {newest()}"
    here = vllm_cli.release(version)
    if here is None:
        return None
    first = Version(spans[0][0])
    last = Version(spans[-1][1]) if len(spans[-1]) > 1 else None
    if here < first and first > Version(_content()["versions"][0]):
        return "too_new", f"{architecture} is in vLLM from {spans[0][0]} on"
    if last is not None and here > last:
        return "gone", f"vLLM {last} was the last that we know to have {architecture}"
    return None
