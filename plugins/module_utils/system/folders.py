# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders by descriptor, for paths on which somebody else may have a hand.

Root that looks up a path twice can be led elsewhere in between. So a path is walked once, one folder after the other,
and everything else is done relative to the descriptor of the last one. A link on the way is followed only where root
alone could have made it; docs/security-places.md lists who works with this.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

MOST_NAMES = 2000  # of a folder that somebody else may fill; a model has some hundred files
LONGEST_WALK = 400  # folders and links of one path: links that lead to each other end here
_PATH = getattr(os, "O_PATH", os.O_RDONLY)  # a controller that is no Linux imports this, too
_WALK = _PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ForeignLink(OSError):
    """A link that somebody other than root may have made, where a folder should be."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "is a link that somebody else may have made", path)


class Planted(OSError):
    """A file or folder that another login may have put where he knew that we look."""

    def __init__(self, path: object) -> None:
        super().__init__(errno.EPERM, "it is another login's, in a folder that anybody may write to", str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def is_public(folder: Path) -> bool:
    """Tell whether any login may put something there, as into `/tmp`."""
    return bool(folder.stat().st_mode & stat.S_IWOTH)


def planted(path: Path) -> bool:
    """Tell whether something there is neither ours nor root's, where anybody may put something: `/tmp/evidence`."""
    try:
        return not _is_ours(path.lstat()) and is_public(path.absolute().parent)
    except OSError:
        return False


def planted_above(path: Path) -> Path | None:
    """The first that is planted, of a path and the folders above it."""
    return next(filter(planted, (path, *path.absolute().parents)), None)


@contextlib.contextmanager
def folder(path: str, *, root: str = "/", make: bool = False) -> Iterator[int]:
    """A descriptor to work relative to. `path` is looked up below `root`; `make`: what is missing is made."""
    descriptor = _walk(path, root, make)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _walk(path: str, root: str, make: bool) -> int:
    names = deque(part for part in path.split("/") if part not in ("", "."))
    current = os.open(root, _PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for __ in range(LONGEST_WALK):
            if not names:
                return current
            following = _step(names.popleft(), current, path, make)
            if isinstance(following, str):
                names.extendleft(reversed([part for part in following.split("/") if part not in ("", ".")]))
                if not following.startswith("/"):
                    continue
                following = os.open(root, _PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            os.close(current)
            current = following
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    except BaseException as error:
        os.close(current)
        if isinstance(error, OSError):
            error.filename = path
        raise


def _step(name: str, current: int, path: str, make: bool) -> int | str:
    """The next folder; or where a link to it leads."""
    try:
        return _enter(name, current, make)
    except NotADirectoryError:
        status = os.stat(name, dir_fd=current, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            raise
        if not (_is_ours(status) and is_ours_alone(current)):
            raise ForeignLink(path) from None
        return os.readlink(name, dir_fd=current)


def _enter(name: str, current: int, make: bool) -> int:
    try:
        return os.open(name, _WALK, dir_fd=current)
    except FileNotFoundError:
        if not make:
            raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=current)
        return os.open(name, _WALK, dir_fd=current)


def within(parent: int, path: str, *, make: bool = False) -> int:
    """A descriptor of a folder below one that others may write to, as root too (a container): no link is followed."""
    current = os.dup(parent)
    try:
        for name in path.split("/"):
            following = _enter(name, current, make)
            os.close(current)
            current = following
    except BaseException as error:
        os.close(current)
        if isinstance(error, NotADirectoryError):
            raise ForeignLink(path) from None
        raise
    return current


def only_ours(path: str) -> bool:
    """Return whether nobody but root can exchange any part of a path."""
    parts = path.strip("/").split("/")
    for length in range(len(parts) + 1):
        with folder("/" + "/".join(parts[:length])) as descriptor:
            status = os.fstat(descriptor)
            if not is_ours_alone(descriptor) and not (_is_ours(status) and status.st_mode & stat.S_ISVTX):
                return False
    return True


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid())


def is_ours_alone(descriptor: int) -> bool:
    """Return whether nobody but root can put something into a folder."""
    status = os.fstat(descriptor)
    return _is_ours(status) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def open_folder(name: str, parent: int) -> int:
    """A folder to list and to change, never what a link leads to."""
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)


def open_file(name: str, parent: int) -> int:
    """A regular file to read, never what a link leads to; it waits for no pipe."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no regular file", name)
    return descriptor


def first_names(folder: int | str, most: int) -> list[str]:
    """The names in a folder, sorted, `most` at most; which ones of more is chance. Somebody else may fill it."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in islice(entries, most))


def make_folder(name: str, parent: int, mode: int = 0o755) -> int:
    """A new folder, or the one that is there. What somebody else put in place of a new one is refused."""
    try:
        os.mkdir(name, mode, dir_fd=parent)
    except FileExistsError:
        return open_folder(name, parent)
    made = open_folder(name, parent)
    if os.fstat(made).st_uid != os.geteuid() or os.listdir(made):  # noqa: PTH208 - a descriptor
        os.close(made)
        raise ForeignLink(name)
    return made


def status_of(name: str, parent: int) -> os.stat_result | None:
    """What stands there itself; nothing where nothing does."""
    with contextlib.suppress(FileNotFoundError):
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    return None


def remove_file(name: str, parent: int) -> None:
    """It may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


def clear(name: str, parent: int) -> None:
    """Empty a folder, whatever a container left in it, and however deep: what is in an inner folder moves up first."""
    top = open_folder(name, parent)
    try:
        while inner := _left_folders(top):
            for each in inner:
                descriptor = open_folder(each, top)
                try:
                    for deeper in _left_folders(descriptor):
                        os.rename(deeper, os.urandom(16).hex(), src_dir_fd=descriptor, dst_dir_fd=top)
                finally:
                    os.close(descriptor)
                os.rmdir(each, dir_fd=top)
    finally:
        os.close(top)


def _left_folders(descriptor: int) -> list[str]:
    """The folders in one, once everything else in it is removed."""
    with os.scandir(descriptor) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name, dir_fd=descriptor)
    return [name for name, is_folder in found if is_folder]


def sync(parent: int) -> None:
    """Make a rename or an unlink survive a power cut."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=parent)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
