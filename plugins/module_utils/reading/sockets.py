# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The TCP sockets of a host, and whose process has them: any user can take a port that is free."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_SOCKET = re.compile(r"socket:\[([0-9]+)\]\Z")
_NAME, _USER = re.compile(r"(?m)^Name:\t(.*)$"), re.compile(r"(?m)^Uid:\t([0-9]+)")  # of /proc/PID/status
LISTEN = 0x0A  # of the kernel's states of a TCP socket (include/net/tcp_states.h)
PROC = Path("/proc")


class End(NamedTuple):
    """An address of a TCP connection; of IPv4 also where the socket is one of IPv6."""

    address: str
    port: int


class Socket(NamedTuple):
    """A TCP socket of this host. `inode` is 0 until somebody has accepted it."""

    local: End
    remote: End
    state: int
    inode: int


def end(address: str, port: int) -> End:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return End(str(mapped or parsed), port)


def sockets(proc: Path = PROC) -> Iterator[Socket]:
    """All TCP sockets of our network namespace."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / name).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                yield Socket(_end(fields[1]), _end(fields[2]), int(fields[3], 16), int(fields[9]))


def _end(text: str) -> End:
    """The kernel prints an address as 32-bit words in the machine's own order."""
    digits, _, port = text.partition(":")
    words = [int(digits[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(digits), 8)]
    return end(str(ipaddress.ip_address(b"".join(words))), int(port, 16))


def sockets_of(processes: Iterable[int], proc: Path = PROC) -> set[int]:
    """The inodes of the sockets that processes have open."""
    found = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for entry in os.scandir(proc / str(process) / "fd"):
                with contextlib.suppress(OSError):
                    match = _SOCKET.match(os.readlink(entry.path))  # noqa: PTH115 - it is no path
                    if match:
                        found.add(int(match[1]))
    return found


def owners(inodes: set[int], proc: Path = PROC) -> Iterator[str]:
    """Whose the sockets are: each process with its user, as far as it can be read."""
    for process in sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()):
        if sockets_of([process], proc) & inodes:
            told = _text(proc / str(process) / "status")
            name, user = _NAME.search(told), _USER.search(told)
            if name and user:
                yield f"{name[1]} (process {process} of {_user(int(user[1]))})"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def kin(process: int, proc: Path = PROC) -> list[int]:
    """The processes of the same control group, such as those of a container: only root puts one into it.

    By the whole path of the group, for a user may give one of his own the same name at its end.
    """
    group = _group(proc / str(process))
    if group.endswith(":/"):  # everybody's, so of this one only itself is known
        return [process]
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit() and _group(entry) == group]


def _group(process: Path) -> str:
    return _text(process / "cgroup").strip() or ":/"


def _text(path: Path) -> str:
    """A file of /proc; empty where it cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
