# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the host below a root, as far as they can be read."""

from __future__ import annotations

import os
from pathlib import Path

# Bytes of any file but dpkg's and ours; modules.dep has 0.8 million. Files of /proc/sys refuse a read of 4 MiB.
MAX_READ = 2 * 1024 * 1024


def read_text(root: Path, absolute: str, limit: int = MAX_READ) -> str:
    """A text file; empty where it cannot be read. `limit` in bytes; -1: as long as it is."""
    try:
        with (root / absolute.lstrip("/")).open("rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""


def names_in(root: Path, absolute: str) -> list[str]:
    try:
        return sorted(os.listdir(root / absolute.lstrip("/")))  # noqa: PTH208 - names are wanted, not paths
    except OSError:
        return []
