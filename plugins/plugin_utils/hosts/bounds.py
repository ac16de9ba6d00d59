# SPDX-License-Identifier: GPL-3.0-or-later
"""How much a host may send. A sick or hostile one must not eat the controller's memory, disk or time.

`scan` reads its own pipes and counts. Ansible's connection plugins collect all that comes. So a process that asks one
host gets a bound on its memory, and where one process asks many hosts (`scan.Typist`), the plugin's pipes count.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.loader import connection_loader
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import effort, schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import ssh_password

ANSWER_LIMIT = 16 * 2**20  # bytes; a real answer has some thousands
ERRORS_LIMIT = 2**20  # bytes of standard error, of which the end is shown
OTHERS_LIMIT = 4 * 2**20  # bytes of an answer of Ansible's own modules; 400 lines of a journal have some 100,000
VALUES_LIMIT = schema.MOST_VALUES
DEPTH_LIMIT = 50  # a real answer has 10
TOO_DEEP = "its answer is nested too deeply"
CHUNK = 2**16


@contextlib.contextmanager
def named(host: str) -> Iterator[None]:
    """A call to one host, whose answer Ansible collects; the host fails where it sends too much."""
    with by_name(host), effort.memory():
        yield


@contextlib.contextmanager
def by_name(host: str) -> Iterator[None]:
    """Too much of a host is a failure of its own."""
    try:
        yield
    except effort.TooMuch as error:
        raise AnsibleActionFail(f"{host}: {error}; see on the host what writes so much, then run again") from None


def fit(said: object) -> None:
    """TooMuch where an answer that somebody else has collected takes more, or is deeper, than one may.

    Each value counts, also one that is short to write: it takes 50 bytes here, and more when Ansible copies it. So does
    a text by what it takes: with one wide character in it, each has four bytes.
    """
    length, values, level = 0, 0, [said]
    for __ in range(DEPTH_LIMIT):
        values += len(level)
        length += sum(map(_taken_by, level))
        if length > ANSWER_LIMIT:
            raise effort.TooMuch(effort.too_much("standard output or error", ANSWER_LIMIT))
        if values > VALUES_LIMIT:
            raise effort.TooMuch(f"its answer has more than {VALUES_LIMIT} values")
        level = list(islice(_within(level), VALUES_LIMIT + 1))
        if not level:
            return
    raise effort.TooMuch(TOO_DEEP)


def _taken_by(value: object) -> int:
    return len(value) * (1 if value.isascii() else 4) if isinstance(value, str) else 1


def _within(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, Mapping):
            yield from (part for pair in value.items() for part in pair)
        elif isinstance(value, (list, tuple)):
            yield from value


def count_pipes_of(plugin: type, counting: type[_Counting] | None = None) -> None:
    """What this connection plugin starts is ended where its host sends too much, and the plugin reads no further.

    Ansible has no option for it. So the plugin's module gets a `Popen` whose pipes count.
    """
    module: Any = sys.modules[plugin.__module__]
    if hasattr(module, "subprocess"):
        module.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": counting or _Counting})


def count_pipes_of_others() -> None:
    """The same for Ansible's own modules, in every process that is forked from here on."""
    count_pipes_of(connection_loader.get("ssh", class_only=True), _CountingOthers)


class _Counting(subprocess.Popen[bytes]):
    def limit(self) -> int:
        return ANSWER_LIMIT

    def __init__(self, *args: Any, **more: Any) -> None:
        if more.get("env"):
            more["env"] = ssh_password.to_own_ssh(more["env"], Path(constants.DEFAULT_LOCAL_TMP))  # type: ignore[attr-defined]
        super().__init__(*args, **more)
        pipes: Any = self
        pipes.stdout = self.stdout and _Pipe(self, self.stdout, self.limit())
        pipes.stderr = self.stderr and _Pipe(self, self.stderr, ERRORS_LIMIT)


class _CountingOthers(_Counting):
    def limit(self) -> int:
        return OTHERS_LIMIT


class _Pipe:
    """A pipe of a process; it ends, and the process with it, once too much came."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: IO[bytes], limit: int) -> None:
        self._process, self._pipe, self._left = process, pipe, limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)

    def read(self) -> bytes:
        """What is there now, for a reader that waits for something to be there."""
        if self._left < 0:
            self._process.kill()
            return b""
        chunk = os.read(self._pipe.fileno(), CHUNK)
        self._left -= len(chunk)
        return chunk
