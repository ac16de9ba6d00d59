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
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

MOST_ANSWERS = 256  # of engines
LARGEST_ANSWER = 2**18  # bytes; a sound one has some 2000


def read(host: str, address: str) -> dict[str, Any] | None:
    """The facts of the host of this name at this address, as far as anybody remembers."""
    try:
        said = json.loads(_path(host, address).read_bytes())
        facts = said["facts"] if said["project"] == catalog.collection_version() else None
        return facts if isinstance(facts, dict) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, RuntimeError):
        return None


def everything() -> Iterator[tuple[str, dict[str, Any]]]:
    """The facts of all hosts that anybody remembers, by their names in the inventory: a host may claim another one."""
    with contextlib.suppress(OSError, RuntimeError):
        for path in sorted((_folder() / "facts").glob("*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                said = json.loads(path.read_bytes())
                if said["project"] == catalog.collection_version() and isinstance(said["facts"], dict):
                    yield str(said["host"]), said["facts"]


def write(host: str, address: str, facts: dict[str, Any]) -> None:
    """Remember the facts; the file is replaced as a whole, and only if they changed."""
    said = {"project": catalog.collection_version(), "host": host, "facts": facts}
    text = json.dumps(said, sort_keys=True).encode()
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        path = _path(host, address)
        if not (os.access(path, os.R_OK) and path.read_bytes() == text):
            _replace(path, text)


def keep_answer(host: str, question: dict[str, Any], said: dict[str, Any]) -> None:
    """Remember what the engine of a host said; the newest answer to a question, and only so many."""
    text = json.dumps({"host": host, "question": question, "said": said}, sort_keys=True).encode()
    if len(text) > LARGEST_ANSWER:
        return
    with contextlib.suppress(OSError, RuntimeError, TypeError):
        key = json.dumps([host, question], sort_keys=True)
        folder = _folder() / "engine"
        _replace(folder / f"{hashlib.sha256(key.encode(errors='replace')).hexdigest()}.json", text)
        for old in sorted(folder.glob("*.json"), key=lambda each: each.stat().st_mtime)[:-MOST_ANSWERS]:
            old.unlink()


def answers() -> Iterator[dict[str, Any]]:
    """What engines said to this machine, the newest first."""
    with contextlib.suppress(OSError, RuntimeError):
        for path in sorted((_folder() / "engine").glob("*.json"), key=lambda each: -each.stat().st_mtime):
            with contextlib.suppress(OSError, ValueError, RecursionError):
                said = json.loads(path.read_bytes())
                if isinstance(said, dict):
                    yield said


def _path(host: str, address: str) -> Path:
    # A digest, because an inventory may name a host in any way, "../x" included.
    name = hashlib.sha256(f"{host}\n{address}".encode(errors="replace")).hexdigest()
    return _folder() / "facts" / f"{name}.json"


def _folder() -> Path:
    """$XDG_CACHE_HOME/gb10-fleet; a relative XDG_CACHE_HOME counts as none, as its standard says."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "gb10-fleet"


def _replace(path: Path, content: bytes) -> None:
    """Replace the file as a whole, in a folder that is the user's alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    # A name that nobody else has: containers and machines that share a home have the same process ids.
    number, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink()
        raise
