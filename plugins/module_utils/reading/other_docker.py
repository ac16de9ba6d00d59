# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker from elsewhere than Docker's own packages: the distribution's, a snap, podman's stand-in, a user's own."""

from __future__ import annotations

import os
import re
import stat
from typing import TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading import containers
from ansible_collections.gb10.fleet.plugins.module_utils.reading.dpkg import Database
from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import upstream_version
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

SNAP, ROOTLESS = "snap", "rootless"
# An engine, or what stands in for one, by its package.
ENGINES = ("docker.io", "moby-engine", "podman-docker")
# What shares files or names with Docker's own packages, and leaves with its engine.
_WITH_THEM = ("docker-buildx", "docker-compose", "docker-compose-v2", "docker-doc", "containerd", "runc")
# By pid file: to ask a socket without its daemon could start one.
_PID_FILES = {SNAP: "/run/snap.docker/docker.pid", "docker.io": "/run/docker.pid", "moby-engine": "/run/docker.pid"}
_SNAP = "/snap/docker/current/meta/snap.yaml"
_SNAPS = "/var/lib/snapd/snaps"  # what is installed, whether it is mounted or not
_MOST_NAMES = 20


class OtherDocker(TypedDict):
    kind: str
    version: str | None
    packages: list[str]
    containers: list[str] | None


def read_others(host: HostReader, database: Database) -> list[OtherDocker]:
    """Each that is there; `containers` are those that run in it, null where that cannot be known."""
    return [*_packaged(host, database), *_snapped(host), *_rootless(host)]


def _packaged(host: HostReader, database: Database) -> list[OtherDocker]:
    there = [name for name in ENGINES if name in database.installed]
    packages = [*there, *(name for name in _WITH_THEM if name in database.installed)]
    return [
        {
            "kind": name,
            "version": upstream_version(database.installed[name].version),
            "packages": packages,
            "containers": _containers(host, name),
        }
        for name in there
    ]


def _snapped(host: HostReader) -> list[OtherDocker]:
    text = host.read(_SNAP)
    if text is None and not any(re.match(r"docker_\d+\.snap\Z", name) for name in host.names(_SNAPS)):
        return []
    found = re.search(r"^version: *['\"]?([\w.+~-]+)", text or "", re.MULTILINE)
    running = _containers(host, SNAP)
    return [{"kind": SNAP, "version": found[1] if found else None, "packages": [], "containers": running}]


def _rootless(host: HostReader) -> list[OtherDocker]:
    """A user's own daemon, while it runs. Root asks it nothing, and opens nothing in a folder of that user's.

    A pipe would hold it up there, and a link lead it to a device.
    """
    runs = any(_is_file(host.system.place(f"/run/user/{name}/docker.pid")) for name in host.names("/run/user"))
    return [{"kind": ROOTLESS, "version": None, "packages": [], "containers": None}] if runs else []


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _containers(host: HostReader, kind: str) -> list[str] | None:
    if kind not in _PID_FILES:
        return None
    if not containers.runs(host, _PID_FILES[kind]):
        return []
    said = containers.ask(host, "/containers/json")
    return sorted(map(_name, said))[:_MOST_NAMES] if isinstance(said, list) else None


def _name(container: object) -> str:
    names = container.get("Names") if isinstance(container, dict) else None
    first = names[0] if isinstance(names, list) and names else "?"
    return re.sub(r"[^\w.-]", "?", str(first).lstrip("/"))[:64]
