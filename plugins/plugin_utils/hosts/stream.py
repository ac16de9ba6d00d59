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

from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import ssh_password
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.scan import SHOWN_OF_ERRORS, SSH_FAILED, Target

LONGEST_LINE = 2**16  # bytes; a look at a host has some thousands
PIECE = 2**16
LISTEN_S = 1.0  # how soon it is noticed that nobody listens any more
_NOT_LET_IN = b"Permission denied ("  # as ssh says it

Say = Callable[[str, str], bool]  # host, line -> whether to go on
Gone = Callable[[str, str], bool]  # host, why


@dataclass
class _Talk:
    """One host that talks. `rest` is a line that is not whole, `asked` what came since sudo was begun."""

    target: Target
    process: subprocess.Popen[bytes]
    program: memoryview
    typing: contextlib.ExitStack
    root: bool  # whether the program may be sent
    typed: bool = False
    asked: bytes = b""
    rest: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)

    def pipe(self, number: int) -> str:
        return next(name for name in ("stdin", "stdout", "stderr") if self.number(name) == number)

    def number(self, name: str) -> int:
        pipe = getattr(self.process, name)
        return -1 if pipe is None or pipe.closed else int(pipe.fileno())


class Talks:
    """All hosts that talk. Standard input stays open: where it ends, the host ends too.

    A host whose connection ends is asked again after `again_s`, for as long as somebody listens. One that refuses a
    password is not: some lock a user out after several wrong ones.
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
            while self._going and listening():
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
                _end(talk)

    def _begin(self, target: Target) -> None:
        pipe, typing = subprocess.PIPE, contextlib.ExitStack()
        try:
            words, environment = typing.enter_context(ssh_password.given(target.command, target.secrets.ssh))
            process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
        except OSError as error:
            typing.close()
            self._lost(target, f"{target.command[0]}: {error.strerror}")
            return
        talk = _Talk(target, process, memoryview(target.program), typing, root=not target.secrets.sudo)
        for name in ("stdin", "stdout", "stderr"):
            os.set_blocking(talk.number(name), False)
        self._listen_to(talk, *(("stdin",) if talk.root else ()), "stdout", "stderr")

    def _listen_to(self, talk: _Talk, *pipes: str) -> None:
        for name in pipes:
            number = talk.number(name)
            self._talks[number] = talk
            self._poll.register(number, select.POLLOUT if name == "stdin" else select.POLLIN)

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
        if not talk.root and not self._type(talk, chunk):
            return
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

    def _type(self, talk: _Talk, chunk: bytes) -> bool:
        """Answer the question of sudo, once, and send the program to root. Returns whether the host is still there."""
        secrets = talk.target.secrets
        talk.asked = (talk.asked + chunk)[-PIECE:]
        if secrets.let_in in talk.asked:
            talk.root = True
            self._listen_to(talk, "stdin")
        elif secrets.asks(talk.asked):
            if talk.typed:
                self._leave(talk, "the password of sudo is wrong")
                return False
            talk.typed, talk.asked = True, b""
            with contextlib.suppress(BrokenPipeError):
                os.write(talk.number("stdin"), secrets.sudo.encode() + b"\n")
        return True

    def _forget(self, number: int) -> None:
        self._poll.unregister(number)
        del self._talks[number]

    def _leave(self, talk: _Talk, why: str) -> None:
        for number in [number for number, other in self._talks.items() if other is talk]:
            self._forget(number)
        if talk.number("stderr") >= 0:
            with contextlib.suppress(BlockingIOError):
                talk.errors += os.read(talk.number("stderr"), PIECE)  # what came together with the end
        _end(talk)
        said = bytes(talk.errors).decode(errors="replace").strip()[-SHOWN_OF_ERRORS:]
        why = why or said or f"the connection ended (exit status {talk.process.returncode})"
        no_root = talk.typed and not talk.root and talk.process.returncode != SSH_FAILED
        refused = no_root or (talk.target.secrets.ssh and _NOT_LET_IN in talk.errors)
        self._lost(talk.target, why, again=not refused)

    def _lost(self, target: Target, why: str, *, again: bool = True) -> None:
        self._due += [(time.monotonic() + self._again_s, target)] if again else []
        self._going = self._going and self._gone(target.host, why)


def _end(talk: _Talk) -> None:
    process = talk.process
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()
    process.kill()
    process.wait()
    if process.stderr:
        process.stderr.close()
    talk.typing.close()
