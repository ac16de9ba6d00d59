# SPDX-License-Identifier: GPL-3.0-or-later
"""What a start took, as vLLM says it in its log: kept on the host, so that the next plan need not count it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading import memory
from ansible_collections.gb10.fleet.plugins.module_utils.reading.measured import FOLDER, MOST
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document

if TYPE_CHECKING:
    from .config import Config
    from .turn import Turn

MOVED = 0.05  # so far apart two starts of the same are another figure; less is noise, and would change the host's facts
LOOK_S = 60.0  # between two looks at the host's memory
_TIMES = ("load_s", "read_s", "compile_s", "init_s")  # differ from start to start
_LARGEST = 10**9  # of a figure: a container can write anything into its log


class Measured:
    """Reads the figures along. Of two lines with the same one the last holds: a second model loads after the first."""

    def __init__(self, patterns: Sequence[re.Pattern[str]]) -> None:
        self.patterns = patterns
        self.figures: dict[str, float] = {}

    def feed(self, line: str) -> None:
        for pattern in self.patterns:
            found = pattern.search(line)
            for name, said in found.groupdict().items() if found else ():
                figure = _number(said)
                if figure is not None:
                    self.figures[name] = figure


class Keeper:
    """Keeps what a start took, and the most that the host gave since: vLLM's words are not all that it takes.

    What the host gave counts only until another service loads, whose memory it would be taken for.
    """

    def __init__(self, config: Config, root: Path, turn: Turn) -> None:
        self.config, self.root, self.turn = config, root, turn
        self.available = 0.0  # GiB, before the container started
        self.looked = float("-inf")

    def begins(self) -> None:
        self.available = self._gib("MemAvailable")

    def look(self, figures: dict[str, float], seconds: Mapping[str, float], image: str) -> None:
        """While it serves. `image`: the digest of what runs."""
        now = time.monotonic()
        if not self.config.measures or now < self.looked + LOOK_S:
            return
        self.looked = now
        if self.turn.holder == self.config.service:
            given = self.available - self._gib("MemAvailable")
            figures["host_gib"] = round(max(given, figures.get("host_gib", 0.0)), 1)
        figures["total_gib"] = round(self._gib("MemTotal"), 2)
        file = self.root / FOLDER.lstrip("/") / f"{self.config.service}.json"
        keep(file, start({**self.config.measures, "digest": image}, figures, seconds))

    def _gib(self, line: str) -> float:
        return memory.lines(System(self.root)).get(line, 0) / 2**30


def _number(said: str | None) -> float | None:
    try:
        figure = float((said or "").replace(",", ""))
    except ValueError:
        return None
    return figure if 0 <= figure <= _LARGEST else None


def kept(text: str | None) -> list[dict[str, Any]]:
    """What the file of a service holds, the last start first; nothing where it is damaged."""
    starts = document(text).get("starts")
    return [each for each in starts if isinstance(each, dict)][:MOST] if isinstance(starts, list) else []


def keep(file: Path, start: Mapping[str, Any]) -> bool:
    """Return whether the start says anything new: another model, image or flags, or figures that have moved."""
    former = kept(_text(file))
    same = [each for each in former if _about(each) == _about(start)]
    if same and not _moved(same[0].get("figures"), start["figures"]):
        return False
    starts = [dict(start), *(each for each in former if each not in same)][:MOST]
    new = file.with_name(f".{file.name}.new")
    with contextlib.suppress(OSError):  # a full disk must not take the model down
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as to:
            json.dump({"starts": starts}, to)
        new.replace(file)
        return True
    return False


def start(about: Mapping[str, Any], figures: Mapping[str, float], seconds: Mapping[str, float]) -> dict[str, Any]:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"about": dict(about), "figures": dict(figures), "seconds": dict(seconds), "at": at}


def _about(said: Mapping[str, Any]) -> Any:
    return said.get("about")


def _moved(before: Any, now: Mapping[str, float]) -> bool:
    if not isinstance(before, dict) or before.keys() != now.keys():
        return True
    if not all(isinstance(each, (int, float)) for each in before.values()):
        return True
    return any(abs(now[name] - before[name]) > MOVED * abs(before[name]) for name in now if name not in _TIMES)


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return None
