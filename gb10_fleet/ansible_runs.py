"""ansible-runner with our own events: what a play's tasks mean comes through a pipe, and not as lines of a screen."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ansible_runner.interface import init_runner

from gb10_fleet.rollout import locks

Handle = Callable[[dict[str, Any]], bool]

_CALLBACKS = Path(__file__).parent / "callback"
_END = b"end\n"


def ansible_run(*, event_handler: Handle, **call: Any) -> Any:
    """ansible_runner.run with our own events; returns its Runner.

    Of its own callback plugin the output is left: lines, without what they mean.
    """
    runner: Any = init_runner(event_handler=event_handler, **call)  # type: ignore[no-untyped-call]
    ours, mine = runner.config.env, {**os.environ, **call["envvars"]}
    # What the user has chosen holds. ansible-runner puts its own choice instead, and does not check host keys.
    chosen = ("ANSIBLE_STDOUT_CALLBACK", "ANSIBLE_HOST_KEY_CHECKING")
    for name in (*chosen, "AWX_ISOLATED_DATA_DIR"):
        ours.pop(name, None)
    ours.update({name: mine[name] for name in chosen if name in mine})
    ours["ANSIBLE_CALLBACK_PLUGINS"] = ":".join(filter(None, (str(_CALLBACKS), mine.get("ANSIBLE_CALLBACK_PLUGINS"))))
    with _events(Path(call["private_data_dir"], "events"), event_handler) as (pipe, begin):
        ours["GB10_EVENTS"] = str(pipe)
        runner.cancel_callback = _first(begin, runner.cancel_callback)
        runner.run()
        if runner.rc is None or runner.rc < 0 or runner.status in ("canceled", "timeout"):
            _end_workers(str(pipe))
    return runner


def _first(begin: Callable[[], None], asked: Callable[[], bool] | None) -> Callable[[], bool]:
    """Begin to read when ansible-runner asks for the first time, a second after its fork at the latest.

    It forks without a thread beside it: the child of a process with threads is a copy in which a lock of another thread
    stays held for ever, and who waits for that child does not end on any signal.
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
