"""Who is asked: a person at the terminal, once for each question; a script is asked nothing."""

from __future__ import annotations

import getpass
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable

from gb10_fleet.playbook import Outcome

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


@dataclass
class Person:
    """`yes`: the answer to the last question is given already. `quiet`: standard output is for a program."""

    yes: bool = False
    quiet: bool = False
    asked: list[str] = field(default_factory=list)

    def say(self, *lines: str) -> None:
        for line in lines:
            print(printable(line), file=sys.stderr if self.quiet else sys.stdout, flush=True)

    def begin(self, what: str) -> None:
        """Name a part of the work that takes longer than ten seconds, with the time."""
        self.say(f"  {time.strftime('%H:%M')}  {what}")

    def ask(self, question: str, way_out: str) -> str:
        """`way_out`: what to say on the command line where nobody is there to ask."""
        self._there(question, way_out)
        return input(f"{printable(question)} ").strip()

    def consent(self, question: str) -> None:
        """Stop where the answer is not yes."""
        if not self.yes and self.ask(f"{question} [y]es or [n]o:", "say --yes").lower() not in ("y", "yes"):
            raise Stop("nothing was changed", Outcome.refused)

    def secret(self, question: str, way_out: str) -> str:
        self._there(question, way_out)
        return getpass.getpass(f"{printable(question)} ")

    def _there(self, question: str, way_out: str) -> None:
        if self.quiet or self.yes or not sys.stdin.isatty():
            raise Stop(f"{question} Nobody is there to ask: {way_out}. Nothing was changed", Outcome.refused)
        self.asked.append(question)


class Progress:
    """Says each part of a playbook's work when it begins, and of a long one that it goes on.

    `steps`: what to say, by how the names of tasks begin; without them a run is one part, which the caller has named.
    """

    def __init__(self, person: Person, steps: Mapping[str, str] | None = None) -> None:
        self._person, self._left = person, dict(steps or {})  # what has not begun yet
        self._began_s = self._told_s = time.monotonic()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take one event of a run."""
        if event.get("event") != "playbook_on_task_start":
            return
        now_s = time.monotonic()
        task = str(event.get("event_data", {}).get("task", ""))
        words = self._left.pop(next((name for name in self._left if task.startswith(name)), ""), "")
        if not words and now_s - self._told_s > _QUIET_S:
            words = f"still at it, for {now_s - self._began_s:.0f} s"
        if words:
            self._told_s = now_s
            self._person.begin(words)
