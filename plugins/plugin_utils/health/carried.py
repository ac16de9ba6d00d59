# SPDX-License-Identifier: GPL-3.0-or-later
"""What travels to a host for a look at it: the sources of a reader in module_utils/reading, and of what it imports.

A host keeps them in memory till the next boot, as it does the engine, so that they are compiled once. Where it cannot,
they run from what was sent.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from functools import cache
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.bootstrap import install
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import transport

PACKAGE = "ansible_collections.gb10.fleet.plugins.module_utils"
# Root's own, in memory. What nobody uses is removed there by name, with old engines.
CACHE = "/run/gb10-fleet"
# A host that has the sources compiles no more than this.
_START = """
import gc, os, sys
gc.disable()  # till all is imported
folder, place = {folder!a}, {folder!a} + "/engine-{digest}"
def usable():
    try:
        found = [os.lstat(path) for path in (folder, place)]
    except OSError:
        return False
    return all((each.st_mode, each.st_uid) == (0o40700, os.geteuid()) for each in found)
if not usable():
    exec(compile({installer!a}, "install.py", "exec"))
    sources = json.loads(zlib.decompress(binascii.a2b_base64({packed!a})))
    _keep(Path(place), sources)
if usable():
    os.utime(place)
    sys.path.insert(0, place)
else:
    sys.meta_path.insert(0, InMemory(sources))
from {package}.reading import {reader}
{reader}.main({arguments})
"""


class Message:
    """As scan.Message: everything is in the program, and a host has nothing to ask for."""

    def __init__(self, every_s: float = 0, folder: str = CACHE, *, services: bool = False) -> None:
        """`services`: of the host its services alone, and no look."""
        self._call = ("services", "") if services else ("glance", repr(every_s))
        self._folder = folder

    def program(self) -> bytes:
        return _program(*self._call, self._folder)

    def reply(self, line: str) -> bytes | None:
        return None


@cache
def _program(reader: str, arguments: str, folder: str) -> bytes:
    """The same for every host."""
    installer = Path(install.__file__).read_text(encoding="utf-8")
    packed = _packed(reader)
    digest = hashlib.sha256(packed.encode()).hexdigest()
    names = {"folder": folder, "digest": digest, "packed": packed, "package": PACKAGE}
    whole = _START.format(installer=installer, reader=reader, arguments=arguments, **names).encode()
    return b"#%d\n%b" % (len(whole), whole)


@cache
def _packed(reader: str) -> str:
    return base64.b64encode(
        zlib.compress(
            json.dumps(transport.sources_of(f"reading/{reader}")).encode(),
            9,
        )
    ).decode()
