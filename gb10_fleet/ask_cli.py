"""`gb10 ask` and `gb10 logs`: talk to one service of a fleet, over ssh, from this machine."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, NoReturn

import typer
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_names import status_of
from ansible_collections.gb10.fleet.plugins.module_utils.system.asking import SERVING
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.stop_requests import said_of

from gb10_fleet import passwords, way
from gb10_fleet.ending import by_name, told
from gb10_fleet.options import Inventory, Limit, NoLists
from gb10_fleet.playbook import Order, Outcome, Report, run
from gb10_fleet.services import ASKS, Row, answers_of, called, owners, reach_of, rows

app = typer.Typer()

_UNIT = re.compile(r"gb10-vllm(-[a-z0-9][a-z0-9-]*)?\.service\Z")
_LONGEST = 2**16  # bytes of one line of a log
_NAMED = 3  # of the other hosts that have a log


@app.command(cls=NoLists)
def ask(
    ctx: typer.Context,
    question: Annotated[str, typer.Argument(help="What to ask, in quotes.", show_default=False)],
    inventory: Inventory,
    service: Annotated[
        str | None, typer.Argument(help="The service; needed where there are several.", show_default=False)
    ] = None,
    limit: Limit = None,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait for the next word.")] = 300,
) -> None:
    """Ask a model that serves, and print its answer as it comes. Changes nothing."""
    order = Order("gb10.fleet.services", inventory, limit, words=ctx.obj, asks=ASKS)
    row = _one(order, service, serving=True)
    url, model = row.said.get("url") or "", row.said.get("served_name") or ""  # a row that answers has both
    body = {"model": model, "messages": [{"role": "user", "content": question}]}
    try:
        # Any login may listen at a port that is free; the unit's word says that its container does.
        word = PurePosixPath(status_of(row.said["name"])).with_name(SERVING)
        forward = url.partition("://")[2]
        found, report = way.find(order, row.host, row.said["name"], forward=forward, look=f"test -e {word}")
        if found is None:
            _lost(order, report)
        _print(way.answer(found, url, body, timeout))
    except TimeoutError:
        _end(
            f"{row.host}: {model} said nothing for {timeout:g} s. Fix: see gb10 logs {row.said['name']} -i INVENTORY",
            order,
        )
    except way.NoWay as error:
        _end(f"{row.said['name']} on {row.host}: {error}", order)
    except KeyboardInterrupt:
        raise typer.Exit(Outcome.interrupted) from None


def _print(pieces: Iterable[tuple[str, str]]) -> None:
    """Print an answer. A model that thinks first says so, where somebody looks."""
    thinks = False
    for kind, text in pieces:
        if kind == "text":
            sys.stdout.write(printable(text, "\n\t"))
            sys.stdout.flush()
        elif not thinks and sys.stderr.isatty():
            thinks = True
            print("(it thinks first)", file=sys.stderr)
    print()


@app.command(cls=NoLists)
def logs(
    ctx: typer.Context,
    service: Annotated[str, typer.Argument(help="The service, as `gb10 ps` names it.", show_default=False)],
    inventory: Inventory,
    limit: Limit = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many lines to begin with.")] = 50,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on until Ctrl-C, or end.")] = True,
) -> None:
    """Follow the log of a service until Ctrl-C. Changes nothing.

    Of a cluster it is the log of the first host; --limit chooses another one.
    """
    order = Order("gb10.fleet.services", inventory, limit, words=ctx.obj, asks=ASKS)
    row = _one(order, service, serving=False)
    if not _UNIT.match(unit := row.said["unit"]):
        _end(f"{row.host}: {unit} is no unit of gb10-fleet", order)
    journal = f"journalctl --no-pager --output=short-iso --lines={lines} --unit={unit}" + (
        " --follow" if follow else ""
    )
    # The journal is for root and for the group adm. A password comes on standard input, and only sudo may read it.
    secret = passwords.typed.get(passwords.BECOME, "")
    other = f"sudo -S -p '' {journal}" if secret else journal
    command = f"if sudo -n true 2>/dev/null; then exec sudo -n {journal} </dev/null; fi; exec {other}"
    try:
        found, report = way.find(order, row.host, service, command=command)
    except way.NoWay as error:
        _end(str(error), order)
    if found is None or found.command is None:
        _lost(order, report)
    print(printable(f"{service} on {row.host}: {unit}"), file=sys.stderr)
    status = _show(found.command, secret)
    if status == way.NO_LOGIN:
        _end(f"{row.host}: {found.no_login()}", order)
    raise typer.Exit(Outcome.failed if status else Outcome.done)


def _show(command: Sequence[str], secret: str) -> int:
    """Print what it says, line by line, and return its exit status; 0 of one that was interrupted."""
    pipe = subprocess.PIPE
    with passwords.for_ssh(command) as (words, environment):
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, env=environment)
        try:
            with contextlib.suppress(OSError), process.stdin:  # type: ignore[union-attr]  # it may have ended before
                process.stdin.write(f"{secret}\n".encode() if secret else b"")  # type: ignore[union-attr]
            while line := process.stdout.readline(_LONGEST):  # type: ignore[union-attr]
                print(printable(line.decode(errors="replace").rstrip("\r\n"), "\t"), flush=True)
            return process.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            with contextlib.suppress(OSError):
                process.terminate()
            process.wait()


def _one(order: Order, service: str | None, *, serving: bool) -> Row:
    """Return the one row that is meant. With no name it is the only service; of a cluster it is the first host."""
    outcome, report = run(order, quiet=True)
    found = rows(answers_of(report), reach_of(report))
    if report.cut:
        _lost(order, report)
    if not found:
        if outcome is Outcome.done and not report.messages:  # who is silent may serve
            _end("no service is on these hosts. Fix: gb10 up puts one there, or gb10 site -i INVENTORY", order)
        _lost(order, report)
    theirs = owners(reach_of(report))
    mine = [
        row
        for name in dict.fromkeys(row.said["name"] for row in found)
        if service in (None, name)
        for row in called(found, name, theirs)
    ]
    names = list(dict.fromkeys(row.said["name"] for row in mine))
    known = ", ".join(dict.fromkeys(row.said["name"] for row in found))
    if not mine:
        _end(f"no service is called {service}; there are {known}", order)
    if serving:
        # A name that the inventory does not have is believed where a person has typed it.
        usual = {row.host for row in mine} if service or not theirs else set[str]()
        strangers = [row for row in mine if row.host not in theirs.get(row.said["name"], usual)]
        stopped = [(row.said["name"], wish) for row in mine if (wish := row.said["wish"]) and not row.wakes]
        mine = [row for row in mine if row.answers and row not in strangers]
        if strangers and not mine:
            _end(_not_theirs(strangers[0], theirs), order)
        if stopped and not mine:
            name, wish = stopped[0]
            _end(f"{name}: {said_of(wish)}. Fix: gb10 start {name} -i INVENTORY", order)
        if not mine:
            _end(f"{', '.join(names)}: not ready to answer. Fix: gb10 ps -i INVENTORY says its state", order)
        names = list(dict.fromkeys(row.said["name"] for row in mine))
    if len(names) > 1:
        _end(f"which one? Name the service behind the question: {', '.join(names)}", order)
    for line in told(report):  # whoever gave no answer may be the one that is meant
        print(printable(by_name(order, line)), file=sys.stderr)
    first, *others = sorted(mine, key=lambda row: (not row.runs, row.rank))
    if others and not serving:
        also = ", ".join(row.host for row in others[:_NAMED]) + (" and others" if others[_NAMED:] else "")
        print(printable(f"{names[0]} is also on {also}: --limit chooses"), file=sys.stderr)
    return first


def _not_theirs(row: Row, theirs: Mapping[str, Iterable[str]]) -> str:
    """A question goes to a host that the inventory gives the service to, whatever others say of themselves."""
    name = row.said["name"]
    whose = ", ".join(sorted(theirs.get(name, ()))) or "nobody"
    return (
        f"{row.host} says that it serves {name}, which the inventory gives to {whose}; nothing was sent. "
        "Fix: gb10 site -i INVENTORY brings what the inventory says"
    )


def _lost(order: Order, report: Report) -> NoReturn:
    for line in [*told(report), *report.errors]:
        print(printable(by_name(order, line)), file=sys.stderr)
    if report.canceled:
        raise typer.Exit(Outcome.interrupted)
    raise typer.Exit(Outcome.unreachable if report.silent else Outcome.failed)


def _end(text: str, order: Order) -> NoReturn:
    print(printable(by_name(order, text), "\n"), file=sys.stderr)
    raise typer.Exit(Outcome.failed)
