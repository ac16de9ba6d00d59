# SPDX-License-Identifier: GPL-3.0-or-later
"""How much room is left where programs of a Spark write.

Layers of images, snaps and file systems in memory are full at all times: of those nobody asks.
"""

from __future__ import annotations

import json
from typing import TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading import unit_names
from ansible_collections.gb10.fleet.plugins.module_utils.reading.machine import read_disks, read_mounts
from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import mount_of
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown, quoted

PATHS = ("/", "/var/lib/docker")
MOST = len(PATHS) + unit_names.MOST_SERVICES


class Room(TypedDict):
    path: str
    mount: str
    size_bytes: int
    free_bytes: int


def read_rooms(host: HostReader) -> list[Room]:
    """Of PATHS, and of the folder that each service fills; `mount` holds the path. Unknown where none answers."""
    mounts = read_mounts(host)
    # A share of another host may not answer, and whoever asks it for its size waits without end.
    folders = [each for each in _filled(host) if mounts.get(mount_of(each, {*mounts}), "").startswith("/dev/")]
    disks = {disk["mount"]: disk for disk in read_disks(host, folders)}
    held = {path: disks.get(mount_of(path, {*disks})) for path in (*PATHS, *folders)}
    found: list[Room] = [
        {"path": quoted(path), "mount": quoted(disk["mount"]), "size_bytes": disk["size_bytes"],
         "free_bytes": disk["free_bytes"]}
        for path, disk in held.items() if disk
    ]  # fmt: skip
    if not found:
        raise Unknown("no file system tells its size")
    return found[:MOST]


def _filled(host: HostReader) -> list[str]:
    """The folders into which the services write."""
    found = []
    for name in unit_names.installed(host):
        try:
            folder = json.loads(host.read(unit_names.settings_of(name)) or "")["cache"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(folder, str) and folder.startswith("/"):
            found.append(folder)
    return found
