# SPDX-License-Identifier: GPL-3.0-or-later
"""What Docker's engine says over its socket, and which containers run that are not ours. Changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

DEADLINE_S = 10.0  # under memory pressure it answers late, and no answer is refused
OURS = "gb10-"  # how the names of our containers begin
_PID, _SOCKET = "/run/docker.pid", "/run/docker.sock"
_MAX_ANSWER = 1024 * 1024  # bytes; what Docker says of itself has some 5,000


class Container(NamedTuple):
    name: str
    image: str

    def __str__(self) -> str:
        return f"{self.name} ({self.image})"


def runs(host: HostReader, pid_file: str = _PID) -> bool:
    """By pid file: asking its socket could start a daemon that systemd activates on demand."""
    pid = host.number(pid_file)
    return pid is not None and host.path(f"/proc/{pid}").exists()


def ask(host: HostReader, resource: str) -> Any:
    """The JSON that Docker's engine answers; None if there is none in time.

    HTTP 1.0 has no chunks, and the server closes after its answer, so a few lines do what would cost 20 ms of imports.
    """
    import socket  # only a host that runs Docker needs it

    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE_S)
            connection.connect(str(host.path(_SOCKET)))
            connection.sendall(f"GET {resource} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
            answer = b""
            while len(answer) < _MAX_ANSWER and (part := connection.recv(65536)):
                answer += part
        return json.loads(answer.partition(b"\r\n\r\n")[2])
    except (OSError, ValueError):
        return None


def ask_info(host: HostReader) -> dict[str, Any]:
    """What the engine says of itself; empty if there is nothing in time."""
    said = ask(host, "/info")
    return said if isinstance(said, dict) else {}


def ended_with_docker(host: HostReader) -> list[Container]:
    """Those of others that run and that a restart of Docker ends."""
    return ended(host, ask_info(host)) if runs(host) else []


def ended(host: HostReader, info: Mapping[str, Any]) -> list[Container]:
    """The same of an engine that runs and has said `info`: none where its `live-restore` keeps them."""
    if info.get("LiveRestoreEnabled"):
        return []
    listed, found = ask(host, "/containers/json"), []
    for said in listed if isinstance(listed, list) else ():
        try:
            name, image = str(said["Names"][0]).lstrip("/"), str(said["Image"])
        except (KeyError, TypeError, IndexError):
            continue
        if not name.startswith(OURS):
            found.append(Container(name, image))
    return sorted(found)
