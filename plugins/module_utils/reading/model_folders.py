# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies in the folder of a model: its names, its small files, and how large its weights are. Read only on request.

The folder belongs to somebody else, or a container writes there. So it is walked by descriptor, and a link is followed
only where it is one of the hub's: from a snapshot to the blobs of the same model.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Sequence
from typing import TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.system import folders
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

TEXTS = ("config.json", "hf_quant_config.json", "generation_config.json")
MOST_BYTES = 262144  # of a text; the longest config.json that is known has 120 kB, of modules that are not quantized
_COMMIT = r"[0-9a-f]{40}\Z"
_BLOB = r"\.\./\.\./blobs/([0-9a-f]{40,64})\Z"
_WEIGHTS = r"\.safetensors\Z"


class ModelFolder(TypedDict):
    names: list[str]
    texts: dict[str, str]
    weights_bytes: int | None


def read_models(host: HostReader, paths: Sequence[str]) -> dict[str, ModelFolder | None]:
    """By path: a folder, or a reference of the hub's cache (.../refs/main). None where there is no such model."""
    return {path: _read(str(host.system.root), path) for path in paths}


def _read(root: str, path: str) -> ModelFolder | None:
    try:
        if "/refs/" in path:
            repository, __, reference = path.partition("/refs/")
            with folders.folder(repository, root=root) as top:
                commit = _text("refs/" + reference, top)
                if commit is None or not re.match(_COMMIT, commit.strip()):
                    return None
                return _snapshot(top, commit.strip())
        repository, __, commit = path.partition("/snapshots/")
        with folders.folder(repository, root=root) as top:
            return _snapshot(top, commit) if commit else _folder(top, top)
    except OSError:
        return None


def place_of(repository: str, revision: str | None) -> str | None:
    """Where in a folder of the hub's cache this revision of a model is; without one, "" of a folder that is a model."""
    with contextlib.suppress(OSError), folders.folder(repository) as top:
        place = ""
        if revision is not None:
            commit = (_text(f"refs/{revision}", top) or revision).strip()
            if not re.match(_COMMIT, commit):
                return None
            place = f"snapshots/{commit}"
        inside = folders.within(top, place or ".")
        try:
            os.close(_open("config.json", inside, top))
        finally:
            os.close(inside)
        return place
    return None


def _snapshot(top: int, commit: str) -> ModelFolder:
    inside = folders.within(top, f"snapshots/{commit}")
    try:
        return _folder(inside, top)
    finally:
        os.close(inside)


def _folder(inside: int, top: int) -> ModelFolder:
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=inside)
    try:
        names = folders.first_names(listed, folders.MOST_NAMES)
    finally:
        os.close(listed)
    sizes = [_size(name, inside, top) for name in names if re.search(_WEIGHTS, name)]
    texts = {name: _text(name, inside, top) for name in TEXTS if name in names}
    return {
        "names": [name for name in names if name.isprintable() and not re.search(_WEIGHTS, name)],
        "texts": {name: _one_line(text) for name, text in texts.items() if text is not None},
        "weights_bytes": None if not sizes or None in sizes else sum(size or 0 for size in sizes),
    }


def _one_line(text: str) -> str:
    """The same JSON without control characters: the controller replaces them in all that a host says.

    It would read another text, and compare its digest with that of a fact which the host never has.
    """
    try:
        return json.dumps(json.loads(text))
    except (ValueError, RecursionError):
        return ascii(text)  # no JSON either, so the reader says what is wrong


def _size(name: str, inside: int, top: int) -> int | None:
    """Of a plain file; None where it is none, or is not here yet."""
    try:
        opened = _open(name, inside, top)
    except OSError:
        return None
    try:
        return os.fstat(opened).st_size
    finally:
        os.close(opened)


def _text(name: str, inside: int, top: int | None = None) -> str | None:
    try:
        opened = _open(name, inside, top)
    except OSError:
        return None
    with os.fdopen(opened, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    return content.decode("utf-8", "replace") if len(content) <= MOST_BYTES else None


def _open(name: str, inside: int, top: int | None) -> int:
    """A plain file of this folder, or of the blobs that a snapshot links to."""
    folder, __, last = name.rpartition("/")
    parent = folders.within(inside, folder) if folder else os.dup(inside)
    try:
        found = os.stat(last, dir_fd=parent, follow_symlinks=False)
        if (
            top is not None
            and stat.S_ISLNK(found.st_mode)
            and (blob := re.match(_BLOB, os.readlink(last, dir_fd=parent)))
        ):
            os.close(parent)
            parent = folders.within(top, "blobs")
            last = blob[1]
        opened = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    finally:
        os.close(parent)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(f"{name} is no plain file")
    return opened
