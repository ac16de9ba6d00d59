"""Who is asked: a person at the terminal, once for each question; a script is asked nothing."""

from __future__ import annotations

import contextlib
import getpass
import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TextIO, TypeVar

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable

from gb10_fleet.beat import Beat
from gb10_fleet.playbook import Order, Outcome

_Choice = TypeVar("_Choice")
_HOW_FAR = re.compile(r"\S{1,70}: .{1,150}: \d+\.\d of \d+\.\d GB\b")  # of plans/transfer.py
_QUIET_S = 30  # whoever waits longer than that asks whether it hangs


class Stop(Exception):
    """The end of the command, with its exit status."""

    def __init__(self, text: str, outcome: Outcome) -> None:
        super().__init__(text)
        self.outcome = outcome


def stopped(stop: Stop, as_json: bool) -> NoReturn:
    """End the command: with one object for a program, with the reason for a person."""
    if as_json:
        print(json.dumps({"outcome": stop.outcome.name, "error": str(stop)}, indent=2))
    else:
        print(printable(str(stop)), file=sys.stderr)
    raise typer.Exit(stop.outcome) from None


def _folded(line: str, width: int) -> str:
    """At most so many columns, where words and commands in backticks allow it; 0: as it is."""
    if not 0 < width < len(line):
        return line
    first = re.match(r" *(\S+( \S+)?  +)?", line)
    indent = " " * min(first.end() if first else 0, width // 2)
    whole = re.sub(r"`[^`]+`", lambda command: command[0].replace(" ", "\0"), line)
    rows = textwrap.wrap(whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(rows).replace("\0", " ")


def is_yes(said: str) -> bool | None:
    """Tell a yes from what is no answer, for `Person.choose`."""
    return True if said in ("y", "yes") else None


@dataclass
class Person:
    """`yes`: the answer to the last question is given already. `quiet`: standard output is for a program."""

    yes: bool = False
    quiet: bool = False
    asked: list[str] = field(default_factory=list)
    _beat: Beat = field(default_factory=lambda: Beat(_QUIET_S))  # of the part of the work

    def say(self, *lines: str) -> None:
        """What a person reads: on a terminal no word is cut, and what goes on stands below its own column."""
        self._print(lines, shutil.get_terminal_size().columns if self._stream.isatty() else 0)

    def show(self, *lines: str) -> None:
        """What a person pastes: never folded."""
        self._print(lines, 0)

    def _print(self, lines: Iterable[str], width: int) -> None:
        for line in lines:
            print(_folded(printable(line), width), file=self._stream, flush=True)

    @property
    def _stream(self) -> TextIO:
        return sys.stderr if self.quiet else sys.stdout

    def begin(self, what: str) -> None:
        """Name a part of the work that takes longer than ten seconds, with the time."""
        self._beat.begin()
        self.say(f"  {time.strftime('%H:%M')}  {what}")

    def still(self, how_far: str = "") -> None:
        """Say that the part goes on, where nothing was said for long."""
        if seconds := self._beat.due():
            more = how_far and f"; {how_far}"
            self.say(f"  {time.strftime('%H:%M')}  still at it, for {seconds}{more}")

    def ask(self, question: str, way_out: str) -> str:
        """`way_out`: what to say on the command line where nobody is there to ask."""
        self._there(question, way_out)
        # Where standard output goes into a file, the question would go there, and nobody would see it.
        with contextlib.redirect_stdout(sys.stdout if sys.stdout.isatty() else sys.stderr):
            said = input(f"{printable(question)} ").strip()
        self._beat.begin()
        return said

    def choose(self, question: str, way_out: str, chosen: Callable[[str], _Choice | None]) -> _Choice:
        """Ask until the answer is a choice; Stop at a no. `chosen` takes an answer in small letters, None: not one."""
        while (said := self.ask(question, way_out).lower()) not in ("n", "no", ""):
            if (choice := chosen(said)) is not None:
                return choice
            self.say(f"{said} is none of the answers.")
        raise Stop("nothing was changed", Outcome.refused)

    def consent(self, question: str) -> None:
        """Stop where the answer is no."""
        if not self.yes:
            self.choose(f"{question} [y]es or [n]o:", "say --yes", is_yes)

    def secret(self, question: str, way_out: str) -> str:
        self._there(question, way_out)
        said = getpass.getpass(f"{printable(question)} ")
        self._beat.begin()
        return said

    def _there(self, question: str, way_out: str) -> None:
        if self.quiet or self.yes or not sys.stdin.isatty():
            word = "--json" if self.quiet else "--yes" if self.yes else ""
            why = f"With {word} nothing is asked" if word else "Nobody is there to ask"
            raise Stop(f"{question} {why}: {way_out}. Nothing was changed", Outcome.refused)
        self.asked.append(question)


class Progress:
    """Says each part of a playbook's work when it begins, and of a long one that it goes on.

    `steps`: what to say, by how the names of tasks begin; without them a run is one part, which the caller has named.
    """

    def __init__(self, person: Person, steps: Mapping[str, str] | None = None) -> None:
        self._person, self._left = person, dict(steps or {})  # what has not begun yet
        self._how_far = ""  # of a download, as the run said it last

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take one event of a run."""
        task = str(event.get("event_data", {}).get("task", ""))
        begins = event.get("event") == "playbook_on_task_start"
        words = self._left.pop(next((name for name in self._left if begins and task.startswith(name)), ""), "")
        if begins:
            self._how_far = ""
        elif found := _HOW_FAR.match(str(event.get("stdout", ""))):
            self._how_far = found[0]  # behind it a host could write on
        if words:
            self._person.begin(words)
        else:
            self._person.still(self._how_far)


def shortly(order: Order, steps: Mapping[str, str], quiet: bool = False) -> dict[str, Any]:
    """How `playbook.run` shows it to somebody who knows no Ansible, unless they ask for its output.

    `quiet`: not at all.
    """
    if quiet:
        return {"quiet": True}
    return {} if order.shows or order.lists else {"quiet": True, "watch": Progress(Person(), steps)}


def consent(question: str, yes: bool, as_json: bool = False) -> None:
    """Ask, and end the command where the answer is no or nobody is there. `yes`: it is given already."""
    try:
        Person(yes, as_json).consent(question)
    except Stop as stop:
        stopped(stop, as_json)
