"""What a rollout shows while it runs: a table that changes where somebody looks, plain lines where nobody does."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import host_count, printable
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gb10_fleet.playbook import said_by
from gb10_fleet.rollout.written import GOOD, first_line

_BAD = ("runner_on_failed", "runner_on_unreachable")
_COLOURS = {"planned": "dim", "running": "cyan", "done": "green", "stopped": "red"}


def out(text: str, keep: str = "") -> None:
    """A line of output, with these control characters in it.

    A full disk or a reader that is gone must not end a rollout in the middle of a wave.
    """
    with contextlib.suppress(OSError):
        print(printable(text, keep), flush=True)


class Silent:
    """For --json: nothing."""

    def say(self, text: str) -> None:
        pass

    def wave(self, record: Mapping[str, Any], number: int, step: str) -> None:
        pass

    def event(self, event: Mapping[str, Any]) -> None:
        pass


class Lines(Silent):
    """One line for what begins and for what goes wrong."""

    def say(self, text: str) -> None:
        out(text)

    def wave(self, record: Mapping[str, Any], number: int, step: str) -> None:
        wave = record["waves"][number - 1]
        self.say(f"wave {number} of {len(record['waves'])}, {host_count(len(wave['hosts']))}: {step}")

    def event(self, event: Mapping[str, Any]) -> None:
        data = event.get("event_data", {})
        if event.get("event") in _BAD and not data.get("ignore_errors"):
            # The first line says what; all of it is in the record and in the report.
            said = first_line(said_by(event, "it gave no reason"))
            # Ansible lets the first host fail for all of them, whoever it was about.
            who = "the wave" if data.get("run_once") else data["host"]
            self.say(f"  {who}: {str(event['event']).removeprefix('runner_on_')}: {data.get('task')}: {said}")


class Terminal(Lines):
    """Waves, hosts, the task of this moment, and when it may be over. Use as a context."""

    def __init__(self, console: Console, wave_s: float | None, soak_s: float) -> None:
        """`wave_s`: how long a wave is going to take, in seconds; `soak_s`: how long it is left alone after that."""
        self.console, self.wave_s, self.soak_s = console, wave_s, soak_s
        self.record: Mapping[str, Any] = {"run": "", "waves": []}
        self.number, self.step = 0, ""
        self.task, self.hosts_heard = "", set[str]()
        self.began = self.wave_began = time.monotonic()
        self.live = Live(console=console, refresh_per_second=1, get_renderable=self._draw, transient=True)

    def __enter__(self) -> Terminal:
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self.console.print(printable(text), markup=False, highlight=False)

    def wave(self, record: Mapping[str, Any], number: int, step: str) -> None:
        if number != self.number:
            self.number, self.wave_began = number, time.monotonic()
        self.record, self.step = record, step
        if step in ("done", "stop"):
            super().wave(record, number, step)

    def event(self, event: Mapping[str, Any]) -> None:
        super().event(event)
        data = event.get("event_data", {})
        if event.get("event") == "playbook_on_task_start":
            self.task, self.hosts_heard = str(data.get("task", "")), set()
        elif str(event.get("event")).startswith("runner_on_") and event.get("event") != "runner_on_start":
            self.hosts_heard.add(str(data.get("host")))

    def _draw(self) -> Group:
        table = Table(title=f"run {self.record['run']}", title_justify="left", expand=True)
        for column in ("wave", "state", "hosts", "done", "bad"):
            table.add_column(column, no_wrap=True)
        table.add_column("names", overflow="ellipsis", no_wrap=True, ratio=1)  # gives way first
        open_waves = 0
        for wave in self.record["waves"]:
            states = [host["state"] for host in wave["hosts"]]
            bad = sum(state not in GOOD for state in states)
            open_waves += wave["state"] in ("planned", "running")
            names = ", ".join(host["host"] for host in wave["hosts"][:6]) + (" ..." if len(states) > 6 else "")
            # Text and not markup: what is said meanwhile is printed without markup, and the table together with it.
            table.add_row(
                str(wave["wave"]), Text(wave["state"], _COLOURS[wave["state"]]), str(len(states)),
                str(states.count("done")), Text(str(bad), "red" if bad else ""), Text(names),
            )  # fmt: skip
        answers = "1 host answered" if len(self.hosts_heard) == 1 else f"{len(self.hosts_heard)} hosts answered"
        moment = time.monotonic()
        seen = f"{answers}, {moment - self.began:.0f} s"
        if self.wave_s is not None and open_waves:
            left = (open_waves - 1) * (self.wave_s + self.soak_s) + max(0.0, self.wave_s - (moment - self.wave_began))
            seen += f", about {left / 60:.0f} min to go" if left >= 60 else ", less than a minute to go"
        task = f"{self.step}: {printable(self.task)}" if self.task else self.step
        return Group(table, Text(task, no_wrap=True, overflow="ellipsis"), Text(seen))
