# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers for a service that is asleep: 503, and when to ask again. The role vllm installs it.

    gb10-wake vllm-embed --load 300 --least 5

systemd starts it with the first request, as gb10-wake@vllm-embed.service, and the service with it: that unit wants
gb10-vllm-embed.service. So this program starts nothing and needs no privilege. It reads what the service says of
itself, and answers. It ends when nobody has asked for a while, and at the latest after LIFE_S. So the next request asks
systemd again for a service that has failed meanwhile.
"""

from __future__ import annotations

import argparse
import calendar
import contextlib
import json
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FIRST = 3  # the file descriptor of systemd's socket
IDLE_S = 3.0
LIFE_S = 15.0
ANSWER_S = 2.0  # for one caller, who is the gateway of this host
_HEAD = 65536
_ENDLESS_S = 1e9  # no load takes so long
_UTC = "%Y-%m-%dT%H:%M:%SZ"
_STILL = ("", "stopped")


def read(path: Path) -> dict[str, Any]:
    """What the service says of itself; nothing where it has never run since the boot."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def answer(said: Mapping[str, Any], now: float, load_s: float, least_s: float) -> tuple[str, int]:
    """What a client is told, and in how many seconds it is to ask again. Pure."""
    expected, phase = _number(said.get("load_s"), load_s), str(said.get("phase") or "")
    failure = said.get("failure")
    if phase == "failed":
        verdict = str(failure.get("verdict")) if isinstance(failure, dict) else "no verdict"
        return f"the model was asleep and its last start failed ({verdict})", _whole(expected, least_s)
    if phase == "ready":
        return "the model has just started", _whole(0.0, least_s)
    gone = 0.0 if phase in _STILL else _gone(said, now)
    left = _whole(expected - gone, least_s)
    return f"the model was asleep and starts now; it takes about {left} s", left


def _gone(said: Mapping[str, Any], now: float) -> float:
    """Seconds since this start: the phases that are over, and the one that is not."""
    phases = said.get("phases")
    over = sum(_number(each, 0.0) for each in phases.values()) if isinstance(phases, dict) else 0.0
    with contextlib.suppress(ValueError):
        over += max(0.0, now - calendar.timegm(time.strptime(str(said.get("since")), _UTC)))
    return over


def _number(value: Any, default: float) -> float:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _ENDLESS_S
    return float(value) if known else default


def _whole(seconds: float, least_s: float) -> int:
    return round(max(seconds, least_s))


def reply(words: str, seconds: int) -> bytes:
    error = {"error": {"message": f"{words}; ask again then", "type": "gateway", "code": 503}}
    body = json.dumps(error).encode()
    head = [
        "HTTP/1.1 503 Service Unavailable",
        "Content-Type: application/json",
        f"Retry-After: {seconds}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(head).encode() + body


def serve(listener: socket.socket, status: Path, load_s: float, least_s: float) -> int:
    """Return how many were answered."""
    end, count = time.monotonic() + LIFE_S, 0
    listener.settimeout(IDLE_S)
    while time.monotonic() < end:
        try:
            caller, __ = listener.accept()
        except socket.timeout:
            break
        # One that has left, or says nothing, holds up nobody.
        with contextlib.suppress(OSError), caller:
            caller.settimeout(ANSWER_S)
            caller.recv(_HEAD)
            caller.sendall(reply(*answer(read(status), time.time(), load_s, least_s)))
            count += 1
    return count


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="gb10-wake", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stem", help="of the service's names, such as vllm-embed")
    parser.add_argument("--load", type=float, required=True, metavar="S", help="where no load of it is known")
    parser.add_argument("--least", type=float, required=True, metavar="S")
    parser.add_argument("--run", type=Path, default=Path("/run"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    with socket.socket(fileno=FIRST) as listener:
        serve(listener, options.run / f"gb10-{options.stem}" / "status.json", options.load, options.least)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
