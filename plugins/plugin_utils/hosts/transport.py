# SPDX-License-Identifier: GPL-3.0-or-later
"""One call to the engine on a host: a short program on standard input, one line of JSON back.

The program names the engine and all long texts by their digests; the host asks for what it has not kept of them. How
and why: docs/architecture/transport.md. The host's half is module_utils/bootstrap.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import shlex
import time
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.module_utils.bootstrap import install, opening
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import from_failure
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import effort, programs, schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import cleaned, printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice, bounds, engine_answer, scan

MARKER = opening.ANSWER
# Root's own, in memory: it is gone after a boot.
CACHE = "/run/gb10-fleet"
DEFAULT_INTERPRETER = "/usr/bin/python3"
LONG_TEXT = 1000  # characters; to name a text takes some 120
SHOWN_OF_AN_ANSWER = 300  # characters
CONFIRM_MARGIN_S = 10  # after everything has fired, for the host to be reached again
CONFIRM_PAUSE_S = 2.0

# What ssh says while it has not logged in, so that nothing can have begun on the host.
_NEVER_IN = re.compile(
    r"(?:^|over ssh: |via ssh: )(?:ssh: connect to host |ssh: Could not resolve hostname |Host key verification failed|"
    r"\S+: Permission denied \(|kex_exchange_identification: |Connection timed out during banner exchange)",
    re.MULTILINE,
)

_PACKAGE = "ansible_collections/gb10/fleet/plugins/module_utils"
# The first line of the program says how long it is: standard input stays open behind it. Of an older Python this says
# what is said of a host without Python, before the engine fails somewhere.
_LOADER = (
    'import sys;sys.version_info<(3,9)and sys.exit("Python 3.9 or newer not found, this is "+sys.version.split()[0]);'
    'f=sys.stdin.buffer;exec(compile(f.read(int(f.readline()[1:])),"opening.py","exec"))'
)


class NoAnswer(AnsibleActionFail):
    """The host was reached, but the engine gave no answer; `said` is what came instead."""

    def __init__(self, host: str, said: str) -> None:
        finding = from_failure(host, said, answered=True)
        super().__init__(f"{finding.fact}; {finding.way_out}")  # type: ignore[no-untyped-call]
        self.said = said


def call(action: ActionBase, request: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of the host of this task.

    AnsibleConnectionFailure where it is unreachable, NoAnswer where sudo, Python or the engine fail. A change of the
    network is confirmed over a new connection; the answer is then what the host said last, with all changes.
    """
    if request.get("verb") != "converge" or request["check"]:
        return _send(action, request, task_vars)
    # Imports every kind of resource, which takes long: only for a change.
    from ansible_collections.gb10.fleet.plugins.module_utils.engine import kinds

    identity, back_s = os.urandom(8).hex(), kinds.back_within_s(request["documents"])
    with _own_tries(action._connection if back_s else None) as tries:
        first = _first(action, {**request, "guard": identity}, back_s, tries, task_vars)
        return first if first.get("guard") is None else _confirmed(action, request, identity, first, task_vars)


@contextlib.contextmanager
def _own_tries(connection: Any) -> Iterator[int]:
    """How often to try. Not by ssh's own retries: they do not say whether a try before the last one got through."""
    option = "reconnection_retries"
    try:
        retries = int(connection.get_option(option) or 0)
    except (AttributeError, KeyError):  # another connection plugin, or nothing that could be cut off
        yield 1
        return
    connection.set_option(option, 0)
    try:
        yield 1 + retries
    finally:
        connection.set_option(option, retries)


def _first(
    action: ActionBase, request: Mapping[str, Any], back_s: int, tries: int, task_vars: Mapping[str, Any]
) -> dict[str, Any]:
    """The answer to the call that makes the change, or what stands for it where the change may have cut it off.

    `back_s`: within how many seconds a host that lost us has gone back; 0 where the request cannot cut anything off.
    """
    while True:
        tries -= 1
        try:
            return _send(action, request, task_vars)
        except AnsibleConnectionFailure as error:
            never_in = _NEVER_IN.search(str(error)) is not None
            if not back_s or (never_in and not tries):
                raise
            if not never_in:
                return {"guard": {"seconds": back_s}, "changes": [], "diff": [], "subprocesses": 0}
        time.sleep(CONFIRM_PAUSE_S)


def _confirmed(
    action: ActionBase,
    request: Mapping[str, Any],
    identity: str,
    first: Mapping[str, Any],
    task_vars: Mapping[str, Any],
) -> dict[str, Any]:
    """The same request once more, with the id of what waits: the host is to be as it says, seen over a new connection.

    Without that the host goes back by itself, and is asked until it can prove that.
    """
    again = {**request, "expect": {}, "confirm": identity}
    until = time.monotonic() + first["guard"]["seconds"] + CONFIRM_MARGIN_S
    what = (
        "the network was changed" if first["changes"] else "the connection was lost in a call that changes the network"
    )
    while True:
        late = time.monotonic() >= until
        try:
            action._connection.reset()  # the connection that made the change may outlive the way to the host
            last = _send(action, again, task_vars)
            busy = (last["error"] or {}).get("kind") == "busy"  # with the first call, perhaps, whose answer was cut off
            # Else it could neither keep the change nor prove that it is gone.
            if late or (last.get("guard") is None and not busy):
                break
        except (AnsibleConnectionFailure, NoAnswer) as error:
            if late:
                raise AnsibleActionFail(
                    f"{task_vars['inventory_hostname']}: {what}, and the host could not be reached over a new"
                    f" connection; it goes back by itself, within two minutes from now at the latest: if it is not"
                    f" there then, go to its console ({error})"
                ) from error
        time.sleep(CONFIRM_PAUSE_S)
    kept = [
        item for item in first["changes"] if not last["error"] or item["resource"] not in first["guard"]["resources"]
    ]
    return {
        **last,
        "changes": kept + last["changes"],
        "diff": first["diff"] + last["diff"],
        "subprocesses": first["subprocesses"] + last["subprocesses"],
    }


def _send(action: ActionBase, request: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
    """Ansible closes standard input behind what it sends, so what the host lacks takes a second call."""
    remote, message = command(_interpreter(action, task_vars)), Message(request)

    def run(program: bytes) -> dict[str, Any]:
        try:
            with effort.memory(), scan.piped(action._connection):
                done: dict[str, Any] = action._low_level_execute_command(remote, in_data=program, sudoable=True)
                bounds.fit(done["stdout"])
        except effort.TooMuch as error:
            raise NoAnswer(str(task_vars["inventory_hostname"]), str(error)) from None
        return done

    done = run(message.program())
    if missing := message.missing(done["stdout"]):
        done = run(message.program(missing))
    try:
        return parse(done["stdout"])
    except ValueError as error:
        wrong_fact = isinstance(error, schema.WrongFact)
        said = printable(str(error)) if wrong_fact else instead(done["stdout"], done["stderr"], str(error))
        raise NoAnswer(str(task_vars["inventory_hostname"]), f"{said} (exit status {done['rc']})") from error


def command(interpreter: str) -> str:
    """What runs on the host: isolated, without the host's site packages, the program on standard input."""
    return shlex.join([*shlex.split(interpreter), "-I", "-S", "-c", _LOADER])


def command_of(routes: scan.Routes, variables: dict[str, Any]) -> str:
    """The same for a host of a scan, by its own variables."""
    return command(routes.interpreter(variables) or DEFAULT_INTERPRETER)


def program(request: Mapping[str, Any], cache_folder: str = CACHE) -> bytes:
    """The program that answers the request with nobody to ask: all that it needs is in it."""
    message = Message(request, cache_folder)
    return message.program(message.blobs)


class Message:
    """A request as it travels: short, and beside it the *blobs*, texts that the host may have kept, by digest."""

    def __init__(self, request: Mapping[str, Any], cache_folder: str = CACHE) -> None:
        self._folder = cache_folder
        self._texts: dict[str, str] = {}
        self._places: dict[str, list[list[str | int]]] = {}
        self._request = _packed(json.dumps(self._short(request, [])))

    @property
    def blobs(self) -> dict[str, str]:
        """All of them, packed."""
        return {preload()[0]: _packed_engine(), **{digest: _packed(text) for digest, text in self._texts.items()}}

    def program(self, given: Mapping[str, str] | None = None) -> bytes:
        """The program that answers the request with these blobs and those that the host has, or asks for the others."""
        given, engine = dict(given or {}), preload()[0]
        file, first = (install.__file__, "install") if engine in given else (opening.__file__, "start")
        arguments = (self._folder, engine, self._request, self._places, given)
        # Literals, and a comment: so it also runs as a file, and where it is all of standard input.
        text = f"{_source(file)}\n{first}(*{arguments!a})\n".encode()
        return b"#%d\n%b" % (len(text), text)

    def missing(self, said: str) -> dict[str, str]:
        """The blobs that a host asks for in what it said; none that is no part of this request, whatever it says."""
        line = next((line for line in said.splitlines() if line.startswith(opening.MISSING)), None)
        if line is None:
            return {}
        return {digest: blob for digest, blob in self.blobs.items() if digest in line}

    def reply(self, line: str) -> bytes | None:
        """What to write to a host that said this line, if it asks for anything."""
        missing = self.missing(line)
        return self.program(missing) if missing else None

    def _short(self, value: Any, way: list[str | int]) -> Any:
        """A part of the request without its long texts. Of what is a secret, none is ever a blob: blobs are kept."""
        if isinstance(value, str) and len(value) > LONG_TEXT:
            digest = _digest(value)
            self._texts[digest] = value
            self._places.setdefault(digest, []).append(way)
            return ""
        # JSON makes text of other keys, which are then not found on the host.
        if isinstance(value, dict) and not value.get("secret") and all(isinstance(key, str) for key in value):
            return {key: self._short(item, [*way, key]) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._short(item, [*way, index]) for index, item in enumerate(value)]
        return value


def parse(stdout: str) -> dict[str, Any]:
    """The answer in what a host wrote, whatever a login shell wrote around it; ValueError if there is none.

    WrongFact, which is one, where a value of it is not what the engine says, or it takes too much.
    """
    line = next((line for line in reversed(stdout.splitlines()) if line.startswith(MARKER)), None)
    if line is None:
        raise ValueError("no answer came back")
    try:
        answer = schema.parsed(line[len(MARKER) :])
        if not isinstance(answer, dict):
            raise ValueError("the answer is no JSON object")
        if wrong := engine_answer.problem(answer):
            raise schema.WrongFact(wrong)
        # Contents of files and the last lines of a journal have more than one line.
        known = engine_answer.known(answer)
        clean = {key: cleaned(value, "\n\t" if key in ("diff", "error") else "") for key, value in known.items()}
        clean |= {key: advice.plain(value) for key, value in clean.items() if key != "diff"}  # that shows files
        bounds.fit(clean)  # as it is kept: what was sent may have been a sixteenth of it
        return clean
    except effort.TooMuch as error:
        raise schema.WrongFact(str(error)) from None
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None


def instead(stdout: str, stderr: str, otherwise: str) -> str:
    """The ends of what came where an answer should be."""
    said = "\n".join(line for line in stdout.splitlines() if not line.startswith(opening.MISSING))
    ends = (stderr.strip()[-SHOWN_OF_AN_ANSWER:], said.strip()[-SHOWN_OF_AN_ANSWER:])
    return printable(" / ".join(filter(None, ends)) or otherwise, keep="\n\t")


@cache
def preload() -> tuple[str, str]:
    """The engine's digest and the engine; once per run, before Ansible forks."""
    text = json.dumps(_sources())
    return _digest(text), text


@cache
def _packed_engine() -> str:
    return _packed(preload()[1])


def _sources() -> dict[str, str]:
    return sources_of("bootstrap/texts", "bootstrap/opening")


def sources_of(*starts: str) -> dict[str, str]:
    """Return some modules and all that they import of ours: texts by the names of their files on a host."""
    sources = {f"{_PACKAGE}/{name}.py": programs.source(name) for name in programs.modules_of(*starts)}
    # Without these files Python would search for the folders anew in each import: a tenth of the CPU time of a call.
    packages = {parent / "__init__.py" for name in sources for parent in list(Path(name).parents)[:-1]}
    return {**{str(file): "" for file in sorted(packages)}, **sources}


@cache
def _source(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")


def _packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"))).decode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _interpreter(action: ActionBase, task_vars: Mapping[str, Any]) -> str:
    """The inventory's or ansible.cfg's interpreter; the engine needs no discovery, the system's own will do."""
    given = task_vars.get("ansible_python_interpreter") or C.config.get_config_value(
        "INTERPRETER_PYTHON", variables=task_vars
    )
    interpreter = str(action._templar.template(given))
    return DEFAULT_INTERPRETER if interpreter.startswith("auto") else interpreter
