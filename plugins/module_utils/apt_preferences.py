# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of apt's preferences decide before ours do.

For each version of a package the first stanza decides that names the package and matches the version; a stanza for all
packages (`*`) comes after those, whatever its priority. /etc/apt/preferences is read first, then the files of
preferences.d by name. Measured with `apt-cache policy` of apt 3.0.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterator
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system import System

PREFERENCES = "/etc/apt/preferences"
PREFERENCES_PARTS = "/etc/apt/preferences.d"
OURS = "10-gb10-nvidia"  # written by the role driver

# apt passes over files with other characters or endings (a backup, dpkg's leftovers).
_PART = re.compile(r"[A-Za-z0-9_-]+(\.pref)?\Z")
_SOURCE = re.compile(r"src:.*nvidia")


def read_earlier(system: System, names: Collection[str]) -> list[dict[str, Any]]:
    """What is read before ours and names one of these packages: for each the file, the pin, and its priority."""
    parts = [f"{PREFERENCES_PARTS}/{name}" for name in system.names(PREFERENCES_PARTS) if _PART.match(name)]
    earlier = [PREFERENCES, *(file for file in sorted(parts) if file < f"{PREFERENCES_PARTS}/{OURS}")]
    return [
        {"file": file, "package": name, "pin": stanza.get("pin", ""), "priority": _number(stanza.get("pin-priority"))}
        for file in earlier
        for stanza in parse(system.text(file) or "")
        for name in covers(stanza["package"], names)
    ]


def parse(text: str) -> Iterator[dict[str, str]]:
    """The stanzas of one file, their fields in lower case."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for block in re.split(r"\n[ \t]*(?:\n[ \t]*)+", "\n".join(lines)):
        joined = re.sub(r"\n[ \t]+", " ", block).splitlines()
        fields = {
            key.strip().lower(): " ".join(value.split()) for key, _, value in (ln.partition(":") for ln in joined)
        }
        if fields.get("package"):
            yield fields


def covers(field: str, names: Collection[str]) -> list[str]:
    """Which packages a `Package:` field names: by name, glob, /regular expression/, or source (given back as it is)."""
    covered: set[str] = set()
    for word in field.split():
        if word == "*":
            continue
        if _SOURCE.match(word):
            covered.add(word)
        covered.update(name for name in names if _matches(word, name))
    return sorted(covered)


def _matches(word: str, name: str) -> bool:
    if len(word) > 2 and word.startswith("/") and word.endswith("/"):
        try:
            return re.search(word[1:-1], name, re.IGNORECASE) is not None
        except (re.error, RecursionError, OverflowError):
            return False  # nor can apt read it, and passes over it
    return fnmatch.fnmatchcase(name, word.partition(":")[0])


def _number(text: str | None) -> int:
    try:
        return int(text or "0")
    except ValueError:
        return 0
