# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of a model in the cache, as Hugging Face's library expects it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_listing import Model
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError

CHUNK = 1 << 22

Tell = Callable[[str, int, int], None]  # what is being done, bytes so far, bytes in all (0: not known)


def folder_of(cache: str, model: str) -> Path:
    """Where Hugging Face's library keeps a model, with /root/.cache being our cache."""
    return Path(cache) / "huggingface" / "hub" / f"models--{model.replace('/', '--')}"


def make_plain(path: Path, below: Path) -> None:
    """Make a folder. A link on the way is refused: a container can write there, and would lead root elsewhere."""
    below.mkdir(parents=True, exist_ok=True)
    step = below
    for part in path.relative_to(below).parts:
        step = step / part
        with contextlib.suppress(FileExistsError):
            step.mkdir(mode=0o755)
        if not stat.S_ISDIR(step.lstat().st_mode):
            raise FilesError("foreign_link", f"{step} is no folder", "remove it, then run again")


def size_of(blob: Path) -> int | None:
    """None where there is no plain file of that name."""
    with contextlib.suppress(OSError):
        status = blob.lstat()
        return status.st_size if stat.S_ISREG(status.st_mode) else None
    return None


def lacking(folder: Path, model: Model) -> dict[str, int]:
    """The blobs that are not there in their full size: a quick look, no proof."""
    return {name: size for name, size in model.blobs.items() if size_of(folder / "blobs" / name) != size}


def checksum(path: Path, name: str, count: Callable[[int], None]) -> str:
    """As the hub names blobs: SHA-256, or for small ones the SHA-1 of git."""
    total = hashlib.sha256() if len(name) == 64 else hashlib.sha1()  # noqa: S324 - git's, no protection
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        if len(name) != 64:
            total.update(b"blob %d\0" % os.fstat(descriptor).st_size)
        while chunk := file.read(CHUNK):
            total.update(chunk)
            count(len(chunk))
    return total.hexdigest()


def remove_wrong(folder: Path, model: Model, tell: Tell) -> list[str]:
    """The blobs that are missing or not what their names say; the latter are removed."""
    wrong, done = [], 0

    def count(length: int) -> None:
        nonlocal done
        done += length
        tell("checking the model", done, model.size)

    for name, size in model.blobs.items():
        blob = folder / "blobs" / name
        if size_of(blob) == size and checksum(blob, name, count) == name:
            continue
        with contextlib.suppress(FileNotFoundError):
            blob.unlink()
        wrong.append(name)
    return wrong


def link(folder: Path, cache: Path, model: Model) -> None:
    """The paths of the model's files, and the name of its revision, as the library looks them up without a network."""
    for blob in model.files:
        place = folder / "snapshots" / model.commit / blob.path
        target = "../" * (blob.path.count("/") + 2) + f"blobs/{blob.hash}"
        make_plain(place.parent, cache)
        if not place.is_symlink() or os.readlink(place) != target:  # noqa: PTH115 - as it is written
            with contextlib.suppress(FileNotFoundError):
                place.unlink()
            place.symlink_to(target)
    if model.revision != model.commit:
        make_plain(folder / "refs", cache)
        write(folder / "refs" / model.revision, model.commit, 0o644)


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Whole or not at all, and private from the first moment on."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)


def need_room(path: Path, needed: int, what: str, way_out: str) -> None:
    """Refuse before the first byte. What is kept free of a disk is the doctor's: `disk_full`."""
    while not path.exists():
        path = path.parent
    status = os.statvfs(path)
    free = status.f_bavail * status.f_frsize
    if needed > free:
        text = f"{what} takes {gigabytes(needed)} and {path} has {gigabytes(free)} left"
        raise FilesError("disk_full", text, way_out)


def gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
