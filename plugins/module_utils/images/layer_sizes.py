# SPDX-License-Identifier: GPL-3.0-or-later
"""What the archive of an image takes when Docker unpacks it: a layer may be packed, and be there again and again.

The length of the archive says nothing of that: of 1 MiB a layer of 1 GiB can come.
"""

from __future__ import annotations

import io
import json
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.images import tar
from ansible_collections.gb10.fleet.plugins.module_utils.images.budget import (
    LONGEST_DOCUMENT,
    MOST,
    document,
    of_image,
)
from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.images.streams import Reader, buffered, unpacked
from ansible_collections.gb10.fleet.plugins.module_utils.system.budget import Budget

_BLOCK = 4096  # of a file system
_INODE = 16384  # bytes of ext4 for each inode that it has (inode_ratio of mke2fs.conf): an empty file takes one, too


def unpacked_bytes(path: Path) -> int:
    """Of all layers, as often as a list of the archive names them. ImageError where no image has so many."""
    budget = of_image()
    sizes: dict[str, int] = {}
    links: dict[str, str] = {}
    lists: list[list[str]] = []
    with path.open("rb") as file:
        for member in tar.members(buffered(file), budget):
            if member.kind == tar.LINK:
                links[member.path] = tar.plain(posixpath.join(posixpath.dirname(member.path), member.target))
            if member.kind != tar.FILE:
                continue
            short = member.size <= LONGEST_DOCUMENT
            raw = buffered(member.body).read() if short else b""
            try:
                lists += _layers(_json(raw, budget))
            except (ValueError, RecursionError):  # no document
                sizes[member.path] = _of_layer(io.BytesIO(raw) if short else member.body, budget)
    most = max((sum(sizes.get(links.get(each, each), 0) for each in named) for named in lists), default=0)
    most = max(most, sum(sizes.values()))
    if most > MOST["bytes"]:
        raise ImageError("too_much", f"unpacked it takes {most >> 30} GiB")
    return most


def _json(raw: bytes, budget: Budget) -> Any:
    """What is no list and no mapping costs nothing, for it may be a layer with many commas."""
    return document(raw, budget) if raw.lstrip()[:1] in (b"{", b"[") else json.loads(raw)


def _of_layer(source: Reader, budget: Budget) -> int:
    with unpacked(source, budget) as stream:
        return sum(max(-(-member.size // _BLOCK) * _BLOCK, _INODE) for member in tar.members(stream, budget))


def _layers(document: Any) -> Iterator[list[str]]:
    """The paths of layers that a list of Docker names (manifest.json), or one of the OCI layout."""
    for image in document if isinstance(document, list) else [document]:
        if isinstance(image, dict) and isinstance(named := image.get("Layers"), list):
            yield [tar.plain(str(each)) for each in named]
        if isinstance(image, dict) and isinstance(named := image.get("layers"), list):
            digests = [str(each.get("digest")) for each in named if isinstance(each, dict)]
            yield [posixpath.join("blobs", digest.replace(":", "/")) for digest in digests]
