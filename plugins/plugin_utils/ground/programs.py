# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of ours that a role installs: their folder, what of plugins/module_utils they need, and the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

_LIBRARY = "/usr/local/lib/gb10-fleet"
_PACKAGE = "ansible_collections/gb10/fleet/plugins/module_utils"
_IMPORT = re.compile(
    r"^\s*from (ansible_collections\.gb10\.fleet\.plugins\.module_utils\.|\.+)([\w.]*) import (\([^)]*\)|.+)",
    re.MULTILINE,
)


def library(program: str) -> str:
    """Return the folder of a program on a host, which its start puts on Python's path."""
    return f"{_LIBRARY}/{program}"


def installed(program: str, module: str) -> str:
    """Return the path on a host of a module that a program imports."""
    return f"{library(program)}/{_PACKAGE}/{module}.py"


@cache
def source(module: str) -> str:
    """Return the text of plugins/module_utils/MODULE.py."""
    return (_root() / f"{module}.py").read_text(encoding="utf-8")


@cache
def modules_of(*starts: str) -> tuple[str, ...]:
    """Return some modules and all that they import of ours: sorted paths below plugins/module_utils, without `.py`."""
    found, left = set[str](), list(starts)
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += _imports(module)
    return tuple(sorted(found))


def _root() -> Path:
    return catalog.collection_root() / "plugins/module_utils"


def _imports(module: str) -> Iterator[str]:
    """Yield the modules that one imports. A name that is imported is a module of its own, or something within one."""
    for start, package, names in _IMPORT.findall(source(module)):
        base = Path(module).parents[len(start) - 1] if start.startswith(".") else Path()
        place = base / package.replace(".", "/")
        if (_root() / f"{place}.py").is_file():
            yield str(place)
        words = [name.split(" as ")[0].strip() for name in names.split("  #")[0].strip("()").split(",")]
        yield from (str(place / word) for word in words if word and (_root() / place / f"{word}.py").is_file())
