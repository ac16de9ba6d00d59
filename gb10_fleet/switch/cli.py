"""`gb10 switch`: whether the switch between Sparks is what they need, how to set it, and setting it by consent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from ansible_collections.gb10.fleet.plugins.module_utils.system.consent import give
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import columns, counted, printable, write

from gb10_fleet.ending import told
from gb10_fleet.helping import Listed
from gb10_fleet.options import Inventory, Json, Limit, NoLists, Yes
from gb10_fleet.playbook import Order, Outcome
from gb10_fleet.rollout import locks
from gb10_fleet.rollout.journal import place, utc
from gb10_fleet.rollout.written import text_of
from gb10_fleet.up.people import Person, Stop, stopped

if TYPE_CHECKING:
    from gb10_fleet.switch.judging import Seen, Verdict
    from gb10_fleet.switch.planning import Change
    from gb10_fleet.switch.routeros import State
    from gb10_fleet.switch.settings import Account, Switch

app = typer.Typer(cls=Listed, no_args_is_help=True, help="Check the switch between Sparks, and set it.")
_COLUMNS = ("port", "hosts", "Gb/s", "MTU", "L2MTU", "pause", "PFC", "ECN", "by the chip", "sent", "dropped", "paused")
Seconds = Annotated[int, typer.Option("--seconds", min=1, max=600, help="Between two readings of the counters.")]


@app.callback()
def _group() -> None:
    """Check the switch between Sparks, and set it."""


@app.command(cls=NoLists)
def check(
    ctx: typer.Context,
    inventory: Inventory,
    limit: Limit = None,
    seconds: Seconds = 10,
    load: Annotated[bool, typer.Option("--load", help="Measure the rails between the two readings.")] = False,
    as_json: Json = False,
) -> None:
    """Compare a switch with what its hosts need. It reads ports, and changes nothing."""
    try:
        look = _Look(Order("", inventory, limit, words=ctx.obj), seconds, load)
        rows, verdicts = look.judged()
    except Stop as error:
        stopped(error, as_json)
    except KeyboardInterrupt:
        stopped(Stop("interrupted; nothing was changed", Outcome.interrupted), as_json)
    bad = any(one.severity == "error" for one in verdicts)
    silent = Outcome.unreachable if look.silent else Outcome.failed if bad else Outcome.done
    outcome = look.outcome if look.outcome is not Outcome.done else silent
    if as_json:
        ports, said = [row.as_dict() for row in rows], [asdict(one) for one in verdicts]
        hosts = [_rail(rail) for rail in look.fleet.rails]
        ended = {"outcome": outcome.name, "messages": look.report.messages, "errors": look.report.errors}
        document = {"switch": look.named, "ports": ports, "rails": hosts, "verdicts": said, **ended}
        print(json.dumps(document, indent=2))
    else:
        for line in [*_table(look, rows), *_said(verdicts), *told(look.report)]:
            print(printable(line))
    raise typer.Exit(outcome)


@app.command(cls=NoLists)
def plan(ctx: typer.Context, inventory: Inventory, limit: Limit = None, as_json: Json = False) -> None:
    """Print the commands for a switch, and those back. Changes nothing."""
    try:
        look = _Look(Order("", inventory, limit, words=ctx.obj), 1)
        changes, left = _plan(look)
        commands = [one.command for one in changes]
        back = [one.back for one in changes]
        if look.state is None:
            commands, back, left = _by_hand(look)
    except Stop as error:
        stopped(error, as_json)
    except KeyboardInterrupt:
        stopped(Stop("interrupted; nothing was changed", Outcome.interrupted), as_json)
    if as_json:
        document = {"switch": look.named, "commands": commands, "back": back, "left": left}
        print(json.dumps({"outcome": Outcome.done.name, **document}, indent=2))
        return
    lines = [*commands, "# and back:", *back] if commands else [] if left else ["# nothing to change"]
    for line in [*lines, *(f"# {text}" for text in left)]:
        print(printable(line))


@app.command(cls=NoLists)
def apply(
    ctx: typer.Context,
    inventory: Inventory,
    limit: Limit = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Set a switch port by port, each proven by the hosts. What they cannot prove goes back."""
    person = Person(yes, as_json)
    try:
        said = _applied(Order("", inventory, limit, words=ctx.obj), person)
    except (Stop, locks.Busy) as error:
        stopped(error if isinstance(error, Stop) else Stop(str(error), Outcome.refused), as_json)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}; this user must be able to write there"
        stopped(Stop(text, Outcome.failed), as_json)
    except KeyboardInterrupt:
        stopped(Stop("interrupted; what was set is taken back", Outcome.interrupted), as_json)
    outcome = Outcome.failed if said["reason"] else Outcome.done
    if as_json:
        print(json.dumps({"outcome": outcome.name, **said}, indent=2))
    raise typer.Exit(outcome)


def _applied(order: Order, person: Person) -> dict[str, Any]:
    from gb10_fleet.switch import applying

    state = place(list(order.inventories))
    with locks.held(state):
        look = _Look(order, 1)
        fleet, writer = look.fleet, look.fleet.switch.writer
        if not fleet.consent:
            ways = give("gb10_switch_allow_apply")
            raise Stop(f"to change the switch needs your consent: {ways}. Nothing was changed", Outcome.refused)
        if writer is None:
            raise Stop("gb10_switch.apply_user names no account that may change the switch", Outcome.refused)
        if fleet.serving:
            text = f"{', '.join(fleet.serving)} runs; a port that changes loses its link for a moment"
            raise Stop(f"{text}. Fix: gb10 stop, then the same again. Nothing was changed", Outcome.refused)
        if look.outcome is not Outcome.done or look.state is None:
            text = look.silent or "there is no switch to change, or a host gave no answer: gb10 switch check says more"
            raise Stop(f"{text}. Nothing was changed", Outcome.unreachable)
        changes, left = _plan(look)
        person.show(*(one.command for one in changes), *left)
        if not changes:
            person.say(f"{look.state.name}: nothing to change" if not left else "nothing was changed")
            return asdict(applying.Applied())
        person.consent(f"Change {counted(len(changes), 'port')} of {look.state.name}, one after the other?")
        folder = state / "switch"
        file = _kept(folder, changes)
        person.say(f"the way back, should this be killed: {file}")
        done = applying.apply(
            _Ports(fleet.switch, writer), changes, applying.proof(order, folder / "evidence"), person.say
        )
        if done.reason:
            person.say(f"not proven, and taken back: {done.reason}", *done.stuck)
        if not done.stuck:
            file.unlink(missing_ok=True)
    return asdict(done)


def _kept(folder: Path, changes: Sequence[Change]) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / f"back-{text_of(utc()).replace(':', '')}.rsc"
    write(file, "".join(f"{one.back}\n" for one in reversed(changes)), secret=True)
    return file


class _Ports:
    """Each step has a connection of its own: between two lie minutes of measuring."""

    def __init__(self, switch: Switch, account: Account) -> None:
        self._switch, self._account = switch, account

    def set(self, name: str, values: Mapping[str, str]) -> None:
        from gb10_fleet.switch import routeros

        with routeros.session(self._switch, self._account, routeros.STEP_S) as switch:
            switch.set(name, values)

    def running(self, name: str) -> bool:
        from gb10_fleet.switch import routeros

        with routeros.session(self._switch, self._account, routeros.STEP_S) as switch:
            return switch.running(name)


class _Look:
    """Two readings of the switch, with the hosts' own between them. `silent`: why there is none of the switch."""

    def __init__(self, order: Order, seconds: int, load: bool = False) -> None:
        from gb10_fleet.switch import settings

        self.silent, self.faults = "", frozenset[tuple[str, str]]()
        waits = {} if load else {"gb10_switch_samples": 2, "gb10_switch_every_s": seconds}
        self.fleet, self.outcome, self.report = settings.read(replace(order, variables=waits))
        self.before, self.state = self._read(), None
        if load:
            self._load(order)
            first = self.fleet
            self.fleet, self.outcome, self.report = settings.read(order)
            self.fleet = settings.both(first, self.fleet)
        elif self.before:
            time.sleep(seconds)
        if self.before:
            self.state = self._read()

    def _load(self, order: Order) -> None:
        import tempfile

        from gb10_fleet.switch import applying

        with tempfile.TemporaryDirectory(prefix="gb10-switch-") as folder:
            try:
                self.faults = applying.proof(order, Path(folder))()
            except applying.NotProven as error:
                raise Stop(f"the rails could not be measured: {error}", Outcome.failed) from None

    def _read(self) -> State | None:
        from gb10_fleet.switch import routeros

        switch = self.fleet.switch
        if not switch.address or switch.reader is None or _kind(switch) != "routeros":
            return None
        try:
            with routeros.session(switch, switch.reader) as open_:
                return open_.read()
        except (routeros.Silent, routeros.Refused) as error:
            self.silent = str(error)
            return None

    @property
    def named(self) -> dict[str, str] | None:
        return {key: getattr(self.state, key) for key in ("name", "model", "version")} if self.state else None

    def judged(self) -> tuple[list[Seen], list[Verdict]]:
        from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

        from gb10_fleet.switch import judging

        known = catalog.load("switches")
        hosts = list(judging.of_hosts(self.fleet, known["ecn_counters"]["value"]))
        for name, what in sorted(self.faults):
            fact = f"the hosts measured {what}"
            hosts.append(judging.Verdict("not_proven", "error", name, fact, "gb10 validate says all of it"))
        if self.before and self.state:
            rows, found = judging.of_switch(self.fleet, self.before, self.state, known["judged_by"])
            return rows, [*found, *hosts]
        switch = self.fleet.switch
        said = self.silent or "no switch is named that gb10 can read, so only the hosts were asked"
        fact, _, fix = said.partition(". Fix: ")
        way_out = fix or "docs/switch.md says how to give gb10 an account that may read it"
        name = switch.address or "gb10_switch"
        severity = "warn" if self.silent else "info"
        return [], [judging.Verdict("unread", severity, name, fact, way_out), *hosts]


def _kind(switch: Switch) -> str:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

    return str(catalog.load("switches")["switches"].get(switch.model, {}).get("kind", ""))


def _plan(look: _Look) -> tuple[list[Change], list[str]]:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

    from gb10_fleet.switch import planning

    rows, _ = look.judged()
    return planning.changes(look.fleet, look.state, rows, catalog.load("switches")) if look.state else ([], [])


def _by_hand(look: _Look) -> tuple[list[str], list[str], list[str]]:
    """The commands of a switch that gb10 does not read, for each PORT."""
    from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

    if _kind(look.fleet.switch) != "commands":
        why = look.silent or "gb10_switch names no switch that gb10 can read: docs/switch.md"
        raise Stop(f"{why}. Nothing was changed", Outcome.unreachable if look.silent else Outcome.refused)
    known = catalog.load("switches")["switches"][look.fleet.switch.model]
    left = ["write the name of each port between Sparks in place of PORT; gb10 does not read this switch"]
    return known["commands"]["value"], known["back"]["value"], left


def _rail(rail: Any) -> dict[str, Any]:
    risen = None if rail.risen is None else {name: last - first for name, (first, last) in rail.risen.items()}
    names = ("host", "netdev", "port", "mac", "mtu", "gbps", "carrier", "lldp")
    return {**{name: getattr(rail, name) for name in names}, "risen": risen}


def _table(look: _Look, rows: Sequence[Seen]) -> Iterator[str]:
    if look.state:
        yield f"{look.state.name}: {look.state.model}, RouterOS {look.state.version}"
        yield from columns([_COLUMNS, *([_cell(value) for value in row.as_dict().values()] for row in rows)])
    rails = [
        (rail.host, rail.netdev, rail.port, _cell(rail.gbps), _cell(rail.mtu), _cell(rail.carrier), rail.lldp or "")
        for rail in look.fleet.rails
    ]
    yield from columns([("host", "rail", "port", "Gb/s", "MTU", "link", "hears by LLDP"), *rails])


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value)
    return "?" if value is None else f"{value:g}" if isinstance(value, float) else str(value) or "no"


def _said(verdicts: Sequence[Verdict]) -> Iterator[str]:
    for one in verdicts:
        yield f"{one.where}: {one.severity}: {one.id}: {one.fact}"
        yield f"    Fix: {one.way_out}"
    counts = [sum(one.severity == severity for one in verdicts) for severity in ("error", "warn")]
    yield f"{counted(counts[0], 'error')}, {counted(counts[1], 'warning')}"
