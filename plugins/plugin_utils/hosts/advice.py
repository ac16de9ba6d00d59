# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ways out in the answer of a host: printed behind `Fix:` only where they are in our own tables.

A person pastes what stands there, into a shell here or on another host, and root on one host could write it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.fabric import gid_remarks, perftest, rail_ping
from ansible_collections.gb10.fleet.plugins.module_utils.reading import services
from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe
from ansible_collections.gb10.fleet.plugins.module_utils.system import service_failures

# Of a host itself within our text: the name of a unit or interface, an address. It is a word that no shell changes.
_VALUE = r"\w[\w.:%@-]{0,63}"
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
        found["text"] = re.sub(r"\bfix:", "fix,", text, flags=re.IGNORECASE)
    return found


@cache
def _known() -> re.Pattern[str]:
    texts = (re.escape(text) for text in dict.fromkeys(_texts()) if text)
    return re.compile("|".join(re.sub(r"\\\{\w+\\\}", lambda __: _VALUE, text) for text in texts), re.ASCII)


def _texts() -> Iterator[str]:
    for module in (gid_remarks, perftest, rail_ping, server_probe, service_failures, services):
        yield from module.WAYS_OUT.values()
    yield from (way for *__, way in (*rail_ping.FAULTS, *rail_ping.FLAWS))
    yield from (fault.way_out for __, fault in perftest.KNOWN_FAULTS)
    yield from (way for __, (__, way) in perftest.COMPLETIONS.values())
