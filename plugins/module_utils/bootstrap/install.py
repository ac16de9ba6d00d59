# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts the engine on a host that lacks it: a folder of plain sources, named by their digest, that only root can open.

Python imports it from there like anything else and keeps compiled code beside it, so a traceback shows the lines of
real files. Where no such folder can be, the engine runs from memory. The controller sends this file and a call of
`install`; nothing of the engine is there yet.
"""

from __future__ import annotations

import binascii
import json
import os
import sys
import zlib
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.module_utils.bootstrap.texts import Places


def install(folder: str, engine: str, request: str, places: Places, given: Mapping[str, str]) -> None:
    """As `opening.start`. The engine is among the `given`: JSON of {name of a file: source}."""
    sources = json.loads(zlib.decompress(binascii.a2b_base64(given[engine])))
    place = Path(folder, f"engine-{engine}")
    if not _imported(place):
        _keep(place, sources)
        if not _imported(place):
            sys.meta_path.insert(0, InMemory(sources))
    from ansible_collections.gb10.fleet.plugins.module_utils.bootstrap import texts

    texts.answer(folder, request, places, given)


def _imported(place: Path) -> bool:
    """Return whether the engine could be imported from there."""
    for name in [name for name in sys.modules if name.startswith("ansible_collections")]:
        del sys.modules[name]  # of an attempt that failed
    sys.path_importer_cache.clear()
    sys.path[:] = [path for path in sys.path if path != str(place)]
    try:
        if not (_private(place.parent) and _private(place)):
            return False
        sys.path.insert(0, str(place))
        from ansible_collections.gb10.fleet.plugins.module_utils.bootstrap import texts  # noqa: F401
    except Exception:
        return False
    return True


def _keep(place: Path, sources: Mapping[str, str]) -> None:
    """All of it appears at once, in the place of what could not be imported."""
    new = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        place.parent.mkdir(mode=0o700, exist_ok=True)
        if not _private(place.parent):
            return
        new.mkdir(mode=0o700)
        for name, source in sources.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_text(source, encoding="utf-8")
        _remove(place)
        new.rename(place)
    except OSError:  # no room, or another call was faster
        _remove(new)


def _remove(place: Path) -> None:
    if place.is_symlink() or place.is_file():
        place.unlink()
    else:
        import shutil  # with its archives it is a tenth of what a call costs, and few calls need it

        shutil.rmtree(place, ignore_errors=True)


def _private(folder: Path) -> bool:
    status = folder.lstat()
    return (status.st_mode, status.st_uid) == (0o40700, os.geteuid())


class InMemory:
    """Imports the engine from its sources."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        place = name.replace(".", "/")
        is_package = any(known.startswith(f"{place}/") for known in self._sources)
        if not is_package and f"{place}.py" not in self._sources:
            return None
        return ModuleSpec(name, self, is_package=is_package)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = f"{module.__name__.replace('.', '/')}.py"
        exec(compile(self._sources.get(name, ""), name, "exec"), module.__dict__)  # noqa: S102 - our own sources
