# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What travels to a host for a look at it: the sources of module_utils/health/glance.py and of what it imports.

A host compiles them in each call and keeps nothing: a look needs no engine, and leaves no file.
"""

from __future__ import annotations

import base64
import json
import zlib
from functools import cache
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.bootstrap import install
from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog

PACKAGE = "ansible_collections.gb10.fleet.plugins.module_utils"
# A test compares them with what is imported on a host.
SOURCES = (
    *("engine/folders.py", "engine/structs.py", "engine/system.py"),
    *("facts/gpu.py", "facts/host_reader.py", "facts/memory_blocks.py"),
    *(f"health/{name}.py" for name in ("glance", "gpu", "memory", "rails", "sensors", "texts")),
    "programs/watchdog/metrics.py",
)


class Message:
    """As scan.Message: everything is in the program, and a host has nothing to ask for."""

    def __init__(self, every_s: float = 0) -> None:
        self._every_s = every_s

    def program(self) -> bytes:
        text = (
            f"{Path(install.__file__).read_text(encoding='utf-8')}\n"
            f"sources = json.loads(zlib.decompress(binascii.a2b_base64({_packed()!a})))\n"
            "sys.meta_path.insert(0, InMemory(sources))\n"
            f"from {PACKAGE}.health import glance\n"
            f"glance.main({self._every_s!a})\n"
        ).encode()
        return b"#%d\n%b" % (len(text), text)

    def reply(self, line: str) -> bytes | None:
        return None


@cache
def _packed() -> str:
    folder = catalog.collection_root() / "plugins" / "module_utils"
    place = PACKAGE.replace(".", "/")
    sources = {f"{place}/{name}": (folder / name).read_text(encoding="utf-8") for name in SOURCES}
    return base64.b64encode(zlib.compress(json.dumps(sources).encode(), 9)).decode()
