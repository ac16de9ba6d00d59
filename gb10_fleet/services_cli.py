"""`gb10 ps`, `stop`, `start`, `swap`, `layout` and `fetch`: services of a fleet on and off, as the operator wishes."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable, some
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import usage

from gb10_fleet import layout_timer
from gb10_fleet.ending import by_name, named, to_paste, told
from gb10_fleet.options import Inventory, Json, Limit, NoLists, Yes
from gb10_fleet.playbook import Order, Outcome, Report, run
from gb10_fleet.rollout import locks
from gb10_fleet.rollout.journal import place
from gb10_fleet.services import (
    ASKS,
    Refused,
    Row,
    answers_of,
    believed,
    called,
    chosen,
    document,
    inventory_of,
    owners,
    reach_of,
    reservations,
    rows,
    silence,
    table,
    usages,
    where,
    without_service,
)
from gb10_fleet.up.cli import FETCHES, OF_TWO
from gb10_fleet.up.people import consent, shortly

app = typer.Typer()

Name = Annotated[str, typer.Argument(help="The service, as `gb10 ps` names it.", show_default=False)]
Until = Annotated[
    str, typer.Option("--until", metavar="TIME", help="07:00, +2h, or 2026-11-24T07:00, by the clock of the host.")
]
# What a wish says: the one that holds now, the memory that came back, routers that did not let go, and the model's
# answer to its questions.
TOLD = {"gb10.fleet.wish": "wish", "returned": "msg", "routers": "msg", "served": "msg"}
# How its tasks begin, and what they are to the person who waits.
STEPS = {
    "stopped": {
        "Wait for the answers": "waiting for the answers that are under way",
        "Have it stand still": "stopping {}",
        "See the memory return": "waiting for its memory",
    },
    "started": {"Have it stand still": "starting {}"},
    "proof": {"Wait until the model": "waiting for the model to load, then asking it"},
}
_LONG_AGO = "1970-01-02T00:00:00Z"
_READY_S = 1800  # vllm_ready_timeout of the role, where nobody set another


@dataclass(frozen=True)
class Fleet:
    """The hosts that a command is about, and what they said of their services."""

    order: Order
    found: list[Row]
    silent: list[str]
    # These by host, as the inventory has them: its layouts, the consent to a switch without an operator, and how a
    # person reaches it.
    layouts: dict[str, Any]
    by_timer: dict[str, Any]
    reach: dict[str, Any]

    def choice(self, service: str) -> tuple[list[Row], str]:
        """Return its hosts, and why others of it stay as they are."""
        return chosen(self.found, service, [*self.order.inventories], self.silent, owners(self.reach))

    def of(self, service: str) -> list[Row]:
        """Return all hosts of a service, for a switch: refused where one of its clusters is not whole."""
        mine, stays = self.choice(service)
        if stays:
            raise Refused(f"{stays}. Nothing was changed")
        return mine

    def back(self, service: str, *, up: bool) -> list[Row]:
        """Return its hosts whose cluster ran it when they were looked at, or did not: the way back is for these."""
        mine = self.of(service)
        ran = {row.host for row in mine if row.runs or row.wakes}
        return [row for row in mine if bool(ran & {row.host, *row.said["members"]}) is up]

    def states(self) -> set[tuple[str, str, bool]]:
        """Return what a switch is decided by.

        Of each service on a host, whether it runs or a request would start it.
        """
        mine = believed(self.found, owners(self.reach))
        return {(row.host, row.said["name"], row.runs or row.wakes) for row in mine}

    def wish(self, service: str, mine: Sequence[Row], state: str, **more: Any) -> tuple[Outcome, Report]:
        """Have the service stopped or started on its hosts, and say how far that is and what came of it."""
        hosts = ",".join(row.host for row in mine)
        wish = {"gb10_wish": {"service": service, "state": state, **_limits(), **more}}
        order = Order(
            "gb10.fleet.wish", self.order.inventories, hosts, variables=wish, words=self.order.words, asks=TOLD
        )
        steps = STEPS[state] | (STEPS["proof"] if more.get("prove") else {})
        outcome, report = run(order, **shortly(order, {name: words.format(service) for name, words in steps.items()}))
        told: dict[str, list[str]] = {}
        for step in ("returned", "routers", "served"):
            for host, result in report.answers[step].items():
                told.setdefault(str(result["msg"]).partition(": ")[2], []).append(host)
        for text, names in told.items():
            print(printable(f"{some(names)}: {text}"))
        _said(order, report)
        went_on = [name for name, one in report.hosts.items() if not one["failed"] | one["unreachable"]]
        if outcome is Outcome.refused and went_on:
            outcome = Outcome.failed  # by others of them
        return outcome, report

    def command(self, said: str) -> str:
        """A command line about the hosts of this one."""
        limit = f" --limit {shlex.quote(self.order.limit)}" if self.order.limit else ""
        return to_paste(self.order, f"gb10 {said}{limit} -i INVENTORY")

    def end(self, service: str, outcome: Outcome, done: str, stays: str) -> NoReturn:
        """End a command that has left the silent hosts as they were. `done`: what is true where it came to its end."""
        if outcome is Outcome.done:
            print(printable("Nothing was changed" if self.order.only_checks else done))
        elif outcome is Outcome.refused:
            _end(f"{service}: nothing was changed", outcome)
        elif outcome is not Outcome.interrupted:
            _end(f"{service}: it did not come to its end: `{self.command('ps')}` says what runs now", outcome)
        if outcome is Outcome.done and self.silent:
            _end(f"{', '.join(self.silent)}: no answer, so it is as it was there", Outcome.unreachable)
        raise typer.Exit(outcome or (Outcome.failed if stays else Outcome.done))

    def refuse_silence(self) -> None:
        """A switch goes by the memory of all hosts that it asks."""
        if self.silent:
            raise silence(self.silent, self.found)


def _limits() -> dict[str, float]:
    """Return when memory counts as not returned, and how long answers that are under way may take."""
    from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

    return {
        "limit_gib": catalog.load("health")["limits"]["hidden_gib"]["value"],
        "within_s": catalog.load("memory")["stop"]["returned_within"]["value"],
        "drain_s": catalog.load("gateway")["drain"]["value"],
    }


def _read(
    ctx: typer.Context, inventory: list[str], limit: str | None, layout: str | None = None, tell: bool = True
) -> tuple[Fleet, Report]:
    """`layout`: what the inventory must have, or no host is asked. `tell`: say of silent hosts what to do."""
    wanted = {} if layout is None else {"gb10_layout": layout}
    return _asked(Order("gb10.fleet.services", inventory, limit, variables=wanted, words=ctx.obj, asks=ASKS), tell)


def _asked(order: Order, tell: bool) -> tuple[Fleet, Report]:
    outcome, report = run(order, quiet=True)
    if outcome is Outcome.refused:
        _end("; ".join(text for messages in report.messages.values() for text in messages), outcome)
    if report.cut:  # who has not answered by then is not silent, and who has is not everybody
        _end(f"{order.playbook}: {outcome.name}; {report.errors[0]}", outcome)
    answers = answers_of(report)
    silent = _silent(report, answers)
    if not answers and (silent or outcome is not Outcome.done):
        outcome = Outcome.unreachable if report.silent else outcome or Outcome.failed
        _said(order, report)
        _end(f"{order.playbook}: {outcome.name}", outcome)
    if silent and tell:
        _said(order, report)
    inventory, found = inventory_of(report), rows(answers, reach_of(report))
    return Fleet(order, found, silent, *(inventory.get(key, {}) for key in ("layouts", "by_timer", "reach"))), report


def _silent(report: Report, answers: Container[str]) -> list[str]:
    return [host for host in report.hosts if host not in answers]


def _said(order: Order, report: Report) -> None:
    for line in told(report):
        print(printable(by_name(order, line)), file=sys.stderr)
    for line in report.errors:
        print(line, file=sys.stderr)


def _end(text: str, outcome: Outcome) -> NoReturn:
    if text:
        print(printable(text), file=sys.stderr if outcome else sys.stdout)
    raise typer.Exit(outcome)


def _hosts_of(fleet: Fleet, service: str) -> tuple[list[Row], str]:
    """Return a service as its hosts have it, and why others of it stay; without any, that is the end of the command."""
    try:
        mine, stays = fleet.choice(service)
    except Refused as error:
        _end(str(error), Outcome.refused)
    if stays:
        print(printable(stays), file=sys.stderr)
    return mine, stays


def _is_time(until: str) -> None:
    """Refuse what is no time by any clock before a host is asked; whether it is over, the host's own clock says."""
    from ansible_collections.gb10.fleet.plugins.module_utils.engine import wishes
    from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError

    try:
        if until:
            wishes.end(until, _LONG_AGO)
    except HostError as error:
        _end(f"--{error}", Outcome.refused)


@app.command(cls=NoLists)
def ps(
    ctx: typer.Context,
    inventory: Inventory,
    limit: Limit = None,
    use: Annotated[bool, typer.Option("--use", help="Also show how to use each: curl, Python, Open WebUI.")] = False,
    as_json: Json = False,
) -> None:
    """List the services of all hosts, and where each answers. Changes nothing."""
    now = datetime.now(UTC)
    if as_json:
        _as_json(Order("gb10.fleet.services", inventory, limit, words=ctx.obj, asks=ASKS), now)
    fleet, report = _read(ctx, inventory, limit, tell=False)
    for line in table(fleet.found, now):
        print(printable(line))
    for host, text in reservations(fleet.reach, now).items():
        print(printable(f"{host}: reserved: {text}"))
    uses = usages(fleet.found, fleet.reach)
    lines = [*(usage.whole(uses) if use else usage.short(uses))]
    if failed := next((row.host for row in fleet.found if "failed" in (row.said["phase"], row.said["state"])), ""):
        lines.append(f"why it failed, and how to fix it: gb10 why {failed} -i INVENTORY")
    for line in lines:
        print(to_paste(fleet.order, line))
    _said(fleet.order, report)
    raise typer.Exit(Outcome.unreachable if fleet.silent else Outcome.done)


def _as_json(order: Order, now: datetime) -> NoReturn:
    """One object, also where no host answers or Ansible could not begin."""
    outcome, report = run(order, quiet=True)
    answers = answers_of(report)
    silent = _silent(report, answers)
    answer = document(rows(answers, reach_of(report)), silent, now)
    answer["reserved"] = reservations(reach_of(report), now)
    if silent and not report.cut:
        outcome = Outcome.unreachable
    answer |= {"outcome": outcome.name, "findings": [report.silent[host].as_dict() for host in sorted(report.silent)]}
    answer |= {"messages": report.messages, "errors": report.errors}
    print(json.dumps(named(order, answer), indent=2))
    raise typer.Exit(outcome)


@app.command(cls=NoLists)
def stop(
    ctx: typer.Context, service: Name, inventory: Inventory, until: Until = "", limit: Limit = None, yes: Yes = False
) -> None:
    """Stop a service, and have it stay stopped over boots and runs, until it is started or that time has come."""
    _is_time(until)
    fleet, _ = _read(ctx, inventory, limit)
    mine, stays = _hosts_of(fleet, service)
    consent(f"Stop {service} on {where(mine)}{f' until {until}' if until else ''}?", yes)
    outcome, report = fleet.wish(service, mine, state="stopped", until=until)
    ends = {str(said["wish"]["shown"]) for said in report.answers["gb10.fleet.wish"].values() if said["wish"]}
    end = ends.pop() if len(ends) == 1 else until  # no host says it for another one
    how = f" until {end}. To start it before" if end else ", also after a boot. To start it"
    again = fleet.command(f"start {shlex.quote(service)}")
    fleet.end(service, outcome, f"{service} is stopped on {where(mine)}{how}: {again}", stays)


@app.command(cls=NoLists)
def start(
    ctx: typer.Context,
    service: Name,
    inventory: Inventory,
    limit: Limit = None,
    prove: Annotated[bool, typer.Option("--prove", help="Wait until it has loaded, and ask it.")] = False,
    yes: Yes = False,
) -> None:
    """Start a service that was stopped. Cancels the stop request and its timer."""
    fleet, _ = _read(ctx, inventory, limit)
    mine, stays = _hosts_of(fleet, service)
    consent(f"Start {service} on {where(mine)}?", yes)
    outcome, report = fleet.wish(service, mine, state="started", prove=prove)
    if prove:
        fleet.end(service, outcome, f"{service} serves on {where(mine)}", stays)
    changed = any(said.get("changes") for said in report.answers["gb10.fleet.wish"].values())
    now, asks = ("starts", "when") if changed else ("was started already", "whether")
    done = f"{service} {now} on {where(mine)}. `{fleet.command('ps')}` says {asks} it is ready"
    fleet.end(service, outcome, done, stays)


@app.command(cls=NoLists)
def swap(
    ctx: typer.Context,
    service: Annotated[str, typer.Argument(help="The service to stop.", show_default=False)],
    other: Annotated[str, typer.Argument(help="The service to start in its memory.", show_default=False)],
    inventory: Inventory,
    limit: Limit = None,
    yes: Yes = False,
) -> None:
    """Stop a service, see its memory return, start another and ask it; back to the first where that fails."""
    if service == other:
        _end(f"{service} cannot take its own place; name another service to start", Outcome.refused)
    fleet, _ = _read(ctx, inventory, limit)
    try:
        fleet.refuse_silence()
        stops, starts = where(fleet.of(service)), where(fleet.of(other))
    except Refused as error:
        _end(str(error), Outcome.refused)
    consent(f"Stop {service} on {stops}, and start {other} on {starts}?", yes)
    _switch(fleet, [service], [other])


def _switch(fleet: Fleet, stops: Sequence[str], starts: Sequence[str]) -> NoReturn:
    """One switch at a time, and none in a rollout: two at once would start what has no room together."""
    held, folder = contextlib.ExitStack(), place(fleet.order.inventories)
    try:
        _lock(held, folder / "switch")
        if locks.owner(folder):
            see = by_name(fleet.order, "see `gb10 status -i INVENTORY`")
            _end(f"a rollout is at work on this fleet; nothing was changed: {see}", Outcome.refused)
        again, _ = _asked(fleet.order, tell=True)  # another switch may have ended between the look and the lock
        if changed := {host for host, _, _ in again.states() ^ fleet.states()}.union(again.silent):
            names = ", ".join(sorted(changed))
            _end(f"{names}: what runs has changed meanwhile, so nothing was changed; run it again", Outcome.refused)
        _switched(fleet, stops, starts)
    finally:
        held.close()


def _lock(held: contextlib.ExitStack, folder: Path) -> None:
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        held.enter_context(locks.held(folder))
    except locks.Busy as error:
        _end(f"{error}. Nothing was changed", Outcome.refused)
    except OSError as error:  # an inventory that only others may write beside
        print(printable(f"without a lock against a second switch: {folder}: {error.strerror}"), file=sys.stderr)


def _switched(fleet: Fleet, stops: Sequence[str], starts: Sequence[str]) -> NoReturn:
    """Stop, see the memory return, start, prove; where that fails, all the way back."""
    stopped: list[str] = []
    started: list[str] = []
    outcome = Outcome.done
    for service in stops:
        stopped.append(service)
        outcome, _ = fleet.wish(service, fleet.of(service), state="stopped", until="")
        if outcome is not Outcome.done:
            break
    if outcome is Outcome.done:
        for service in starts:
            started.append(service)
            outcome, _ = fleet.wish(service, fleet.of(service), state="started", prove=True)
            if outcome is not Outcome.done:
                break
    if outcome is Outcome.done:
        if fleet.order.only_checks:
            _end("Nothing was changed", outcome)
        _end(f"{', '.join(starts) or 'nothing'} serves, {', '.join(stops) or 'nothing'} stopped by you", outcome)
    if outcome is Outcome.refused and len(stopped) + len(started) == 1:
        _end("nothing was changed", outcome)
    way: list[tuple[str, str, dict[str, Any]]] = [(service, "stopped", {"until": ""}) for service in reversed(started)]
    way += [(service, "started", {"prove": True}) for service in reversed(stopped)]
    back = [
        fleet.wish(service, mine, state=state, **more)[0]
        for service, state, more in way
        if (mine := fleet.back(service, up=state == "started"))
    ]
    if outcome is Outcome.interrupted and all(each is Outcome.done for each in back):
        _end(f"interrupted, so {', '.join(stopped)} serves again as before", outcome)
    if all(each is Outcome.done for each in back):
        _end(f"it failed, so {', '.join(stopped)} serves again as before", Outcome.failed)
    _end(f"it failed, and so did the way back to {', '.join(stopped)}: `gb10 ps` says what runs", Outcome.failed)


@app.command(cls=NoLists)
def layout(
    ctx: typer.Context,
    inventory: Inventory,
    name: Annotated[str | None, typer.Argument(help="The layout to switch to.", show_default=False)] = None,
    limit: Limit = None,
    yes: Yes = False,
    at: Annotated[
        str,
        typer.Option("--at", metavar="WHEN", help="By a timer on this machine: 'Mon..Fri 07:00'; never: remove it."),
    ] = "",
    by_timer: Annotated[bool, typer.Option("--by-timer", hidden=True)] = False,  # what such a timer says
) -> None:
    """Switch to a layout of gb10_layouts: its services run, those of others stand still. Without a name: list them."""
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import layouts

    timer = _timer(name, at, inventory, limit, yes)
    fleet, _ = _read(ctx, inventory, limit, name)
    lacking = layouts.without_consent(fleet.layouts, fleet.by_timer)
    if by_timer and lacking:
        _end(f"{layout_timer.no_consent(lacking)}, or remove the timer with --at never", Outcome.refused)
    # One that is asleep in another layout would be started by a request, into memory that is not its own.
    states = fleet.states()
    running = {service for _, service, up in states if up}
    everywhere = running - {service for _, service, up in states if not up}
    try:
        known = layouts.parse(layouts.common(fleet.layouts), {row.said["name"] for row in fleet.found})
        if name is None:
            _list(known, layouts.current(known, running, everywhere))
        fleet.refuse_silence()
        wanted = layouts.switch(known, name, running, everywhere)
        hosts = {service: where(fleet.of(service)) for service in (*wanted.stops, *wanted.starts)}
        if timer:
            consent(f"Timer for the layout {name}: {at}?", yes)
            _put(timer, lacking)
    except (Refused, layouts.LayoutError) as error:
        _end(str(error), Outcome.refused)
    if not hosts:
        _end(f"{name} runs already", Outcome.done)
    steps = [f"stop {service} on {hosts[service]}" for service in wanted.stops]
    steps += [f"start {service} on {hosts[service]}" for service in wanted.starts]
    consent(f"Layout {name}: {'; '.join(steps)}?", yes)
    _switch(fleet, wanted.stops, wanted.starts)


def _timer(
    name: str | None, at: str, inventory: Sequence[str], limit: str | None, yes: bool
) -> layout_timer.Timer | None:
    """The timer to set. To remove one, or to refuse a time, no host is asked."""
    if not at:
        return None
    if name is None:
        _end("--at: name the layout to switch to", Outcome.refused)
    timer = layout_timer.Timer(name, at, tuple(inventory), limit, Path.cwd())
    try:
        if at != layout_timer.NEVER:
            layout_timer.refuse(timer, layout_timer.systemd)
            return timer
        consent(f"Remove the timer of the layout {name}?", yes)
        _put(timer, [])
    except Refused as error:
        _end(str(error), Outcome.refused)


def _put(timer: layout_timer.Timer, lacking: Sequence[str]) -> NoReturn:
    folder, systemctl = layout_timer.place(os.geteuid() == 0)
    _end(layout_timer.put(timer, lacking, folder, systemctl, layout_timer.systemd), Outcome.done)


def _list(known: dict[str, tuple[str, ...]], current: str) -> NoReturn:
    for name, members in known.items():
        print(printable(f"{name}: {', '.join(members)}" + ("  (runs)" if name == current else "")))
    _end("" if known else "no layout: docs/services.md says how to write gb10_layouts", Outcome.done)


@app.command(cls=NoLists)
def fetch(ctx: typer.Context, service: Name, inventory: Inventory, limit: Limit = None) -> None:
    """Download a service's image and model in advance, whether it runs or not. Says how long the change will take.

    What other services of the same hosts lack comes along.
    """
    fleet, _ = _read(ctx, inventory, limit, tell=False)
    mine = called(fleet.found, service, owners(fleet.reach))
    print(printable(f"{service}: {without_service(mine, _READY_S)}"))
    ahead = {"gb10_ahead": True, "gb10_ahead_of": service}
    order = Order("gb10.fleet.fetch", inventory, limit, variables=ahead, words=ctx.obj)
    several = any(len(row.said["members"]) > 1 for row in fleet.found)
    steps = {name: words for name, words in FETCHES.items() if several or name not in OF_TWO}
    outcome, report = run(order, **shortly(order, steps))
    _said(order, report)
    done = "nothing was changed" if order.only_checks else "image and model are on its hosts"
    _end(f"{service}: {done if outcome is Outcome.done else outcome.name}", outcome)
