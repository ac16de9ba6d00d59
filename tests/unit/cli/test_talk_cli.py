"""`gb10 ask` and `gb10 logs`: the way there as Ansible takes it, the answer as it comes, and text that is cleaned."""

from __future__ import annotations

import http.server
import io
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gb10_fleet import cli, talk_cli, way_in
from gb10_fleet.playbook import Outcome
from gb10_fleet.services import Row
from gb10_fleet.talk_cli import Refused, serving
from gb10_fleet.way_in import WayIn

CLI = CliRunner()
INVENTORY = """\
all:
  vars:
    ansible_user: ops
    ansible_ssh_common_args: '-o UserKnownHostsFile="{{ inventory_dir }}/known_hosts"'
  children:
    sparks:
      hosts:
        spark-a: {ansible_host: 192.0.2.11, ansible_port: 2222, vllm_api_key: "{{ 'of' ~ '-a' }}"}
        spark-b: {ansible_connection: local}
"""


def row(host: str = "spark-a", name: str = "vllm", **more: Any) -> Row:
    said = {
        "name": name,
        "unit": "gb10-vllm.service",
        "phase": "ready",
        "port": 8000,
        "url": None,
        "model": "org/m",
        "members": [],
    }
    return Row(host, {**said, **more})  # type: ignore[arg-type]


def test_the_way_is_ansibles(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(INVENTORY)
    way = way_in.to("spark-a", [str(inventory)], ())
    assert way.ssh[0] == "ssh" and way.ssh[-2:] == ("--", "192.0.2.11")
    words = " ".join(way.ssh)
    assert f"UserKnownHostsFile={tmp_path}/known_hosts" in words and "-p 2222" in words and "-l ops" in words
    assert way.variables["vllm_api_key"] == "of-a" and "of-a" not in words
    assert way.command("echo", "a b")[-1] == "echo 'a b'"
    assert way_in.to("spark-b", [str(inventory)], ()).command("echo", "a b") == ["echo", "a b"]
    with pytest.raises(way_in.NoWay, match="spark-c is not in the inventory"):
        way_in.to("spark-c", [str(inventory)], ())


@pytest.mark.parametrize(
    ("rows", "name", "host"),
    [
        ([row("b", port=None), row("a")], "", "a"),
        ([row(), row("c", name="code")], "code", "c"),
        ([row(phase="weights")], "", "no service is ready"),
        ([row()], "chat", "chat is not ready"),
        ([row(), row(name="code")], "", "say --service NAME"),
    ],
)
def test_whom_to_ask(rows: list[Row], name: str, host: str) -> None:
    try:
        assert serving(rows, name).host == host
    except Refused as error:
        assert host in str(error)


class Model(http.server.BaseHTTPRequestHandler):
    """It streams, and says which key it has heard."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization") != "Bearer right":
            return self.send_error(401, "no key")
        self.send_response(200)
        self.end_headers()
        for text in ("It says ", f"{asked['messages'][0]['content']}\n", "\x1b[2Jthe end"):
            self.wfile.write(f"data: {json.dumps({'choices': [{'delta': {'content': text}}]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")
        return None

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()


# As ssh -W does: what comes in goes to the port, and back.
TUNNEL = """\
import socket, sys, threading, os
if sys.argv[-1].startswith("test -e /run/gb10-vllm"):
    sys.exit(not os.path.exists("serving"))
assert sys.argv[1] == "-W" and sys.argv[3:] == ["--", "spark-a"], sys.argv
host, port = sys.argv[2].split(":")
there = socket.create_connection((host, int(port)))
def back():
    while data := there.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back).start()
while data := os.read(0, 65536):
    there.sendall(data)
"""


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ssh").write_text(f"#!{sys.executable}\n{TUNNEL}")
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "serving").touch()
    (tmp_path / "test").write_text(f"#!/bin/sh\nexec [ -e {tmp_path}/serving ]\n")
    (tmp_path / "test").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def invoke(*words: str, rows: list[Row], way: WayIn | None = None, **more: Any) -> Any:
        far = WayIn("spark-a", (str(tmp_path / "ssh"), "--", "spark-a"), {"vllm_api_key": "right"})
        monkeypatch.setattr(talk_cli, "read_services", lambda *_: rows)
        monkeypatch.setattr(way_in, "to", lambda *_: way or far)
        return CLI.invoke(cli.app, [*words, "-i", "a,"], **more)

    return invoke


def test_a_question_and_its_answer(talk: Callable[..., Any], port: int) -> None:
    found = talk("ask", "why?", rows=[row(port=port)])
    assert (found.exit_code, found.stdout) == (0, "It says why?\n\\x1b[2Jthe end\n")
    here = WayIn("spark-a", (), {"vllm_services": {"code": {"api_key": "right"}}})
    found = talk("ask", "-", rows=[row(name="code", port=port)], way=here, input="from a pipe")
    assert found.stdout.startswith("It says from a pipe\n")


def test_a_server_without_an_answer_is_named(talk: Callable[..., Any], port: int) -> None:
    found = talk("ask", "why?", rows=[row(port=port)], way=WayIn("spark-a", (), {}))
    assert found.exit_code == Outcome.failed and "spark-a: the server says 401" in found.stderr
    found = talk("ask", "why?", rows=[row(port=1)], way=WayIn("spark-a", (), {}))
    assert found.exit_code == Outcome.failed and "no answer at port 1" in found.stderr


def test_the_log_of_a_unit(talk: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "journalctl").write_text('#!/bin/sh\necho "$*"\nprintf "\\033[2Jred\\n"\n')
    (tmp_path / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "sudo").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "sudo").chmod(0o755)
    here = WayIn("spark-a", (), {})
    found = talk("logs", "vllm", "--no-follow", "-n", "7", rows=[row()], way=here)
    assert (found.exit_code, found.stdout) == (0, "--no-pager --unit=gb10-vllm.service --lines=7\n\\x1b[2Jred\n")
    found = talk("logs", "chat", rows=[row()], way=here)
    assert found.exit_code == Outcome.refused and "no service is called chat" in found.stderr


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"data: " + b"x" * 10**7, "more than 65536 bytes"),
        (b"data: [1]\n", "none of a chat"),
        (b'data: {"choices": null}\n', "none of a chat"),
        (b'data: {"choices": [3]}\n', "none of a chat"),
        (b"data: " + b"[" * 60000 + b"\n", "none of a chat"),
    ],
)
def test_a_hostile_answer_is_refused_by_its_bound(said: bytes, why: str) -> None:
    stream = io.BytesIO(said)
    with pytest.raises(ValueError, match=why):
        list(talk_cli.pieces(stream))
    assert stream.tell() < 10**5


def test_a_log_without_an_end_comes_in_parts_and_errors_are_cleaned(
    talk: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """A host that sends no newline fills no memory, and what it writes to standard error steers no terminal."""
    script = "printf '\\033[2Jtrap\\n' >&2; head -c 300000 /dev/zero | tr '\\0' x"
    found = talk("logs", "vllm", "--no-follow", rows=[row()], way=WayIn("a", ("sh", "-c", script, "--"), {}))
    assert found.stdout.startswith("\\x1b[2Jtrap\n")
    assert max(map(len, found.stdout.splitlines())) == 65537 and found.stdout.count("x") > 300000
    assert "\x1b" not in "".join(capfd.readouterr())


def test_a_port_is_not_believed_without_the_word_of_the_unit(
    talk: Callable[..., Any], port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login may have the port while the model is down, or the same one of loopback where vLLM listens elsewhere."""
    (tmp_path / "serving").unlink()
    heard: list[str] = []
    monkeypatch.setattr(Model, "do_POST", lambda self: heard.append(self.headers["Authorization"]))
    found = talk("ask", "why?", rows=[row(port=port)])
    assert found.exit_code == Outcome.failed and "does not say that its container has port" in found.stderr
    (tmp_path / "serving").touch()
    found = talk("ask", "why?", rows=[row(port=port, url=f"http://127.0.0.9:{port}")])
    assert found.exit_code == Outcome.failed and "no answer at port" in found.stderr
    assert not heard
