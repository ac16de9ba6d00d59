# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One call to the engine on a host: a Python program on standard input, one line of JSON back.

The program holds the engine's sources, compressed, and the request; nothing of it is in an argument list or in a file.
Only the compiled engine is kept on the host, in /run/gb10-fleet: compiling costs a host more than everything else.
"""

from __future__ import annotations

import base64
import bz2
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
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.finding import from_failure
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import kept
from ansible_collections.gb10.fleet.plugins.plugin_utils.output import printable

MARKER = "GB10-ANSWER:"
# Root's own, in memory: it is gone after a boot.
CACHE = "/run/gb10-fleet"
DEFAULT_INTERPRETER = "/usr/bin/python3"
SHOWN_OF_AN_ANSWER = 300  # characters
CONFIRM_MARGIN_S = 10  # after everything has fired, for the host to be reached again
CONFIRM_PAUSE_S = 2.0

# What ssh says while it has not logged in, so that nothing can have begun on the host.
_NEVER_IN = re.compile(
    r"(?:^|over ssh: |via ssh: )(?:ssh: connect to host |ssh: Could not resolve hostname |Host key verification failed|"
    r"\S+: Permission denied \(|kex_exchange_identification: |Connection timed out during banner exchange)",
    re.MULTILINE,
)

_PACKAGE = "ansible_collections.gb10.fleet.plugins.module_utils"
_ENTRIES = (f"{_PACKAGE}.engine.remote", f"{_PACKAGE}.engine.system")  # what the bootstrap imports
# Read as text: a syntax tree of all of it would take longer than the rest of a run on one host.
_IMPORT = re.compile(
    rf"^ *(?:from|import) +((?:{re.escape(_PACKAGE)}|\.)[\w.]*)(?: +import +(\([^)]*\)|.*))?$", re.MULTILINE
)
# What a source holds for its readers is a third of what would travel. A test compares the syntax trees.
_COMMENT = re.compile(r"^ *#.*$", re.MULTILINE)
_DOCSTRING = re.compile(r'((?:(?<=:\n)|\A\n*) *)("""(?:[^"\\]|\\.|"(?!""))*""")(?=\n)')

# Runs under `python3 -I -S -`, 3.9 or later. The names in capitals are set in front of it.
_BOOTSTRAP = """
import binascii, gc, json, marshal, os, sys, zlib
from _frozen_importlib import ModuleSpec

def unpacked(text):
    return json.loads(zlib.decompress(binascii.a2b_base64(text)))

def ours(path, mode):
    status = os.lstat(path)
    return (status.st_mode, status.st_uid) == (mode, os.geteuid())

def compiled():  # module -> code, or None for a package; kept where nobody else can write
    path = f"{CACHE}/engine-{DIGEST}-{sys.implementation.cache_tag}-{sys.hexversion:x}"
    try:
        os.makedirs(CACHE, 0o700, exist_ok=True)
        if ours(CACHE, 0o40700) and ours(path, 0o100600):
            with open(path, "rb") as file:
                return dict(marshal.loads(file.read()))  # four times as fast as load(file)
    except (OSError, ValueError, EOFError, TypeError):
        pass  # absent, somebody else's or damaged
    import base64, bz2
    sources = json.loads(bz2.decompress(base64.b85decode(ENGINE)))
    code = {name: source and compile(source, name, "exec") for name, source in sources.items()}
    try:
        if ours(CACHE, 0o40700):
            for name in os.listdir(CACHE):
                if name.startswith("engine-"):
                    os.unlink(f"{CACHE}/{name}")
            new = os.open(f"{path}.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(new, "wb") as file:
                marshal.dump(code, file)
            os.rename(f"{path}.{os.getpid()}", path)
    except OSError:
        pass
    return code

class Engine:
    code = compiled()
    def find_spec(name, path=None, target=None):
        return ModuleSpec(name, Engine, is_package=Engine.code[name] is None) if name in Engine.code else None
    def create_module(spec):
        return None
    def exec_module(module):
        exec(Engine.code[module.__name__] or "", module.__dict__)

gc.disable()  # nobody lives here for long, and both this and a tidy end would cost a host as much as most of its facts
sys.meta_path.insert(0, Engine)
from ansible_collections.gb10.fleet.plugins.module_utils.engine import remote, system
print("\\n" + MARKER + json.dumps(remote.answer(unpacked(REQUEST), system.System())), flush=True)
os._exit(0)
"""


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
    identity = os.urandom(8).hex()
    profiles = sum("nm_profile" in item for document in request["documents"] for item in document["resources"])
    with _own_tries(action._connection if profiles else None) as tries:
        first = _first(action, {**request, "guard": identity}, profiles, tries, task_vars)
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
    action: ActionBase, request: Mapping[str, Any], profiles: int, tries: int, task_vars: Mapping[str, Any]
) -> dict[str, Any]:
    """The answer to the call that makes the change, or what stands for it where the change may have cut it off."""
    while True:
        tries -= 1
        try:
            return _send(action, request, task_vars)
        except AnsibleConnectionFailure as error:
            never_in = _NEVER_IN.search(str(error)) is not None
            if not profiles or (never_in and not tries):
                raise
            if not never_in:
                return {"guard": {"seconds": _fired_after_s(profiles)}, "changes": [], "diff": [], "subprocesses": 0}
        time.sleep(CONFIRM_PAUSE_S)


def _fired_after_s(profiles: int) -> int:
    """Seconds after which a host that lost us while it changed that many profiles has gone back."""
    from ansible_collections.gb10.fleet.plugins.module_utils.engine import guard  # the engine's, and seldom needed here
    from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.profiles import checkpoint_s

    return max(checkpoint_s(profiles), guard.CONFIRM_S) + guard.NET_S + guard.ROLLBACK_S


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
                raise AnsibleActionFail(  # type: ignore[no-untyped-call]
                    f"{task_vars['inventory_hostname']}: {what}, and the host could not be reached over a new"
                    f" connection; it goes back by itself, within two minutes from now at the latest: if it is not"
                    f" there then, go to its console ({error})"
                ) from error
        time.sleep(CONFIRM_PAUSE_S)
    kept = [item for item in first["changes"] if not last["error"] or not item["resource"].startswith("nm_profile:")]
    return {
        **last,
        "changes": kept + last["changes"],
        "diff": first["diff"] + last["diff"],
        "subprocesses": first["subprocesses"] + last["subprocesses"],
    }


def _send(action: ActionBase, request: Mapping[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
    done = action._low_level_execute_command(  # type: ignore[no-untyped-call]
        command(_interpreter(action, task_vars)), in_data=program(request), sudoable=True
    )
    try:
        return parse(done["stdout"])
    except ValueError as error:
        said = instead(done["stdout"], done["stderr"], str(error))
        raise NoAnswer(str(task_vars["inventory_hostname"]), f"{said} (exit status {done['rc']})") from error


def command(interpreter: str) -> str:
    """What runs on the host: isolated, without the host's site packages, the program on standard input."""
    return f"{shlex.join(shlex.split(interpreter))} -I -S -"


def program(request: Mapping[str, Any], cache_folder: str = CACHE) -> bytes:
    """The program that answers the request."""
    text, checksum = preload()
    values = {"MARKER": MARKER, "CACHE": cache_folder, "DIGEST": checksum, "ENGINE": text, "REQUEST": _packed(request)}
    return "".join([*(f"{name} = {value!r}\n" for name, value in values.items()), _BOOTSTRAP]).encode("ascii")


def parse(stdout: str) -> dict[str, Any]:
    """The answer in what a host wrote, whatever a login shell wrote around it; ValueError if there is none."""
    line = next((line for line in reversed(stdout.splitlines()) if line.startswith(MARKER)), None)
    if line is None:
        raise ValueError("no answer came back")
    try:
        answer = json.loads(line[len(MARKER) :])
        if not isinstance(answer, dict):
            raise ValueError("the answer is no JSON object")
        # Contents of files and the last lines of a journal have more than one line.
        return {key: _cleaned(value, "\n\t" if key in ("diff", "error") else "") for key, value in answer.items()}
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None


def instead(stdout: str, stderr: str, otherwise: str) -> str:
    """The ends of what came where an answer should be."""
    ends = (stderr.strip()[-SHOWN_OF_AN_ANSWER:], stdout.strip()[-SHOWN_OF_AN_ANSWER:])
    return printable(" / ".join(filter(None, ends)) or otherwise, keep="\n\t")


def _cleaned(value: Any, keep: str) -> Any:
    if isinstance(value, str):
        return printable(value, keep)
    if isinstance(value, dict):
        return {printable(key): _cleaned(item, keep) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item, keep) for item in value]
    return value


@cache
def preload() -> tuple[str, str]:
    """The engine as it travels, with the digest of it; once per run, before Ansible forks."""
    text: str = kept.computed("engine", [Path(__file__), *sorted(_folder().rglob("*.py"))], _engine)
    return text, hashlib.sha256(text.encode()).hexdigest()[:32]


def _engine() -> str:
    # Every host gets it in every run and unpacks it once: bz2 takes longer than zlib, and a fifth less room; base 85
    # takes longer than base 64, and a sixteenth less.
    return base64.b85encode(bz2.compress(json.dumps(_sources()).encode())).decode()


def _packed(value: Any) -> str:
    return base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()


def _sources() -> dict[str, str | None]:
    """The entries and what they import, as {module: source}; None for the packages above them."""
    sources: dict[str, str | None] = {}
    waiting = list(_ENTRIES)
    while waiting:
        name = waiting.pop()
        if name in sources:
            continue
        source = _file(name).read_text(encoding="utf-8")
        sources[name] = _bare(source)
        waiting += [module for module in _imports(source, name) if _file(module).is_file()]
    for name in list(sources):
        parts = name.split(".")
        sources.update({".".join(parts[:length]): None for length in range(1, len(parts))})
    return dict(sorted(sources.items()))


def _bare(source: str) -> str:
    """The source without docstrings and lines of comment; each line keeps its number."""
    return _DOCSTRING.sub(lambda found: found[1] + '""' + "\n" * found[2].count("\n"), _COMMENT.sub("", source))


def _imports(source: str, importer: str) -> list[str]:
    """Every module of the package that a source names in an import, wherever in it; some are mere names."""
    found = []
    for named, names in _IMPORT.findall(source):
        module = resolve_name(named, importer.rpartition(".")[0])
        found += [module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))]
    return found


def _folder() -> Path:
    return catalog.collection_root() / "plugins" / "module_utils"


def _file(module: str) -> Path:
    return _folder().joinpath(*module.removeprefix(_PACKAGE).strip(".").split(".")).with_suffix(".py")


def _interpreter(action: ActionBase, task_vars: Mapping[str, Any]) -> str:
    """The inventory's or ansible.cfg's interpreter; the engine needs no discovery, the system's own will do."""
    given = task_vars.get("ansible_python_interpreter") or C.config.get_config_value(  # type: ignore[no-untyped-call]
        "INTERPRETER_PYTHON", variables=task_vars
    )
    interpreter = str(action._templar.template(given))
    return DEFAULT_INTERPRETER if interpreter.startswith("auto") else interpreter
