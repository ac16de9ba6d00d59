"""`gb10 power`: the plug of a host, with the care of a reboot. Nothing is cut before the host behind it has halted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in

from gb10_fleet.ending import by_name, show
from gb10_fleet.options import Check, Inventory, Json, NoLists, Yes
from gb10_fleet.playbook import Order, Outcome, Report, run
from gb10_fleet.rollout import gate, locks, words
from gb10_fleet.rollout.journal import place
from gb10_fleet.up.people import Person, Stop, stopped

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.power.setting import Setting

app = typer.Typer()
_AT_ONCE = 16  # plugs that are asked at the same time


class Act(StrEnum):
    """What to do with the plug."""

    state = "state"
    off = "off"
    on = "on"
    cycle = "cycle"


@dataclass(frozen=True)
class Host:
    """A host as the inventory has it. `members`: itself and whoever serves with it."""

    name: str
    members: Sequence[str]
    reserved: str
    plug: Setting


@dataclass(frozen=True)
class Seen:
    """What a plug said; `error`: why it said nothing."""

    plug: str
    on: bool | None = None
    watts: float | None = None
    error: str | None = None

    @property
    def words(self) -> str:
        if self.error:
            return self.error
        return f"{'on' if self.on else 'off'}{'' if self.watts is None else f', {self.watts:.1f} W'} ({self.plug})"


@app.command(cls=NoLists)
def power(
    ctx: typer.Context,
    inventory: Inventory,
    hosts: Annotated[
        list[str], typer.Argument(help="Hosts; with state, none is all.", show_default=False, default_factory=list)
    ],
    act: Annotated[Act, typer.Argument(help="One of state, off, on and cycle (off, then on).", show_default=False)],
    hard: Annotated[
        bool, typer.Option("--hard", help="Cut the power of a host that hangs, without halting it.")
    ] = False,
    metrics: Annotated[
        Path | None, typer.Option("--metrics", metavar="FILE", help="With state: also write them for Prometheus.")
    ] = None,
    check: Check = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Switch a host at its plug: halt it and cut its power, give it power, or both, with the proof after."""
    if (metrics and act is not Act.state) or (hard and act not in (Act.off, Act.cycle)):
        raise typer.BadParameter("--metrics goes with state, --hard with off and cycle")
    if not hosts and act is not Act.state:
        raise typer.BadParameter(f"name the hosts: gb10 power HOST {act}")
    if ctx.obj and words.read(ctx.obj).subset:
        raise typer.BadParameter("--limit: name the hosts before the word what to do, as in gb10 power HOST off")
    person, ended = Person(yes, as_json), Outcome.done
    try:
        work = _Power(list(inventory), tuple(ctx.obj), act, hard, person)
        mine = work.hosts(hosts)
        if act is Act.state:
            found = seen(mine)
            ended = Outcome.unreachable if any(one.error for one in found.values()) else ended
            if metrics:
                _write(metrics, found, mine)
        else:
            found = work.check(mine) if check else work.do(mine)
    except Stop as error:
        stopped(Stop(by_name(Order("", inventory), str(error)), error.outcome), as_json)
    if as_json:
        hosts_seen = {name: asdict(one) for name, one in found.items()}
        print(json.dumps({"outcome": ended.name, "hosts": hosts_seen}, indent=2))
    else:
        person.say(*(f"{name}: {one.words}" for name, one in found.items()))
    raise typer.Exit(ended)


def seen(hosts: Sequence[Host]) -> dict[str, Seen]:
    """Ask the plugs, some at a time."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip([host.name for host in hosts], pool.map(_seen, [host.plug for host in hosts]), strict=True))


def _seen(setting: Setting) -> Seen:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.power.plug import PlugError, plug
    from ansible_collections.gb10.fleet.plugins.plugin_utils.power.setting import WrongPlug

    try:
        one = plug(setting)
        return Seen(setting.words, one.state(), one.watts())
    except (PlugError, WrongPlug) as error:
        return Seen(setting.words, error=str(error))


class _Unfinished(Stop):
    """A run in which hosts failed."""

    def __init__(self, text: str, outcome: Outcome, report: Report) -> None:
        super().__init__(text, outcome)
        bad = {name for name, counts in report.hosts.items() if counts["failed"] or counts["unreachable"]}
        if report.evidence:  # the proof fails in a task for all of them, which counts for the first one, whoever is bad
            bad = {*gate.proof(report.hosts, document_in(Path(report.evidence, "evidence.json")))}
        self._bad = None if report.cut or outcome is Outcome.refused or not bad else bad

    def spares(self, host: Host) -> bool:
        """Tell whether it changed the hosts of this one's cluster, and none of them failed."""
        return self._bad is not None and not self._bad.intersection(host.members)


@dataclass
class _Power:
    inventories: list[str]
    words: Sequence[str]
    act: Act
    hard: bool
    person: Person

    def hosts(self, names: Sequence[str]) -> list[Host]:
        """Those that are named, or refuse: one without a plug, a reserved one, half of a plug that hosts share."""
        from ansible_collections.gb10.fleet.plugins.plugin_utils.power.setting import WrongPlug, parse

        from gb10_fleet.seed.cli import rows

        found = {str(row["name"]): row for row in rows(Order("gb10.fleet.seed", self.inventories, words=self.words))}
        clusters: dict[str, list[str]] = {}
        for name, row in found.items():
            clusters.setdefault(str(row["cluster"] or name), []).append(name)
        known: dict[str, Host] = {}
        for name, row in found.items():
            try:
                setting = parse(row["plug"])
            except WrongPlug as error:
                raise Stop(f"{name}: {error}", Outcome.refused) from None
            if setting:
                known[name] = Host(name, clusters[str(row["cluster"] or name)], str(row["reserved"]), setting)
        for name in names:
            if name not in known:
                why = "has no gb10_power_plug: docs/power.md" if name in found else f"is not among {', '.join(found)}"
                raise Stop(f"{name} {why}", Outcome.refused)
        mine = [known[name] for name in dict.fromkeys(names or known)]
        if not mine:
            raise Stop("no host has a gb10_power_plug: docs/power.md says how it is written", Outcome.refused)
        if self.act is not Act.state:
            self._refuse(mine, known)
        return mine

    def _refuse(self, mine: Sequence[Host], known: Mapping[str, Host]) -> None:
        from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import reserved

        for host in mine:
            try:
                said = reserved.now_for(host.reserved, datetime.now(UTC))
            except reserved.WrongReservation as error:
                said = str(error)
            if said:
                raise Stop(f"{host.name} is reserved: {said}; wait, or remove gb10_reserved", Outcome.refused)
        names = {host.name for host in mine}
        for host in mine:
            both = [other.name for other in known.values() if other.plug.place == host.plug.place]
            if {*both} - names:
                text = f"{', '.join(both)} have one plug ({host.plug.words}): gb10 power {' '.join(both)} {self.act}"
                raise Stop(f"{text} -i INVENTORY, or correct gb10_power_plug", Outcome.refused)

    def check(self, mine: Sequence[Host]) -> dict[str, Seen]:
        """Say what would be done, and refuse what would be."""
        if locks.owner(place(self.inventories)):
            raise Stop("a rollout is at work on this fleet: see `gb10 status`", Outcome.refused)
        before = self._before(mine)
        self._run(mine, self._playbook, check=True)
        self.person.say(*self._told(mine), "--check: nothing was changed")
        return before

    def do(self, mine: Sequence[Host]) -> dict[str, Seen]:
        """Ask, switch, have the proof. No rollout begins meanwhile."""
        folder = place(self.inventories)
        try:
            with locks.held(folder):
                before = self._before(mine)
                self.person.say(*(f"{name}: {one.words}" for name, one in before.items()), *self._told(mine))
                self.person.consent(f"{self._question} {', '.join(before)}?")
                self._switch(mine)
        except locks.Busy as error:
            raise Stop(f"{error}. Nothing was changed", Outcome.refused) from None
        except OSError as error:
            raise Stop(f"{folder}: {error.strerror}; this user must be able to write there", Outcome.failed) from None
        return seen(mine)

    @property
    def _playbook(self) -> str:
        """Nothing is drained of a host that hangs, or that is off."""
        return "gb10.fleet.power_now" if self.hard or self.act is Act.on else "gb10.fleet.power"

    @property
    def _question(self) -> str:
        return {Act.off: "Cut the power of", Act.on: "Switch on", Act.cycle: "Cut and give back the power of"}[self.act]

    def _before(self, mine: Sequence[Host]) -> dict[str, Seen]:
        found = seen(mine)
        for name, one in found.items():
            if one.error:
                raise Stop(f"{name}: {one.error}. Nothing was changed", Outcome.unreachable)
            if self.act is not Act.on and not one.on:
                raise Stop(f"{name}: its plug is off: gb10 power {name} on -i INVENTORY", Outcome.refused)
        return found

    def _told(self, mine: Sequence[Host]) -> Iterator[str]:
        names = ", ".join(host.name for host in mine)
        others = [name for name in self._members(mine) if name not in {host.name for host in mine}]
        if self.act is not Act.on and self.hard:
            yield f"{names}: the power is cut as it is; what is not on disk is lost"
        elif self.act is not Act.on:
            yield f"{names}: no more requests, the model stopped, halted, then the power cut"
            yield from [f"{', '.join(others)}: the model of the cluster stops there, too"] if others else ()
        if self.act is Act.off:
            on = f"gb10 power {names.replace(',', '')} on -i INVENTORY"
            yield f"The power stays off until: {by_name(Order('', self.inventories), on)}"
        else:
            yield f"{names}: power, the wait until it is back, the model started, the proof"

    def _members(self, mine: Sequence[Host]) -> list[str]:
        return [*dict.fromkeys(name for host in mine for name in host.members)]

    def _run(self, mine: Sequence[Host], playbook: str, *, check: bool = False) -> Report:
        from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

        said = {
            "hosts": [host.name for host in mine],
            "cuts": self.act in (Act.off, Act.cycle),
            "restores": self.act in (Act.on, Act.cycle),
            "hard": self.hard,
            "sharing": {host.name: [one.name for one in mine if one.plug.place == host.plug.place] for host in mine},
            "off_s": catalog.load("plugs")["off_s"]["value"],
        }
        limit, variables = ",".join(self._members(mine)), {"__power_order": said}
        longest_s = catalog.load("rollout")["defaults"]["timeout_s"]["value"]  # or a host that hangs has no end
        order = Order(
            playbook, self.inventories, limit, check=check, variables=variables, words=self.words, timeout_s=longest_s
        )
        outcome, report = run(order, quiet=self.person.quiet)
        if outcome is not Outcome.done:
            reasons = [text for texts in report.messages.values() for text in texts]
            if self.person.quiet:
                text = "; ".join([f"{playbook}: {outcome.name}", *reasons, *report.errors])
                raise _Unfinished(text, outcome, report)
            show(order, report)
            command = f"gb10 power {' '.join(said['hosts'])} state -i INVENTORY"
            raise _Unfinished(f"{playbook}: {outcome.name}; {command} says how the plugs are", outcome, report)
        return report

    def _switch(self, mine: Sequence[Host]) -> None:
        """Switch, prove; a host that fails keeps no other cluster from its proof and its requests."""
        proofs = () if self.act is Act.off else ("gb10.fleet.power_prove", "gb10.fleet.rejoin")
        failed: _Unfinished | None = None
        for playbook in (self._playbook, *proofs):  # routers send nothing before the proof
            try:
                self._run(mine, playbook)
            except _Unfinished as error:
                failed = failed or error
                mine = [host for host in mine if error.spares(host)]
            if not mine:
                break
        if failed:
            raise failed


def _write(file: Path, found: Mapping[str, Seen], hosts: Sequence[Host]) -> None:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output
    from ansible_collections.gb10.fleet.plugins.plugin_utils.power import wall

    of = {host.name: host.plug.place for host in hosts}
    figures = {name: (one.on, one.watts) for name, one in found.items() if one.on is not None}
    try:
        output.write(file, wall.exposition(figures, of))
    except OSError as error:
        raise Stop(f"{file}: {error.strerror}; name a file that can be written", Outcome.failed) from None
