# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams of layers: what is compressed is unpacked on the way, and no stream is ever held as a whole."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import zlib
from collections.abc import Iterator
from typing import IO, Protocol, cast

from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError

CHUNK = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_GZIP_BITS = 31  # zlib: the largest window, in a file of gzip
AGAIN = "pull or save the image again"


class Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Stream:
    """A reader whose first bytes can be looked at, and that gives as many bytes as it is asked for."""

    def __init__(self, source: Reader) -> None:
        self._source = source
        self._head = b""

    def peek(self, size: int) -> bytes:
        self._head = self.read(size)
        return self._head

    def read(self, size: int, /) -> bytes:
        """`size` bytes; fewer only at the end."""
        found, self._head = self._head[:size], self._head[size:]
        if len(found) == size:
            return found
        pieces, missing = [found], size - len(found)
        while missing and (piece := self._source.read(missing)):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def skip(self, size: int) -> int:
        """How many of these bytes there were."""
        left = size
        while left and (piece := self.read(min(CHUNK, left))):
            left -= len(piece)
        return size - left


class Part:
    """The next `size` bytes of a stream."""

    def __init__(self, source: Stream, size: int) -> None:
        self._source = source
        self.left = size

    def read(self, size: int, /) -> bytes:
        piece = self._source.read(min(size, self.left))
        self.left -= len(piece)
        return piece


class _Gunzip:
    """Files of gzip one behind the other, unpacked; no more memory than what is asked for."""

    def __init__(self, source: Stream) -> None:
        self._source = source
        self._unpack = zlib.decompressobj(_GZIP_BITS)
        self._packed = b""
        self._ended = False

    def read(self, size: int, /) -> bytes:
        while not self._ended:
            if self._unpack.eof:
                self._next()
                continue
            packed = self._packed or self._source.read(CHUNK)
            try:
                piece = self._unpack.decompress(packed, size)
            except zlib.error as error:
                raise ImageError("bad_layer", f"gzip does not unpack it ({error})", AGAIN) from None
            self._packed = self._unpack.unconsumed_tail
            if piece:
                return piece
            if not packed and not self._unpack.eof:
                raise ImageError("bad_layer", "what gzip has packed ends in the middle", AGAIN)
        return b""

    def _next(self) -> None:
        """The next file, behind zeros, if there is one."""
        self._packed = self._unpack.unused_data.lstrip(b"\0") or self._source.read(CHUNK).lstrip(b"\0")
        self._ended = not self._packed
        self._unpack = zlib.decompressobj(_GZIP_BITS)


@contextlib.contextmanager
def unpacked(source: Reader) -> Iterator[Stream]:
    """What the source has, without gzip or zstd around it."""
    stream = Stream(source)
    head = stream.peek(len(_ZSTD))
    if head.startswith(_GZIP):
        yield Stream(_Gunzip(stream))
    elif head == _ZSTD:
        with _zstd(stream) as plain:
            yield plain
    else:
        yield stream


@contextlib.contextmanager
def _zstd(packed: Stream) -> Iterator[Stream]:
    """By the command: Python has it from 3.14 on."""
    try:
        child = subprocess.Popen(
            ["zstd", "-dcq"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        raise ImageError(
            "no_tool", "a layer is packed with zstd, and that command is missing", "install zstd"
        ) from None
    faults: list[ImageError] = []

    def feed(into: IO[bytes]) -> None:
        with contextlib.suppress(BrokenPipeError), into:
            try:
                while piece := packed.read(CHUNK):
                    into.write(piece)
            except ImageError as fault:
                faults.append(fault)

    stdin, stdout = cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)
    feeder = threading.Thread(target=feed, args=(stdin,), daemon=True)
    feeder.start()
    try:
        yield Stream(stdout)  # is read to its end, or something is wrong with it
    except BaseException:
        child.kill()
        raise
    finally:
        stdout.close()
        feeder.join()
        status = child.wait()
    if faults:
        raise faults[0]
    if status:
        raise ImageError("bad_layer", "zstd does not unpack it", AGAIN)
