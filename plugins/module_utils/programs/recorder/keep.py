# SPDX-License-Identifier: GPL-3.0-or-later
"""gb10-recorder-keep: takes the lines of other hosts and keeps them, so that one that lost its power still has a word.

Only the addresses of its peers may call, and each line must prove the secret, which the two hosts alone have: a third
one may take such an address. Any user of a peer can call from it, too: who has proven nothing has little time, and is
the first to leave where seats are short.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.saying import say

from ..vllm_unit.seal import Seal, read_secret
from .ring import STATE, Ring
from .send import CONFIG, KEPT, PATIENCE_S, Call

KEY = "/etc/gb10-fleet/recorder-keep.key"  # of this host and the one before it: no third one has it

SILENCE_S = 60.0  # of a caller that sends a sample each second
# Bytes a second that a host may send, some three times what an honest one does at most (catalog/flight_recorder.yml,
# bytes_per_s, with the shares of topics). It waits for each line to be kept, so a wait here holds it up: without one
# a host filled 33 MiB of the disk a second, without an end.
FASTEST = 65536
MOST_CALLERS = 8  # that have proven nothing yet
_FREEBIND = 15  # Linux, in.h: a rail's address may come later


class Keeper:
    """`hosts`: {address: name} of those who may call."""

    def __init__(self, folder: Path, hosts: dict[str, str], secret: bytes, most: int) -> None:
        self._folder, self._hosts, self._secret, self._most = folder, hosts, secret, most
        self._unproven: list[socket.socket] = []  # the oldest first
        self._proven: dict[str, socket.socket] = {}  # one of each host
        self._rings: dict[str, Ring] = {}
        self._full: set[str] = set()  # hosts whose lines cannot be kept
        self._lock = threading.Lock()

    def serve(self, listener: socket.socket) -> None:
        while True:
            connection, caller = listener.accept()
            host = self._hosts.get(caller[0])
            if host is None:
                connection.close()
                continue
            self._seat(connection)
            threading.Thread(target=self._take, args=(connection, host), daemon=True).start()

    def _seat(self, connection: socket.socket) -> None:
        """Where no seat is left, the oldest caller without proof goes: the right one proves itself at once."""
        with self._lock:
            self._unproven.append(connection)
            while len(self._unproven) > MOST_CALLERS:
                _hang_up(self._unproven.pop(0))

    def _prove(self, connection: socket.socket, host: str) -> None:
        """The newest call of a host is the one that it sends on."""
        with self._lock:
            if connection in self._unproven:
                self._unproven.remove(connection)
            former = self._proven.get(host)
            self._proven[host] = connection
        if former is not None:
            _hang_up(former)

    def _leave(self, connection: socket.socket, host: str) -> None:
        with self._lock:
            if connection in self._unproven:
                self._unproven.remove(connection)
            if self._proven.get(host) is connection:
                del self._proven[host]

    def _take(self, connection: socket.socket, host: str) -> None:
        try:
            with connection, contextlib.suppress(OSError):
                self.listen(connection, host)
        finally:
            self._leave(connection, host)

    def listen(self, connection: socket.socket, host: str) -> None:
        """Keep what this caller proves, until it is gone or says what is no line of its own."""
        until = time.monotonic() + PATIENCE_S
        seal, call = Seal(self._secret, calls=False), Call(connection)
        call.say(seal.opening)
        if not seal.meet(call.hear(until) or b""):
            return
        call.say(seal.seal({"keeps": host}))
        first = seal.open(call.hear(until) or b"")
        if first is None or first.get("host") != host:
            return
        self._prove(connection, host)
        while True:
            line = call.hear(time.monotonic() + SILENCE_S) or b""
            message = seal.open(line)
            if message is None:
                return
            time.sleep(len(line) / FASTEST)
            if not self._keep(connection, host, message):
                return
            call.say(seal.seal(KEPT))

    def _keep(self, connection: socket.socket, host: str, message: dict[str, Any]) -> bool:
        """Return whether it is kept: a call that has ended meanwhile adds nothing beside the next."""
        with self._lock:
            if self._proven.get(host) is not connection:
                return False
            if host not in self._rings:
                self._rings[host] = Ring(self._folder, host, self._most)
            try:
                self._rings[host].add(message)
            except OSError as error:
                if host not in self._full:
                    say(f"gb10-recorder: what {host} sends cannot be kept: {error.strerror}")
                self._full.add(host)
                raise
            self._full.discard(host)
        return True


def _hang_up(connection: socket.socket) -> None:
    """Its own thread closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def main() -> int:
    config: dict[str, Any] = json.loads(Path(CONFIG).read_text(encoding="utf-8"))
    secret = read_secret(KEY)
    if not secret:
        sys.stderr.write(f"gb10-recorder: {KEY} has no key of 32 characters or more; run site.yml\n")
        return 1
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_IP, _FREEBIND, 1)
        listener.bind((config["listen"], config["port"]))
        listener.listen(MOST_CALLERS)
        Keeper(Path(STATE), config["from"], secret, config["most_bytes"]).serve(listener)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
