# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller keeps from one run to the next, below $XDG_CACHE_HOME/gb10-fleet.

Nothing here is trusted further than the user's own files are, and nothing here is worth an error: what is absent,
damaged, somebody else's or of another version is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jinja2
from ansible.release import __version__ as ansible_version

_DIGEST = hashlib.sha256().digest_size  # bytes


def folder() -> Path:
    """$XDG_CACHE_HOME/gb10-fleet; a relative XDG_CACHE_HOME counts as none, as its standard says."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "gb10-fleet"


def write(path: Path, content: bytes) -> None:
    """Replace the file as a whole, in a folder that is the user's alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def computed(name: str, sources: Iterable[Path], compute: Callable[[], Any]) -> Any:
    """What `compute` makes of the sources, and of nothing else but Python, Ansible and Jinja; for marshal to write."""
    origin = hashlib.sha256(f"{sys.version} {ansible_version} {jinja2.__version__}".encode())
    for source in sources:
        content = source.read_bytes()
        origin.update(b"%d " % len(content) + content)
    path = None
    with contextlib.suppress(OSError, RuntimeError, ValueError, EOFError, TypeError):  # RuntimeError: no home
        path = folder() / "computed" / name
        if _ours(path.parent):
            kept = path.read_bytes()
            value = kept[2 * _DIGEST :]
            if kept[: 2 * _DIGEST] == origin.digest() + hashlib.sha256(value).digest():
                return marshal.loads(value)  # noqa: S302 - nobody else can write it
    made = compute()
    with contextlib.suppress(OSError):
        if path is not None:
            value = marshal.dumps(made)
            write(path, origin.digest() + hashlib.sha256(value).digest() + value)
    return made


def _ours(place: Path) -> bool:
    """Whether nobody but this user can have put anything there: it may be code."""
    status = place.lstat()
    return (stat.S_IMODE(status.st_mode), status.st_uid) == (0o700, os.geteuid())
