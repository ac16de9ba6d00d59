"""Each command of gb10 in the documents has the options that it is typed with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from typer.main import get_command

from gb10_fleet import cli

ROOT = Path(__file__).parents[3]


def typed() -> Iterator[tuple[str, list[str]]]:
    for file in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("roles/*/README.md"))):
        for line in re.findall(r"^\$ gb10 (.*)$", file.read_text(), re.MULTILINE):
            if "`" not in line and "..." not in line:
                yield f"{file.relative_to(ROOT)}: {line}", shlex.split(line, comments=True)


def test_no_document_types_an_option_that_a_command_does_not_have() -> None:
    found, wrong, whole = 0, [], get_command(cli.app)
    for line, words in typed():
        command = whole
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"-k", "-K", "-J", "-v"}
        own = words[: words.index("--")] if "--" in words else words
        wrong += [line for word in own if word.startswith("--") and word.partition("=")[0] not in known]
        found += 1
    assert found > 50 and not wrong
