"""Free TCP ports for servers of tests."""

from __future__ import annotations

import itertools
import random
import socket

# Each once before any comes again: two servers of one test have two ports.
_CANDIDATES = itertools.cycle(random.SystemRandom().sample(range(20000, 28000), 8000))


def free_port() -> int:
    """A port nobody listens on, below those of vLLM and Ray, and below those of outgoing connections."""
    while True:
        port = next(_CANDIDATES)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
