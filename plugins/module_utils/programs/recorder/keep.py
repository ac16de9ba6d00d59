# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gb10-recorder-keep: takes the lines of other hosts and keeps them, so that one that lost its power still has a word.

Only the addresses of its peers may call, and each line must prove the secret.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from ..vllm_unit.seal import Seal, read_secret
from .ring import STATE, Ring
from .send import CONFIG, KEY, PATIENCE_S

LONGEST_LINE = 4096
SILENCE_S = 60.0  # of a caller that sends a sample each second
MOST_CALLERS = 8
_FREEBIND = 15  # Linux, in.h: a rail's address may come later


class Keeper:
    """`hosts`: {address: name} of those who may call."""

    def __init__(self, folder: Path, hosts: dict[str, str], secret: bytes, most: int) -> None:
        self._folder, self._hosts, self._secret, self._most = folder, hosts, secret, most
        self._seats = threading.BoundedSemaphore(MOST_CALLERS)

    def serve(self, listener: socket.socket) -> None:
        while True:
            connection, caller = listener.accept()
            host = self._hosts.get(caller[0])
            if host is None or not self._seats.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._take, args=(connection, host), daemon=True).start()

    def _take(self, connection: socket.socket, host: str) -> None:
        try:
            with connection, contextlib.suppress(OSError):
                self.listen(connection, host)
        finally:
            self._seats.release()

    def listen(self, connection: socket.socket, host: str) -> None:
        """Keep what this caller proves, until it is gone or says what is no line of its own."""
        connection.settimeout(PATIENCE_S)
        seal = Seal(self._secret, calls=False)
        connection.sendall(seal.opening)
        ring = None
        with connection.makefile("rb") as stream:
            if not seal.meet(stream.readline(LONGEST_LINE).rstrip(b"\n")):
                return
            while True:
                line = stream.readline(LONGEST_LINE)
                message = seal.open(line[:-1]) if line.endswith(b"\n") else None
                if message is None:
                    return
                if ring is None:
                    if message.get("host") != host:
                        return
                    ring = Ring(self._folder, host, self._most)
                    connection.settimeout(SILENCE_S)
                    continue
                ring.add(message)


def main() -> int:
    config: dict[str, Any] = json.loads(Path(CONFIG).read_text(encoding="utf-8"))
    secret = read_secret(KEY)
    if not secret:
        print(f"gb10-recorder: {KEY} has no key of 32 characters or more; run site.yml", file=sys.stderr)
        return 1
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_IP, _FREEBIND, 1)
        listener.bind((config["listen"], config["port"]))
        listener.listen(MOST_CALLERS)
        Keeper(Path(STATE), config["from"], secret, config["most_bytes"]).serve(listener)
    return 0


if __name__ == "__main__":
    sys.exit(main())
