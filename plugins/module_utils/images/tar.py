# SPDX-License-Identifier: GPL-3.0-or-later
"""The members of a tar archive that comes as a stream, one after the other.

Python's tarfile keeps every member in memory, and takes a header of any size that the archive claims. Layers have
hundreds of thousands of files and come from strangers, and the host's memory is the GPU's. So this reads what Docker
and BuildKit write (ustar, pax, GNU's long names), forwards only, and within bounds. A block is read by tarfile.
"""

from __future__ import annotations

import posixpath
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.images.streams import Part, Reader, skip
from ansible_collections.gb10.fleet.plugins.module_utils.system.budget import Budget

_BLOCK = tarfile.BLOCKSIZE
_LONGEST = 1 << 20  # of a header that extends another one
_USUAL = 256  # bytes of such a header, which cost nothing
_LONGEST_NAME = 4096  # Linux opens no longer one
FILE, FOLDER, LINK, HARD_LINK, OTHER = "file", "folder", "link", "hard link", "other"
_KINDS = {b"\0": FILE, b"0": FILE, b"7": FILE, b"1": HARD_LINK, b"2": LINK, b"5": FOLDER}
_NO_BODY = b"123456"  # the kinds, as they stand in a header, of links, devices, folders and pipes
_LONG = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}


@dataclass(frozen=True)
class Member:
    """A file of the archive. `path` is relative and has no `..`; that of a link's target is as it stands there."""

    path: str
    kind: str
    size: int
    target: str
    body: Part  # to be read before the next member


def members(stream: Reader, budget: Budget) -> Iterator[Member]:
    """Every member; then the stream is at its end. ImageError where it is no tar archive, or ends in the middle."""
    more: dict[str, str] = {}
    begun = False
    before: set[bytes] = set()  # the kinds of headers that extend the next one
    while True:
        block = stream.read(_BLOCK)
        if not block and begun:
            raise ImageError("bad_layer", "the archive ends without its mark")
        if not block.strip(b"\0"):  # two such blocks end an archive; what stands behind is padding
            skip(stream, sys.maxsize)
            return
        begun = True
        head = _head(block)
        if head.type in (tarfile.XHDTYPE, tarfile.XGLTYPE, *_LONG):
            if head.type in before or (before and head.type == tarfile.XGLTYPE):  # Docker takes the last one alone
                raise ImageError("bad_layer", "a file of the archive has two headers of one kind")
            before.add(head.type)
            text = _extension(stream, head.size)
            budget.spend("nodes", len(text) // _USUAL)
            if head.type == tarfile.XHDTYPE:
                more.update(_records(text))
            elif head.type in _LONG:
                more[_LONG[head.type]] = _text(text.rstrip(b"\0"))
            continue
        kind = _KINDS.get(head.type, OTHER)
        if kind != FILE and head.size and block[156:157] not in _NO_BODY:  # Docker may read one there
            raise ImageError("bad_layer", f"what is no file has {head.size} bytes in the archive")
        size = _size(more.get("size"), head.size) if kind == FILE else 0
        name = more.get("path") or head.name
        if len(name) > _LONGEST_NAME:
            raise ImageError("bad_layer", f"a file of the archive has a name of {len(name)} characters")
        budget.spend("nodes", 1)
        budget.spend("characters", len(name))
        body = Part(stream, size)
        yield Member(plain(name), kind, size, more.get("linkpath") or head.linkname, body)
        _skip(stream, body.left + -size % _BLOCK)
        more, before = {}, set()


def plain(path: str) -> str:
    """A path as every layer writes it: relative, and without a way out of its root."""
    return posixpath.normpath(f"/{path}").lstrip("/")


def _head(block: bytes) -> tarfile.TarInfo:
    if len(block) < _BLOCK:
        raise ImageError("bad_layer", "the archive ends in the middle of a header")
    try:
        head = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
    except tarfile.TarError as error:
        raise ImageError("bad_layer", f"what should be a tar archive is none ({error})") from None
    if head.size < 0:
        raise ImageError("bad_layer", f"a file of the archive has {head.size} bytes")
    return head


def _size(told: str | None, size: int) -> int:
    if told is None:
        return size
    if not (told.isascii() and told.isdigit() and len(told) < 20):
        raise ImageError("bad_layer", f"a file of the archive has the size {told[:30]!r}")
    return int(told)


def _extension(stream: Reader, size: int) -> bytes:
    if size > _LONGEST:
        raise ImageError("bad_layer", f"a header of the archive has {size} bytes")
    text = stream.read(size)
    _skip(stream, -size % _BLOCK)
    if len(text) < size:
        raise ImageError("bad_layer", "the archive ends in the middle of a header")
    return text


def _records(text: bytes) -> Iterator[tuple[str, str]]:
    """`LENGTH KEY=VALUE\n`, of the keys that we use; the length counts itself."""
    at = 0
    while at < len(text):
        length, __, __ = text[at : at + 20].partition(b" ")
        end = at + int(length) if length.isdigit() else 0
        if end <= at or end > len(text):
            raise ImageError("bad_layer", "a header of the archive has a record of no length")
        key, __, value = text[at + len(length) + 1 : end - 1].partition(b"=")
        if key.startswith(b"GNU.sparse"):  # no tool that makes layers writes these, and Docker fills the holes
            raise ImageError("bad_layer", "a file of the archive has holes")
        if key in (b"path", b"linkpath", b"size"):
            yield key.decode(), _text(value)
        at = end


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _skip(stream: Reader, size: int) -> None:
    if skip(stream, size) < size:
        raise ImageError("bad_layer", "the archive ends in the middle of a file")
