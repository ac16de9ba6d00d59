# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of a model in the cache, as Hugging Face's library expects it, and the folder where its files arrive.

The cache may be somebody's, and a container may write to it. So root works there relative to descriptors and follows
no link, and a file comes there whole and proven: it is moved from a folder that only root can enter.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.serving.model_listing import Model
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import FilesError
from ansible_collections.gb10.fleet.plugins.module_utils.system import folders

CHUNK = 1 << 22

Tell = Callable[[str, int, int], None]  # what is being done, bytes so far, bytes in all (0: not known)


def name_of(model: str) -> str:
    """The folder of a model, relative to the cache, with /root/.cache being our cache."""
    return f"huggingface/hub/models--{model.replace('/', '--')}"


def marker_of(model: str, revision: str, exclude: Sequence[str]) -> str:
    """Name the file that says which files of a model are whole. Services that take files of their own each have one."""
    own = f".{hashlib.sha256(json.dumps(list(exclude)).encode()).hexdigest()[:12]}" if "*" in exclude else ""
    return f"{name_of(model).rpartition('/')[2]}@{revision or 'main'}{own}.json"


@contextlib.contextmanager
def opened(top: Path, inside: str, *, make: bool = False) -> Iterator[int]:
    """A descriptor of a folder in the cache. A link below `top` is refused: a container can write there as root."""
    with _named(top), folders.folder(str(top), make=make) as outer:
        descriptor = folders.within(outer, inside, make=make)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _named(top: Path) -> Iterator[None]:
    """A link or a file where a folder should be has its verdict."""
    try:
        yield
    except (folders.ForeignLink, NotADirectoryError) as error:
        text = f"{top / str(error.filename)} is no folder"
        raise FilesError("foreign_link", text, "remove it, then run again") from None


def private_folder(path: Path) -> Path:
    """A folder that only root can enter."""
    with folders.folder(str(path.parent), make=True) as parent:
        made = folders.make_folder(path.name, parent, 0o700)
        try:
            if os.fstat(made).st_uid != os.geteuid():
                raise FilesError("foreign_link", f"{path} is not root's", "remove it, then run again")
            os.fchmod(made, 0o700)
        finally:
            os.close(made)
    return path


def size_in(parent: int, name: str) -> int | None:
    """None where there is no plain file of that name."""
    status = folders.status_of(name, parent)
    return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None


def lacking(blobs: int, model: Model) -> dict[str, int]:
    """The blobs that are not there in their full size: a quick look, no proof."""
    return {name: size for name, size in model.blobs.items() if size_in(blobs, name) != size}


def checksum(descriptor: int, name: str, size: int, count: Callable[[int], None]) -> str:
    """As the hub names blobs: SHA-256, or for small ones the SHA-1 of git; of a file that grows, `size` bytes."""
    total = hashlib.sha256() if len(name) == 64 else hashlib.sha1()  # noqa: S324 - git's, no protection
    if len(name) != 64:
        total.update(b"blob %d\0" % size)
    left = size
    while left and (chunk := os.read(descriptor, min(CHUNK, left))):
        total.update(chunk)
        left -= len(chunk)
        count(len(chunk))
    return total.hexdigest()


def is_proven(parent: int, name: str, size: int, count: Callable[[int], None]) -> bool:
    """Return whether a blob is what its name says. Opened once: what is read is what was looked at."""
    if size_in(parent, name) != size:
        return False
    try:
        descriptor = folders.open_file(name, parent)
    except OSError:  # exchanged since
        return False
    try:
        if checksum(descriptor, name, size, count) != name:
            return False
        os.fchmod(descriptor, 0o644)  # the model's server reads it without root's powers
        return True
    finally:
        os.close(descriptor)


def borrow(source: str, model: Model, names: Sequence[str], arriving: int, tell: Tell) -> int:
    """Copy blobs of somebody's own cache to where blobs arrive, to be proven there like any other. How many came.

    Their owner may exchange what lies there at any time: no link is followed, and nothing there is changed.
    """
    came, done = 0, 0
    with contextlib.suppress(OSError), folders.folder(source) as outer:
        theirs = folders.within(outer, f"hub/{name_of(model.model).rpartition('/')[2]}/blobs")
        try:
            for name in names:
                if size_in(theirs, name) != model.blobs[name]:
                    continue
                came += _copied(name, model.blobs[name], theirs, arriving)
                done += model.blobs[name]
                tell(f"copying the model from {source}", done, model.size)
        finally:
            os.close(theirs)
    return came


def _copied(name: str, size: int, source: int, target: int) -> bool:
    try:
        reading = folders.open_file(name, source)
    except OSError:  # exchanged since
        return False
    try:
        folders.remove_file(name, target)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        writing = os.open(name, flags, 0o600, dir_fd=target)
        with os.fdopen(writing, "wb") as file:
            left = size  # no more than there was room for, however much comes
            while left and (chunk := os.read(reading, min(CHUNK, left))):
                file.write(chunk)
                left -= len(chunk)
    finally:
        os.close(reading)
    return not left


def settle(arrived: int, blobs: int, model: Model, tell: Tell) -> list[str]:
    """Move what arrived and is proven to its place. The blobs that are missing or wrong; the latter are removed."""
    wrong, done = [], 0

    def count(length: int) -> None:
        nonlocal done
        done += length
        tell("checking the model", done, model.size)

    for name, size in model.blobs.items():
        if folders.status_of(name, arrived) is not None and is_proven(arrived, name, size, count):
            os.rename(name, name, src_dir_fd=arrived, dst_dir_fd=blobs)
        elif not is_proven(blobs, name, size, count):
            for parent in (arrived, blobs):
                folders.remove_file(name, parent)
            wrong.append(name)
    return wrong


def link(cache: Path, model: Model) -> None:
    """The paths of the model's files, and the name of its revision, as the library looks them up without a network."""
    with opened(cache, name_of(model.model), make=True) as folder:
        for blob in model.files:
            path, __, name = f"snapshots/{model.commit}/{blob.path}".rpartition("/")
            target = "../" * (blob.path.count("/") + 2) + f"blobs/{blob.hash}"
            with _inner(folder, path) as parent:
                if not _leads_to(name, parent, target):
                    folders.remove_file(name, parent)
                    os.symlink(target, name, dir_fd=parent)
        if model.revision != model.commit:
            with _inner(folder, "refs") as parent:
                write_in(parent, model.revision, model.commit, 0o644)


@contextlib.contextmanager
def _inner(folder: int, path: str) -> Iterator[int]:
    with _named(Path(path)):
        descriptor = folders.within(folder, path, make=True)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _leads_to(name: str, parent: int, target: str) -> bool:
    status = folders.status_of(name, parent)
    return status is not None and stat.S_ISLNK(status.st_mode) and os.readlink(name, dir_fd=parent) == target


def closed(cache: Path, model: str) -> str:
    """The folder that keeps the model's server out, which is root without root's powers; empty if none does."""
    path = name_of(model)
    for inside in (path.rpartition("/")[0], path, f"{path}/blobs"):
        with opened(cache, inside) as descriptor:
            status = os.fstat(descriptor)
            bits = (status.st_mode >> 6 if status.st_uid == os.geteuid() else status.st_mode) & 0o5
        if bits != 0o5:
            return str(cache / inside)
    return ""


def lend(blobs: int, names: dict[str, int], shown: int) -> None:
    """Show blobs in another folder of the same disk, and nothing else that may lie or come where they are."""
    for name in names:
        os.link(name, name, src_dir_fd=blobs, dst_dir_fd=shown, follow_symlinks=False)
        if size_in(shown, name) is None:
            folders.remove_file(name, shown)
            raise FilesError("foreign_link", f"the blob {name} is no file", "remove it, then run again")


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Whole or not at all, and private from the first moment on."""
    with folders.folder(str(path.parent)) as parent:
        write_in(parent, path.name, text, mode)


def write_in(parent: int, name: str, text: str, mode: int = 0o600) -> None:
    new = f".{name}.new"
    folders.remove_file(new, parent)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=parent)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    os.rename(new, name, src_dir_fd=parent, dst_dir_fd=parent)


def need_room(path: Path, needed: int, what: str, way_out: str) -> None:
    """Refuse before the first byte. What is kept free of a disk is the doctor's: `disk_full`."""
    path = existing(path)
    status = os.statvfs(path)
    free = status.f_bavail * status.f_frsize
    if needed > free:
        text = f"{what} takes {gigabytes(needed)} and {path} has {gigabytes(free)} left"
        raise FilesError("disk_full", text, way_out)


def existing(path: Path) -> Path:
    """The innermost folder of a path that is there."""
    while not path.exists():
        path = path.parent
    return path


def on_the_disk_of(cache: Path, state: Path) -> Path:
    """Where files arrive: on the cache's own disk, so that they are moved and not copied, and root alone gets in."""
    inner = existing(cache)
    if inner.stat().st_dev == existing(state).stat().st_dev:
        return state / "arriving"
    top = inner.resolve()
    while top.parent.stat().st_dev == top.stat().st_dev and top != top.parent:
        top = top.parent
    if not folders.only_ours(str(top)):
        text = f"{top}, the top of the disk of {cache}, belongs to others than root"
        way_out = "give it to root (`chown root`, `chmod go-w`), or set vllm_cache_directory to another disk"
        raise FilesError("foreign_folder", text, way_out)
    return top / ".gb10-files"


def gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
