# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams of layers: what is compressed is unpacked on the way, and no stream is ever held as a whole."""

from __future__ import annotations

import contextlib
import gzip
import io
import shutil
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from typing import IO, BinaryIO, Protocol, cast

from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.system.budget import Budget

CHUNK = 1 << 20
_BUFFER = 1 << 17
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Part(io.RawIOBase):
    """The next `size` bytes of a reader, which stays open. With a budget they are spent of it."""

    def __init__(self, source: Reader, size: int = sys.maxsize, budget: Budget | None = None) -> None:
        self._source, self.left, self._budget = source, size, budget

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        piece = self._source.read(min(len(into), self.left))
        into[: len(piece)] = piece
        self.left -= len(piece)
        if self._budget:
            self._budget.spend("bytes", len(piece))
        return len(piece)


def buffered(source: Reader, budget: Budget | None = None) -> io.BufferedReader:
    """Gives as many bytes as it is asked for, and lets the first ones be looked at."""
    return io.BufferedReader(source if isinstance(source, Part) else Part(source, budget=budget), _BUFFER)


def skip(stream: Reader, size: int) -> int:
    """Return how many of these bytes there were."""
    left = size
    while left and (piece := stream.read(min(CHUNK, left))):
        left -= len(piece)
    return size - left


@contextlib.contextmanager
def unpacked(source: Reader, budget: Budget) -> Iterator[BinaryIO]:
    """What the source has, without gzip or zstd around it."""
    stream = buffered(source)
    head = stream.peek(len(_ZSTD))[: len(_ZSTD)]
    if head == _ZSTD:
        with _zstd(stream) as plain:
            yield buffered(plain, budget)
    elif head.startswith(_GZIP):
        try:
            yield buffered(gzip.GzipFile(fileobj=stream), budget)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ImageError("bad_layer", f"gzip does not unpack it ({error})") from None
    else:
        yield stream


@contextlib.contextmanager
def _zstd(packed: BinaryIO) -> Iterator[Reader]:
    """By the command: Python has it from 3.14 on."""
    try:
        child = subprocess.Popen(  # pylint: disable=ansible-bad-function
            ["zstd", "-dcq"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        raise ImageError(
            "no_tool", "a layer is packed with zstd, and that command is missing", "install zstd"
        ) from None
    faults: list[Exception] = []

    def feed(into: IO[bytes]) -> None:
        with contextlib.suppress(BrokenPipeError), into:
            try:
                shutil.copyfileobj(packed, into, CHUNK)
            except (ImageError, EOFError, gzip.BadGzipFile, zlib.error) as fault:  # of what it is packed in
                faults.append(fault)

    stdin, stdout = cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)
    feeder = threading.Thread(target=feed, args=(stdin,), daemon=True)
    feeder.start()
    try:
        yield stdout  # is read to its end, or something is wrong with it
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
        raise ImageError("bad_layer", "zstd does not unpack it")
