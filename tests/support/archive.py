"""Files for a host of the lab in one piece: `tar --extract` there puts each at its place."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def packed(files: Mapping[str, Path | bytes]) -> bytes:
    """A tar archive by places without the first slash. A folder brings all that is in it; bytes are a plain file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", dereference=True) as archive:
        for place, content in files.items():
            if isinstance(content, Path):
                archive.add(content, place)
            else:
                entry = tarfile.TarInfo(place)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
