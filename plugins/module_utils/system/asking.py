# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks a server of this host over HTTP: all questions of ours to a service go this way.

Any user may take a port that is free. So nothing is sent before `owner` has said whose the other end is, one deadline
holds for all of an answer, however slowly it drips, and no more than `most` bytes of it are read. No redirect is
followed, and no proxy is asked.
"""

from __future__ import annotations

import io
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SERVING = "serving"  # beside the status of a unit, while its container is all that listens at the service's address
Owner = Callable[[socket.socket], bool]  # whether the other end of a connection is the server that is meant


class Stranger(OSError):
    """Another process than the server that is meant has the port."""


class NoHttp(ValueError):
    """What came is no answer of HTTP."""


def ask(
    address: str,
    port: int,
    path: str,
    owner: Owner,
    *,
    seconds: float,
    most: int,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """The status and the body, a POST where there is `data`; OSError or NoHttp where there is none in time."""
    _hold(path)
    until = time.monotonic() + seconds
    with socket.create_connection((address, port), seconds) as connection:
        _limit(connection, until)
        if not owner(connection):
            raise Stranger("no process of the service is known to have the port")
        status, __, body = exchange(connection, address, port, path, until=until, most=most, data=data, headers=headers)
        return status, body


def exchange(
    connection: socket.socket,
    address: str,
    port: int,
    path: str,
    *,
    until: float,
    most: int,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers by their names in lower case, and the body, up to that moment by the monotonic clock."""
    import http.client  # takes longer than all else here, and many hosts have no API

    _hold(path)
    host = f"[{address}]" if ":" in address else address
    told = {"Host": f"{host}:{port}", "Connection": "close", **(headers or {})}
    if data is not None:
        told["Content-Length"] = str(len(data))
    lines = [
        f"{'GET' if data is None else 'POST'} {path} HTTP/1.1",
        *(f"{name}: {said}" for name, said in told.items()),
    ]
    _limit(connection, until)
    connection.sendall("\r\n".join([*lines, "", ""]).encode("ascii") + (data or b""))
    reply = http.client.HTTPResponse(Answer(connection, until))  # type: ignore[arg-type]
    try:
        reply.begin()
        return reply.status, {name.lower(): said for name, said in reply.getheaders()}, reply.read(most)
    except http.client.HTTPException as error:
        raise NoHttp(f"no HTTP: {type(error).__name__}") from None


def said_by_unit(status: str) -> Owner:
    """By the word of a unit: it takes the file away when another process listens there, too, or its container ends."""
    file = Path(status).with_name(SERVING)
    return lambda _connection: file.exists()


def _hold(path: str) -> None:
    if not path.isascii() or not path.isprintable() or " " in path:
        raise NoHttp("the path has a character that cannot stand in a request")


def left(until: float) -> float:
    """The seconds up to that moment; TimeoutError where it is over."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("timed out")
    return seconds


def _limit(connection: socket.socket, until: float) -> None:
    connection.settimeout(left(until))


class _Counted(io.BufferedReader):
    """Gives so many bytes, and never all: http.client asks for all where a chunk says a length below zero."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            raise ConnectionError("the answer has a chunk that is shorter than nothing")
        return super().read(size)

    def peek(self, size: int = 0, /) -> bytes:
        """A chunk may say a length that no size can be."""
        return super().peek(min(size, sys.maxsize))


class Answer(io.RawIOBase):
    """What a socket gives up to a moment; a timeout of each read alone would let one that drips go on for ever."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection, self.until = connection, until

    def makefile(self, _mode: str) -> io.BufferedReader:
        return _Counted(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        _limit(self._connection, self.until)
        return self._connection.recv_into(buffer)
