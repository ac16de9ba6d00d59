# SPDX-License-Identifier: GPL-3.0-or-later
"""What speculative decoding brought in a load test: how much was accepted, and the speed without it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import effort
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import speed_beside
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import draft_wish

COLUMNS = ("drafts accepted", "tokens a step", "without drafts")
DOCUMENTS = 50  # earlier results that are looked through


def drafts(counted: Mapping[str, float] | None) -> dict[str, Any] | None:
    """None where the server does not draft, or drafted nothing."""
    if not counted or not counted["draft_tokens"] or not counted["drafts"]:
        return None
    return {
        "acceptance": round(counted["accepted_tokens"] / counted["draft_tokens"], 3),
        "tokens_per_step": round(1 + counted["accepted_tokens"] / counted["drafts"], 3),
        "off": None,
    }


def off(
    cluster: Mapping[str, Any], concurrency: int, request: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The newest figure of the same server without draft tokens, under the same load; None where there is none."""
    wanted = _conditions(cluster["conditions"])
    for document, other in speed_beside.under(request, earlier):
        if other["name"] != cluster["name"] or with_drafts(other["conditions"]):
            continue
        if _conditions(other["conditions"]) != wanted:
            continue
        for step in other["steps"]:
            if step["concurrency"] == concurrency and step["tokens_per_s"]:
                return {"tokens_per_s": step["tokens_per_s"], "created": document["created"]}
    return None


def _conditions(said: Mapping[str, Any]) -> dict[str, Any]:
    """The draft tokens are what differs."""
    return speed_beside.conditions(said, args=_without(said["args"]))


def _without(args: Sequence[str]) -> list[str]:
    """The arguments without flags of speculative decoding and their values."""
    kept: list[str] = []
    drop = False
    for word in args:
        flag = word.startswith("-")
        drop = draft_wish.is_flag(word) if flag else drop
        kept += [] if drop else [word]
    return kept


def with_drafts(conditions: Mapping[str, Any]) -> bool:
    return bool(conditions.get("speculative")) or any(draft_wish.is_flag(word) for word in conditions["args"])


def cells(step: Mapping[str, Any]) -> tuple[str, str, str]:
    """For the table."""
    found = step.get("drafts")
    if not found:
        return "-", "-", "-"
    beside = f"{found['off']['tokens_per_s']:.1f}" if found["off"] else "not measured"
    return f"{found['acceptance']:.0%}", f"{found['tokens_per_step']:.1f}", beside


def earlier(directory: Path, name: str, version: int) -> list[dict[str, Any]]:
    """The documents below a folder, the newest first; what cannot be read is passed over."""
    found = []
    with contextlib.suppress(effort.TooMuch), effort.memory():
        for file in sorted(directory.glob(f"[0-9]*/{name}"), reverse=True)[:DOCUMENTS]:
            document = document_in(file)
            if document.get("schema_version") == version:
                found.append(document)
    return found
