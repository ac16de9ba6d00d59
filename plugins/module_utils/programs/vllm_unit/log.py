# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container's log: the phase that vLLM is in, what went wrong, and why it ended."""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .config import Config
from .failures import Failure
from .status import LONGEST_TEXT, PHASES

TEXTS = {
    "formation": "the container runs, vLLM starts",
    "weights": "loading weights",
    "graphs": "compiling and capturing graphs",
    "ready": "serving",
}

KEPT_LINES = 20
LONGEST_LINE = 8192  # bytes; one that does not end must not grow
_TROUBLE = re.compile(r"error|exception|traceback|fatal|failed|killed|refused", re.IGNORECASE)


class Log:
    """Follows what vLLM writes: the phase that it is in, what went wrong, and the last lines."""

    def __init__(self, config: Config, secrets: Sequence[str]) -> None:
        self.config, self.secrets = config, secrets
        self.phase = "formation"
        self.percent = ""
        self.fault: tuple[str, str] | None = None  # the first verdict and its line, since the start or since it served
        self.last: deque[str] = deque(maxlen=KEPT_LINES)
        self.trouble: deque[str] = deque(maxlen=KEPT_LINES)

    def clean(self, line: str) -> str:
        for secret in self.secrets:
            line = line.replace(secret, "***")
        return line

    def feed(self, line: str) -> bool:
        """Whether phase or percentage changed."""
        kept = line[:LONGEST_TEXT]
        self.last.append(kept)
        if _TROUBLE.search(line):
            self.trouble.append(kept)
        if self.fault is None:
            self.fault = next(
                ((verdict, kept) for verdict, pattern in self.config.failures if pattern.search(line)), None
            )
        for phase, pattern in self.config.phases:
            found = pattern.search(line)
            if found and PHASES.index(phase) >= PHASES.index(self.phase):
                percent = str(found.groupdict().get("percent") or "")
                if (phase, percent) != (self.phase, self.percent):
                    self.phase, self.percent = phase, percent
                    if phase == "ready":
                        self.serves()
                    return True
        return False

    def serves(self) -> None:
        """Also for a rank without an API, whose own log does not say so."""
        self.phase, self.percent, self.fault = "ready", "", None

    @property
    def text(self) -> str:
        return f"{TEXTS[self.phase]} {self.percent} %" if self.percent else TEXTS[self.phase]

    @property
    def tail(self) -> list[str]:
        return list(self.trouble or self.last)


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
    """The values of the environment file: they show in no line that we pass on."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines() if path else []
    except OSError:
        return []
    return [value for value in (line.partition("=")[2] for line in lines if not line.startswith("#")) if value]


def verdict_of_end(code: int, log: Log, ooms: int) -> Failure:
    """Why a container that should have run on ended. vLLM ends with status 0 when its engine has died."""
    ended = f"the container ended with exit status {code}"
    verdict, line = log.fault or ("", log.trouble[0] if log.trouble else "")
    said = f"{ended}: {line}" if line else ended
    if code == 125:
        return Failure("docker_refused", log.last[-1] if log.last else ended)
    if code in (126, 127):
        return Failure("image_unfit", log.last[-1] if log.last else ended)
    if code == 2 or verdict == "refused_flag":
        return Failure("refused_flag", said)
    if ooms:
        return Failure("out_of_memory", f"{ended}; the kernel killed {ooms} processes meanwhile, for want of memory")
    if verdict:
        return Failure(verdict, said)
    if code in (128 + signal.SIGKILL, 128 + signal.SIGTERM):
        return Failure("killed", f"{ended}: it was killed")
    return Failure("engine_died" if log.phase == "ready" else "start_failed", said)
