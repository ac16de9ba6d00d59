"""A user without privileges who exchanges things under root's hands, as fast as the machine lets him."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NOBODY = 65534
TRIES = int(os.environ.get("GB10_ATTACK_TRIES", "1000"))  # of each race
EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
_HERE = -100  # AT_FDCWD

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="NOT ROOT: nothing proves that a user cannot lead root elsewhere"
)


def tally(what: str, tries: int, wins: int) -> None:
    """Counts one class of attack for the table of `python -m scripts.attacks`; elsewhere nobody asks."""
    if counts := os.environ.get("GB10_ATTACKS"):
        with Path(counts).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"class": what, "tries": tries, "wins": wins}) + "\n")


class Compared(dict[str, str]):
    """One that counts how often it is compared with another one."""

    times = 0
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)


def exchange(one: Path, other: Path) -> None:
    """Two names change places, at one moment. Nothing where one of them is not there."""
    ctypes.CDLL(None).renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), EXCHANGE)


@contextlib.contextmanager
def attacking(move: Callable[[], object], uid: int = NOBODY) -> Iterator[None]:
    """`move`, again and again, by a process of another user."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            while True:
                with contextlib.suppress(OSError):
                    move()
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@contextlib.contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that every user can look into; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="gb10-attack."))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)


def clear(path: Path) -> None:
    """Away with whatever stands there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
