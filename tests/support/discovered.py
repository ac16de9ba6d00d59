"""Machines that a search on the network finds."""

from __future__ import annotations

import base64
from pathlib import Path


def key(number: int, kind: str = "ssh-ed25519") -> str:
    name = kind.encode()
    return base64.b64encode(len(name).to_bytes(4, "big") + name + number.to_bytes(32, "big")).decode()


def fake(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return path
