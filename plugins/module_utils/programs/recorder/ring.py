# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of one host: lines of JSON in one file, of which the newest overwrites the oldest.

The file has all its room from the start: a login or a container may fill the disk before the line comes that counts.
Behind the newest line stands a NUL, and behind that what is left of the oldest.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

STATE = "/var/lib/gb10-recorder"
_CHUNK = 2**20
# No link is followed, and a pipe that nobody reads holds nobody.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Ring:
    """Keeps at most `most` bytes."""

    def __init__(self, folder: Path, host: str, most: int) -> None:
        self._path, self._most = folder / f"{host}.jsonl", most
        self._at, self._inode = 0, 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def add(self, line: Mapping[str, Any]) -> None:
        """One line, at once in the hands of the kernel: who writes it may be killed."""
        text = json.dumps(line).encode() + b"\n\0"
        file = os.open(self._path, _FLAGS, 0o600)
        try:
            self._take_room(file)
            if self._at + len(text) > self._most:
                os.pwrite(file, b"\n" * (self._most - self._at), self._at)
                self._at = 0
                older(self._path).unlink(missing_ok=True)
            if os.pwrite(file, text, self._at) < len(text):
                os.pwrite(file, b"\0", self._at)  # behind a piece of this line, the next one would be lost
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._at += len(text) - 1
        finally:
            os.close(file)

    def _take_room(self, file: int) -> None:
        inode = os.fstat(file).st_ino
        if inode == self._inode:
            return
        try:
            os.posix_fallocate(file, 0, self._most)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        self._at, self._inode = _end(file), inode


def _end(file: int) -> int:
    """Where the newest line ends."""
    at = 0
    while chunk := os.pread(file, _CHUNK, at):
        if (found := chunk.find(b"\0")) >= 0:
            return at + found
        at += len(chunk)
    return at


def older(path: Path) -> Path:
    """What an earlier version of this program has left beside it."""
    return path.with_suffix(".old.jsonl")


def lines(folder: Path, host: str) -> Iterator[dict[str, Any]]:
    """What is kept of a host, from the oldest on; a line that is cut is left out.

    One that is there twice in a row was sent again, for its sender did not hear that it is kept: it counts once.
    """
    former = None
    path = folder / f"{host}.jsonl"
    for each in (older(path), path):
        with contextlib.suppress(OSError):
            for text in _in_order(each):
                with contextlib.suppress(ValueError, RecursionError):
                    line = json.loads(text.strip(b"\0"))
                    if isinstance(line, dict) and isinstance(line.get("at_s"), (int, float)) and line != former:
                        former = line
                        yield line


def _in_order(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        left = _end(file.fileno())
        file.seek(left)
        yield from file
        file.seek(0)
        for text in file:
            left -= len(text)
            if left < 0:
                break
            yield text
