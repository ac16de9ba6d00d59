# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's apt repository and simulated vendor parts. See README.md for what is simulated and how it differs."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.vendor import debian, oci, repository
from lab.vendor.debian import VendorError
from lab.vendor.packages import DELIVERED, PREINSTALLED

__all__ = ["VendorError", "VendorTree", "build"]


@dataclass(frozen=True)
class VendorTree:
    path: Path  # holds apt/ and registry/
    digest: str  # of the recipe: the same recipe gives the same tree
    preinstalled: list[str]  # packages of suite `base` that a fresh host has
    delivered: list[str]  # those that a fresh machine has besides
    image_ref_path: str  # name@sha256:... of the simulated vLLM image, to be put behind "REGISTRY/"
    architecture: str  # Debian's name for it


def recipe_digest(architecture: str) -> str:
    """Over all that shapes a tree: its architecture, and the sources, but for the server that only delivers it."""
    here = Path(__file__).parent
    sources = [p for p in here.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    shaping = [p for p in sources if p.name not in ("README.md", "server.py", "__main__.py")]
    total = hashlib.sha256(architecture.encode())
    for path in sorted(shaping):
        total.update(f"{path.relative_to(here)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def build(cache: Path, architecture: str) -> VendorTree:
    """The vendor tree of this recipe: built, or found in the cache. Needs root, mmdebstrap, apt-utils, dpkg and gpg."""
    cache.mkdir(parents=True, exist_ok=True)
    digest = recipe_digest(architecture)
    path = cache / f"tree-{digest}"
    if not (path / "image").is_file():
        missing = [t for t in ("mmdebstrap", "apt-ftparchive", "dpkg-deb", "gpg") if not shutil.which(t)]
        if missing:
            raise VendorError(f"not installed: {', '.join(missing)}; on Debian: apt install mmdebstrap apt-utils gpg")
        carried, root = debian.packages(cache, architecture), debian.python_root(cache, architecture)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            new = Path(scratch) / "tree"
            new.mkdir(mode=0o755)
            repository.build(new / "apt", carried, architecture)
            (new / "image").write_text(oci.build(new / "registry", root, architecture))
            if not path.exists():
                new.replace(path)
    return VendorTree(path, digest, list(PREINSTALLED), list(DELIVERED), (path / "image").read_text(), architecture)


def describe(tree: VendorTree) -> str:
    fields = {**tree.__dict__, "path": str(tree.path)}
    return json.dumps(fields, indent=2)
