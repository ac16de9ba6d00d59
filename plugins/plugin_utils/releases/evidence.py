# SPDX-License-Identifier: GPL-3.0-or-later
"""The release of each host for the evidence: its verdict and score now, and before the update that led there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import answer, verdict


def told(answers: Mapping[str, Mapping[str, Any] | None], catalog: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """`answers`: the section release of gb10.fleet.spark_facts, by host; none of a silent host."""
    sound = {host: said for host, said in answers.items() if said and answer.problem(said.get("release")) is None}
    recipes = verdict.shared({host: said["release"] for host, said in sound.items()}, catalog)
    found = {}
    for host, said in sound.items():
        digests = {recipe.name: recipe.sha256 for recipe in verdict.for_host(said["release"], recipes)}
        now = _short(verdict.judge(said["release"], recipes, catalog), digests)
        before: Mapping[str, Any] = said.get("before") or {}
        was = verdict.judge(before, recipes, catalog) if answer.problem(before) is None else None
        found[host] = {**now, "before": was and _short(was, digests)}
    return found


def _short(said: verdict.Verdict, digests: Mapping[str, str]) -> dict[str, Any]:
    return {
        "state": said.state,
        "reason": said.reason,
        "release": said.release,
        "shown": said.shown,
        "next": said.next,
        "score": said.score,
        "recipe": digests.get(said.release or "") or None,
    }


def line(said: Mapping[str, Any]) -> str:
    """For the page: `OTA2607 (July 2026), current, torn 0 %; before OTA2604, torn 2.6 %`."""
    before = said["before"]
    return _words(said) + (f"; before: {_words(before)}" if before else "")


def _words(said: Mapping[str, Any]) -> str:
    name = said["release"] or "no release"
    shown = f" ({said['shown']})" if said["shown"] not in (None, name) else ""
    torn = f", torn {said['score']['torn']:g} %" if said["score"] else ""
    return f"{name}{shown}, {said['state'].replace('_', ' ')}{torn}"
