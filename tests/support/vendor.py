"""The vendor's programs of the lab, asked over HTTP."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable

GPU = {"NVIDIA_VISIBLE_DEVICES": "void"}
DEADLINE_SECONDS = 60.0


def ask(port: int, path: str, body: object = None, key: str = "", host: str = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=DEADLINE_SECONDS)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    data = None if body is None else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, data, headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def health(port: int, host: str = "127.0.0.1") -> int:
    """Status of /health; 0 when the connection is refused."""
    try:
        return ask(port, "/health", host=host)[0]
    except OSError:
        return 0


def wait_for(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.05)


def wait_for_health(port: int, wanted: int) -> None:
    wait_for(lambda: health(port) == wanted, f"/health did not become {wanted}")
