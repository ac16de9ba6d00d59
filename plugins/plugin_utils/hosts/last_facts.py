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
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import kept


def read(host: str, address: str) -> dict[str, Any] | None:
    """The facts of the host of this name at this address, as far as anybody remembers."""
    try:
        said = json.loads(_path(host, address).read_bytes())
        facts = said["facts"] if said["project"] == catalog.collection_version() else None
        return facts if isinstance(facts, dict) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, RuntimeError):
        return None


def write(host: str, address: str, facts: dict[str, Any]) -> None:
    """Remember the facts; the file is replaced as a whole, and only if they changed."""
    text = json.dumps({"project": catalog.collection_version(), "facts": facts}, sort_keys=True).encode()
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        path = _path(host, address)
        if not (os.access(path, os.R_OK) and path.read_bytes() == text):
            kept.write(path, text)


def _path(host: str, address: str) -> Path:
    # A digest, because an inventory may name a host in any way, "../x" included.
    name = hashlib.sha256(f"{host}\n{address}".encode(errors="replace")).hexdigest()
    return kept.folder() / "facts" / f"{name}.json"
