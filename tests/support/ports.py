"""Free TCP ports for servers of tests."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """A port nobody listens on, below those of vLLM and Ray, and below those of outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(20000, 28000)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
