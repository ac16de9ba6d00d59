"""The pages of docs/runbooks: what each says to type, and with what the places that it leaves open are filled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs/runbooks"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
_A_COMMAND = re.compile(r"(sudo |ansible-playbook |gb10 |[a-z-]+ )")
_PLACE = re.compile(r"\b[A-Z]{3,}\b")


def steps(alert: str) -> str:
    return PAGES[alert].partition("## Next step")[2].partition("## By what")[0]


def spans(alert: str) -> Iterator[str]:
    """What stands in backticks, in one line each."""
    for span in re.findall(r"`([^`]+)`", steps(alert)):
        yield " ".join(span.split())


def commands(alert: str, places: Mapping[str, str]) -> Iterator[str]:
    """The command lines of a page, in its order."""
    for span in spans(alert):
        line = _PLACE.sub(lambda word: places.get(word[0], word[0]), span)
        if " " in line and _A_COMMAND.match(line) and not line.endswith(": true"):
            yield line
