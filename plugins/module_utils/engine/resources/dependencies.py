# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages came along with others, and which of them somebody needs. Pure, from dpkg's status file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")


def brought_along(
    status: str, installed: Iterable[str], before: Collection[str], declared: Collection[str]
) -> dict[str, list[str]]:
    """{declared package: packages that are new and that it needs}, from dpkg's status file.

    What somebody installed meanwhile is new as well, but nothing of ours needs it.
    """
    new = set(installed) - set(before) - set(declared)
    if not new:
        return {}
    relations, provided = _dependencies(status, new | set(declared))
    needs = {name: set().union(*groups) for name, groups in relations.items()}
    found = {}
    for name in declared:
        reached: set[str] = set()
        waiting = [name]
        while waiting:
            for needed in needs.get(waiting.pop(), ()):
                fresh = ({needed} | provided.get(needed, set())) & new - reached
                reached |= fresh
                waiting += fresh
        if reached:
            found[name] = sorted(reached)
    return found


def still_needed(status: str, installed: Iterable[str], leaving: Collection[str]) -> set[str]:
    """Of the packages that are to leave, those without which one that stays lacks a dependency."""
    staying = set(installed) - set(leaving)
    relations, provided = _dependencies(status, {*staying, *leaving})
    needed: set[str] = set()
    waiting = list(staying)
    while waiting:
        for group in relations.get(waiting.pop(), ()):
            answers = group.union(*(provided.get(name, ()) for name in group))
            if not answers & staying:
                fresh = answers & set(leaving)
                needed |= fresh
                staying |= fresh
                waiting += fresh
    return needed


def _dependencies(status: str, names: Collection[str]) -> tuple[dict[str, list[set[str]]], dict[str, set[str]]]:
    """{package: what it depends on, each with its alternatives} and {virtual name: packages that provide it}."""
    needs: dict[str, list[set[str]]] = {}
    provided: dict[str, set[str]] = {}
    for block in status.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Architecture|Depends|Pre-Depends|Provides): *(.*)$", block, re.MULTILINE))
        name = fields.get("Package", "")
        full = f"{name}:{fields.get('Architecture', '')}"
        for known in {name, full} & set(names):
            needs[known] = [*_groups(fields.get("Depends", "")), *_groups(fields.get("Pre-Depends", ""))]
            for virtual in set().union(*_groups(fields.get("Provides", ""))):
                provided.setdefault(virtual, set()).add(known)
            provided.setdefault(name, set()).add(known)
    return needs, provided


def _groups(relation: str) -> list[set[str]]:
    """The packages of a relation such as `a (>= 1) | b:any, c`: those of which one is enough together."""
    return [
        {match.group() for match in map(_NAME.match, part.replace(" ", "").split("|")) if match is not None}
        for part in relation.split(",")
        if part.strip()
    ]
