# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that many hosts say for as long as somebody listens, over one connection each."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.scan import SHOWN_OF_ERRORS, Target

LONGEST_LINE = 2**16  # bytes; a look at a host has some thousands
PIECE = 2**16
LISTEN_S = 1.0  # how soon it is noticed that nobody listens any more

Say = Callable[[str, str], bool]  # host, line -> whether to go on
Gone = Callable[[str, str], bool]  # host, why


@dataclass
class _Talk:
    """One host that talks. `rest` is a line that is not whole."""

    target: Target
    process: subprocess.Popen[bytes]
    program: memoryview
    rest: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)

    def pipe(self, number: int) -> str:
        return next(name for name in ("stdin", "stdout", "stderr") if self.number(name) == number)

    def number(self, name: str) -> int:
        pipe = getattr(self.process, name)
        return -1 if pipe is None or pipe.closed else int(pipe.fileno())


class Talks:
    """All hosts that talk. Standard input stays open: where it ends, the host ends too.

    A host whose connection ends is asked again after `again_s`, for as long as somebody listens.
    """

    def __init__(self, targets: Iterable[Target], say: Say, gone: Gone, again_s: float) -> None:
        self._say, self._gone, self._again_s = say, gone, again_s
        self._poll = select.poll()
        self._talks: dict[int, _Talk] = {}
        self._going = True
        self._due = [(0.0, target) for target in targets]

    def listen(self, listening: Callable[[], bool]) -> None:
        """Pass on every line until nobody listens."""
        try:
            while self._going and (self._talks or self._due) and listening():
                now = time.monotonic()
                due = [target for when, target in self._due if when <= now]
                self._due = [(when, target) for when, target in self._due if when > now]
                for target in due:
                    self._begin(target)
                for number, __ in self._poll.poll(LISTEN_S * 1000):
                    if talk := self._talks.get(number):
                        self._one(talk, talk.pipe(number))
        finally:
            for talk in {id(talk): talk for talk in self._talks.values()}.values():
                _end(talk.process)

    def _begin(self, target: Target) -> None:
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(target.command, stdin=pipe, stdout=pipe, stderr=pipe)
        except OSError as error:
            self._lost(target, f"{target.command[0]}: {error.strerror}")
            return
        talk = _Talk(target, process, memoryview(target.program))
        for name, event in (("stdin", select.POLLOUT), ("stdout", select.POLLIN), ("stderr", select.POLLIN)):
            number = talk.number(name)
            os.set_blocking(number, False)
            self._talks[number] = talk
            self._poll.register(number, event)

    def _one(self, talk: _Talk, pipe: str) -> None:
        number = talk.number(pipe)
        if pipe == "stdin":
            try:
                talk.program = talk.program[os.write(number, talk.program) :]
            except BrokenPipeError:
                talk.program = memoryview(b"")
            if not talk.program:
                self._forget(number)
            return
        chunk = os.read(number, PIECE)
        if pipe == "stderr":
            talk.errors = (talk.errors + chunk)[:PIECE]
            if not chunk:
                self._forget(number)
            return
        talk.rest += chunk
        *whole, last = talk.rest.split(b"\n")
        talk.rest = bytearray(last)
        for line in whole:
            self._going = self._going and self._say(talk.target.host, line.decode(errors="replace"))
        if not chunk or len(talk.rest) > LONGEST_LINE:
            self._leave(talk, "it sent a line without an end" if chunk else "")

    def _forget(self, number: int) -> None:
        self._poll.unregister(number)
        del self._talks[number]

    def _leave(self, talk: _Talk, why: str) -> None:
        for number in [number for number, other in self._talks.items() if other is talk]:
            self._forget(number)
        if talk.number("stderr") >= 0:
            with contextlib.suppress(BlockingIOError):
                talk.errors += os.read(talk.number("stderr"), PIECE)  # what came together with the end
        _end(talk.process)
        said = bytes(talk.errors).decode(errors="replace").strip()[-SHOWN_OF_ERRORS:]
        why = why or said or f"the connection ended (exit status {talk.process.returncode})"
        self._lost(talk.target, why)

    def _lost(self, target: Target, why: str) -> None:
        self._due.append((time.monotonic() + self._again_s, target))
        self._going = self._going and self._gone(target.host, why)


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()
    process.kill()
    process.wait()
    if process.stderr:
        process.stderr.close()
