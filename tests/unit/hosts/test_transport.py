"""What travels to a host, run as a host would run it; with a made-up engine and with the real one."""

from __future__ import annotations

import ast
import base64
import json
import os
import re
import resource
import shlex
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.gb10.fleet.plugins.module_utils.bootstrap import opening, texts
from ansible_collections.gb10.fleet.plugins.module_utils.engine import guard
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import from_failure
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, effort, output
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import scan, transport

from tests.support.answers import EMPTY
from tests.support.plays import Plays

PACKAGE = "ansible_collections.gb10.fleet.plugins.module_utils"
REMOTE = f"""
import sys
from {PACKAGE}.engine.resources import common
from {PACKAGE}.system.system import System
def answer(request, system):
    print("noise on stdout")
    if "raise" in request:
        raise ValueError
    return {{**{EMPTY!r}, "request": request, "name": common.NAME, "system": type(system).__name__, "argv": sys.argv,
             "isolated": sys.flags.isolated}}
"""
SYSTEM = """
import hashlib
class System: pass
def sha256(content): return hashlib.sha256(content).hexdigest()
"""
FOLDER = PACKAGE.replace(".", "/")
SOURCES: dict[str, str] = {
    **{
        f"{FOLDER}/bootstrap/{Path(module.__file__).name}": Path(module.__file__).read_text()
        for module in (opening, texts)
    },
    f"{FOLDER}/engine/resources/common.py": "NAME = 'native'\n",
    f"{FOLDER}/system/system.py": SYSTEM,
    f"{FOLDER}/engine/remote.py": REMOTE,
}
KEPT = 4000  # bytes of a call in which nothing is missing
LONG = "a text of more than a line, " * 100


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another engine, which says what it has heard as well; what is computed once for a run is computed each time."""
    monkeypatch.setattr(transport.engine_answer, "known", lambda answer: answer)
    monkeypatch.setattr(transport, "_sources", lambda: SOURCES)
    for name in ("preload", "_packed_engine"):
        monkeypatch.setattr(transport, name, getattr(transport, name).__wrapped__)


class Wire:
    """A host of this machine, asked over one connection; what was written to it is counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent = 0
        self.stderr = ""

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        message = transport.Message(request, str(self.folder))
        self.sent = len(message.program())

        def reply(line: str) -> bytes | None:
            more = message.reply(line)
            self.sent += len(more or b"")
            return more

        target = scan.Target("h", tuple(shlex.split(transport.command(sys.executable))), message.program(), 0, reply)
        (said,) = scan.ask([target], concurrency=1, timeout_s=60, progress=lambda done, total: None)
        self.stderr = said.stderr
        return transport.parse(said.stdout)

    def engines(self) -> list[Path]:
        return sorted(self.folder.glob("engine-*"))


@pytest.fixture
def wire(tmp_path: Path) -> Wire:
    return Wire(tmp_path / "cache")


class Once:
    """As much of an action plugin as a call needs: a host of this machine, to which a call sends all at once."""

    _templar: Any = None
    _connection: Any = None

    def __init__(self) -> None:
        self.calls = 0

    def _low_level_execute_command(self, cmd: str, in_data: bytes, sudoable: bool) -> dict[str, Any]:
        self.calls += 1
        done = subprocess.run(["/bin/sh", "-c", cmd], input=in_data, capture_output=True, timeout=60, check=False)
        return {"rc": done.returncode, "stdout": done.stdout.decode(), "stderr": done.stderr.decode()}


REQUEST = {
    "text": "ä\u2028'\"\\\n{{ }}'''\0\ud800",
    "list": [None, True, 1.5],
    "long": LONG * 1000,
    "same": [LONG, {"b": LONG}],
}
HEARD = {**REQUEST, "text": output.printable(str(REQUEST["text"]))}


@pytest.mark.usefixtures("fake")
def test_the_request_arrives_whole_and_the_answer_comes_back(wire: Wire) -> None:
    for _ in range(2):
        answer = wire.ask(REQUEST)
        assert answer["request"] == HEARD
        assert (answer["name"], answer["system"], answer["isolated"]) == ("native", "System", 1)
        assert answer["argv"] == ["-c"], "a request has no business in an argument list"
        assert wire.stderr == ""


@pytest.mark.usefixtures("fake")
def test_ansibles_connection_takes_a_second_call_where_something_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport.Message.__init__, "__defaults__", (str(tmp_path / "cache"),))
    monkeypatch.setattr(transport, "_interpreter", lambda action, task_vars: sys.executable)
    action = Once()
    for request, calls in ((REQUEST, 2), (REQUEST, 3), ({"new": LONG + "!"}, 5), ({"new": "short"}, 6)):
        answer = transport.call(action, request, {"inventory_hostname": "spark-a"})  # type: ignore[arg-type]
        assert answer["request"].keys() == request.keys() and action.calls == calls


@pytest.mark.usefixtures("fake")
def test_a_program_for_nobody_to_ask_needs_no_folder_and_runs_as_a_file(tmp_path: Path) -> None:
    program = b"# a header\n" + transport.program(REQUEST, str(tmp_path / "no" / "folder"))
    (tmp_path / "program").write_bytes(program)
    for words, sent in (["-"], program), ([str(tmp_path / "program")], b""):
        done = subprocess.run([sys.executable, "-I", "-S", *words], input=sent, capture_output=True, check=True)
        assert transport.parse(done.stdout.decode())["request"] == HEARD


@pytest.mark.usefixtures("fake")
def test_what_a_host_has_kept_does_not_travel_again(wire: Wire) -> None:
    wire.ask(REQUEST)
    assert wire.sent > KEPT
    (engine,) = wire.engines()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (wire.folder, engine)} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in wire.folder.glob("text-*")} == {0o600}
    before = (engine / FOLDER / "engine/remote.py").stat().st_mtime_ns
    wire.ask(REQUEST)
    first = wire.sent
    assert first < KEPT and (engine / FOLDER / "engine/remote.py").stat().st_mtime_ns == before
    wire.ask({**REQUEST, "new": LONG + "!"})
    assert wire.sent < 3 * first, "the engine was sent with one new text"
    (engine / FOLDER / "engine/resources/common.py").write_text("NAME = 'kept!!!'\n")
    assert wire.ask(REQUEST)["name"] == "kept!!!", "the kept engine was not used"


@pytest.mark.usefixtures("fake")
def test_a_traceback_shows_the_lines_of_a_real_file(wire: Wire) -> None:
    with pytest.raises(ValueError):
        wire.ask({"raise": 1})
    (engine,) = wire.engines()
    line = REMOTE.splitlines().index("        raise ValueError") + 1
    assert f'File "{engine}/{FOLDER}/engine/remote.py", line {line}, in answer\n    raise ValueError\n' in wire.stderr


def cut(folder: Path) -> None:
    for path in folder.rglob("common.*"):
        path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    "damage",
    [
        cut,
        lambda engine: [path.write_bytes(b"garbage") for path in engine.rglob("common*.py*")],
        lambda engine: [path.write_bytes(path.read_bytes()[:20]) for path in engine.rglob("*.pyc")],
        lambda engine: [path.unlink() for path in engine.rglob("common*.py*")],
        lambda engine: (engine / FOLDER / "bootstrap/texts.py").write_text("raise RuntimeError"),
    ],
    ids=["cut", "garbage", "cut code", "gone", "raises"],
)
def test_a_damaged_engine_is_sent_again(wire: Wire, damage: Callable[[Path], Any]) -> None:
    wire.ask({})
    (engine,) = wire.engines()
    damage(engine)
    assert wire.ask({})["name"] == "native"
    assert wire.stderr == "" and wire.engines() == [engine]
    wire.ask({})
    assert wire.sent < KEPT, "it was not mended"


@pytest.mark.usefixtures("fake")
def test_a_damaged_text_is_sent_again(wire: Wire) -> None:
    wire.ask(REQUEST)
    for path in wire.folder.glob("text-*"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert wire.ask(REQUEST)["request"] == HEARD
    wire.ask(REQUEST)
    assert wire.sent < KEPT, "it was not mended"


@pytest.mark.usefixtures("fake")
def test_an_engine_that_others_could_write_is_not_used(wire: Wire, tmp_path: Path) -> None:
    wire.ask({})
    (engine,) = wire.engines()
    common = engine / FOLDER / "engine/resources/common.py"

    def evil() -> None:
        common.write_text("NAME = 'evil'\n")
        assert wire.ask({})["name"] == "evil"

    evil()
    engine.chmod(0o770)
    assert wire.ask({})["name"] == "native"
    evil()
    wire.folder.chmod(0o770)
    assert wire.ask({})["name"] == "native"
    wire.folder.chmod(0o700)
    engine.rename(tmp_path / "elsewhere")
    engine.symlink_to(tmp_path / "elsewhere")
    assert wire.ask({})["name"] == "native"
    wire.folder = tmp_path / "link"
    wire.folder.symlink_to(tmp_path / "other")
    (tmp_path / "other").mkdir(mode=0o700)
    assert wire.ask(REQUEST)["name"] == "native"
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.usefixtures("fake")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_not_used(wire: Wire) -> None:
    wire.ask(REQUEST)
    (engine,) = wire.engines()
    (engine / FOLDER / "engine/resources/common.py").write_text("NAME = 'evil'\n")
    for folder in (engine, wire.folder):
        os.chown(folder, 4711, 4711)
        assert wire.ask(REQUEST)["name"] == "native"
        assert wire.sent > KEPT


@pytest.mark.usefixtures("fake")
def test_what_nobody_uses_any_more_is_removed_and_nothing_else(wire: Wire) -> None:
    wire.folder.mkdir(mode=0o700)
    names = ["engine-old", "engine-new", "text-old", "text-new", "lock"]
    for name in names:
        (wire.folder / name).mkdir() if name == "engine-old" else (wire.folder / name).touch()
        if not name.endswith("new"):
            os.utime(wire.folder / name, (0, time.time() - texts.UNUSED_S - 60))
    wire.ask({})
    assert {path.name for path in wire.folder.iterdir()} - {path.name for path in wire.engines()} == {
        "text-new",
        "lock",
    }
    assert "engine-new" in {path.name for path in wire.engines()} and len(wire.engines()) == 2


@pytest.mark.usefixtures("fake")
def test_what_is_in_use_is_not_removed(wire: Wire) -> None:
    wire.ask(REQUEST)
    kept = sorted(wire.folder.iterdir())
    for path in kept:
        os.utime(path, (0, 0))
    wire.ask({**REQUEST, "new": LONG + "!"})
    assert set(kept) < set(wire.folder.iterdir())


@pytest.mark.usefixtures("fake")
def test_without_a_place_to_keep_anything_the_engine_works_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("file/cache", "file", "no/cache"):
        wire = Wire(tmp_path / folder)
        for _ in range(2):
            assert wire.ask(REQUEST)["request"] == HEARD
            assert wire.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.usefixtures("fake")
def test_a_secret_is_in_no_file_of_the_host(wire: Wire) -> None:
    secret = "the-secret-of-many-lines\n" * 100
    request = {
        "documents": [{"resources": [{"file": "/k", "secret": True, "content": secret, "more": {"x": [secret]}}]}]
    }
    assert wire.ask(request)["request"] == {
        "documents": json.loads(json.dumps(request["documents"]).replace("\\n", "\\\\n"))
    }
    files = [path for path in wire.folder.rglob("*") if path.is_file()]
    assert files and not [path for path in files if b"the-secret" in path.read_bytes()]
    assert not list(wire.folder.glob("text-*"))


@pytest.mark.usefixtures("fake")
def test_a_host_gets_nothing_but_what_belongs_to_its_own_request() -> None:
    message, others = transport.Message({"a": LONG}), transport.Message({"a": LONG + "!"})
    (digest,) = message._texts
    (other,) = others._texts
    assert list(message.missing(f"{opening.MISSING}{digest} {other} /etc/shadow")) == [digest]
    assert message.reply(f"{opening.MISSING}{other}") is None and message.reply("Welcome") is None


def begun(wire: Wire, old: bytes = b"", new: bytes = b"") -> tuple[subprocess.Popen[bytes], transport.Message]:
    """A call that waits for what it has asked for."""
    message = transport.Message(REQUEST, str(wire.folder))
    pipe = subprocess.PIPE
    process = subprocess.Popen(shlex.split(transport.command(sys.executable)), stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(message.program().replace(old, new))
    process.stdin.flush()
    while not process.stdout.readline().startswith(opening.MISSING.encode()):
        pass
    return process, message


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("share", [0, 1, 100, -1])
def test_a_call_that_is_cut_off_in_the_middle_does_nothing(wire: Wire, share: int) -> None:
    process, message = begun(wire)
    stdout, stderr = process.communicate(message.program(message.blobs)[:share], timeout=30)
    assert (stdout, stderr, process.returncode) == (b"", b"", 0)
    assert not wire.folder.exists()
    assert wire.ask(REQUEST)["request"] == HEARD


@pytest.mark.usefixtures("fake")
def test_a_host_whose_controller_says_nothing_more_does_not_wait_for_ever(wire: Wire) -> None:
    process, _ = begun(wire, b"PATIENCE_S = 60", b"PATIENCE_S = 1 ")
    assert process.wait(timeout=30) < 0
    process.communicate()


@pytest.mark.usefixtures("fake")
def test_calls_at_the_same_time_do_not_disturb_each_other(wire: Wire) -> None:
    waiting = [begun(wire) for _ in range(6)]
    for process, message in waiting:
        assert process.stdin is not None
        process.stdin.write(message.program(message.blobs))
        process.stdin.flush()
    for process, _ in waiting:
        stdout, stderr = process.communicate(timeout=60)
        assert transport.parse(stdout.decode())["request"] == HEARD, stderr
    assert len(wire.engines()) == 1 and len(list(wire.folder.glob("*-*"))) == 3, "something was left"


def test_an_older_python_is_named() -> None:
    words = shlex.split(transport.command("python3"))
    old = f"import sys;sys.version_info=(3,8);sys.version='3.8.10 (default)'\n{words[-1]}"
    done = subprocess.run([sys.executable, *words[1:-1], old], capture_output=True, text=True, input="", check=False)
    assert done.returncode == 1 and "this is 3.8.10" in done.stderr
    assert from_failure("h", done.stderr, answered=True).fact.startswith("no usable Python answered")


NEW, OLD = (transport.MARKER + json.dumps({**EMPTY, "subprocesses": count}) for count in (1, 0))


@pytest.mark.parametrize("stdout", [NEW, f"Welcome!\n\n{NEW}\nlogout\n", f"{OLD}\r\n{NEW}\r\n"])
def test_the_answer_is_found_in_what_a_shell_adds(stdout: str) -> None:
    assert transport.parse(stdout) == {**EMPTY, "subprocesses": 1}


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
    change = {"role": "r", "resource": bad, "action": "b"}
    said = {"changes": [change], "stale": [bad], "facts": {"cdi": [bad]}, "diff": [{"after": bad}]}
    error = {"kind": "host", "message": bad}
    answer = transport.parse(transport.MARKER + json.dumps({**EMPTY, **said, "error": error}))
    one_line, lines = r"a\x1b[2Jb\r\n\tc", "a\\x1b[2Jb\\r\n\tc"
    assert answer == {
        **EMPTY,
        "changes": [{**change, "resource": one_line}],
        "stale": [one_line],
        "facts": {"cdi": [one_line]},
        "diff": [{"after": lines}],
        "error": {"kind": "host", "message": lines},
    }


@pytest.mark.parametrize(
    ("interpreter", "command"),
    [
        ("/usr/bin/python3", "/usr/bin/python3 -I -S -c "),
        ("/usr/bin/env python3", "/usr/bin/env python3 -I -S -c "),
        ("python3; reboot", "'python3;' reboot -I -S -c "),
    ],
)
def test_the_interpreter_is_quoted(interpreter: str, command: str) -> None:
    assert transport.command(interpreter).startswith(command)
    assert len(shlex.split(transport.command(interpreter))) == len(shlex.split(command)) + 1


class Templar:
    def template(self, value: Any) -> Any:
        return value


class Action:
    """As much of an action plugin as a call needs."""

    _templar = Templar()
    _connection: Any = None  # a plugin without options

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


PIECE = 20 * 2**20  # collected at a time; in small ones the copying takes seconds


class Flood(Action):
    """A connection that collects all that comes, as Ansible's do."""

    def __init__(self, size: int) -> None:
        self.size, self.most = size, 0

    def _low_level_execute_command(self, cmd: str, in_data: bytes, sudoable: bool) -> dict[str, Any]:
        collected = b""
        for _ in range(0, self.size, PIECE):
            collected += b"x" * PIECE
            self.most = len(collected)
        return {"rc": 0, "stdout": collected.decode(), "stderr": ""}


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("size", [600 * 2**20, 20 * 2**20])
def test_a_host_that_sends_without_end_is_named_and_not_read_to_the_end(size: int) -> None:
    """Six hundred MB of one host took three GB of the controller."""
    flood, before = Flood(size), resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(transport.NoAnswer, match=r"it wrote more than \d+ MiB to standard output"):
        transport.call(flood, {}, {"inventory_hostname": "spark-a"})  # type: ignore[arg-type]
    assert flood.most <= effort.MEMORY_LIMIT
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.usefixtures("fake")
def test_a_call_sends_the_program_with_privileges_to_the_interpreter_of_the_inventory() -> None:
    action = Action(stdout=NEW)
    variables = {"inventory_hostname": "spark-a", "ansible_python_interpreter": "/opt/python3"}
    assert transport.call(action, {"verb": "drift"}, variables)["subprocesses"] == 1  # type: ignore[arg-type]
    command, program, sudoable = action.called
    assert (command, sudoable) == (transport.command("/opt/python3"), True)
    assert program == transport.Message({"verb": "drift"}).program()
    transport.call(action, {}, {**variables, "ansible_python_interpreter": "auto_silent"})  # type: ignore[arg-type]
    assert action.called[0] == transport.command("/usr/bin/python3")


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
        arguments = ast.literal_eval(in_data.decode().splitlines()[-1].removeprefix("start(*")[:-1])
        self.requests.append(json.loads(zlib.decompress(base64.b64decode(arguments[2]))))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"rc": 0, "stdout": transport.MARKER + json.dumps(answer), "stderr": ""}


CONVERGE = {"verb": "converge", "check": False, "documents": [], "expect": {"rails": "0" * 64}}
RAIL, FILE = ({"role": "fabric", "resource": resource, "action": "create"} for resource in ("nm_profile:a", "file:/b"))
CHANGED = {**EMPTY, "changes": [RAIL, FILE], "diff": [{"after": "1"}], "subprocesses": 9}
FIRST = {**CHANGED, "guard": {"id": "f" * 16, "seconds": 130, "resources": ["nm_profile:a"]}, "error": None}
LAST = {**EMPTY, "subprocesses": 4, "facts": {"rails": []}}


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
    assert answer["changes"] == [FILE], "what was taken back is no change"


@pytest.mark.usefixtures("fake")
def test_a_host_that_stays_away_is_given_up_after_all_has_fired(clock: list[float]) -> None:
    host = Host(FIRST, *[AnsibleConnectionFailure("no route")] * 200)
    with pytest.raises(AnsibleActionFail, match=r"spark-a: the network was changed.*go to its console"):
        send(host)
    assert 130 + transport.CONFIRM_MARGIN_S <= clock[0] <= 150


def test_the_bundle_holds_what_the_engine_imports_and_no_more() -> None:
    sources, reached = transport._sources(), set[str]()
    waiting = [f"{PACKAGE}.bootstrap.texts"]
    while waiting:
        name = waiting.pop()
        file = f"{name.replace('.', '/')}.py"
        here = catalog.collection_root() / file.removeprefix("ansible_collections/gb10/fleet/")
        if name in reached or not here.exists():
            continue
        reached.add(name)
        for node in ast.walk(ast.parse(sources[file])):
            if isinstance(node, ast.ImportFrom):
                module = resolve_name("." * node.level + (node.module or ""), name.rpartition(".")[0])
                waiting += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    files = {name for name in sources if not name.endswith("/__init__.py")}
    assert files == {f"{name.replace('.', '/')}.py" for name in reached}
    assert {f"{parent}/__init__.py" for name in files for parent in Path(name).parents[:-1]} == sources.keys() - files


def test_what_travels_is_plain_sources() -> None:
    for name, sent in transport._sources().items():
        path = catalog.collection_root() / name.removeprefix("ansible_collections/gb10/fleet/")
        assert sent == (path.read_text(encoding="utf-8") if path.exists() else ""), name


def test_the_real_engine_answers_and_refuses_nonsense(wire: Wire) -> None:
    assert wire.ask({"verb": "nonsense"})["error"]["kind"] == "request"
    assert wire.ask({"verb": "nonsense"})["error"]["kind"] == "request"
    assert wire.sent < 5_000


def test_an_unchanged_host_gets_25_kb_at_most(tmp_path: Path) -> None:
    """The request that the doctor really sends, with the documents of all roles."""
    plays, doctor = Plays(tmp_path), [{"ansible.builtin.import_playbook": "gb10.fleet.doctor"}]
    host = {"spark-a": {"ansible_host": "kind-ok"}}
    plays.known(host)  # facts, from which documents are made
    rc, said = plays.play(host, doctor, ansible_become=False)
    assert rc == 0, said
    request = plays.requests()[-1]
    assert [document["role"] for document in request["documents"]] == list(catalog.ROLES)
    assert len(json.dumps(request)) > 50_000, "the installed programs are missing"
    assert len(transport.Message(request).program()) <= 25_000, "bytes to every host, in every run"
