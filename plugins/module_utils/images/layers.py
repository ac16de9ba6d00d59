# SPDX-License-Identifier: GPL-3.0-or-later
"""The layers of an image, as archives or as folders of overlay2, and what of their files is left in the end.

A layer hides files of the layers below: by a file of the same name, by a whiteout, by an opaque folder, or by a file
or link where a folder was.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from ansible_collections.gb10.fleet.plugins.module_utils.images import places, tar
from ansible_collections.gb10.fleet.plugins.module_utils.images.places import Seen
from ansible_collections.gb10.fleet.plugins.module_utils.images.streams import Reader, unpacked
from ansible_collections.gb10.fleet.plugins.module_utils.system.budget import Budget

# In an archive (OCI image specification): the file that is gone, and everything of the folder.
_GONE, _EMPTIED, _RESERVED = ".wh.", ".wh..wh..opq", ".wh..wh."
_OPAQUE = "trusted.overlay.opaque"


@dataclass
class Layer:
    """What one layer has, by path."""

    seen: dict[str, Seen] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)  # all that are no folders
    gone: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)  # folders of which nothing below shows
    bytes: int = 0


def of_archive(source: Reader, budget: Budget) -> Layer:
    """Of a tar archive, as it is or packed. ImageError where it is none."""
    layer = Layer()
    with unpacked(source, budget) as stream:
        for member in tar.members(stream, budget):
            folder, name = posixpath.split(member.path)
            if name == _EMPTIED:
                layer.emptied.add(folder)
            elif name.startswith(_GONE):
                if not name.startswith(_RESERVED):
                    layer.gone.add(posixpath.join(folder, name[len(_GONE) :]))
            elif member.kind != tar.FOLDER:
                _take(layer, member, budget)
    return layer


def _take(layer: Layer, member: tar.Member, budget: Budget) -> None:
    layer.taken.add(member.path)
    layer.bytes += member.size
    seen = None
    if member.kind == tar.FILE:
        seen = places.look(member.path, member.size, cast(BinaryIO, member.body), budget)
    elif member.kind == tar.HARD_LINK:  # uv links what it installs to its own store
        seen = layer.seen.get(tar.plain(member.target))
    if seen is not None:
        layer.seen[member.path] = seen


def of_folder(root: Path, budget: Budget) -> Layer:
    """Of a folder of overlay2 (`diff`)."""
    layer = Layer()
    for entry, path in _walk(str(root)):
        budget.spend("nodes", 1)
        budget.spend("characters", len(path))
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            layer.gone.add(path)
        elif entry.is_dir(follow_symlinks=False):
            if _is_opaque(entry.path):
                layer.emptied.add(path)
        else:
            layer.taken.add(path)
            if entry.is_file(follow_symlinks=False):
                layer.bytes += status.st_size
                seen = _look(entry.path, path, status.st_size, budget)
                if seen is not None:
                    layer.seen[path] = seen
    return layer


def _walk(root: str) -> Iterator[tuple[os.DirEntry[str], str]]:
    folders = [(root, "")]
    while folders:
        folder, path = folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                below = posixpath.join(path, entry.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
                yield entry, below
                if entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, below))


def _is_opaque(folder: str) -> bool:
    try:
        return os.getxattr(folder, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError:  # it has no such attribute
        return False


def _look(file: str, path: str, size: int, budget: Budget) -> Seen | None:
    if not places.says(path):
        return None
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as body:
        return places.look(path, size, body, budget)


def shown(layers: Sequence[Layer]) -> dict[str, Seen]:
    """What a container of these layers sees; the lowest comes first."""
    found: dict[str, Seen] = {}
    hidden: set[str] = set()  # these, and what is below them
    emptied: set[str] = set()  # what is below these
    for layer in reversed(layers):
        for path, seen in layer.seen.items():
            above = _above(path)
            if path not in hidden and not any(each in hidden or each in emptied for each in above):
                found[path] = seen
        hidden |= layer.taken | layer.gone
        emptied |= layer.emptied
    return found


def _above(path: str) -> Iterator[str]:
    while path:
        path = posixpath.dirname(path)
        yield path
