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
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from ansible.release import __version__ as ansible_version
from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog

_DIGEST = hashlib.sha256().digest_size  # bytes


def folder() -> Path:
    """$XDG_CACHE_HOME/gb10-fleet; a relative XDG_CACHE_HOME counts as none, as its standard says."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "gb10-fleet"


def write(path: Path, content: bytes) -> None:
    """Replace the file as a whole, in a folder that is the user's alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    # A name that nobody else has: containers and machines that share a home have the same process ids.
    number, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink()
        raise


def computed(name: str, sources: Sequence[Path], compute: Callable[[], Any]) -> Any:
    """What `compute` makes of the sources, and of nothing else but Python, Ansible and Jinja; for marshal to write."""
    path = origin = None
    with contextlib.suppress(OSError, RuntimeError, ValueError, EOFError, TypeError):  # RuntimeError: no home
        origin = _origin(sources)
        path = folder() / "computed" / name
        kept = _own(path)
        value = kept[2 * _DIGEST :]
        if kept[: 2 * _DIGEST] == origin + hashlib.sha256(value).digest():
            return marshal.loads(value)  # noqa: S302 - nobody else can have written it
    made = compute()
    with contextlib.suppress(OSError):
        if path is not None and origin == _origin(sources):  # or it may be made of files that changed under it
            value = marshal.dumps(made)
            write(path, origin + hashlib.sha256(value).digest() + value)
    return made


@cache
def catalogs(name: str, wanted: frozenset[str]) -> None:
    """Read these catalogs, or take what they said when they were read last: YAML is slow."""
    paths = [catalog.collection_root() / "catalog" / f"{each}.yml" for each in sorted(wanted)]
    read = computed(
        name, [Path(catalog.__file__), *paths], lambda: {path.stem: catalog.load(path.stem) for path in paths}
    )
    catalog.KEPT.update(read)


def _origin(sources: Sequence[Path]) -> bytes:
    digest = hashlib.sha256(f"{sys.version} {ansible_version} {jinja2.__version__}".encode())
    for source in sources:
        content = source.read_bytes()
        digest.update(b"%d " % len(content) + content)
    return digest.digest()


def _own(path: Path) -> bytes:
    """The content of a file that nobody but this user can have written: it may be code.

    Both are looked at. A folder that was open to others is closed by the next `write`, with what they put there.
    """
    with path.open("rb") as file:
        for status, mode in (
            (path.parent.lstat(), stat.S_IFDIR | 0o700),
            (os.fstat(file.fileno()), stat.S_IFREG | 0o600),
        ):
            if (status.st_mode, status.st_uid) != (mode, os.geteuid()):
                raise PermissionError(path)
        return file.read()
