"""Whoever takes the port of a service: he gets no word, is believed nothing, and holds nobody up for long."""

from __future__ import annotations

import ast
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.system import asking

from scripts.gates import ROOT
from tests.support.attacker import tally

DRIPS = "a server at a service's port that drips: questions that outlast their limit"
BEYOND = "a server whose answer has a chunk shorter than nothing: questions that read without an end"
STRANGERS = "a login at a service's port: questions that it gets"
LIMIT_S, SLACK_S = 0.3, 1.2
HEAD = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Says `first` at once and then `drop` again and again."""

    def __init__(self, first: bytes, drop: bytes) -> None:
        self.first, self.drop, self.heard = first, drop, b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self.listener.accept()
            with connection:
                connection.sendall(self.first)
                until = time.monotonic() + 5
                while self.drop and time.monotonic() < until:
                    connection.sendall(self.drop)
                    time.sleep(0.02)
                while chunk := connection.recv(4096):
                    self.heard += chunk


@contextlib.contextmanager
def serving(first: bytes, drop: bytes = b"") -> Iterator[Server]:
    server = Server(first, drop)
    try:
        yield server
    finally:
        server.listener.close()


def is_ours(_connection: socket.socket) -> bool:
    return True


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (b"", b"H"),
        (HEAD, b"X"),
        (HEAD, b"X: 1\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (HEAD + b"\r\n", b"x"),
        (HEAD + b"Content-Length: 99999\r\n\r\n", b"x"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"e"),
    ],
)
def test_one_deadline_holds_for_all_of_an_answer(first: bytes, drop: bytes) -> None:
    with serving(first, drop) as server:
        began = time.monotonic()
        with pytest.raises((OSError, asking.NoHttp)):
            asking.ask("127.0.0.1", server.port, "/", is_ours, seconds=LIMIT_S, most=10**6)
        late = time.monotonic() - began > SLACK_S
    tally(DRIPS, 1, int(late))
    assert not late


@pytest.mark.parametrize("data", [None, b"a question"])
def test_a_stranger_hears_nothing(data: bytes | None) -> None:
    with serving(HEAD + b"\r\n") as server:
        with pytest.raises(asking.Stranger):
            asking.ask("127.0.0.1", server.port, "/", lambda _: False, seconds=5, most=9, data=data, headers={"K": "V"})
        time.sleep(0.05)
        tally(STRANGERS, 1, int(bool(server.heard)))
        assert server.heard == b""


def test_an_answer_is_bounded_and_a_question_is_one() -> None:
    with serving(HEAD + b"\r\n", b"x" * 9999) as server:
        status, body = asking.ask("127.0.0.1", server.port, "/", is_ours, seconds=5, most=20_000)
    assert (status, len(body)) == (200, 20_000)
    for path in ("/ HTTP/1.1\r\nX: y", "/a b", "/\u00e9"):
        with pytest.raises(asking.NoHttp):
            asking.ask("127.0.0.1", 1, path, is_ours, seconds=1, most=1)


@pytest.mark.parametrize("length", [b"-1", b"-5", b"-ffffffffffffffff", b"-0x1"])
def test_a_chunk_that_is_shorter_than_nothing_is_no_answer(length: bytes) -> None:
    """http.client reads to the end there, whatever was asked for: a server filled the memory of root or controller."""
    with serving(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + length + b"\r\n" + b"x" * 99_999) as server:
        fault = None
        try:
            asking.ask("127.0.0.1", server.port, "/", is_ours, seconds=LIMIT_S, most=1000)
        except (OSError, asking.NoHttp) as error:
            fault = error
    tally(BEYOND, 1, int(isinstance(fault, TimeoutError)))
    assert fault is not None and not isinstance(fault, TimeoutError)


# Runs in the container, whose network nobody else is in; asks hosts, a hub or a chat, and no service of ours.
OTHERS = {
    "plugins/module_utils/system/asking.py",
    "plugins/plugin_utils/ground/notify.py",
}


def test_whoever_asks_a_service_asks_this_way() -> None:
    """`owner` has no default there, and nothing else on a host speaks HTTP."""
    asks = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "plugins").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and {"http.client", "urllib.request", "requests"}
        & {*(alias.name for alias in node.names), getattr(node, "module", None)}
    }
    assert asks == OTHERS
    with pytest.raises(TypeError, match="owner"):
        asking.ask("127.0.0.1", 1, "/", seconds=1, most=1)  # type: ignore[call-arg]
