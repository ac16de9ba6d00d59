"""Folders in each other, as deep as a container can make them."""

from __future__ import annotations

import os
from pathlib import Path


def nest(folder: Path, depth: int, file: str = "") -> None:
    """From the outermost one on: no path is long enough to name them. `file`: what is in the innermost one."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    if file:
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)
