"""One ansible-playbook, by ansible-runner: its events come through a pipe of ours, its output is text.

ansible-runner looks for events in the output, too: its own callback plugin writes them there between escape sequences.
Ansible shows words of hosts there as they are, so a host could write an event and speak for another one. `Lines` stands
in the place of what looks for them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.folders import is_public
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_runner import runner as runners
from ansible_runner.interface import init_runner

from gb10_fleet.rollout import locks

Handle = Callable[[dict[str, Any]], bool]

_CALLBACKS = Path(__file__).parent / "callback"
_IN_PUBLIC = Path(__file__).parent / "in_public.py"
_END = b"end\n"


def ansible_run(*, event_handler: Handle, **call: Any) -> Any:
    """Do what ansible_runner.run does, with our own events; returns its Runner."""
    runner: Any = init_runner(**call)  # type: ignore[no-untyped-call]
    runner.event_callback = event_handler
    ours, mine = runner.config.env, {**os.environ, **call["envvars"]}
    # What the user has chosen holds. ansible-runner puts its own choice instead, and does not check host keys.
    chosen = ("ANSIBLE_STDOUT_CALLBACK", "ANSIBLE_HOST_KEY_CHECKING")
    for name in (*chosen, "AWX_ISOLATED_DATA_DIR"):
        ours.pop(name, None)
    ours.update({name: mine[name] for name in chosen if name in mine})
    ours["ANSIBLE_CALLBACK_PLUGINS"] = ":".join(filter(None, (str(_CALLBACKS), mine.get("ANSIBLE_CALLBACK_PLUGINS"))))
    if is_public(Path(call["project_dir"])):
        runner.config.command[:1] = [sys.executable, "-P", str(_IN_PUBLIC)]
    with _events(Path(call["private_data_dir"], "events"), event_handler) as (pipe, begin):
        ours["GB10_EVENTS"] = str(pipe)
        runner.cancel_callback = _first(begin, runner.cancel_callback)
        runner.run()
        if runner.rc is None or runner.rc < 0 or runner.status in ("canceled", "timeout"):
            _end_workers(str(pipe))
    return runner


def _first(begin: Callable[[], None], asked: Callable[[], bool] | None) -> Callable[[], bool]:
    """Begin to read when ansible-runner asks for the first time, a second after its fork at the latest.

    It forks without a thread beside it. Else a lock of that thread stays held in the child for ever, and no signal ends
    who waits for the child.
    """

    def cancel() -> bool:
        begin()
        return asked is not None and asked()

    return cancel


def _end_workers(pipe: str) -> None:
    """End what is left of a run that was ended: Ansible's workers detach themselves, and would change hosts still."""

    def find() -> list[locks.Process]:
        return locks.carrying("GB10_EVENTS", lambda value: value == pipe)

    locks.end(find(), find)


@contextlib.contextmanager
def _events(pipe: Path, handle: Handle) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A named pipe whose lines a thread of its own handles, once it is begun: Ansible waits only when it is full."""
    os.mkfifo(pipe, 0o600)
    # Open for both, so the pipe neither waits for its first writer nor ends with its last.
    descriptor = os.open(pipe, os.O_RDWR | os.O_CLOEXEC)

    defects: list[Exception] = []

    def read() -> None:
        with open(descriptor, "rb", closefd=False) as lines:
            for line in iter(lines.readline, _END):
                try:
                    event = json.loads(line)
                except ValueError:  # half a line: Ansible was killed
                    continue
                try:
                    handle(event)
                except Exception as defect:  # it is raised below; till then Ansible must not wait for a reader
                    defects.append(defect)

    reader = threading.Thread(target=read, daemon=True)

    def begin() -> None:
        if reader.ident is None:
            reader.start()

    try:
        yield pipe, begin
    finally:
        begin()
        os.write(descriptor, b"\n" + _END)
        reader.join()
        os.close(descriptor)
    for defect in defects:
        raise defect


class Lines:
    """What ansible-playbook writes, line by line: shown, and handed on. It has the methods of OutputEventFilter."""

    def __init__(
        self, _handle: None, tell: Callable[[dict[str, Any]], object], suppress_ansible_output: bool, **_more: Any
    ) -> None:
        self._tell, self._shows = tell, not suppress_ansible_output
        self._begun: list[str] = []  # pieces of a line that has no end yet

    def write(self, data: str) -> None:
        """Take what was read, of any length."""
        first, *rest = data.split("\n")
        self._begun.append(first)
        for piece in rest:
            self._line("\n")
            self._begun = [piece]

    def flush(self) -> None:
        """Nothing is kept back but a line without an end."""

    def close(self) -> None:
        """Take the last line as it is."""
        if any(self._begun):
            self._line("")

    def _line(self, end: str) -> None:
        text = _plain("".join(self._begun).rstrip("\r"))
        self._begun = []
        if self._shows:
            sys.stdout.write(text + end)
            sys.stdout.flush()
        self._tell({"event": "verbose", "stdout": _COLOUR.sub("", text)})


_COLOUR = re.compile(r"(\x1b\[(?:0|[01];3[0-7]|38;5;\d{1,3})m)")  # as Ansible writes them; no other sequence goes on


def _plain(text: str) -> str:
    """The text with Ansible's colours, and without all else that steers a terminal."""
    if text.isprintable():
        return text
    return "".join(part if number % 2 else printable(part, "\t") for number, part in enumerate(_COLOUR.split(text)))


# The name is read first, so `gb10` ends where an ansible-runner has it no longer. Else a host could write events again.
if runners.OutputEventFilter is not Lines:  # type: ignore[attr-defined, comparison-overlap]
    runners.OutputEventFilter = Lines  # type: ignore[assignment, attr-defined]
