# SPDX-License-Identifier: GPL-3.0-or-later
"""The long texts of a request: kept on the host in files named by their SHA-256, so that they need not travel again.

None of them is a secret: those stay in the request, and the request is in no file.
"""

from __future__ import annotations

import binascii
import contextlib
import json
import os
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.bootstrap import opening
from ansible_collections.gb10.fleet.plugins.module_utils.engine import remote
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System, sha256

# Digest of a text -> the ways to where it belongs: keys and indices from the whole request on.
Places = Mapping[str, Sequence[Sequence["str | int"]]]

# Nobody asks for it again, unless as slowly that sending it anew costs nothing. Two versions of the project that work
# on one host in turn both find what is theirs.
UNUSED_S = 24 * 3600


def answer(folder: str, request: str, places: Places, given: Mapping[str, str]) -> None:
    """Print the engine's answer, and end. `given`: what was sent along, by digest, packed as `request` is."""
    kept = Path(folder)
    keeps = os.path.lexists(folder) and opening.private(folder)
    new = {digest: _unpacked(given[digest]) for digest in places if digest in given}
    texts = dict(new)
    for digest in places.keys() - new.keys() if keeps else ():
        content = _read(kept / f"text-{digest}")
        if content is not None and sha256(content) == digest:
            texts[digest] = content
    missing = places.keys() - texts.keys()
    if missing:
        opening.ask(missing)
    if given and keeps:  # else nothing is new
        for digest, content in new.items():
            _keep(kept / f"text-{digest}", content)
        _tidy(kept)
    asked = json.loads(_unpacked(request))
    for digest, ways in places.items():
        for way in ways:
            _put(asked, way, texts[digest].decode("utf-8", "surrogatepass"))
    sys.stdout.write(f"\n{opening.ANSWER}{json.dumps(remote.answer(asked, System()))}\n")
    sys.stdout.flush()
    os._exit(0)


def _unpacked(text: str) -> bytes:
    return zlib.decompress(binascii.a2b_base64(text))


def _put(request: Any, way: Sequence[str | int], text: str) -> None:
    for key in way[:-1]:
        request = request[key]
    request[way[-1]] = text


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
        os.utime(path)  # it is in use
    except OSError:
        return None
    return content


def _keep(path: Path, content: bytes) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        new.replace(path)


def _tidy(folder: Path) -> None:
    """Remove what nobody has used for long, engines too. Only where something came: an unchanged host pays nothing."""
    import shutil  # takes as long as a quarter of the engine

    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another call may be tidying up
            if path.name.startswith(("engine-", "text-")) and path.lstat().st_mtime < time.time() - UNUSED_S:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
