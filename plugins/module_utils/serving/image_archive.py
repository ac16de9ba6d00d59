# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an archive of `docker save` names. `docker load` gives each of these names to an image, whosever it was before.

Docker and we read an odd archive in two ways: headers of headers, keys that are there twice. So what Docker never
writes is refused.
"""

from __future__ import annotations

import json
import posixpath
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError

_NAMING = ("manifest.json", "repositories", "index.json")
_KEYS = ("repotags", "io.containerd.image.name", "org.opencontainers.image.ref.name")
_LARGEST = 2**20  # bytes of one of them
_KINDS = (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE)


class _Object(list[tuple[str, Any]]):
    """Of JSON, with each key as often as it is there."""


def need_only(archive: Path, name: str) -> None:
    """FilesError, and no archive any more, where `docker load` would name an image otherwise."""
    ours = {name, f"docker.io/{name}", name.rpartition(":")[2]}
    try:
        others = {found for found in _names(archive) if found not in ours}
        said = f"names other images: {', '.join(sorted(others)[:3])[:200]}" if others else ""
    except (ValueError, RecursionError, tarfile.TarError) as error:
        said = f"is none that Docker writes: {str(error)[:200]}"
    if said:
        archive.unlink()
        text = f"the archive of {name} that came from a peer {said}; it was not loaded"
        raise FilesError("image_differs", text, "see who has become root on that peer")


def _names(archive: Path) -> Iterator[str]:
    seen = set()
    with archive.open("rb") as file:
        for path, size in _members(file):
            if path.rpartition("/")[2] in _NAMING:
                if path in seen or "/" in path or size is None or size > _LARGEST:
                    raise ValueError(f"{path} is there twice, elsewhere, no file, or large")
                seen.add(path)
                yield from _named(path, json.loads(file.read(size), object_pairs_hook=_Object))


def _members(file: BinaryIO) -> Iterator[tuple[str, int | None]]:
    """Path and size, None of what is no file. Its content is read from where the file stands."""
    told: int | None = None
    extended = False
    while (block := file.read(tarfile.BLOCKSIZE)).strip(b"\0"):
        head = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        if head.type == tarfile.XHDTYPE and not extended:
            told, extended = _told(file.read(head.size)), True
            file.seek(-head.size % tarfile.BLOCKSIZE, 1)
            continue
        size, is_file = head.size if told is None else told, head.type == tarfile.REGTYPE
        if head.type not in _KINDS or size < 0 or (size and not is_file) or head.name.endswith("/"):
            raise ValueError(f"{head.name} of type {head.type!r} and {size} bytes")
        begin = file.tell()
        yield posixpath.normpath(head.name), size if is_file else None
        file.seek(begin + size + -size % tarfile.BLOCKSIZE)
        told, extended = None, False


def _told(records: bytes) -> int | None:
    """The size that an extended header says. None of Docker's says a name."""
    size = None
    while records:
        length = int(records.partition(b" ")[0])
        key, __, value = records[:length].partition(b" ")[2].rstrip(b"\n").partition(b"=")
        if length < 5 or key in (b"path", b"linkpath") or key.startswith(b"GNU."):
            raise ValueError(f"an extended header with {key!r}")
        size = int(value) if key == b"size" else size
        records = records[length:]
    return size


def _named(path: str, said: Any) -> Iterator[str]:
    if path == "repositories":
        yield from (f"{repository}:{tag}" for repository, tags in said for tag, __ in tags)
    elif isinstance(said, _Object):
        for key, value in said:
            # Go takes a key in any case.
            yield from _texts(value) if key.casefold() in _KEYS else _named(path, value)
    elif isinstance(said, list):
        for value in said:
            yield from _named(path, value)


def _texts(value: Any) -> Iterator[str]:
    yield from (str(each) for each in (value if isinstance(value, list) else [value]) if each is not None)
