# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose process holds a TCP socket: any user can take a port first, and what answers there is not who it should be."""

from __future__ import annotations

import socket

from ansible_collections.gb10.fleet.plugins.module_utils.reading.sockets import (
    LISTEN,
    accepted_by,
    end,
    sockets,
    sockets_of,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.asking import Owner
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Runner

DOCKER_DEADLINE_S = 10.0


def listens(process: int, address: str, port: int) -> bool:
    """Return whether a process is the one that listens at an address."""
    own = sockets_of([process])
    return any(each.mark in own for each in sockets([end(address, port)], state=LISTEN))


def of_container(name: str, run: Runner) -> Owner:
    """Return whether the other end of a connection is a process of a container."""

    def is_its_own(connection: socket.socket) -> bool:
        done = run(["docker", "container", "inspect", "--format", "{{.State.Pid}}", name], None, DOCKER_DEADLINE_S)
        process = done.stdout.strip()
        if done.rc != 0 or not process.isdigit() or process == "0":
            return False
        return accepted_by(int(process), connection)

    return is_its_own
