# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose turn it is to load: one service of a host at a time, so that two loads never meet in its memory."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

LONGEST_NAME = 64


class Turn:
    """A lock that ends with its process, whatever ends that. A host where it cannot be had loads without."""

    def __init__(self, path: Path, service: str) -> None:
        self.path, self.service = path, service
        self.descriptor: int | None = None

    def take(self) -> bool:
        """Return whether it is ours now, or was; it does not wait."""
        if self.descriptor is not None:
            return True
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        with contextlib.suppress(OSError):  # a full /run: nobody reads who it is, and it is ours all the same
            os.ftruncate(descriptor, 0)
            os.write(descriptor, self.service.encode())
        self.descriptor = descriptor
        return True

    def end(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    @property
    def holder(self) -> str:
        """The service that loads, as the last one to take the turn said it."""
        try:
            said = self.path.read_text(encoding="utf-8", errors="replace")[:LONGEST_NAME]
        except OSError:
            said = ""
        return said or "another service"
