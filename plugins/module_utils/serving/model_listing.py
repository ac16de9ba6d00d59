# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model consists of, as the hub, a marker or a peer says it. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_MODEL = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?\Z", re.ASCII)
_REVISION = re.compile(r"\w[\w.-]*\Z", re.ASCII)
_LARGEST = 2**50  # bytes of a file: a thousand times what any model has
_PART = re.compile(r"[^\0-\x1f\x7f/\\]+\Z")


class Blob(NamedTuple):
    """A file of a model. `hash` is its SHA-256, of a small one the SHA-1 that git gives it; `size` in bytes."""

    path: str
    size: int
    hash: str


class Model(NamedTuple):
    """What a model consists of, at one commit."""

    model: str
    revision: str
    commit: str
    files: tuple[Blob, ...]

    @property
    def blobs(self) -> dict[str, int]:
        """Sizes by checksum: two files of a model may be one blob."""
        return {blob.hash: blob.size for blob in self.files}

    @property
    def size(self) -> int:
        return sum(self.blobs.values())

    def as_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "revision": self.revision,
            "commit": self.commit,
            "bytes": self.size,
            "files": [list(blob) for blob in self.files],
        }


def parse_model(raw: Any) -> Model:
    """What the hub, a marker or a peer says, or ValueError with what is wrong in it."""
    try:
        model = Model(raw["model"], raw["revision"], raw["commit"], tuple(Blob(*file) for file in raw["files"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no list of a model's files: {error!r}") from error
    for name, pattern in (("model", _MODEL), ("revision", _REVISION), ("commit", _COMMIT)):
        value = getattr(model, name)
        if not isinstance(value, str) or not pattern.match(value):
            raise ValueError(f"{name} {value!a} is no name of a {name}")
    for blob in model.files:
        if not isinstance(blob.path, str) or not safe_path(blob.path):
            raise ValueError(f"the path {blob.path!a} leads out of the model, or is none")
        if not isinstance(blob.hash, str) or not _HASH.match(blob.hash):
            raise ValueError(f"{blob.path}: {blob.hash!a} is neither a SHA-256 nor a SHA-1")
        if not isinstance(blob.size, int) or isinstance(blob.size, bool) or not 0 <= blob.size <= _LARGEST:
            raise ValueError(f"{blob.path}: {blob.size!a} is no size in bytes")
    if len({blob.path for blob in model.files}) != len(model.files):
        raise ValueError("a path is in it twice")
    return model


def safe_path(path: str) -> bool:
    """Return whether a path stays below its folder and is plain text."""
    return all(_PART.match(part) and part not in (".", "..") for part in path.split("/"))


def wanted(said: Mapping[str, Any], model: str, revision: str, exclude: Sequence[str]) -> Model:
    """What the hub lists, without what is excluded. Patterns as its own tool takes them; `!` keeps."""
    patterns = [f"{pattern}*" if pattern.endswith("/") else pattern for pattern in exclude]
    kept = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    try:
        files = [
            [file["path"], file["size"], file["hash"]]
            for file in said["files"]
            if _fits(file["path"], kept) or not _fits(file["path"], patterns)
        ]
        commit = said["commit"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no list of a model's files: {error!r}") from error
    return parse_model({"model": model, "revision": revision, "commit": commit, "files": files})


def _fits(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)
