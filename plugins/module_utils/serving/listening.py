# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose process holds a TCP socket: any user can take a port first, and what answers there is not who it should be."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Callable

from ansible_collections.gb10.fleet.plugins.module_utils.reading.sockets import (
    LISTEN,
    PROC,
    End,
    end,
    kin,
    sockets,
    sockets_of,
)
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Runner

DOCKER_DEADLINE_S = 10.0
ACCEPT_POLL_S = 0.02


def listens(process: int, address: str, port: int, proc: Path = PROC) -> bool:
    """Whether a process is the one that listens at an address."""
    wanted = end(address, port)
    own = sockets_of([process], proc)
    return any(each.state == LISTEN and each.local == wanted and each.inode in own for each in sockets(proc))


def other_end(local: End, remote: End, proc: Path = PROC) -> int:
    """The inode of the other side of a connection within this host; 0 where nobody has accepted it yet."""
    return next((each.inode for each in sockets(proc) if (each.local, each.remote) == (remote, local)), 0)


def of_container(name: str, run: Runner, proc: Path = PROC) -> Callable[[socket.socket], bool]:
    """Whether the other end of a connection is a process of a container; by what it has accepted, not by its port.

    The connection's own time limit holds for a server that is slow to accept it.
    """

    def is_its_own(connection: socket.socket) -> bool:
        done = run(["docker", "container", "inspect", "--format", "{{.State.Pid}}", name], None, DOCKER_DEADLINE_S)
        process = done.stdout.strip()
        if done.rc != 0 or not process.isdigit() or process == "0":
            return False
        here, there = (end(*found[:2]) for found in (connection.getsockname(), connection.getpeername()))
        until = time.monotonic() + (connection.gettimeout() or 0.0)
        while not (accepted := other_end(here, there, proc)):
            if time.monotonic() > until:
                raise TimeoutError("nobody has accepted the connection")
            time.sleep(ACCEPT_POLL_S)
        return accepted in sockets_of(kin(int(process), proc), proc)

    return is_its_own
