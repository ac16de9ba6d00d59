"""Where a path of a simulated host lies: its links lead to places of that host, never to the machine of the tests."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

MOST = 100  # names and links of one path


def place(root: Path, path: str, *, follow: bool = False) -> Path:
    """`path`, looked up below `root` as `chroot` would; `follow`: also where the last name is a link."""
    names = deque(path.strip("/").split("/"))
    current = root
    for _ in range(MOST):
        if not names:
            return current
        name = names.popleft()
        step = root if current == root and name == ".." else current.parent if name == ".." else current / name
        if not step.is_symlink() or not (names or follow):
            current = step
            continue
        target = str(step.readlink())
        names.extendleft(reversed([part for part in target.split("/") if part not in ("", ".")]))
        current = root if target.startswith("/") else current
    raise OSError(f"{path}: too many links")


def held(path: Path) -> bytes:
    """What a path holds, for a comparison. Of a link its text: what it leads to may be a file of the machine."""
    if path.is_symlink():
        return os.fsencode(path.readlink())
    return path.read_bytes() if path.is_file() else b""
