"""The program that travels to a host, run as a host would run it; with a made-up engine and with the real one."""

from __future__ import annotations

import ast
import base64
import json
import re
import stat
import subprocess
import sys
import time
import zlib
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.gb10.fleet.plugins.module_utils.engine import guard
from ansible_collections.gb10.fleet.plugins.plugin_utils import output
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import transport

PACKAGE = "ansible_collections.gb10.fleet.plugins.module_utils"
REMOTE = f"""
import sys
from {PACKAGE}.engine.resources import common
from {PACKAGE}.engine.system import System
def answer(request, system):
    print("noise on stdout")
    return {{"request": request, "name": common.NAME, "system": type(system).__name__, "argv": sys.argv,
             "isolated": sys.flags.isolated}}
"""
SOURCES: dict[str, str | None] = {
    **dict.fromkeys([".".join(PACKAGE.split(".")[:length]) for length in range(1, 6)]),
    f"{PACKAGE}.engine": None,
    f"{PACKAGE}.engine.resources": None,
    f"{PACKAGE}.engine.resources.common": "NAME = 'native'\n",
    f"{PACKAGE}.engine.system": "class System: pass\n",
    f"{PACKAGE}.engine.remote": REMOTE,
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(transport, "_sources", lambda: SOURCES)
    monkeypatch.setattr(transport, "preload", transport.preload.__wrapped__)


def run(request: dict[str, Any], folder: Path) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    command = transport.command(sys.executable).split()
    program = transport.program(request, str(folder)).decode("ascii")
    done = subprocess.run(command, input=program, capture_output=True, text=True, timeout=60, check=False)
    return transport.parse(done.stdout), done


@pytest.mark.usefixtures("fake")
def test_the_request_arrives_whole_and_the_answer_comes_back(tmp_path: Path) -> None:
    request = {"text": "ä\u2028'\"\\\n{{ }}'''\0\ud800", "list": [None, True, 1.5], "long": "x" * 3_000_000}
    answer, done = run(request, tmp_path / "cache")
    assert answer["request"] == {**request, "text": output.printable(request["text"])}
    assert (answer["name"], answer["system"], answer["isolated"]) == ("native", "System", 1)
    assert answer["argv"] == ["-"], "a request has no business in an argument list"
    assert done.stderr == ""


@pytest.mark.usefixtures("fake")
def test_the_compiled_engine_is_kept_for_root_alone_and_used(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run({}, cache)
    (file,) = cache.iterdir()
    assert (stat.S_IMODE(cache.stat().st_mode), stat.S_IMODE(file.stat().st_mode)) == (0o700, 0o600)
    before = file.stat().st_mtime_ns
    assert run({}, cache)[0]["name"] == "native"
    assert file.stat().st_mtime_ns == before
    file.write_bytes(file.read_bytes().replace(b"native", b"kept!!"))
    assert run({}, cache)[0]["name"] == "kept!!", "the kept code was not used"


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("damage", [b"", b"garbage", b"i\0\0\0\0"])
def test_a_damaged_engine_is_compiled_again(tmp_path: Path, damage: bytes) -> None:
    run({}, tmp_path)
    tmp_path.chmod(0o700)
    run({}, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage)
    assert run({}, tmp_path)[0]["name"] == "native"
    assert file.read_bytes() != damage and len(list(tmp_path.iterdir())) == 1


@pytest.mark.usefixtures("fake")
def test_an_engine_that_others_could_write_is_not_used(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run({}, cache)
    (file,) = cache.iterdir()
    evil = file.read_bytes().replace(b"native", b"evil!!")
    file.write_bytes(evil)
    file.chmod(0o620)
    assert run({}, cache)[0]["name"] == "native"
    file.write_bytes(evil)
    cache.chmod(0o770)
    assert run({}, cache)[0]["name"] == "native"
    cache.chmod(0o700)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert run({}, cache)[0]["name"] == "native"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "other")
    (tmp_path / "other").mkdir(mode=0o700)
    run({}, link)
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.usefixtures("fake")
def test_the_engine_of_another_version_is_removed_and_nothing_else(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    for name in ("engine-old", "lock"):
        (cache / name).touch()
    run({}, cache)
    names = {path.name for path in cache.iterdir()}
    assert "engine-old" not in names and "lock" in names and len(names) == 2


@pytest.mark.usefixtures("fake")
def test_without_a_place_to_keep_it_the_engine_works_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert run({"a": 1}, tmp_path / "file" / "cache")[0]["request"] == {"a": 1}


@pytest.mark.parametrize(
    ("stdout", "answer"),
    [
        ('GB10-ANSWER:{"a": 1}', {"a": 1}),
        ('Welcome!\n\nGB10-ANSWER:{"a": 1}\nlogout\n', {"a": 1}),
        ('GB10-ANSWER:{"old": 0}\r\nGB10-ANSWER:{"a": 1}\r\n', {"a": 1}),
    ],
)
def test_the_answer_is_found_in_what_a_shell_adds(stdout: str, answer: dict[str, int]) -> None:
    assert transport.parse(stdout) == answer


@pytest.mark.parametrize(
    "stdout",
    [
        "",
        "Welcome",
        "GB10-ANSWER:",
        "GB10-ANSWER:{",
        "GB10-ANSWER:[]",
        "GB10-ANSWER:" + "[" * 99999,
        'GB10-ANSWER:{"a":' + "[" * 3000 + "]" * 3000 + "}",
    ],
)
def test_what_is_no_answer_is_a_value_error(stdout: str) -> None:
    with pytest.raises(ValueError):
        transport.parse(stdout)


def test_no_answer_steers_the_terminal_that_shows_it() -> None:
    bad = "a\x1b[2Jb\r\n\tc"
    said = {"changes": [{"detail": bad}], "orphans": [bad], "facts": {bad: {"x": [bad, 1, None]}}, "diff": [bad]}
    answer = transport.parse(transport.MARKER + json.dumps({**said, "error": {"message": bad}}))
    one_line, lines = r"a\x1b[2Jb\r\n\tc", "a\\x1b[2Jb\\r\n\tc"
    assert answer == {
        "changes": [{"detail": one_line}],
        "orphans": [one_line],
        "facts": {one_line: {"x": [one_line, 1, None]}},
        "diff": [lines],
        "error": {"message": lines},
    }


@pytest.mark.parametrize(
    ("interpreter", "command"),
    [
        ("/usr/bin/python3", "/usr/bin/python3 -I -S -"),
        ("/usr/bin/env python3", "/usr/bin/env python3 -I -S -"),
        ("python3; reboot", "'python3;' reboot -I -S -"),
    ],
)
def test_the_interpreter_is_quoted(interpreter: str, command: str) -> None:
    assert transport.command(interpreter) == command


class Templar:
    def template(self, value: Any) -> Any:
        return value


class Action:
    """As much of an action plugin as a call needs."""

    _templar = Templar()

    def __init__(self, **done: Any) -> None:
        self.done = {"rc": 0, "stdout": "", "stderr": "", **done}

    def _low_level_execute_command(self, cmd: str, in_data: bytes, sudoable: bool) -> dict[str, Any]:
        self.called = (cmd, in_data, sudoable)
        return self.done


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("done", "says"),
    [
        ({"rc": 1, "stderr": "sudo: a password is required\n"}, ["sudo was refused", "/etc/sudoers.d"]),
        ({"rc": 127, "stderr": "/bin/sh: 1: /usr/bin/python3: not found"}, ["no usable Python", "install python3"]),
        ({"rc": 0, "stdout": "GB10-ANSWER:{"}, ["could not be read", "GB10-ANSWER:{"]),
        ({"rc": 137}, ["no answer came back", "exit status 137"]),
    ],
)
def test_a_host_without_an_answer_says_why(done: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(transport.NoAnswer) as caught:
        transport.call(Action(**done), {}, {"inventory_hostname": "spark-a"})  # type: ignore[arg-type]
    for words in says:
        assert words in str(caught.value)


@pytest.mark.usefixtures("fake")
def test_a_call_sends_the_program_with_privileges_to_the_interpreter_of_the_inventory() -> None:
    action = Action(stdout='GB10-ANSWER:{"a": 1}')
    variables = {"inventory_hostname": "spark-a", "ansible_python_interpreter": "/opt/python3"}
    assert transport.call(action, {"verb": "drift"}, variables) == {"a": 1}  # type: ignore[arg-type]
    command, program, sudoable = action.called
    assert (command, sudoable) == ("/opt/python3 -I -S -", True)
    assert program == transport.program({"verb": "drift"})
    transport.call(action, {}, {**variables, "ansible_python_interpreter": "auto_silent"})  # type: ignore[arg-type]
    assert action.called[0] == "/usr/bin/python3 -I -S -"


class Connection:
    """As much of ssh's as a call needs."""

    resets = 0

    def __init__(self) -> None:
        self.options = {"reconnection_retries": 0}
        self.get_option, self.set_option = self.options.__getitem__, self.options.__setitem__

    def reset(self) -> None:
        self.resets += 1


class Host(Action):
    """A host whose answers stand in a list; an exception stands for a call that finds no way to it."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self._connection, self.answers = Connection(), list(answers)
        self.requests: list[dict[str, Any]] = []

    def _low_level_execute_command(self, cmd: str, in_data: bytes, sudoable: bool) -> dict[str, Any]:
        packed = re.search(rb'REQUEST = "([^"]*)"', in_data) or re.search(rb"REQUEST = '([^']*)'", in_data)
        assert packed
        self.requests.append(json.loads(zlib.decompress(base64.b64decode(packed[1]))))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"rc": 0, "stdout": transport.MARKER + json.dumps(answer), "stderr": ""}


CONVERGE = {"verb": "converge", "check": False, "documents": [], "expect": {"rails": "0" * 64}}
CHANGED = {"changes": [{"resource": "nm_profile:a"}, {"resource": "file:/b"}], "diff": [1], "subprocesses": 9}
FIRST = {**CHANGED, "guard": {"id": "f" * 16, "seconds": 130}, "error": None}
LAST = {"changes": [], "diff": [], "subprocesses": 4, "guard": None, "error": None, "facts": {"rails": []}}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def send(host: Host, **changes: Any) -> dict[str, Any]:
    return transport.call(host, {**CONVERGE, **changes}, {"inventory_hostname": "spark-a"})  # type: ignore[arg-type]


@pytest.mark.usefixtures("fake", "clock")
def test_a_change_of_the_network_is_confirmed_over_a_new_connection() -> None:
    host = Host(FIRST, LAST)
    answer = send(host)
    assert host._connection.resets == 1
    begin, word = host.requests
    assert re.fullmatch("[0-9a-f]{16}", begin["guard"]) and "confirm" not in begin
    assert (word["confirm"], "guard" in word) == (begin["guard"], False)
    assert host.requests[1]["expect"] == {}, "the change has changed the facts"
    assert (answer["changes"], answer["subprocesses"], answer["facts"]) == (CHANGED["changes"], 13, {"rails": []})


@pytest.mark.usefixtures("fake", "clock")
@pytest.mark.parametrize("changes", [{"check": True}, {"verb": "undo"}, {"verb": "drift"}])
def test_what_changes_no_network_is_asked_for_no_word(changes: dict[str, Any]) -> None:
    host = Host(LAST)
    send(host, **changes)
    assert not {"guard", "confirm"} & {*host.requests[0]} and host._connection.resets == 0


@pytest.mark.usefixtures("fake", "clock")
def test_a_failed_run_that_took_everything_back_is_not_confirmed() -> None:
    host = Host({**FIRST, "guard": None, "error": {"kind": "apply", "message": "no space"}})
    assert send(host)["error"]["message"] == "no space"


@pytest.mark.usefixtures("fake")
def test_a_host_that_could_neither_keep_nor_take_back_is_asked_until_it_has(clock: list[float]) -> None:
    """NetworkManager was restarted in the middle: neither the first call nor the word after it finds one to talk to."""
    stuck = {**FIRST, "error": {"kind": "apply", "message": "NetworkManager is not running"}}
    back = {**LAST, "error": {"kind": "host", "message": "the network is back to how it was"}}
    host = Host(stuck, {**stuck, "changes": []}, {**stuck, "changes": []}, back)
    answer = send(host)
    assert answer["error"] == back["error"] and clock[0] == 2 * transport.CONFIRM_PAUSE_S
    assert {request["confirm"] for request in host.requests[1:]} == {host.requests[0]["guard"]}


RAILS = [{"role": "fabric", "resources": [{"nm_profile": "gb10-a"}, {"nm_profile": "gb10-b"}]}]


@pytest.mark.usefixtures("fake")
def test_a_change_that_cuts_off_its_own_answer_is_waited_for(clock: list[float]) -> None:
    back = {**LAST, "error": {"kind": "host", "message": "the network is back to how it was"}}
    host = Host(*[AnsibleConnectionFailure("no route")] * 9, back)
    answer = send(host, documents=RAILS)
    assert (answer["error"], answer["changes"]) == (back["error"], [])
    assert host.requests[-1]["confirm"] == host.requests[0]["guard"], "the id is known without an answer"
    assert clock[0] > 0


@pytest.mark.usefixtures("fake")
def test_a_lost_host_is_given_up_when_all_has_fired_and_at_once_without_rails(clock: list[float]) -> None:
    with pytest.raises(AnsibleConnectionFailure):
        send(Host(AnsibleConnectionFailure("no route")))
    assert clock[0] == 0
    with pytest.raises(AnsibleActionFail, match=r"spark-a: the connection was lost in a call .*go to its console"):
        send(Host(*[AnsibleConnectionFailure("no route")] * 200), documents=RAILS)
    assert guard.CONFIRM_S + guard.NET_S < clock[0] < 200


VIA = "Failed to connect to the host via ssh: "


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("words", "fate"),
    [
        (f"{VIA}ssh: connect to host 198.51.100.7 port 22: No route to host", "unreachable"),
        (f"{VIA}Warning: Permanently added\nssh: Could not resolve hostname spark-a: Name or service", "unreachable"),
        (f'Data could not be sent to remote host "a". {VIA[18:]}u@a: Permission denied (publickey).', "unreachable"),
        (f"{VIA}kex_exchange_identification: Connection closed by remote host", "unreachable"),
        (f"{VIA}client_loop: send disconnect: Broken pipe", "cut"),
        (f"{VIA}Timeout, server 198.51.100.7 not responding.", "cut"),
        (f"{VIA}Shared connection to 198.51.100.7 closed.", "cut"),
    ],
)
def test_a_host_that_was_never_reached_is_unreachable_at_once(clock: list[float], words: str, fate: str) -> None:
    host = Host(*[AnsibleConnectionFailure(words)] * 200)
    with pytest.raises(AnsibleActionFail if fate == "cut" else AnsibleConnectionFailure):
        send(host, documents=RAILS)
    assert (clock[0] > guard.CONFIRM_S, len(host.requests) > 1) == (fate == "cut", fate == "cut")


@pytest.mark.usefixtures("fake", "clock")
def test_a_call_that_changes_rails_is_tried_again_only_where_it_never_began() -> None:
    """ssh's own retries would send it once more after it was cut off, and say no word of that."""
    down, cut = AnsibleConnectionFailure(f"{VIA}ssh: connect to host a port 22: no"), AnsibleConnectionFailure("cut")
    host = Host(down, down, cut, LAST)
    host._connection.options["reconnection_retries"] = 2
    tried = []
    real = host._low_level_execute_command

    def watched(*arguments: Any, **named: Any) -> dict[str, Any]:
        tried.append(host._connection.options["reconnection_retries"])
        return real(*arguments, **named)

    host._low_level_execute_command = watched  # type: ignore[method-assign]
    send(host, documents=RAILS)
    assert ["confirm" in request for request in host.requests] == [False, False, False, True]
    assert tried == [0] * 4 and host._connection.options["reconnection_retries"] == 2
    host = Host(*[down] * 9)
    host._connection.options["reconnection_retries"] = 2
    with pytest.raises(AnsibleConnectionFailure):
        send(host, documents=RAILS)
    assert len(host.requests) == 3


@pytest.mark.usefixtures("fake")
def test_a_host_where_the_first_call_is_still_at_work_is_asked_again(clock: list[float]) -> None:
    busy = {**LAST, "error": {"kind": "busy", "message": "another run is at work on this host"}}
    answer = send(Host(AnsibleConnectionFailure("cut"), busy, busy, LAST), documents=RAILS)
    assert answer["error"] is None
    answer = send(Host(AnsibleConnectionFailure("cut"), *[busy] * 200), documents=RAILS)
    assert answer["error"] == busy["error"] and clock[0] < 180


@pytest.mark.usefixtures("fake")
def test_a_host_that_comes_back_says_that_it_went_back(clock: list[float]) -> None:
    said = {**LAST, "error": {"kind": "host", "message": "the network is back to how it was"}}
    host = Host(FIRST, *[AnsibleConnectionFailure("no route")] * 3, said)
    answer = send(host)
    assert answer["error"] == said["error"] and clock[0] > 0
    assert answer["changes"] == [{"resource": "file:/b"}], "what was taken back is no change"


@pytest.mark.usefixtures("fake")
def test_a_host_that_stays_away_is_given_up_after_all_has_fired(clock: list[float]) -> None:
    host = Host(FIRST, *[AnsibleConnectionFailure("no route")] * 200)
    with pytest.raises(AnsibleActionFail, match=r"spark-a: the network was changed.*go to its console"):
        send(host)
    assert 130 + transport.CONFIRM_MARGIN_S <= clock[0] <= 150


def test_the_bundle_holds_what_the_engine_imports_and_no_more() -> None:
    sources = transport._sources()
    assert f"{PACKAGE}.engine.engine" in sources and f"{PACKAGE}.engine.resources.files" in sources
    assert f"{PACKAGE}.fabric.perftest" not in sources
    assert f"{PACKAGE}.programs.coherence.grub" in sources, "a relative import"
    assert sources[PACKAGE] is None and sources[f"{PACKAGE}.engine.resources"] is None
    for module, source in sources.items():
        imported = {
            resolve_name("." * node.level + (node.module or ""), module.rpartition(".")[0])
            for node in ast.walk(ast.parse(source or ""))
            if isinstance(node, ast.ImportFrom)
        }
        assert {name for name in imported if name.startswith("ansible")} <= set(sources)


def test_the_real_engine_answers_and_refuses_nonsense(tmp_path: Path) -> None:
    answer, _ = run({"verb": "nonsense"}, tmp_path / "cache")
    assert answer["error"]["kind"] == "request"
    assert len(transport.program({"verb": "drift"})) < 100_000, "bytes to every host, in every run"
    assert json.dumps(answer)


def test_what_travels_is_the_same_program_without_its_words() -> None:
    def code(source: str) -> str:
        """The syntax tree with empty docstrings, and with the number of each line."""
        tree = ast.parse(source)
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            first = body[0] if isinstance(body, list) and body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                first.value = ast.Constant("")
        return ast.dump(tree) + str([node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)])

    for name, sent in transport._sources().items():
        if sent is not None:
            assert code(sent) == code(transport._file(name).read_text(encoding="utf-8")), name
            assert sent.lstrip().startswith('""\n') and not re.search("^ *#", sent, re.MULTILINE), name
