# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a build is, and why it failed, from what BuildKit writes (`--progress plain`). Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_LINE = re.compile(r"#(\d+) (.*)")
_STAGE = re.compile(r"\[(?:([^\[\]]*) )?(\d+/\d+)\] ")  # from one bracket to the next: a line is read once
_NINJA = re.compile(r"\[(\d+)/(\d+)\]")
_TIME = re.compile(r"^\d+\.\d+ ")
_ERROR = re.compile(r"\berror|not found|no such|cannot|failed", re.IGNORECASE)
_LONGEST = 300


class Fault(NamedTuple):
    verdict: str
    text: str
    way_out: str


def doing(lines: Sequence[str]) -> str:
    """The step that spoke last, and how many of its files are compiled."""
    titles: dict[str, str] = {}
    now, count = "", ""
    for line in lines:
        match = _LINE.match(line)
        if not match:
            continue
        number, text = match.groups()
        stage = _STAGE.match(text)
        if stage:
            titles[number] = f"{stage.group(1) or 'image'} {stage.group(2)}"
        if number in titles and titles[number] != now:
            now, count = titles[number], ""
        files = _NINJA.match(_TIME.sub("", text))
        if files and not stage:
            count = f", {files.group(1)} of {files.group(2)} files compiled"
    return f"{now}{count}" if now else "begins"


def fault(lines: Sequence[str]) -> Fault:
    """Of a build that ended with an error."""
    text = "\n".join(lines)
    if "no space left on device" in text.lower():
        return Fault(
            "disk_full",
            _last(lines, "no space left on device")[-_LONGEST:],
            "free some space (`docker system df`, `docker buildx prune`), then run again; it goes on where it stopped",
        )
    for word in ("Killed signal terminated", "signal: killed", "exit code: 137"):
        if word in text:
            way_out = "see `journalctl -k` for the OOM killer; stop what takes the memory, then run again"
            return Fault("killed", _last(lines, word)[-_LONGEST:], way_out)
    way_out = "its log on the builder has all of it (/var/cache/gb10-images); mend what it says, then run again"
    said = [_shown(each) for each in lines if _ERROR.search(each) and not _STAGE.search(each)]
    # A step says what is wrong with it; BuildKit then says the step over again, with how it ended behind it.
    own = [each for each in said if not each.startswith("ERROR: ")]
    ended = [each.rpartition("did not complete successfully: ")[2] for each in said if each.startswith("ERROR: ")]
    return Fault("build_failed", next(iter([*own, *ended]), "no word")[:_LONGEST], way_out)


def _last(lines: Sequence[str], word: str) -> str:
    return next(_shown(each) for each in reversed(lines) if word.lower() in each.lower())


def _shown(line: str) -> str:
    match = _LINE.match(line)
    return _TIME.sub("", match.group(2) if match else line).strip()
