# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a vLLM server of this host counts: requests, tokens, and how long tokens take."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Counters = dict[str, "float | None"]

SETTINGS = "etc/gb10-fleet"
SHORT = "vllm"  # the service of the variables vllm_*
LARGEST = 2**22  # bytes of an answer; a sound one has some 100,000
# As text, so that each is compiled when it is first used: a look at a host without services needs the first alone.
_FILE = r"vllm(?:-([a-z0-9][a-z0-9-]{0,62}))?\.json\Z"
_PORT = r"[1-9][0-9]{0,4}\Z"
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what vLLM listens on, and where it is asked
# Ours, and vLLM's after `vllm:`. Those behind the first two may be missing in an older or newer vLLM.
METRICS = {
    "running": ("num_requests_running",),
    "generated_tokens": ("generation_tokens_total", "generation_tokens"),
    "waiting": ("num_requests_waiting",),
    "prompt_tokens": ("prompt_tokens_total", "prompt_tokens"),
    "ttft_s_sum": ("time_to_first_token_seconds_sum",),
    "ttft_count": ("time_to_first_token_seconds_count",),
    "step_s_sum": ("inter_token_latency_seconds_sum", "time_per_output_token_seconds_sum"),
    "step_count": ("inter_token_latency_seconds_count", "time_per_output_token_seconds_count"),
}
_LINE = r"^vllm:(\w+)(?:\{[^\n]*\})? ([0-9.eE+-]{1,30}|NaN|\+?Inf)(?: \d+)?$"


class Service:
    """A service of this host by its names; `port` is None where another host of the cluster has the API."""

    def __init__(self, name: str, unit: str, status: str, address: str, port: int | None, ranks: int) -> None:
        self.name, self.unit, self.status = name, unit, status
        self.address, self.port, self.ranks = address, port, ranks


def services(root: str | Path = "/") -> list[Service]:
    """Those whose settings lie on this host; what is not ours to read is left out."""
    found = []
    folder = f"{root}/{SETTINGS}"
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not paths
    except OSError:
        names = []
    for name in names:
        match = re.match(_FILE, name)
        if match:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                found.append(_service(match[1], _settings(f"{folder}/{name}")))
    return found


def _settings(path: str) -> Any:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - a text, not a path
        return json.load(file)


def _service(name: str | None, settings: Any) -> Service:
    long = f"gb10-vllm-{name}" if name else "gb10-vllm"
    address, port = place(settings["argv"])
    join = settings.get("join")
    ranks = len(join["members"]) if join else 1
    return Service(name or SHORT, f"{long}.service", f"/run/{long}/status.json", address, port, ranks)


def place(argv: Iterable[object]) -> tuple[str, int | None]:
    """Where a server answers on the host itself, by its flags; no port where this rank of a cluster has no API."""
    words = [str(word) for word in argv]
    flags = dict(zip(words, words[1:]))
    host = flags.get("--host", "127.0.0.1")
    port = port_of(flags.get("--port", "")) if "--headless" not in words else None
    return _ANY_ADDRESS.get(host, host), port


def ask(service: Service, seconds: float) -> Counters:
    """The counters of a server; OSError or ValueError, where it does not say them."""
    if service.port is None:
        raise ValueError("this rank of the cluster has no API; the head has")
    status, body = page(service.address, service.port, seconds, LARGEST)
    if status != 200:
        raise ValueError(f"/metrics gave {status}")
    return parse(body.decode("utf-8", "replace"))


def page(address: str, port: int, seconds: float, most: int) -> tuple[int, bytes]:
    """The status of /metrics and what it has, up to `most` bytes; OSError or ValueError where there is none in time."""
    import http.client  # takes longer than all else here, and many hosts have no API

    until = time.monotonic() + seconds
    host = f"[{address}]" if ":" in address else address
    request = f"GET /metrics HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
    with socket.create_connection((address, port), seconds) as connection:
        connection.sendall(request.encode())
        reply = http.client.HTTPResponse(_Answer(connection, until))  # type: ignore[arg-type]
        try:
            reply.begin()
            return reply.status, reply.read(most)
        except http.client.HTTPException as error:
            raise ValueError(f"no HTTP: {type(error).__name__}") from None


class _Answer(io.RawIOBase):
    """What a socket gives up to a moment; a timeout of each read alone would let one that drips go on for ever."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection, self._until = connection, until

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


def port_of(text: str) -> int | None:
    """A port, or None for what is none."""
    return int(text) if re.match(_PORT, text) and int(text) < 2**16 else None


def parse(text: str) -> Counters:
    """Sums over all engines of the server; None for what it does not count."""
    sums: dict[str, float] = {}
    for name, value in re.findall(_LINE, text[:LARGEST], re.MULTILINE):
        with contextlib.suppress(ValueError):
            sums[name] = sums.get(name, 0.0) + float(value)
    found: Counters = {}
    for ours, names in METRICS.items():
        value_of = next((sums[name] for name in names if name in sums), None)
        found[ours] = value_of if value_of is not None and math.isfinite(value_of) and value_of >= 0 else None
    if found["running"] is None or found["generated_tokens"] is None:
        raise ValueError("/metrics is not vLLM's")
    return found
