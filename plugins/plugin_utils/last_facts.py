# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each host said of itself last time: a guess to render its documents from, which the engine checks.

So nothing here is trusted, and nothing here is worth an error: what is absent, damaged, or of another version of the
project only costs one more call.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog


def folder() -> Path:
    """$XDG_CACHE_HOME/gb10-fleet/facts; a relative XDG_CACHE_HOME counts as none, as its standard says."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "gb10-fleet" / "facts"


def read(host: str, address: str) -> dict[str, Any] | None:
    """The facts of the host of this name at this address, as far as anybody remembers."""
    try:
        kept = json.loads(_path(host, address).read_bytes())
        facts = kept["facts"] if kept["project"] == catalog.collection_version() else None
        return facts if isinstance(facts, dict) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, RuntimeError):
        return None


def write(host: str, address: str, facts: dict[str, Any]) -> None:
    """Remember the facts; the file is replaced as a whole, and only if they changed."""
    text = json.dumps({"project": catalog.collection_version(), "facts": facts}, sort_keys=True).encode()
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        path = _path(host, address)
        if path.is_file() and path.read_bytes() == text:
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(text)
        temporary.replace(path)


def _path(host: str, address: str) -> Path:
    # A digest, because an inventory may name a host in any way, "../x" included.
    name = hashlib.sha256(f"{host}\n{address}".encode(errors="replace")).hexdigest()
    return folder() / f"{name}.json"
