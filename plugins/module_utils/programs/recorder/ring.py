# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of one host: lines of JSON in two files, of which the older one goes when the newer one is full."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

STATE = "/var/lib/gb10-recorder"
# No link is followed, and a pipe that nobody reads holds nobody.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK


class Ring:
    """Keeps at most `most` bytes."""

    def __init__(self, folder: Path, host: str, most: int) -> None:
        self._path, self._most = folder / f"{host}.jsonl", most // 2
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def add(self, line: Mapping[str, Any]) -> None:
        """One line, at once in the hands of the kernel: who writes it may be killed."""
        text = json.dumps(line) + "\n"
        with contextlib.suppress(FileNotFoundError):
            if self._path.lstat().st_size + len(text) > self._most:
                self._path.replace(older(self._path))
        file = os.open(self._path, _APPEND, 0o600)
        try:
            written = os.write(file, text.encode())  # all ASCII, so as many bytes
            if written < len(text):  # the disk is full; behind a piece of this line, the next one would be lost
                os.ftruncate(file, os.fstat(file).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)


def older(path: Path) -> Path:
    return path.with_suffix(".old.jsonl")


def lines(folder: Path, host: str) -> Iterator[dict[str, Any]]:
    """What is kept of a host, from the oldest on; a line that is cut is left out.

    One that is there twice in a row was sent again, for its sender did not hear that it is kept: it counts once.
    """
    former = None
    path = folder / f"{host}.jsonl"
    for each in (older(path), path):
        with contextlib.suppress(OSError), each.open(encoding="utf-8", errors="replace") as file:
            for text in file:
                with contextlib.suppress(ValueError, RecursionError):
                    line = json.loads(text)
                    if isinstance(line, dict) and isinstance(line.get("at_s"), (int, float)) and line != former:
                        former = line
                        yield line
