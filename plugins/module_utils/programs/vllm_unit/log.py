# SPDX-License-Identifier: GPL-3.0-or-later
"""The container's log: the phase that vLLM is in, what went wrong, and why it ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import Failure

from .causes import COLOUR, ENDS, LONGEST_ERROR, PERHAPS, SLIGHT, Errors
from .config import Config
from .measured import Measured
from .status import LONGEST_TEXT, PHASES

TEXTS = {
    "formation": "the container runs, its server starts",
    "weights": "loading weights",
    "graphs": "compiling and capturing graphs",
    "ready": "serving",
}

OWN = "gb10-vllm: "  # as status.say begins
SPEAKER = "gb10-container"  # SYSLOG_IDENTIFIER of what the container says; the unit's own lines have the program's name
JOURNAL = "/run/systemd/journal/stdout"
_OF_DOCKER = re.compile("docker: |Error response from daemon")
_CONTROL = re.compile("[\\0-\\x08\\x0a-\\x1f\\x7f-\\x9f\\u2028\\u2029]")
# The words before a quotation. Where and when an error came stands in brackets, too.
_UNQUOTED = re.compile(
    r"""(?:[^"'`{\[]|\[(?:\d+|Errno -?\d+|[Rr]ank ?\d+|\d{4}-\d\d-\d\d [\d:.]+|PG ID \d+ PG GUID [\d()]+ Rank \d+|"""
    r"""[EWI]\d* [\d:.]+ \w+\.cpp:\d+|/?(?:\w+/)*(?:gloo|torch|nccl)(?:/\w+)*/\w+\.cc:\d+)\])*"""
)
# A signal that a program gets for its own doing; SIGBUS where /dev/shm, a part of the memory, has no room left.
BY_SIGNAL = {
    **{each.value: "kernel_fault" for each in (signal.SIGILL, signal.SIGFPE, signal.SIGSEGV)},
    signal.SIGBUS.value: "out_of_memory",
}
KEPT_LINES = 20
LONGEST_LINE = 8192  # bytes; one that does not end must not grow
MOST_STEPS = 1000  # of a phase that are told: each is an event, and whatever comes next waits behind them


class Log:
    """Follows what vLLM writes: the phase that it is in, what went wrong, and the last lines."""

    def __init__(self, config: Config, secrets: Sequence[str]) -> None:
        self.config, self.secrets, self.clock = config, secrets, time.monotonic
        self.phase = "formation"
        self.percent = ""
        self.steps = 0  # of this phase
        self.last: deque[str] = deque(maxlen=KEPT_LINES)
        self.errors = Errors()  # since the start, or since it served
        self.erred = 0.0  # when the last one came
        self.gone_since: float | None = None  # when it said first that the engine is gone
        self.measured = Measured(config.measured)
        self.remark: Failure | None = None  # what is no end, and not as it should be

    def clean(self, line: str) -> str:
        """As it may be passed on: without secrets, one line, and unlike one of the unit, which `gb10 why` believes.

        To journald a NUL ends a line, as to a terminal other characters do.
        """
        line = _CONTROL.sub("?", COLOUR.sub("", line))
        for secret in self.secrets:
            line = line.replace(secret, "***")
        return f"| {line}" if line.lstrip().startswith(OWN) else line

    def feed(self, line: str) -> bool:
        """Return whether phase or percentage changed, and it is to be told: a container may change one for ever."""
        self.last.append(line[:LONGEST_ERROR])
        self._look_for_errors(line)
        if self.phase != "ready":
            self.measured.feed(line)
        # Of a start alone: while it serves, a line may have a client's words.
        for verdict, pattern in () if self.remark or self.phase == "ready" else self.config.remarks:
            if pattern.search(line):
                self.remark = Failure(verdict, line.strip()[:LONGEST_TEXT])
        for phase, pattern in self.config.phases:
            found = pattern.search(line)
            if found and PHASES.index(phase) >= PHASES.index(self.phase):
                percent = str(found.groupdict().get("percent") or "")
                if (phase, percent) != (self.phase, self.percent):
                    self.steps = self.steps + 1 if phase == self.phase else 0
                    self.phase, self.percent = phase, percent
                    if phase == "ready":
                        self.serves()
                    return self.steps < MOST_STEPS
        return False

    def _look_for_errors(self, line: str) -> None:
        now = self.clock()
        served = self.phase == "ready" and self.gone_since is None
        if served and self.errors.found and now - self.erred > self.config.timing.gone:
            self.errors = Errors()  # a request that failed long ago is no cause of an end
        error = self.errors.feed(line)
        if error:
            self.erred = now
            if self.gone_since is None and self._only_says_gone(error.text):
                self.gone_since = now

    def _only_says_gone(self, text: str) -> bool:
        return any(pattern.search(text) for pattern in self.config.gone)

    def serves(self) -> None:
        """Also for a rank without an API, whose own log does not say so. What its start said is no cause of its end."""
        self.phase, self.percent = "ready", ""
        self.errors, self.gone_since = Errors(), None

    @property
    def fault(self) -> tuple[str, str] | None:
        """The verdict that the first known error has, and that error: by its words, else by the code that raised it.

        What is below an error is asked where nothing else is said.
        """
        return self.end or self._named(PERHAPS) or (None if self.cause else self._named(SLIGHT))

    @property
    def end(self) -> tuple[str, str] | None:
        """The same of errors alone that end a program."""
        return self._named(ENDS) or self._placed()

    def _named(self, weight: int) -> tuple[str, str] | None:
        reason = ""  # NCCL says it in a line of its own, before what is raised
        for error in list(self.errors.found):
            if error.weight != weight:
                continue
            if "NCCL WARN" in error.text:
                reason = f"; {error.text}"
            # What it quotes while it serves may be a client's.
            own = _UNQUOTED.match(error.text)[0] if self.phase == "ready" else error.text  # type: ignore[index]
            for verdict, pattern in self.config.failures:
                found = pattern.search(own)
                if found:
                    reason = reason if verdict == "nccl_failed" and error.raised else ""
                    return verdict, _quoted(error.text + reason, found.groupdict())
        return None

    def _placed(self) -> tuple[str, str] | None:
        told = [error for error in list(self.errors.found) if error.raised and not self._only_says_gone(error.text)]
        for error in told[:1]:  # others follow from it
            seen = [f"{error.text.split(maxsplit=1)[0]} {error.way}"]
            if self.phase != "ready":  # a client's request may be refused in any words, and by much of the code
                seen += [error.text, f"{seen[0]}start"]
            for verdict, pattern in self.config.places:
                if any(pattern.search(each) for each in seen):
                    return verdict, error.text[:LONGEST_TEXT]
        return None

    @property
    def cause(self) -> str:
        """The first error that was raised, or else logged. One that only says that the engine is gone is none."""
        told = [
            error
            for error in sorted(self.errors.found, key=lambda error: (not error.raised, error.weight))
            if error.weight != SLIGHT and not self._only_says_gone(error.text)
        ]
        return next((error.text[:LONGEST_TEXT] for error in told), "")

    @property
    def text(self) -> str:
        return f"{TEXTS[self.phase]} {self.percent} %" if self.percent else TEXTS[self.phase]

    @property
    def tail(self) -> list[str]:
        return [said[:LONGEST_TEXT] for said in [error.text for error in self.errors.found] or self.last]


def _quoted(text: str, named: Mapping[str, str | None]) -> str:
    """`quote`: the part that says it. `fits`: the context that there is room for."""
    said = (named.get("quote") or text)[:LONGEST_TEXT]
    return f"a context of {named['fits']} tokens fits; {said}" if named.get("fits") else said


def stream(unit: str) -> TextIO:
    """Where the container's lines go: a stream of their own to the journal, or our output where nobody keeps one.

    journald gives each line the name and the unit that its stream began with (sd_journal_stream_fd(3)), so no line of
    the container's can pass for one of ours.
    """
    if "JOURNAL_STREAM" in os.environ:  # systemd's, for a unit whose output goes to the journal
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as journal:
            journal.connect(JOURNAL)
            # Name, unit, level 7 (debug), no level at the beginning of lines, and no copy to anybody else. journald
            # takes so many lines of a unit and level, so a flood of these hides none of the unit's own (info).
            journal.sendall(f"{SPEAKER}\n{unit}.service\n7\n0\n0\n0\n0\n".encode())
            return journal.makefile("w", encoding="utf-8", errors="replace")
    return sys.stdout


def read_lines(stream: Any, secrets: Sequence[str] = ()) -> Iterator[str]:
    """The lines of a pipe; a progress bar ends them with a carriage return. One that is too long comes in parts, which
    are not cut within a secret.
    """
    rest, hidden = b"", [secret.encode() for secret in secrets]
    longest = max(map(len, hidden), default=0)
    while True:
        chunk = stream.read1(LONGEST_LINE)
        *lines, rest = re.split(rb"[\r\n]+", rest + chunk)
        if not chunk:
            lines, rest = [*lines, rest], b""
        elif len(rest) > LONGEST_LINE:
            for secret in hidden:
                rest = rest.replace(secret, b"***")
            cut = max(0, len(rest) - longest)  # behind it one may begin
            lines, rest = [*lines, rest[:cut]], rest[cut:]
        for line in lines:
            if line.strip():
                yield line.decode("utf-8", "replace")
        if not chunk:
            return


def read_secrets(path: str | None) -> list[str]:
    """The values of the environment file: they show in no line that we pass on. A server that writes down its settings
    does so in Python or JSON, where some characters have a backslash.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines() if path else []
    except OSError:
        return []
    values = {line.partition("=")[2] for line in lines if not line.startswith("#")} - {""}
    written = {way(value)[1:-1] for value in values for way in (repr, json.dumps)}
    return sorted(values | written, key=len, reverse=True)


def _words_of_docker(log: Log) -> str:
    """What it said last, but for its hint where to read more. What a hook of the runtime says has several lines."""
    said = [line for line in log.last if "docker run --help" not in line]
    first = max((at for at, line in enumerate(said) if _OF_DOCKER.match(line)), default=len(said) - 1)
    return " ".join(said[max(first, 0) :])


def _shortened(words: str) -> str:
    """Each layer puts its words before those of the one below it, so that the reason comes last."""
    half = (LONGEST_TEXT - 5) // 2
    return words if len(words) <= LONGEST_TEXT else f"{words[:half]} ... {words[-half:]}"


def verdict_of_end(code: int, log: Log, ooms: int) -> Failure:
    """Return why a container that should have run on ended. vLLM ends with status 0 when its engine has died."""
    ended = f"the container ended with exit status {code}"
    verdict, __ = log.fault or ("", "")
    if code in (125, 126, 127):
        return _verdict_of_docker(code, _words_of_docker(log), log.config)
    killed, asked = Failure("killed", f"{ended}: it was killed"), code == 128 + signal.SIGTERM
    if asked and log.phase == "ready" and log.gone_since is None and not ooms:
        return killed  # it went on serving after whatever it had logged
    if code == 2 or verdict == "refused_flag":
        return Failure("refused_flag", _with_cause(ended, log))
    if ooms:
        return Failure("out_of_memory", f"{ended}; the kernel killed {ooms} processes meanwhile, for want of memory")
    raised = any(error.raised for error in list(log.errors.found))
    # SGLang kills itself after an error.
    if not log.end and (asked or (code == 128 + signal.SIGKILL and not raised)):
        return killed
    # Of one that served, the last errors may be a client's words: llama.cpp prints a grammar that it refuses.
    if code - 128 in BY_SIGNAL and (log.phase == "ready" or not (log.fault or raised)):
        return Failure(BY_SIGNAL[code - 128], _with_cause(ended, log))
    return _verdict(ended, log)


def _verdict_of_docker(code: int, words: str, config: Config) -> Failure:
    """126 and 127 are also what a program leaves with that the image does not have, in silence of Docker."""
    if code != 125 and not _OF_DOCKER.match(words):
        return Failure("image_unfit", _shortened(words) or f"the container ended with exit status {code}")
    named = (verdict for verdict, pattern in config.docker_said if pattern.search(words))
    return Failure(next(named, "docker_refused"), _shortened(words) or f"Docker ended with exit status {code}")


def verdict_of_gone(log: Log) -> Failure:
    """Return why a container whose engine is gone is of no use, though it runs on."""
    return _verdict(f"the engine is gone, and the container did not end within {log.config.timing.gone:g} s", log)


def _verdict(seen: str, log: Log) -> Failure:
    verdict, __ = log.fault or ("engine_died" if log.phase == "ready" else "start_failed", "")
    return Failure(verdict, _with_cause(seen, log))


def _with_cause(seen: str, log: Log) -> str:
    __, known = log.fault or ("", "")
    cause = known or log.cause
    words = _UNQUOTED.match(cause)[0]  # type: ignore[index]  # it fits nothing, too
    if log.phase == "ready" and words != cause:
        # Every login reads this text. What a client has asked is for root: `last-log` and the journal have all of it.
        cause = f"{words}(what it quotes is in the log)"
    return f"{seen}: {cause}" if cause else f"{seen}; its log names no cause"
