# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated `huggingface_hub`: lists and downloads any model, whose bytes follow from its name, without a network.

Real: the layout of the cache, checksums as the hub makes them, names of errors. A model with `gated` in its name wants
a token, one with `missing` does not exist. `GB10_SIM_HUB`: down | corrupt-once | corrupt.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser() / "hub"
FILES = {
    "config.json": 600,
    "README.md": 300,
    "tokenizer/tokenizer.json": 20_000,
    "model-00001-of-00002.safetensors": 2_000_000,
    "model-00002-of-00002.safetensors": 1_000_000,
    "original/consolidated.00.pth": 3_000_000,
    "metal/model.bin": 3_000_000,
}
LARGE = 100_000  # from here on a file is kept as LFS, by its SHA-256


class GatedRepoError(Exception):
    """The licence of the model was not accepted, or nobody said who asks."""


class RepositoryNotFoundError(Exception):
    """There is no such model."""


class RevisionNotFoundError(Exception):
    """There is no such revision of it."""


@dataclass
class File:
    rfilename: str
    size: int
    blob_id: str
    lfs: dict[str, str | int] | None


@dataclass
class Info:
    sha: str
    siblings: list[File]


def content(model: str, path: str) -> bytes:
    seed = hashlib.sha256(f"{model}/{path}".encode()).digest()
    return (seed * (FILES[path] // len(seed) + 1))[: FILES[path]]


def named(data: bytes) -> tuple[str, str]:
    """The checksums of git and of LFS."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(), hashlib.sha256(data).hexdigest()  # noqa: S324


class HfApi:
    def model_info(self, model: str, *, revision: str, files_metadata: bool) -> Info:
        del files_metadata
        if "down" in os.environ.get("GB10_SIM_HUB", "") or os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
            raise ConnectionError("HTTPSConnectionPool(host='hub'): Max retries exceeded: Connection refused")
        if "missing" in model:
            raise RepositoryNotFoundError(f"404 Client Error. Repository Not Found for {model}.")
        if "gated" in model and not os.environ.get("HF_TOKEN"):
            raise GatedRepoError(f"401 Client Error. Access to model {model} is restricted.")
        commit = hashlib.sha1(model.encode()).hexdigest()  # noqa: S324
        if revision not in ("main", commit):
            raise RevisionNotFoundError(f"404 Client Error. Revision Not Found: {revision}.")
        files = []
        for path, size in FILES.items():
            blob, lfs = named(content(model, path))
            files.append(File(path, size, blob, {"sha256": lfs, "size": size} if size >= LARGE else None))
        return Info(commit, files)


def snapshot_download(model: str, *, revision: str = "main", allow_patterns: list[str] | None = None) -> str:
    info = HfApi().model_info(model, revision=revision, files_metadata=True)
    folder = CACHE / f"models--{model.replace('/', '--')}"
    snapshot = folder / "snapshots" / info.sha
    spoilt = os.environ.get("GB10_SIM_HUB", "")
    once = folder / ".spoilt"
    (folder / "blobs").mkdir(parents=True, exist_ok=True)
    for file in info.siblings:
        if not any(fnmatch.fnmatch(file.rfilename, pattern) for pattern in allow_patterns or ["*"]):
            continue
        name = str(file.lfs["sha256"]) if file.lfs else file.blob_id
        blob, link = folder / "blobs" / name, snapshot / file.rfilename
        if not blob.exists():
            data = content(model, file.rfilename)
            if file.lfs and (spoilt == "corrupt" or (spoilt == "corrupt-once" and not once.exists())):
                once.touch()
                data = b"?" + data[1:]
            blob.write_bytes(data)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to("../" * (file.rfilename.count("/") + 2) + f"blobs/{name}")
    if revision != info.sha:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / revision).write_text(info.sha)
    return str(snapshot)
