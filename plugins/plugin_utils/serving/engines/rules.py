# SPDX-License-Identifier: GPL-3.0-or-later
"""What of an engine's command line does not work on a GB10, or not in its version: catalog/engines.yml."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.vllm_cli import Fired

_TAG = re.compile(r":v?(\d+[.]\d+[.]\d+(?:[.]?(?:post|rc|dev)\d+)?)(?:-[^@]*)?(?:@|\Z)")


def judge(
    engine: str, image: str, version: str, words: Sequence[str], hosts: int, accepted: Mapping[Any, Any]
) -> tuple[Fired, ...]:
    """All that fit. Without a known version a rule that is of some versions warns, and refuses nothing."""
    known = version or version_of(image)
    reasons = {str(name): reason for name, reason in accepted.items() if isinstance(reason, str)}
    return tuple(
        replace(each, accepted=reasons.get(each.id) or None)
        for each in (
            *_by_catalog(engine, known, words, hosts),
            *_unknown_flags(engine, known, words),
            *_unknown_values(engine, known, words),
        )
    )


def version_of(image: str) -> str:
    """Return the version that the tag of an image says; empty where it says none."""
    found = _TAG.search(image)
    return found[1] if found else ""


def _by_catalog(engine: str, version: str, words: Sequence[str], hosts: int) -> Iterator[Fired]:
    line = " ".join(words)
    for rule in catalog.load("engines")["rules"]:
        fits = rule["engine"] == engine and hosts >= rule.get("hosts", 1)
        unless = rule.get("unless")
        if not fits or not re.search(rule.get("words", ""), line) or (unless and re.search(unless, line)):
            continue
        of_some = "versions" in rule
        if of_some and not models.within(version or None, rule["versions"], unknown=True):
            continue
        unknown = " (of which version the image is, nobody said)" if of_some and not version else ""
        severity = "warn" if unknown else rule["severity"]
        yield Fired(rule["id"], severity, f"{rule['fact']}{unknown}", rule["way_out"], (rule["source"],))


def _unknown_flags(engine: str, version: str, words: Sequence[str]) -> Iterator[Fired]:
    """Flags that no parser of this version has; of a version that the catalog lacks nobody knows."""
    flags = _flags(engine)
    if version not in flags:
        return
    given = dict.fromkeys(word.partition("=")[0] for word in words if word.startswith("--"))
    if strange := [flag for flag in given if not _is_flag(flag, flags[version])]:
        elsewhere = [flag for flag in strange if any(flag in known for known in flags.values())]
        more = f"; {', '.join(elsewhere)} is of another version" if elsewhere else ""
        text = f"this version has no {', '.join(strange)}{more}"
        sources = (f"catalog/{engine}_cli.json",)
        yield Fired(f"{engine}_flag", "error", text, "leave it out, or take an image that has it", sources)


def _unknown_values(engine: str, version: str, words: Sequence[str]) -> Iterator[Fired]:
    """Values that a flag of this version does not take, where its source lists them."""
    listed = _values(engine).get(version, {})
    for word, following in pairwise((*words, "")):
        flag, equals, value = word.partition("=")
        given = value if equals else following
        if flag in listed and given not in listed[flag]:
            text = f"{flag} of this version takes no {given or 'empty value'}; it takes {', '.join(listed[flag])}"
            sources = (f"catalog/{engine}_cli.json",)
            yield Fired(f"{engine}_value", "error", text, "name one of these, or take an image that has it", sources)


def _is_flag(word: str, known: frozenset[str]) -> bool:
    """argparse takes the beginning of a flag for the flag, where no other begins so."""
    return word in known or len([flag for flag in known if flag.startswith(word)]) == 1


@cache
def _flags(engine: str) -> dict[str, frozenset[str]]:
    """The flags of each version that was read. The file says of each the versions that lack it."""
    said = read(engine)
    names: dict[str, list[str]] = said["flags"]
    return {
        version: frozenset(flag for flag, missing in names.items() if version not in missing)
        for version in said["versions"]
    }


@cache
def _values(engine: str) -> dict[str, dict[str, list[str]]]:
    """The values of flags of each version, where they are listed. The file says since which version they are these."""
    found: dict[str, dict[str, list[str]]] = {}
    listed: dict[str, list[str] | None] = {}
    said = read(engine)
    for version in said["versions"]:
        listed |= {flag: changes[version] for flag, changes in said["choices"].items() if version in changes}
        found[version] = {flag: values for flag, values in listed.items() if values}
    return found


@cache
def read(engine: str) -> Any:
    """Return what was read of the source of an engine by version; empty where nobody has read it."""
    path = catalog.collection_root() / "catalog" / f"{engine}_cli.json"
    if not path.exists():
        return {"versions": [], "flags": {}, "choices": {}}
    return json.loads(path.read_text(encoding="utf-8"))
