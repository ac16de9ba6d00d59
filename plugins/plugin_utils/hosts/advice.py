# SPDX-License-Identifier: GPL-3.0-or-later
"""Ways out in the answer of a host: printed behind `Fix:` only where they are in our own tables.

A person pastes what stands there, into a shell here or on another host, and root on one host could write it. So no
other text of a host has such words either: `plain` takes them out of what is shown, `quotable` of what a plan quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import FIX, unadvised

# Of a host itself within our text: the name of a unit or interface, an address. It is a word that no shell changes.
_VALUE = r"\w[\w.:%@-]{0,63}"
_VALUES = {"LOG": r"(?:/[\w.+~-]{1,99}){1,9}", "KERNEL": _VALUE, "NAMES": r"[\w.+:-]{1,99}(?: [\w.+:-]{1,99}){0,99}"}
_VALUED = re.compile("|".join(_VALUES))
UNKNOWN = "gb10 why says how it is"


def ours(host: str, said: Any) -> Any:
    """An answer in which each `way_out` is ours. Another one goes into the text beside it, as the host's own words.

    There no `Fix:` of the host's stands either: some lines of ours have the text, and then their own.
    """
    if isinstance(said, list):
        return [ours(host, one) for one in said]
    if not isinstance(said, dict):
        return said
    found = {key: ours(host, one) for key, one in said.items()}
    if isinstance(way := found.get("way_out"), str) and isinstance(text := found.get("text"), str):
        if way and not _known().fullmatch(way):
            text, found["way_out"] = f"{text} ({host} says: {way})", UNKNOWN
        found["text"] = unadvised(text)
    return found


def plain(said: Any) -> Any:
    """The same in all texts: no `Fix:` but before a way out of ours, which ends its line."""
    if isinstance(said, str):
        return "\n".join(map(_plain, said.split("\n"))) if FIX.search(said) else said
    if isinstance(said, dict):
        return {plain(key): plain(one) for key, one in said.items()}
    return [plain(one) for one in said] if isinstance(said, list) else said


def _plain(line: str) -> str:
    text, fix, way = line.rpartition("Fix: ")
    return f"{unadvised(text)}{fix}{way}" if _known().fullmatch(way) else unadvised(line)


def quotable(facts: Any) -> Any:
    """The same facts, in none of whose texts a way out begins, as `findings.refused` finds one in what a plan says."""
    if isinstance(facts, str):
        if " " not in facts and "`" not in facts:
            return facts
        said = _way_out().sub(" '", f". {facts}".replace("`", "'"))  # one may stand at the very beginning
        return said[2 if said.startswith(". ") else 1 :]
    if isinstance(facts, dict):
        return {key: quotable(one) for key, one in facts.items()}
    return [quotable(one) for one in facts] if isinstance(facts, list) else facts


@cache
def _known() -> re.Pattern[str]:
    texts = (re.escape(text) for text in dict.fromkeys(_texts()) if text)
    forms = [re.sub(r"\\\{\w+\\\}", lambda __: _VALUE, text) for text in texts]
    forms += [_VALUED.sub(lambda word: _VALUES[word[0]], re.escape(text)) for text in _of_apt()]
    return re.compile("|".join(forms), re.ASCII)


# Imported where they are needed: every action has this file.
def _way_out() -> re.Pattern[str]:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor import findings

    return findings.WAY_OUT


def _of_apt() -> list[str]:
    from ansible_collections.gb10.fleet.plugins.module_utils.engine import apt_errors

    return apt_errors.ways_out()


def _texts() -> Iterator[str]:
    from ansible_collections.gb10.fleet.plugins.module_utils.fabric import gid_remarks, perftest, rail_ping
    from ansible_collections.gb10.fleet.plugins.module_utils.reading import services
    from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe
    from ansible_collections.gb10.fleet.plugins.module_utils.system import service_failures

    for module in (gid_remarks, perftest, rail_ping, server_probe, service_failures, services):
        yield from module.WAYS_OUT.values()
    yield from (way for *__, way in (*rail_ping.FAULTS, *rail_ping.FLAWS))
    yield from (fault.way_out for __, fault in perftest.KNOWN_FAULTS)
    yield from (way for __, (__, way) in perftest.COMPLETIONS.values())
