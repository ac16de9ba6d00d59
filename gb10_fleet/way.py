"""How this machine reaches one host by itself: the ssh that Ansible would use, and HTTP through it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.gb10.fleet.plugins.module_utils.system.asking import Answer
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice

from gb10_fleet import passwords
from gb10_fleet.playbook import Order, Report, run

_LINE = 2**20  # bytes of one event of an answer; a longer one is not ours
NO_LOGIN = 255  # as ssh ends where it did not come in
_SAID = 2**14  # bytes of what a server says of an error, and of what ssh says
_TALK = 2**26  # bytes that ssh may say; LogLevel DEBUG3 says some 500 for each word of an answer
_SOON_S = 1.0


class NoWay(Exception):
    """The host cannot be reached, or the service gave no answer; the text says why and what to do."""


@dataclass(frozen=True)
class Way:
    """A command line that reaches a host. None: the address is on this machine. The key is never part of it."""

    command: Sequence[str] | None
    key: str = field(default="", repr=False)
    look: Sequence[str] | None = None  # what has to end well before anything is sent
    copy: str = ""  # the command that puts this user's key on the host

    def no_login(self) -> str:
        """Say that ssh was not let in, and what helps."""
        if passwords.CONNECTION in passwords.typed:
            return f"ssh was not let in with a key or with the password. Fix: type it anew, or {self.copy}"
        return f"ssh has no key that the host takes. Fix: put yours there: {self.copy}, or add -k and type its password"


def find(order: Order, host: str, service: str, **more: str) -> tuple[Way | None, Report]:
    """Have Ansible write down the way to a host. `more`: what to run there, or the address to lead to."""
    with tempfile.TemporaryDirectory(prefix="gb10-way-") as folder:  # only this user can look into it
        file = Path(folder, "way.json")
        wanted = {"gb10_way": {"service": service, "file": str(file), **more}}
        with passwords.held_back(passwords.CONNECTION):  # ssh itself is given it, or Ansible would type for it
            _, report = run(
                replace(order, playbook="gb10.fleet.way", limit=host, variables=wanted, asks={}), quiet=True
            )
        if not file.exists():
            return None, report
        said = json.loads(file.read_text(encoding="utf-8"))
    if "problem" in said:
        raise NoWay(f"{host}: {said['problem']}")
    return Way(said["command"], said["key"], said.get("look"), said.get("copy", "")), report


@contextmanager
def _connected(way: Way, address: tuple[str, int], timeout_s: float) -> Iterator[http.client.HTTPConnection]:
    """Yield a connection to the service. Through ssh no port is opened here, so nobody else can use the tunnel."""
    connection = http.client.HTTPConnection(*address, timeout=timeout_s)
    if way.command is None:
        try:
            yield connection
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise NoWay(advice.plain(f"{address[0]} port {address[1]}: {error}")) from None
        finally:
            connection.close()
        return
    ours, theirs = socket.socketpair()
    ours.settimeout(timeout_s)
    connection.sock = ours
    with theirs, passwords.for_ssh(way.command) as (words, environment):
        said, theirs_to_say = os.pipe()
        tunnel = subprocess.Popen(
            words, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=theirs_to_say, env=environment
        )
        heard = _Heard(said)
        os.close(theirs_to_say)
        theirs.close()
        try:
            yield connection
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException) as error:
            tunnel.terminate()
            raise NoWay(advice.plain(heard.last_words() or str(error))) from None
        finally:
            connection.close()
            tunnel.terminate()
            tunnel.wait()


class _Heard(threading.Thread):
    """What ssh says, taken as it comes: a pipe that is full would stop ssh, and with it the answer. Its end is kept.

    Whoever says more than `_TALK` is heard no longer: ssh goes on, and nothing fills.
    """

    def __init__(self, pipe: int) -> None:
        super().__init__(daemon=True)  # a master that stays may hold the pipe open
        self._pipe, self._last = pipe, b""
        self.start()

    def run(self) -> None:
        taken = 0
        while taken < _TALK and (chunk := os.read(self._pipe, _SAID)):
            taken += len(chunk)
            self._last = (self._last + chunk)[-_SAID:]
        os.close(self._pipe)

    def last_words(self) -> str:
        """Return the end of it; of an ssh that has ended all is there."""
        self.join(_SOON_S)
        return self._last.decode(errors="replace").strip()


def answer(way: Way, url: str, body: Mapping[str, Any], timeout_s: float) -> Iterator[tuple[str, str]]:
    """Yield the pieces of an answer as they come, each as `text` or `thought`. Waits `timeout_s` for the next one."""
    status = _status(way.look, timeout_s) if way.look else 0
    if status == NO_LOGIN:
        raise NoWay(way.no_login())
    if status != 0:
        raise NoWay(
            "the unit does not say that its container listens there, so nothing was sent. Fix: gb10 logs says why"
        )
    place = urlsplit(url)
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    headers |= {"Authorization": f"Bearer {way.key}"} if way.key else {}
    with _connected(way, (place.hostname or "127.0.0.1", place.port or 80), timeout_s) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True}), headers)
        # A server says more than words: interim answers, remarks. Only a word wins time.
        heard = Answer(connection.sock, time.monotonic() + timeout_s)
        response = http.client.HTTPResponse(heard, method="POST")  # type: ignore[arg-type]
        response.begin()
        if response.status != http.client.OK:
            raise NoWay(_refused(response.status, response.read(_SAID)))
        while line := response.readline(_LINE):
            if line.startswith(b"data:") and (piece := _piece(line[5:].strip())):
                yield piece
                heard.until = time.monotonic() + timeout_s


def _status(command: Sequence[str], timeout_s: float) -> int | None:
    """Return how it ends; None where not in time. What the host says is not kept: it may be without an end."""
    nothing = subprocess.DEVNULL
    try:
        with passwords.for_ssh(command) as (words, environment):
            return subprocess.run(
                words, stdin=nothing, stdout=nothing, stderr=nothing, check=False, timeout=timeout_s, env=environment
            ).returncode
    except subprocess.TimeoutExpired:
        return None


def _piece(data: bytes) -> tuple[str, str] | None:
    """Return what one event adds to the answer; None of one that adds nothing, or is no event of an answer."""
    try:
        said = json.loads(data)
        if "error" in said:
            raise NoWay(f"the model stopped: {advice.plain(str(said['error']))}")
        delta = said["choices"][0]["delta"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):  # the last one is no JSON
        return None
    if not isinstance(delta, Mapping):
        return None
    for kind, keys in (("text", ("content",)), ("thought", ("reasoning_content", "reasoning"))):
        for key in keys:
            if isinstance(text := delta.get(key), str) and text:
                return kind, text
    return None


def _refused(status: int, body: bytes) -> str:
    try:
        said = json.loads(body)
        text = str(said.get("error", {}).get("message") or said.get("message") or said)
    except (ValueError, AttributeError, RecursionError):
        text = body.decode(errors="replace").strip()
    fix = {401: ". Fix: its key is vllm_api_key in the inventory; gb10 site brings it to the host"}.get(status, "")
    return f"the service answered {status}: {advice.plain(text)}{fix}"
