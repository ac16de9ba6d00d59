"""The fleet at a glance: once (`gb10 status --hosts`), or live over one connection to each host (`gb10 top`)."""

from __future__ import annotations

import itertools
import json
import math
import os
import select
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks import timeline
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import limits
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import columns, printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.looks import Look
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.rows import Row, ServiceRow, row
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gb10_fleet.ending import by_name, named
from gb10_fleet.playbook import Order, Outcome, run
from gb10_fleet.stopping import Stop

PLAYBOOK = MODULE = "gb10.fleet.glance"
PIECE = 2**16
KEPT_S = 240  # of looks, so that an engine that hangs is seen
KEPT_BYTES = 2**24  # of the looks of a host as they came, which take up to twenty times that; sound ones have 5 MiB
COLUMNS = ("host", "GPU", "clock", "power", "util", "memory", "rails", "services")
_COLOURS = {"error": "red", "warn": "yellow", "info": ""}


def once(inventory: list[str], limit: str | None, words: Sequence[str], as_json: bool) -> Outcome:
    """Ask every host once, and print how it is."""
    rules = limits.rules()
    order = Order(PLAYBOOK, inventory, limit, words=words, asks={MODULE: "hosts"})
    outcome, report = run(order, quiet=True)
    hosts = [look for result in report.answers[MODULE].values() for look in result["hosts"].items()]
    rows = [row(host, found["looks"], found["silent"], rules, found) for host, found in hosts]
    silent = any(one.silent for one in rows)
    if outcome is Outcome.done and silent:
        outcome = Outcome.unreachable
    if as_json:
        document = {"hosts": [one.as_dict() for one in rows], "outcome": outcome.name}
        more = {"messages": report.messages, "errors": report.errors}
        print(json.dumps(named(order, document | more), indent=2))
        return outcome
    for line in lines(rows) if rows else ():
        print(line)
    if any(one.findings for one in rows):
        print(printable(by_name(order, "why, and how to fix it: gb10 why HOST -i INVENTORY")))
    if silent:
        print(printable(by_name(order, "what to check where nobody answers: gb10 doctor -i INVENTORY")))
    for reason in [*(f"{host}: {text}" for host, texts in report.messages.items() for text in texts), *report.errors]:
        print(printable(reason), file=sys.stderr)
    return outcome


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """A table of plain text, and below each host what is wrong with it."""
    for number, line in enumerate(columns([COLUMNS, *(_cells(one) for one in rows)])):
        yield printable(line)
        for text, _severity in _more(rows[number - 1]) if number else ():
            yield printable(f"    {text}")


def _cells(one: Row) -> tuple[str, ...]:
    if one.silent:
        cells = [_power(one) if name == "power" else "-" for name in COLUMNS[1:-1]]
        return (one.host, *cells, f"silent: {one.silent}")
    return (
        one.host,
        _figure(one.temperature_c, "°C"),
        _figure(one.clock_mhz, "MHz low" if one.clock_low else "MHz"),
        _power(one),
        _figure(one.utilization_percent, "%"),
        "-" if one.memory_used_gib is None else f"{one.memory_used_gib:.0f}/{one.memory_total_gib:.0f} GiB",
        "-" if one.rails is None else f"{one.rails_up}/{one.rails}",
        "; ".join(map(_service, one.services)) or "-",
    )


def _figure(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f} {unit}"


def _power(one: Row) -> str:
    """The GPU's, and where its plug says it the host's at the wall."""
    return _figure(one.power_w, "W") + ("" if one.wall_w is None else f", wall {one.wall_w:.0f} W")


def _service(one: ServiceRow) -> str:
    parts = [one.phase or "unknown"] + ([one.verdict] if one.verdict else [])
    if one.running is not None:
        parts.append(f"{one.running:.0f} running")
        parts += [f"{one.waiting:.0f} waiting"] if one.waiting else []
        parts += [f"{one.tokens_per_s:.0f} tok/s"] if one.tokens_per_s is not None else []
        parts += [f"TTFT {one.ttft_s:.2f} s"] if one.ttft_s is not None else []
    elif one.problem:
        parts.append(one.problem)
    return f"{one.name}: {', '.join(parts)}"


def _more(one: Row) -> Iterator[tuple[str, str]]:
    if one.reserved:
        yield f"reserved: {one.reserved}", "info"
    for finding in one.findings:
        yield f"{finding.severity}: {finding.id}: {finding.fact}", finding.severity


# -- live --------------------------------------------------------------------------------------------------------------


class Fleet:
    """What the hosts have said last, in the order of their names.

    A host's own clock decides nothing here: it may stand still, and each look would be kept for ever. Nor does how much
    it says.
    """

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rules, self._clock = limits.rules(), clock
        self._most = math.ceil(2 * KEPT_S / every_s)  # glance passes on no more of a host
        self._looks: dict[str, deque[tuple[float, Look, int]]] = {}
        self.rows: dict[str, Row] = {}

    def take(self, line: dict[str, Any]) -> Row:
        """One line of the pipe; `bytes`: how long it was."""
        host, silent = line["host"], line.get("silent")
        looks = self._looks.setdefault(host, deque(maxlen=self._most))
        if silent:
            looks.clear()
        else:
            looks.append((self._clock(), line["look"], line.get("bytes", 0)))
            size = sum(size for *_, size in looks)
            while looks[-1][0] - looks[0][0] > KEPT_S or (size > KEPT_BYTES and len(looks) > 1):
                size -= looks.popleft()[2]
        heard = [look for _heard_s, look, _size in looks]
        self.rows[host] = row(host, heard, silent, self._rules, line)
        return self.rows[host]

    def draw(self, console: Console) -> Group:
        """A screen full: what does not fit is counted, and where its way out stands comes before it."""
        if not self.rows:
            return Group(Text("asking the hosts; Ctrl-C ends it"))
        table = Table(expand=True)
        for name in COLUMNS:
            last = name == COLUMNS[-1]
            table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1 if last else None)
        shown = [self.rows[host] for host in sorted(self.rows)]
        for one in shown:
            table.add_row(*(Text(printable(cell), "red" if one.silent else "") for cell in _cells(one)))
        texts = [
            [Text(printable(f"{one.host}: {text}"), _COLOURS[severity]) for text, severity in _more(one)]
            for one in shown
        ]
        if not any(texts):
            return Group(table)
        above = Group(table, Text("why, and how to fix it: gb10 why HOST"))
        return Group(above, *_fitting(texts, console, console.height - len(console.render_lines(above))))


def _fitting(texts: Sequence[Sequence[Text]], console: Console, height: int) -> Iterator[Text]:
    """As many as so many lines hold, and how many are left. Where not all fit, who says much comes last."""
    tall = {id(text): len(text.wrap(console, console.width)) for own in texts for text in own}
    if sum(tall.values()) > height:
        texts = sorted(texts, key=lambda own: sum(tall[id(text)] for text in own))
    flat = [text for own in texts for text in own]
    ends = list(itertools.accumulate(tall[id(text)] for text in flat))
    fit = len(flat) if ends[-1] <= height else sum(end < height for end in ends)
    yield from flat[:fit]
    if fit < len(flat):
        yield Text(f"and {len(flat) - fit} more")


def follow(inventory: list[str], limit: str | None, words: Sequence[str], every_s: float, as_json: bool) -> Outcome:
    """Show what the hosts say until Ctrl-C, or until Ansible ends by itself: then its outcome."""
    fleet, console = Fleet(every_s), Console()
    stop = Stop()
    heard = [signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        with tempfile.TemporaryDirectory(prefix="gb10-top-") as folder:
            pipe = Path(folder, "looks")
            os.mkfifo(pipe, 0o600)
            variables = {"gb10_glance_pipe": str(pipe), "gb10_glance_every_s": every_s}
            order = Order(PLAYBOOK, inventory, limit, variables=variables, words=words)
            return _show(_Source(order, pipe, stop), fleet, console, as_json)
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), heard, strict=True):
            signal.signal(number, handler)


def _show(source: _Source, fleet: Fleet, console: Console, as_json: bool) -> Outcome:
    if as_json or not console.is_terminal:
        for look in source.lines():
            one = fleet.take(look)
            print(json.dumps(one.as_dict()) if as_json else _dated(one), flush=True)
    else:
        with Live(console=console, get_renderable=lambda: fleet.draw(console), refresh_per_second=2, screen=True):
            for look in source.lines():
                fleet.take(look)
    for line in source.complaints:
        print(printable(line), file=sys.stderr)
    return source.outcome


def _dated(one: Row) -> str:
    """A look as lines of a log; of a host without an answer, when it was missed."""
    _, first, *more = lines([one])
    return "\n".join([f"{timeline.utc(time.time() if one.at_s is None else one.at_s)}  {first}", *more])


class _Source:
    """A playbook that runs in a thread, and what comes through its pipe."""

    def __init__(self, order: Order, pipe: Path, stop: Stop) -> None:
        self._order, self._stop = order, stop
        self._reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self._ended = threading.Event()
        self.outcome, self.complaints = Outcome.done, list[str]()

    def lines(self) -> Iterator[dict[str, Any]]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        rest = b""
        try:
            while not self._stop.is_set():
                over = self._ended.is_set()  # before the last look into the pipe
                select.select([self._reader], [], [], 0.2)
                chunk = _read(self._reader)
                if not chunk:
                    if over:
                        break
                    self._stop.wait(0.1)  # nobody has opened it yet
                    continue
                *whole, rest = (rest + chunk).split(b"\n")
                yield from ({**json.loads(line), "bytes": len(line)} for line in whole)
        finally:
            os.close(self._reader)  # the playbook notices, and ends
            thread.join()

    def _run(self) -> None:
        try:
            outcome, report = run(self._order, quiet=True)
            if not self._stop.is_set():
                self.outcome = outcome
                reasons = [text for texts in report.messages.values() for text in texts]
                self.complaints = [*reasons, *report.errors]
        finally:
            self._ended.set()


def _read(pipe: int) -> bytes:
    try:
        return os.read(pipe, PIECE)
    except BlockingIOError:
        return b""
