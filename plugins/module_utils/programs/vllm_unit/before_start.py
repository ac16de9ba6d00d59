# SPDX-License-Identifier: GPL-3.0-or-later
"""What may have changed since the role looked: the image behind a name, and the folders that the container gets.

Docker looks up both by name when the container starts. So each start looks again, as late as it can.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import Failure

# What only Docker's classic store shows in an image's configuration. `docker run` says it anew for each container.
OF_A_CONTAINER = (
    *("Hostname", "Domainname", "Image", "AttachStdin", "AttachStdout", "AttachStderr"),
    *("Tty", "OpenStdin", "StdinOnce"),
)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def image_digest(inspected: str) -> str:
    """What the image is, by the JSON of `docker image inspect`, in whichever store it lies; empty where nobody can say.

    All ranks must have the same: they compare it before each start, as they compare their settings.
    """
    lines = [line for line in inspected.splitlines() if line.startswith("{")]  # a warning may stand above it
    try:
        image = json.loads(lines[-1])
        config = {
            name: value for name, value in (image["Config"] or {}).items() if value and name not in OF_A_CONTAINER
        }
        what = [image["RootFS"]["Layers"], image["Os"], image["Architecture"], config]
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def check_mounts(argv: Sequence[str], root: Path) -> None:
    """Each folder of the host is reached without a link that somebody else may have made."""
    for folder in _mounted(argv):
        link = _foreign_link(folder, root)
        if link:
            raise Failure("mount_moved", f"{link} on the way to {folder} is a link that root did not make")


def _mounted(argv: Sequence[str]) -> Iterator[str]:
    for word, following in zip(argv, argv[1:]):
        if word == "--volume" and following.startswith("/"):
            yield following.partition(":")[0]


def _foreign_link(folder: str, root: Path) -> str:
    """The first such link on the way; empty where there is none, or where the folder is not there yet."""
    way = root
    for name in folder.strip("/").split("/"):
        parent, way = way, way / name
        try:
            found, above = way.lstat(), parent.stat()
        except OSError:
            return ""
        alone = above.st_uid == 0 and not above.st_mode & _OTHERS_WRITE
        if stat.S_ISLNK(found.st_mode) and not (found.st_uid == 0 and alone):
            return f"/{way.relative_to(root)}"
    return ""
