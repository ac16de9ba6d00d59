"""Free TCP ports for servers of tests."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """A port nobody listens on, below the range that the kernel gives to outgoing connections: theirs come and go."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
