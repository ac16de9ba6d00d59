# SPDX-License-Identifier: GPL-3.0-or-later
"""The TCP sockets of a host, and whose process has them: any user can take a port that is free."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_NAME, _USER = re.compile(r"(?m)^Name:\t(.*)$"), re.compile(r"(?m)^Uid:\t([0-9]+)")  # of /proc/PID/status
LISTEN = 0x0A  # of the kernel's states of a TCP socket (include/net/tcp_states.h)
PROC = Path("/proc")
ACCEPT_POLL_S = 0.02


class End(NamedTuple):
    """An address of a TCP connection; of IPv4 also where the socket is one of IPv6."""

    address: str
    port: int


class Mark(NamedTuple):
    """By what a socket is known: its inode, and the number of its user.

    The kernel counts inodes in 32 bits, so a user who makes enough sockets gets the number of somebody else's.
    """

    inode: int
    user: int


class Socket(NamedTuple):
    """A TCP socket of this host; `mark` is None until somebody has accepted it."""

    local: End
    remote: End
    state: int
    mark: Mark | None


def end(address: str, port: int) -> End:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return End(str(mapped or parsed), port)


def sockets(
    local: Iterable[End], remote: End | None = None, state: int | None = None, proc: Path = PROC
) -> Iterator[Socket]:
    """The TCP sockets of our network namespace at these ends. Others are not taken apart: a user can open 100,000."""
    ends = {text: each for each in local for text in _texts(each)}
    here = "|".join(ends)
    there = r"[0-9A-F]+:[0-9A-F]{4}" if remote is None else "|".join(_texts(remote))
    how = r"[0-9A-F]{2}" if state is None else f"{state:02X}"
    pattern = rf"^ *\d+: ({here}) ({there}) ({how}) (?:\S+ ){{3}}(\d+) \S+ (\d+) "
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            text = re.sub(" +", " ", (proc / "net" / name).read_text(encoding="ascii"))
            for found in re.findall(pattern, text, re.MULTILINE):
                user, inode = map(int, found[3:])
                mark = Mark(inode, user) if inode else None
                yield Socket(ends[found[0]], _end(found[1]), int(found[2], 16), mark)


def _texts(at: End) -> list[str]:
    """As the kernel prints it, in 32-bit words in the machine's own order; IPv4 also as a socket of IPv6 has it."""
    packed = ipaddress.ip_address(at.address).packed
    ways = [packed] if len(packed) == 16 else [packed, b"\0" * 10 + b"\xff\xff" + packed]
    words = ([way[place : place + 4] for place in range(0, len(way), 4)] for way in ways)
    return ["".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in way) + f":{at.port:04X}" for way in words]


def _end(text: str) -> End:
    digits, __, port = text.partition(":")
    words = [int(digits[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(digits), 8)]
    return end(str(ipaddress.ip_address(b"".join(words))), int(port, 16))


def sockets_of(processes: Iterable[int], proc: Path = PROC) -> set[Mark]:
    """The sockets that processes have open."""
    found = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for entry in os.scandir(proc / str(process) / "fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("socket:"):  # noqa: PTH115 - it is no path
                        status = os.stat(entry.path)  # noqa: PTH116 - of the socket itself
                        found.add(Mark(status.st_ino, status.st_uid))
    return found


def accepted_by(process: int, connection: socket.socket, proc: Path = PROC) -> bool:
    """Whether the other end of a connection is of a process' control group; by what it has accepted, not by its port.

    The connection's own time limit holds for a server that is slow to accept it.
    """
    here, there = (end(*found[:2]) for found in (connection.getsockname(), connection.getpeername()))
    until = time.monotonic() + (connection.gettimeout() or 0.0)
    while not (accepted := other_end(here, there, proc)):
        if time.monotonic() > until:
            raise TimeoutError("nobody has accepted the connection")
        time.sleep(ACCEPT_POLL_S)
    return accepted in sockets_of(kin(process, proc), proc)


def other_end(local: End, remote: End, proc: Path = PROC) -> Mark | None:
    """The other side of a connection within this host; None where nobody has accepted it yet."""
    return next((each.mark for each in sockets([remote], local, proc=proc)), None)


def owners(marks: set[Mark], proc: Path = PROC) -> Iterator[str]:
    """Whose the sockets are: each process with its user, as far as it can be read."""
    for process in sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()):
        if sockets_of([process], proc) & marks:
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
