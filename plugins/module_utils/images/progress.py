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
_ERROR = re.compile(r"error\b(?![\w/]{0,200}\.\w)|^fatal: |not found|no such|cannot|could not|failed", re.IGNORECASE)
# What cmake, configure, compilers and setup tools say while all is well.
_PASSING = re.compile(r"-- |checking |copying |adding |\[\d+/\d+\] |[^ ]+: warning\b|raise ")
_FULL = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
# As compilers, linkers, cargo and a shell say it of a program that the kernel ended, or that found no memory.
_KILLED = re.compile(
    r"signal:? (?:9\b|killed)|Killed signal terminated|internal compiler error: Killed|^Killed$|exit code: 137\b|"
    r"(?i:\bout of memory\b|bad_alloc|virtual memory exhausted|cannot allocate memory)"
)
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
    own_words = [_shown(line) for line in lines]
    if full := _last(own_words, _FULL):
        way_out = (
            "free some space (`docker system df`, `docker buildx prune`), then run again; it goes on where it stopped"
        )
        return Fault("disk_full", full, way_out)
    if killed := _last(own_words, _KILLED):
        way_out = "see `journalctl -k` for the OOM killer; stop what takes the memory, then run again"
        return Fault("killed", killed, way_out)
    way_out = "its log on the builder has all of it (/var/cache/gb10-images); mend what it says, then run again"
    said = [
        each
        for each, line in zip(own_words, lines)
        if _ERROR.search(each) and not _PASSING.match(each) and not _STAGE.search(line)
    ]
    # A step says what is wrong with it; BuildKit then says the step over again, with how it ended behind it.
    own = [each for each in said if not each.startswith("ERROR: ")]
    ended = [each.rpartition("did not complete successfully: ")[2] for each in said if each.startswith("ERROR: ")]
    return Fault("build_failed", next(iter([*own, *ended]), "no word")[:_LONGEST], way_out)


def _last(said: Sequence[str], pattern: re.Pattern[str]) -> str:
    return next((each[-_LONGEST:] for each in reversed(said) if pattern.search(each)), "")


def _shown(line: str) -> str:
    match = _LINE.match(line)
    return _TIME.sub("", match.group(2) if match else line).strip()
