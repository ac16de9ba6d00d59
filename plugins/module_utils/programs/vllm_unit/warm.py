# SPDX-License-Identifier: GPL-3.0-or-later
"""The warm cache of a service: what it depends on, and how a container gets it.

A cache is what vLLM compiled in a start that served nobody: one archive, which only root reads and replaces. A
container unpacks it into a layer of its own, and that goes with the container. So no container changes what another
one runs, and none gets an archive that was made of something else: the name of the archive is the key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in

INSIDE = "/gb10-warm.tar"
SUMS = "var/lib/gb10-warm"  # what each archive is: in no folder that an archive lies in, or a container or peer enters
DRIVER = "proc/driver/nvidia/version"
_PROGRAM = "vllm"
# The image's own Python: what an image has beside it, nobody knows. `vllm` is $0, and what follows it are its words.
_UNPACK = f'python3 -m tarfile -e {INSIDE} /root/.cache && exec "$0" "$@"'


class Wish(NamedTuple):
    """That a service starts with a warm cache. `flags` is a digest of its words, `markers` say what its models are."""

    shelf: str
    flags: str
    markers: tuple[str, ...]


class Made(NamedTuple):
    """What a cache is made of. Another one of any of these is another cache."""

    image: str  # the digest of what runs
    models: tuple[str, ...]  # the commit of the model, and of the draft
    driver: str
    flags: str


class Shelved(NamedTuple):
    """A cache on this host. `cold_s` are the seconds of the start that made it."""

    path: Path
    sha256: str
    size: int
    cold_s: float
    at: str


def key(made: Made) -> str:
    """The name of the cache. ValueError where a part is not known: what nobody knows may have changed."""
    if not all((made.image, made.driver, made.flags, made.models, *made.models)):
        raise ValueError(f"not known: {', '.join(name for name, value in made._asdict().items() if not value)}")
    return hashlib.sha256(json.dumps(made._asdict(), sort_keys=True).encode()).hexdigest()


def now(wish: Wish, image: str, root: Path = Path("/")) -> Made:
    """What a cache would be made of on this host as it is. What cannot be read is empty."""
    markers = [document_in(root / marker.lstrip("/")) for marker in wish.markers]
    return Made(image, tuple(str(said.get("commit") or "") for said in markers), _driver(root), wish.flags)


def find(wish: Wish, name: str, root: Path = Path("/")) -> Shelved | None:
    """The cache of this key, where it is whole. Its sum is read anew: it is code that is about to run."""
    path = archive(root / wish.shelf.lstrip("/"), name)
    said = document_in(root / sums(Path(wish.shelf), name))
    try:
        found = Shelved(path, str(said["sha256"]), int(said["bytes"]), float(said["cold_s"]), str(said["at"]))
        same = sum_of(path) == found.sha256
    except (OSError, KeyError, TypeError, ValueError):
        return None
    return found if same else None


def archive(shelf: Path, name: str) -> Path:
    return shelf / f"{name}.tar"


def sums(shelf: Path, name: str) -> Path:
    """Where it is said what the archive of this key is, below the root of the host."""
    return Path(SUMS) / shelf.name / f"{name}.json"


def words(argv: Sequence[str], path: str) -> list[str]:
    """`docker run ... vllm serve ...` with the cache of this path: read only, and unpacked before vLLM starts.

    An image whose own entrypoint starts its programs keeps it: what follows the image is then the program.
    """
    at = list(argv).index("--entrypoint") if "--entrypoint" in argv else len(argv)
    mount, shell = ["--volume", f"{path}:{INSIDE}:ro"], ["/bin/sh", "-c", _UNPACK, _PROGRAM]
    entry, image, *inside = [*argv[at + 1 :], "", ""]
    if entry == _PROGRAM and image:
        return [*argv[:at], *mount, "--entrypoint", shell[0], image, *shell[1:], *inside[:-2]]
    if image and inside[0] == _PROGRAM:
        return [*argv[:at], *mount, "--entrypoint", entry, image, *shell, *inside[1:-2]]
    raise ValueError("the words of docker run name no vllm to start")


def sum_of(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(1 << 22):
            total.update(chunk)
    return total.hexdigest()


def _driver(root: Path) -> str:
    try:
        return (root / DRIVER).read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
    except OSError:
        return ""
