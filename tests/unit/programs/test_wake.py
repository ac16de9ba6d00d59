"""What a client is told of a service that is asleep."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs import wake

NOW = 1_795_420_800.0  # 2026-11-23T08:00:00Z


@pytest.mark.parametrize(
    ("said", "seconds", "words"),
    [
        ({}, 300, "starts now; it takes about 300 s"),
        ({"phase": "stopped", "load_s": 41.4}, 41, "starts now; it takes about 41 s"),
        ({"phase": "weights", "load_s": 60, "since": "2026-11-23T07:59:50Z", "phases": {"starting": 5}}, 45, "45 s"),
        ({"phase": "weights", "load_s": 60, "since": "2026-11-23T07:00:00Z", "phases": {}}, 5, "5 s"),
        ({"phase": "ready", "load_s": 60}, 5, "has just started"),
        ({"phase": "failed", "failure": {"verdict": "memory_short"}}, 300, "last start failed (memory_short)"),
        ({"phase": "failed", "failure": "strange"}, 300, "last start failed (no verdict)"),
        ({"phase": 7, "load_s": "60", "phases": [1], "since": "yesterday"}, 300, "starts now"),
        ({"load_s": -1}, 300, "starts now"),
        ({"load_s": True}, 300, "starts now"),
        ({"load_s": float("inf")}, 300, "starts now"),
    ],
)
def test_what_is_said_and_when_to_ask_again(said: dict[str, Any], seconds: int, words: str) -> None:
    found = wake.answer(said, NOW, 300, 5)
    assert found[1] == seconds and words in found[0]


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "[" * 100_000])
def test_a_status_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "status.json"
    assert wake.read(file) == {}
    file.write_text(text)
    assert wake.read(file) == {}


def test_it_answers_who_asks_and_ends_when_nobody_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake, "IDLE_S", 0.2)
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(4)
        found: list[int] = []
        served = threading.Thread(target=lambda: found.append(wake.serve(listener, tmp_path / "none", 300, 5)))
        callers = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for caller in callers:
            caller.connect(path)
        callers[0].close()  # has left before it was heard
        served.start()
        for caller in callers[1:]:
            caller.settimeout(30)
            caller.sendall(b"GET / HTTP/1.1\r\n\r\n")
            said = b"".join(iter(lambda caller=caller: caller.recv(65536), b""))
            head, _, body = said.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 300" in head
            assert json.loads(body)["error"]["code"] == 503
            caller.close()
        served.join(30)
    assert not served.is_alive() and found and found[0] >= 2
