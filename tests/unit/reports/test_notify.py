"""The hook for people, with real commands and a real HTTP server; and what the playbooks make of it."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import notify
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.run import ROLLOUT

from tests.support.attacker import tally
from tests.support.plays import run_playbook

TOLD = notify.event(notify.PROOF, "unhealthy", "spark-a: no_carrier: dark", ["spark-a", "spark-b"], "/e/index.html")
SECRET = "T0KEN-of-a-webhook"  # noqa: S105


def script(folder: Path, body: str) -> str:
    path = folder / "tell"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
    path.chmod(0o755)
    return str(path)


class Chat(ThreadingHTTPServer):
    """Keeps what is posted. By path: /no is refused, /elsewhere redirects, /slow sends a byte now and then."""

    daemon_threads = True

    def __init__(self) -> None:
        self.posted: list[tuple[str, Any]] = []
        self.accounts: list[str | None] = []
        self.over = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Chat

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.headers["Content-Type"], json.loads(body)))
        self.server.accounts.append(self.headers["Authorization"])
        if self.path.startswith("/slow"):
            while not self.server.over.wait(0.1):
                self.wfile.write(b"H")
            return
        self.send_response({"/no": 403, "/elsewhere": 302}.get(self.path.partition("?")[0], 204))
        self.send_header("Location", "/")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def chat() -> Iterator[Chat]:
    server = Chat()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_who_it_is_about_comes_before_what_a_host_says() -> None:
    """What one host said filled the text, and a chat did not show that another one was broken, too."""
    told = notify.event(notify.PROOF, "unhealthy", f"spark-a: {'x' * 5000}\nspark-b: y", [], bad=["spark-a", "spark-b"])
    hidden = "spark-b" not in told["text"]
    tally("a host hides in a chat what is wrong with others", 1, int(hidden))
    assert not hidden and len(told["text"]) == notify.TEXT_LIMIT + 4
    many = notify.event(notify.DRIFT, "found", "x", [], bad=[f"spark-{number}" for number in range(300)])
    assert many["text"].splitlines()[0].endswith("spark-49 and 250 more")


def test_a_command_gets_the_event_on_its_standard_input(tmp_path: Path) -> None:
    command = script(tmp_path, "open(sys.argv[1], 'w').write(sys.stdin.read()); print('noise')")
    assert notify.send([command, str(tmp_path / "heard")], TOLD) is None
    heard = json.loads((tmp_path / "heard").read_text())
    assert heard == TOLD
    assert (heard["source"], heard["event"], heard["verdict"]) == ("gb10-fleet", "proof", "unhealthy")
    assert heard["hosts"] == ["spark-a", "spark-b"] and "spark-a: no_carrier: dark" in heard["text"]


def test_a_url_gets_the_event_as_the_body_of_a_post(chat: Chat) -> None:
    assert notify.send(f"{chat.url}/hook/{SECRET}", TOLD) is None
    assert chat.posted == [("application/json", TOLD)]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.exit(7)", "ended with status 7"),
        (f"print('{SECRET}', file=sys.stderr); sys.exit(1)", "ended with status 1"),
        ("os.kill(os.getpid(), 9)", "ended with status -9"),
        ("time.sleep(60)", "did not end within 1 s and was killed"),
        ("os.close(0); time.sleep(60)", "did not end within 1 s and was killed"),
    ],
)
def test_a_command_that_fails_or_hangs_is_said_without_its_words(tmp_path: Path, body: str, said: str) -> None:
    command = script(tmp_path, body)
    fault = notify.send([command, "--token", SECRET], {**TOLD, "text": "x" * 10**6}, timeout_s=1)
    assert fault is not None and fault.startswith(f"gb10_notify: {command} {said}, ") and SECRET not in fault


def test_what_a_command_leaves_behind_holds_nobody_up_and_what_hangs_is_ended(tmp_path: Path) -> None:
    """A child in the background keeps every descriptor open; of a command that hangs, the children end too."""
    command = script(tmp_path, "open(sys.argv[1], 'w').write(str(os.getpid()))\nif os.fork() == 0: time.sleep(30)")
    assert notify.send([command, str(tmp_path / "pid")], TOLD, timeout_s=20) is None
    os.killpg(int((tmp_path / "pid").read_text()), 9)
    command = script(tmp_path, "pid = os.fork()\nif pid: open(sys.argv[1], 'w').write(str(pid))\ntime.sleep(30)")
    assert "was killed" in str(notify.send([command, str(tmp_path / "pid")], TOLD, timeout_s=2))
    child = Path("/proc", (tmp_path / "pid").read_text(), "stat")
    for _ in range(100):
        if not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.1)
    else:
        pytest.fail("the child of the command lives on")


def test_a_url_that_fails_or_hangs_is_said_by_its_host(chat: Chat) -> None:
    for path, said in (
        ("/no", "127.0.0.1 answered with the HTTP status 403"),
        ("/elsewhere", "127.0.0.1 answered with the HTTP status 302"),
        ("/slow", "127.0.0.1 did not answer within 1 s"),
    ):
        fault = notify.send(f"{chat.url}{path}?{SECRET}", TOLD, timeout_s=1)
        assert fault is not None and fault.startswith(f"gb10_notify: {said}, ") and SECRET not in fault
    assert len(chat.posted) == 3, "a redirect is not followed"
    fault = notify.send(f"http://user:{SECRET}@127.0.0.1:1/{SECRET}", TOLD, timeout_s=5)
    assert fault is not None and "127.0.0.1 could not be reached" in fault and SECRET not in fault


@pytest.mark.parametrize(
    "value",
    ["", "mail root", "ftp://example.com/", "https://", "http://[", [], [""], [1], ["a", None], {"a": 1}, 7, True],
)
def test_what_is_neither_a_command_nor_a_url_is_said(value: Any) -> None:
    fault = notify.send(value, TOLD)
    assert fault is not None and "neither a command nor a URL" in fault and "https://" in fault


def test_a_missing_command_is_said() -> None:
    assert "/nowhere/tell could not be started: No such file" in str(notify.send(["/nowhere/tell"], TOLD))


def test_a_host_s_words_steer_no_terminal_and_fill_no_chat() -> None:
    told = notify.event(notify.DRIFT, "found", f"spark-a\x1b[2J\nspark-b {'x' * 9000}", [])
    assert "\x1b" not in told["text"] and "\nspark-b" in told["text"] and len(told["text"]) < 4100


# -- in playbooks ------------------------------------------------------------------------------------------------------

EVIDENCE = """
- hosts: sparks
  gather_facts: false
  tasks:
    - gb10.fleet.evidence:
        hosts: {spark-a: {facts: {}}}
      register: said
      run_once: true
      delegate_to: localhost
    - ansible.builtin.debug:
        msg: "VERDICT={{ said.verdict }}"
"""
NOTIFY = "- ansible.builtin.import_playbook: gb10.fleet.notify\n"
HOSTS = {"spark-a": {"ansible_connection": "local"}}


def test_a_failed_proof_is_told_from_variables_that_are_templates(tmp_path: Path) -> None:
    command = script(tmp_path, "open(sys.argv[1], 'w').write(sys.stdin.read())")
    heard = tmp_path / "heard"
    hook = [command, "{{ place }}"]
    rc, output = run_playbook(tmp_path, HOSTS, EVIDENCE, "-vvv", gb10_notify=hook, place=str(heard), other=SECRET)
    assert rc == 0 and "VERDICT=incomplete" in output, output
    told = json.loads(heard.read_text())
    assert (told["event"], told["verdict"], told["hosts"]) == ("proof", "incomplete", ["spark-a"])
    assert Path(told["see"]).is_file() and SECRET not in heard.read_text()


def test_a_hook_that_fails_is_a_warning_and_no_verdict(tmp_path: Path) -> None:
    hook = [script(tmp_path, "sys.exit(3)"), SECRET]
    rc, output = run_playbook(tmp_path, HOSTS, EVIDENCE, "-vvv", gb10_notify=hook)
    assert rc == 0 and "VERDICT=incomplete" in output, output
    assert "ended with status 3" in output and SECRET not in output


def test_in_a_rollout_the_proof_tells_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROLLOUT, "20261123T040000-site/1")
    command = script(tmp_path, "open(sys.argv[1], 'w')")
    run_playbook(tmp_path, HOSTS, EVIDENCE, gb10_notify=[command, str(tmp_path / "heard")])
    assert not (tmp_path / "heard").exists()


def test_the_playbook_notify_tries_the_hook(tmp_path: Path) -> None:
    hook = [script(tmp_path, "open(sys.argv[1], 'w').write(sys.stdin.read())"), str(tmp_path / "heard")]
    rc, output = run_playbook(tmp_path, HOSTS, NOTIFY, gb10_notify=hook)
    assert rc == 0, output
    assert json.loads((tmp_path / "heard").read_text())["event"] == "test"
    rc, output = run_playbook(tmp_path, HOSTS, NOTIFY, gb10_notify=[script(tmp_path, "sys.exit(3)"), SECRET])
    assert rc == 2 and "ended with status 3" in output and SECRET not in output
    rc, output = run_playbook(tmp_path, HOSTS, NOTIFY)
    assert rc == 2 and "gb10_notify is not set; write a command as a list" in output


def test_the_account_of_a_url_is_no_part_of_the_name_that_is_looked_up(chat: Chat) -> None:
    """It would go to a name server, in the clear."""
    url = chat.url.replace("http://", f"http://me:{SECRET}%21@")
    assert notify.send(url, TOLD) is None
    assert chat.accounts == [f"Basic {base64.b64encode(f'me:{SECRET}!'.encode()).decode()}"]
    assert notify.send(chat.url, TOLD) is None and chat.accounts[1] is None


ACTIVE = (
    "<!channel>", "<!here|x>", "<@U012>", "<https://evil.test|spark-a is well>", "@channel", "@all", "@here",
    "[spark-a is well](https://evil.test)", "![x](https://evil.test/track.png)", "&lt;!subteam&gt;",
    "[spark-a is well][1]", "[1]: https://evil.test",
)  # fmt: skip


def test_a_host_calls_nobody_and_links_nowhere_in_a_chat(chat: Chat, tmp_path: Path) -> None:
    """What a chat would make of its text: Slack's <...>, Mattermost's @ and Markdown. A command gets it as it is."""
    text = f"spark-a: unreadable: {' '.join(ACTIVE)} 1 & 2"
    told = notify.event(notify.PROOF, "unhealthy", text, ["spark-a"])
    assert notify.send(chat.url, told) is None
    ((_, posted),) = chat.posted
    won = [word for word in ACTIVE if word in posted["text"]]
    tally("a host's text in a chat: calls and links that work", len(ACTIVE), len(won))
    assert won == [] and not re.search(r"[<>]|@\w|\][(\[:]|&(?!amp;|lt;|gt;)", posted["text"])
    assert html.unescape(posted["text"]).replace("\u200b", "") == told["text"], "people read the same"
    assert {**posted, "text": ""} == {**told, "text": ""}
    heard = tmp_path / "heard"
    assert notify.send([script(tmp_path, f"open({str(heard)!r}, 'w').write(sys.stdin.read())")], told) is None
    assert json.loads(heard.read_text()) == told


@pytest.mark.parametrize("path", [f"/{SECRET}\u00e9", f"/{SECRET} x"])
def test_a_url_that_cannot_be_asked_is_named_by_its_fault(chat: Chat, path: str) -> None:
    said = notify.send(chat.url + path, TOLD) or ""
    assert "could not be reached: UnicodeEncodeError" in said or "InvalidURL" in said
    assert SECRET not in said


def test_a_full_disk_keeps_nobody_from_being_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    assert notify.send([script(tmp_path, "sys.exit(0)")], TOLD) is None
