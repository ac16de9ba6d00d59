"""`gb10 ask` and `gb10 logs`: whom they ask, what they print, and that no key is in a command line."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading.services import Service
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from typer.testing import CliRunner

from gb10_fleet import ask_cli, cli, passwords, way
from gb10_fleet.playbook import Order, Outcome, Report
from gb10_fleet.services import LAYOUTS
from tests.support.attacker import tally

CLI = CliRunner()
# What ssh -W does: standard input and output are a connection.
RELAY = """
import os, socket, sys, threading
place = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def up():
    while data := os.read(0, 65536): place.sendall(data)
threading.Thread(target=up, daemon=True).start()
while data := place.recv(65536): os.write(1, data)
"""


class Model(BaseHTTPRequestHandler):
    """A server that answers in three pieces, and keeps what it was asked."""

    asked: ClassVar[list[tuple[str | None, dict[str, Any]]]] = []
    status = 200

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.headers["Authorization"], body))
        self.send_response(self.status)
        self.end_headers()
        if self.status != 200:
            self.wfile.write(b'{"error": {"message": "no\\u001b[31m"}}')
            return
        for delta in ({"reasoning_content": "hm"}, {"content": "Blue\u001b[31m"}, {"content": ".\nYes"}):
            self.wfile.write(b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def model() -> Iterator[int]:
    Model.asked, Model.status = [], 200
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def said(name: str, port: int = 8000, **more: Any) -> dict[str, Any]:
    return {
        **{
            "name": name,
            "unit": f"gb10-vllm-{name}.service",
            "state": "active",
            "phase": "ready",
            "members": [],
            "wish": None,
        },
        **{"served_name": f"{name}-1", "url": f"http://127.0.0.1:{port}", "rank": 0, **more},
    }


class Fleet:
    """The playbooks of a command: services, and the way to a host."""

    def __init__(
        self,
        found: dict[str, list[dict[str, Any]]],
        written: dict[str, Any] | None = None,
        inventory: dict[str, list[str]] | None = None,
    ) -> None:
        """`inventory`: the services of each host, as it says; without it, those that the host has."""
        self.found, self.written, self.orders = found, written, list[Order]()
        self.inventory = inventory or {host: [each["name"] for each in rows] for host, rows in found.items()}

    def run(self, order: Order, quiet: bool = False) -> tuple[Outcome, Report]:
        self.orders.append(order)
        report = Report(asks=order.asks)
        if order.playbook == "gb10.fleet.way":
            if self.written is not None:
                Path(order.variables["gb10_way"]["file"]).write_text(json.dumps(self.written), encoding="utf-8")
            return Outcome.done, report
        hosts = {host: {"services": services, "error": None, "silent": None} for host, services in self.found.items()}
        data = {"resolved_action": "gb10.fleet.glance", "host": next(iter(hosts)), "res": {"hosts": hosts}}
        report.take({"event": "runner_on_ok", "event_data": data})
        reach = {host: {"services": names} for host, names in self.inventory.items()}
        said = {"step": LAYOUTS, "host": "a", "res": {"msg": json.dumps({"reach": reach})}}
        report.take({"event": "runner_on_ok", "event_data": said})
        return Outcome.done, report


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Any:
    def invoke(fleet: Fleet, *words: str) -> Any:
        monkeypatch.setattr(ask_cli, "run", fleet.run)
        monkeypatch.setattr(way, "run", fleet.run)
        return CLI.invoke(cli.app, [*words, "-i", "a,"])

    return invoke


@pytest.mark.parametrize("words", [("ask", "Why?"), ("logs", "chat")])
def test_a_fleet_that_is_silent_is_not_one_without_services(talk: Any, words: tuple[str, ...]) -> None:
    silent = Finding("unreachable", "error", "a", "no route", "check power").as_dict()

    class Silent(Fleet):
        def run(self, order: Order, quiet: bool = False) -> tuple[Outcome, Report]:
            report = Report(asks=order.asks)
            hosts = {"a": {"services": None, "error": None, "silent": silent}}
            data = {"resolved_action": "gb10.fleet.glance", "host": "a", "res": {"hosts": hosts}}
            report.take({"event": "runner_on_ok", "event_data": data})
            return Outcome.done, report

    result = talk(Silent({}), *words)
    assert result.exit_code == Outcome.unreachable, result.output
    assert "no route" in result.output and "no service is on" not in result.output


def test_whose_answer_is_missing_is_said_where_another_host_speaks_for_the_service(talk: Any) -> None:
    silent = Finding("unreachable", "error", "a", "no route", "check power").as_dict()

    class Half(Fleet):
        def run(self, order: Order, quiet: bool = False) -> tuple[Outcome, Report]:
            if order.playbook == "gb10.fleet.way":
                return super().run(order)
            report = Report(asks=order.asks)
            mine = {"services": [said("chat", rank=1, state="active")], "error": None, "silent": None}
            hosts = {"a": {"services": None, "error": None, "silent": silent}, "b": mine}
            data = {"resolved_action": "gb10.fleet.glance", "host": "a", "res": {"hosts": hosts}}
            report.take({"event": "runner_on_ok", "event_data": data})
            return Outcome.done, report

    result = talk(Half({}, {"problem": "no keys"}), "logs", "chat")
    assert "a: unreachable: no route" in result.stderr and "b: no keys" in result.stderr, result.stderr


def test_ask_prints_the_answer_through_the_tunnel(talk: Any, model: int) -> None:
    tunnel = [sys.executable, "-c", RELAY, str(model)]
    fleet = Fleet({"a": [said("chat", model)]}, {"command": tunnel, "key": "s3cret"})
    result = talk(fleet, "ask", "Why?")
    assert (result.exit_code, result.stdout) == (0, "Blue\\x1b[31m.\nYes\n")
    ((key, body),) = Model.asked
    assert key == "Bearer s3cret" and body["model"] == "chat-1" and body["stream"] is True
    assert body["messages"] == [{"role": "user", "content": "Why?"}]
    wanted = fleet.orders[1].variables["gb10_way"]
    assert wanted["forward"] == f"127.0.0.1:{model}" and fleet.orders[1].limit == "a"
    assert not Path(wanted["file"]).exists()


def test_ask_on_the_host_itself_needs_no_tunnel(talk: Any, model: int) -> None:
    result = talk(Fleet({"a": [said("chat", model)]}, {"command": None, "key": ""}), "ask", "Why?")
    assert result.exit_code == 0 and Model.asked[0][0] is None


def test_ask_says_what_the_server_refused(talk: Any, model: int) -> None:
    Model.status = 401
    result = talk(Fleet({"a": [said("chat", model)]}, {"command": None, "key": ""}), "ask", "Why?")
    assert result.exit_code == Outcome.failed
    assert "chat on a: the service answered 401: no\\x1b[31m. Fix: its key is vllm_api_key" in result.stderr


@pytest.mark.parametrize("status", [0, 1])
def test_key_and_question_go_only_where_the_unit_says_that_its_container_listens(
    talk: Any, model: int, status: int
) -> None:
    look = [sys.executable, "-c", f"raise SystemExit({status})"]
    fleet = Fleet({"a": [said("chat", model)]}, {"command": None, "key": "s3cret", "look": look})
    result = talk(fleet, "ask", "Why?")
    assert fleet.orders[1].variables["gb10_way"]["look"] == "test -e /run/gb10-vllm-chat/serving"
    assert (len(Model.asked), result.exit_code) == ((0, Outcome.failed) if status else (1, 0))


@pytest.mark.parametrize("event", [b"[1]", b"null", b'{"choices": [{"delta": null}]}', b"[" * 100_000])
def test_an_event_that_is_no_answer_adds_nothing(event: bytes) -> None:
    assert way._piece(event) is None


def test_ask_says_what_ssh_said(talk: Any) -> None:
    broken = [sys.executable, "-c", "import sys; sys.exit('open failed: Connection refused')"]
    result = talk(Fleet({"a": [said("chat")]}, {"command": broken, "key": ""}), "ask", "Why?")
    assert result.exit_code == Outcome.failed and "chat on a: open failed: Connection refused" in result.stderr


def test_a_look_that_was_interrupted_asks_no_model(talk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet({"a": [said("chat")]})
    whole = fleet.run

    def cut(order: Order, quiet: bool = False) -> tuple[Outcome, Report]:
        _, report = whole(order, quiet)
        report.canceled = True
        return Outcome.interrupted, report

    monkeypatch.setattr(fleet, "run", cut)
    result = talk(fleet, "ask", "Why?")
    assert result.exit_code == Outcome.interrupted and len(fleet.orders) == 1


def test_ask_says_that_nobody_listens_on_the_host_itself(talk: Any) -> None:
    result = talk(Fleet({"a": [said("chat", 1)]}, {"command": None, "key": ""}), "ask", "Why?")
    assert result.exit_code == Outcome.failed and "chat on a: 127.0.0.1 port 1: " in result.stderr, result.exception


@pytest.mark.parametrize(
    ("found", "words", "text"),
    [
        ([said("chat"), said("embed")], [], "which one? Name the service behind the question: chat, embed"),
        ([said("chat")], ["chta"], "no service is called chta; there are chat"),
        ([said("chat", phase="weights")], [], "chat: not ready to answer. Fix: gb10 ps -i a, says its state"),
        (
            [said("chat", state="inactive", wish={"who": "me@desk", "shown": "07:00 CET"})],
            [],
            "chat: stopped by me@desk until 07:00 CET. Fix: gb10 start chat -i a,",
        ),
        ([], [], "no service is on these hosts. Fix: gb10 up puts one there, or gb10 site -i a,"),
    ],
)
def test_ask_refuses_in_words(talk: Any, found: list[dict[str, Any]], words: list[str], text: str) -> None:
    fleet = Fleet({"a": found})
    result = talk(fleet, "ask", "Why?", *words)
    assert result.exit_code == Outcome.failed and text in result.stderr and len(fleet.orders) == 1


def test_a_host_that_wants_a_typed_password_is_named(talk: Any) -> None:
    result = talk(Fleet({"a": [said("chat")]}, {"key": "", "problem": "no keys"}), "ask", "Why?")
    assert "a: no keys" in result.stderr


NO_KEY = "import sys; sys.stderr.write('Permission denied (publickey,password).\\r\\n'); sys.exit(255)"
COPY = "ssh-copy-id me@192.0.2.3"


@pytest.mark.parametrize("words", [("ask", "Why?"), ("logs", "chat")])
@pytest.mark.parametrize("typed", [False, True])
def test_a_host_that_takes_no_key_is_no_fault_of_the_unit(
    talk: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], typed: bool
) -> None:
    monkeypatch.setattr(passwords, "typed", {passwords.CONNECTION: "x"} if typed else {})
    ssh = [sys.executable, "-c", NO_KEY]
    result = talk(Fleet({"a": [said("chat")]}, {"command": ssh, "look": ssh, "key": "", "copy": COPY}), *words)
    assert result.exit_code == Outcome.failed and "\\r" not in result.output and "does not say" not in result.output
    fix = f"type it anew, or {COPY}" if typed else f"put yours there: {COPY}, or add -k"
    assert f"a: ssh {'was not let in' if typed else 'has no key'}" in result.stderr and fix in result.stderr


SSH = """#!/bin/sh
printf '%s\\n' "$*" >>"${0%/*}/asked"
[ "$("$SSH_ASKPASS" "Are you sure (yes/no)? ")" = "" ] || exit 9
[ "$("$SSH_ASKPASS" "me@192.0.2.3's password: ")" = secret ] || exit 255
for word; do last=$word; done
case $last in test*) exit 0;; esac
exec RELAY
"""


def test_ssh_is_given_the_typed_password_by_no_argument_and_no_variable(
    talk: Any, model: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(passwords, "typed", {passwords.CONNECTION: "secret"})
    (tmp_path / "relay.py").write_text(RELAY)
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.replace("RELAY", f"{sys.executable} {tmp_path}/relay.py {model}"))
    ssh.chmod(0o755)
    written = {"command": [str(ssh), "-o", "BatchMode=yes", "a"], "look": [str(ssh), "a", "test -e /x"], "key": ""}
    result = talk(Fleet({"a": [said("chat", model)]}, written), "ask", "Why?")
    assert (result.exit_code, result.stdout) == (0, "Blue\\x1b[31m.\nYes\n"), result.output
    asked = (tmp_path / "asked").read_text()
    assert "secret" not in asked and asked.count("-o BatchMode=no") == 2
    assert passwords.typed == {passwords.CONNECTION: "secret"}


ASKS_AGAIN = """#!/bin/sh
[ "$("$SSH_ASKPASS" "me@192.0.2.3's password: ")" = wrong ] || exit 9
"$SSH_ASKPASS" "(me@192.0.2.3) Password: " && exit 8
exit 255
"""


def test_a_wrong_password_is_given_once_and_ends_the_command(
    talk: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ssh asks again where the host has another way to hear a password; nobody is there to type one."""
    monkeypatch.setattr(passwords, "typed", {passwords.CONNECTION: "wrong"})
    ssh = tmp_path / "ssh"
    ssh.write_text(ASKS_AGAIN)
    ssh.chmod(0o755)
    with passwords.for_ssh([str(ssh), "a"]) as (words, environment):
        assert subprocess.run(words, env=environment, timeout=20).returncode == way.NO_LOGIN
    result = talk(Fleet({"a": [said("chat")]}, {"command": [str(ssh), "a"], "key": "", "copy": COPY}), "logs", "chat")
    assert result.exit_code == Outcome.failed and "a: ssh was not let in" in result.stderr


# As OpenSSH with ProxyJump: the same program once more, for the jump host, which asks first.
JUMPS = """#!/bin/sh
if [ "$1" = -W ]; then "$SSH_ASKPASS" "me@jump's password: " >"${0%/*}/jump"; exit 0; fi
"$0" -W 192.0.2.3:22 jump
"$SSH_ASKPASS" "me@192.0.2.3's password: " >"${0%/*}/spark"
"""


def test_a_jump_host_is_not_given_the_password_of_the_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(passwords, "typed", {passwords.CONNECTION: "secret"})
    ssh = tmp_path / "ssh"
    ssh.write_text(JUMPS)
    ssh.chmod(0o755)
    with passwords.for_ssh([str(ssh), "a"]) as (_words, environment):
        subprocess.run([str(ssh), "a"], env=environment, timeout=20)
    assert ((tmp_path / "jump").read_text(), (tmp_path / "spark").read_text()) == ("", "secret\n")


def test_logs_give_sudo_its_password_on_standard_input(talk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "typed", {passwords.BECOME: "secret"})
    fleet = Fleet({"a": [said("chat")]}, {"command": [sys.executable, "-c", "print(len(input()))"], "key": ""})
    result = talk(fleet, "logs", "chat")
    command = fleet.orders[1].variables["gb10_way"]["command"]
    assert (result.exit_code, result.stdout) == (0, "6\n") and "secret" not in command
    assert "</dev/null; fi; exec sudo -S -p '' journalctl" in command


def test_logs_come_from_the_first_host_and_are_cleaned(talk: Any, capfd: pytest.CaptureFixture[str]) -> None:
    shown = [sys.executable, "-c", "print('one\\x1b[2J', flush=True); import sys; print('two', file=sys.stderr)"]
    pair = {"a": [said("chat", rank=1)], "b": [said("chat", rank=0)]}
    fleet = Fleet(pair, {"command": shown, "key": ""})
    result = talk(fleet, "logs", "chat", "--lines", "7", "--no-follow")
    assert (result.exit_code, result.stdout) == (0, "one\\x1b[2J\ntwo\n")
    assert fleet.orders[1].limit == "b" and "chat is also on a: --limit chooses" in result.stderr
    command = fleet.orders[1].variables["gb10_way"]["command"]
    assert "--lines=7 --unit=gb10-vllm-chat.service" in command and "--follow" not in command
    talk(fleet, "logs", "chat")
    assert fleet.orders[-1].variables["gb10_way"]["command"].endswith("--follow")


def test_logs_take_no_other_unit_from_a_host(talk: Any) -> None:
    fleet = Fleet({"a": [said("chat", unit="x; reboot")]})
    result = talk(fleet, "logs", "chat")
    assert result.exit_code == Outcome.failed and len(fleet.orders) == 1


# -- a hostile host

EVIL = "{{ lookup('pipe', 'touch here') }}"


def test_a_question_goes_to_a_host_that_the_inventory_gives_the_service_to(talk: Any, model: int) -> None:
    """Another one claims the name; it is the first by name, and says that it is the first of a cluster."""
    tally("a host claims another's service", 3, 0)
    both = {"a-evil": [said("chat", model)], "spark": [said("chat", model)]}
    theirs = {"a-evil": [], "spark": ["chat"]}
    fleet = Fleet(both, {"command": None, "key": ""}, theirs)
    assert talk(fleet, "ask", "Why?").exit_code == 0 and fleet.orders[1].limit == "spark"
    alone = Fleet({"a-evil": [said("chat", model)]}, {"command": None, "key": ""}, theirs)
    result = talk(alone, "ask", "Why?", "chat")
    assert result.exit_code == Outcome.failed and len(alone.orders) == 1
    assert "a-evil says that it serves chat, which the inventory gives to spark; nothing was sent" in result.stderr
    made_up = Fleet({"a-evil": [said("other", model)]}, {"command": None, "key": ""}, theirs)
    assert talk(made_up, "ask", "Why?").exit_code == Outcome.failed and len(made_up.orders) == 1
    typed = Fleet({"a-evil": [said("other", model)]}, {"command": None, "key": ""}, theirs)
    assert talk(typed, "ask", "Why?", "other").exit_code == 0  # a person has named what the inventory has no more


def test_a_log_is_that_of_its_own_host_where_it_is_there(talk: Any) -> None:
    fleet = Fleet({"a-evil": [said("chat")], "spark": [said("chat")]}, {"command": ["true"]}, {"spark": ["chat"]})
    talk(fleet, "logs", "chat")
    assert fleet.orders[1].limit == "spark"


def test_a_look_without_end_is_neither_kept_nor_waited_for(talk: Any, model: int) -> None:
    endless = [sys.executable, "-c", "import sys\nwhile True: sys.stdout.write('x' * 2**20)"]
    fleet = Fleet({"a": [said("chat", model)]}, {"command": None, "key": "s3cret", "look": endless})
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = talk(fleet, "ask", "Why?", "--timeout", "2")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    tally("a host floods the look of gb10 ask", 1, int(grown > 100_000))
    assert (result.exit_code, Model.asked) == (Outcome.failed, []) and time.monotonic() - began < 20
    assert grown < 100_000  # KiB


@pytest.mark.parametrize("said_again", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n: alive\n"])
def test_a_server_that_talks_and_says_no_word_is_hung_up_on(talk: Any, said_again: bytes) -> None:
    """What is no word of an answer wins no time: interim answers, remarks, one byte after the other."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            place = server.accept()[0]
            with place, contextlib.suppress(OSError):
                while not over.wait(0.02):
                    place.sendall(said_again)

        server_thread = threading.Thread(target=drip, daemon=True)
        server_thread.start()
        fleet = Fleet({"a": [said("chat", server.getsockname()[1])]}, {"command": None, "key": ""})
        asking = threading.Thread(
            target=lambda: results.append(talk(fleet, "ask", "Why?", "--timeout", "1")), daemon=True
        )
        results: list[Any] = []
        asking.start()
        asking.join(30)
        over.set()
        asking.join(30)
        server_thread.join(30)
    ended = bool(results) and "said nothing for 1 s" in results[0].output
    tally("a server keeps gb10 ask waiting without a word", 1, int(not ended))
    assert ended


@pytest.mark.parametrize("length", [b"ffffffffffffffff", b"8000000000000000", b"f" * 60])
def test_a_chunk_that_is_longer_than_any_is_read_as_it_comes(talk: Any, length: bytes) -> None:
    word = json.dumps({"choices": [{"delta": {"content": "why not"}}]}).encode()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            with server.accept()[0] as place:
                place.recv(2**16)
                place.sendall(
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + length + b"\r\ndata: " + word + b"\n"
                )

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        result = talk(
            Fleet({"a": [said("chat", server.getsockname()[1])]}, {"command": None, "key": ""}), "ask", "Why?"
        )
        thread.join(30)
    lost = not (result.exception is None or isinstance(result.exception, SystemExit))
    tally("a server ends gb10 ask by a chunk longer than any", 1, int(lost))
    assert not lost and "why not" in result.output, result.exception


def test_a_chunk_that_is_shorter_than_nothing_ends_the_answer(talk: Any) -> None:
    """http.client reads to the end there: what a server then sent, it filled the memory of this machine with."""
    flood = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server:
        over = threading.Event()

        def send() -> None:
            place = server.accept()[0]
            with place, contextlib.suppress(OSError):
                place.sendall(flood)
                while not over.wait(0.02):
                    place.sendall(b"x" * 2**16)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        fleet = Fleet({"a": [said("chat", server.getsockname()[1])]}, {"command": None, "key": ""})
        result = talk(fleet, "ask", "Why?", "--timeout", "2")
        over.set()
        thread.join(30)
    tally("a server floods gb10 ask by a chunk shorter than nothing", 1, int("said nothing" in result.output))
    assert result.exit_code == Outcome.failed and "shorter than nothing" in result.output


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": EVIL},
        {"name": "x;reboot"},
        {"unit": "gb10-vllm.service;id"},
        {"url": f"http://{EVIL}:80"},
        {"url": "http://127.0.0.1:99999"},
        {"url": "http://[::1:80"},
        {"url": "http://127.0.0.1:8000/"},
        {"url": "file:///etc/passwd"},
    ],
)
def test_a_name_and_an_address_of_a_service_have_a_form(wrong: dict[str, str]) -> None:
    sound = {
        **{"name": "chat", "unit": "gb10-vllm-chat.service", "container": "c", "status_file": "/s", "state": "active"},
        **{"enabled": True, "since": None, "phase": None, "load_s": None, "wish": None, "members": [], "rank": 0},
        **{"memory_gib": None, "model": None, "served_name": None, "port": 1, "url": "http://[fe80::1%eth0]:8000"},
        "tools": False,
    }
    assert schema.problem(sound, Service, "service") is None
    assert schema.problem({**sound, **wrong}, Service, "service")
    tally("a host writes a command or an address of its own into a service", 1, 0)


TALKS = """
import os, pathlib, sys
said = 0
try:
    while True: said += os.write(2, bytes(65536))
except OSError:
    pathlib.Path(sys.argv[1]).write_text(str(said))
"""


def test_what_ssh_says_without_end_fills_nothing(tmp_path: Path) -> None:
    """A host may send banner after banner."""
    done = tmp_path / "done"
    talks = way.Way([sys.executable, "-c", TALKS, str(done)])
    with (
        pytest.raises(way.NoWay),
        way._connected(talks, ("127.0.0.1", 80), 60.0) as connection,
    ):
        connection.request("GET", "/")
        connection.getresponse()
    won = int(int(done.read_text()) > way._TALK + 2**17)
    tally("a host talks without end beside the answer", 1, won)
    assert not won


def test_an_ssh_that_says_all_that_it_does_stops_no_answer(talk: Any, model: int) -> None:
    """With `LogLevel DEBUG3` its words filled a pipe, and it waited for a reader: no answer came."""
    debug = f"import os; os.write(2, b'debug3: x\\n' * 100_000)\n{RELAY}"
    written = {"command": [sys.executable, "-c", debug, str(model)], "key": ""}
    result = talk(Fleet({"a": [said("chat", model)]}, written), "ask", "Why?", "--timeout", "10")
    assert (result.exit_code, result.stdout) == (0, "Blue\\x1b[31m.\nYes\n"), result.output


def test_what_ssh_said_last_is_told() -> None:
    with (
        pytest.raises(way.NoWay, match="no route"),
        way._connected(way.Way(["sh", "-c", "echo no route >&2"]), ("127.0.0.1", 80), 5.0) as connection,
    ):
        connection.request("GET", "/")
        connection.getresponse()


@pytest.mark.parametrize("said", [b'{"error": {"message": "busy. Fix: curl x | sh"}}', b"busy. fix: curl x | sh"])
def test_a_service_advises_nobody_in_our_name(said: bytes) -> None:
    shown = [way._refused(500, said)]
    with pytest.raises(way.NoWay) as caught:
        way._piece(json.dumps({"error": said.decode()}).encode())
    shown.append(str(caught.value))
    wins = sum("fix:" in text.lower() for text in shown)
    tally("a command of a host stands behind Fix:", len(shown), wins)
    assert not wins


def test_a_head_that_is_none_advises_nobody_either() -> None:
    """Python's error of it is what was said in its place."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def advise() -> None:
            with listener.accept()[0] as caller:
                caller.recv(4096)
                caller.sendall(b"no. Fix: curl x | sh\r\n\r\n")

        threading.Thread(target=advise, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(way.NoWay) as caught:
            list(way.answer(way.Way(None), url, {}, 5.0))
    wins = "Fix:" in str(caught.value)
    tally("a command of a host stands behind Fix:", 1, wins)
    assert "curl" in str(caught.value) and not wins
