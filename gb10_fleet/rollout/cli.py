"""`gb10 rollout`, `resume`, `rollback` and `status`: a playbook over the fleet in waves."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import effort
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from rich.console import Console

from gb10_fleet import known_bad
from gb10_fleet.home import resolved
from gb10_fleet.options import Asking, Inventory, Json, Limit, NoLists, Waves
from gb10_fleet.playbook import Outcome, run
from gb10_fleet.rollout import boards, live, locks, models, people, recipes, shown, waves, who, window
from gb10_fleet.rollout import loop as rollout
from gb10_fleet.rollout.journal import (
    WAY_OUT,
    Journal,
    JournalError,
    NoRun,
    place,
    refusal,
    utc,
)
from gb10_fleet.rollout.live import Lines, Silent, Terminal
from gb10_fleet.rollout.waves import Policy, Refused, Wave
from gb10_fleet.rollout.written import text_of

app = typer.Typer()
OTHERS = 5  # runs that `gb10 status` names beside the one that it shows

What = Annotated[str, typer.Argument(metavar="PLAYBOOK", help="site, reboot, another one of a collection, or a file.")]
To = Annotated[
    list[str] | None, typer.Option("--to", help="A release, a host set or an image; the consent to take it.")
]
Firmware = Annotated[bool, typer.Option("--firmware", help="With --to RELEASE: stage firmware, the consent to it.")]
Accept = Annotated[
    list[str] | None,
    typer.Option("--accept", metavar="ID=REASON", help="A known trouble of the release to go through."),
]
Reboot = Annotated[bool, typer.Option("--reboot", help="With --to HOST_SET: reboot into it, before all else runs.")]
Canary = Annotated[str | None, typer.Option("--canary", help="First wave: hosts, a percentage, or a name.")]
Growth = Annotated[list[str] | None, typer.Option("--growth", help="Next wave; repeat it. Hosts or a percentage.")]
Threshold = Annotated[str | None, typer.Option("--threshold", help="Bad hosts that do not stop it: 2, or 5%.")]
Soak = Annotated[int | None, typer.Option("--soak", help="Seconds to leave a good wave alone.")]
Timeout = Annotated[int | None, typer.Option("--timeout", help="Seconds that the playbook of a wave may take.")]
Windows = Annotated[
    list[str] | None,
    typer.Option("--window", help='When a wave may begin: "Sat,Sun 22:00-06:00 Europe/Oslo", or always.'),
]
State = Annotated[Path | None, typer.Option("--state", help="Folder of the journal; else .gb10 beside the inventory.")]
Drain = Annotated[bool, typer.Option("--drain/--no-drain", help="Stop the model before, and start it after.")]
Prove = Annotated[bool, typer.Option("--prove/--no-prove", help="Prove each wave, as gb10 validate does.")]
Plan = Annotated[bool, typer.Option("--plan", help="Only show the waves: who, when and how long. Touches no host.")]
# As `gb10 site` has it. It is refused as after --, with the commands that show what would come.
Check = Annotated[bool, typer.Option("--check", hidden=True)]
Run = Annotated[str | None, typer.Argument(metavar="RUN", help="Its name; else the latest.", show_default=False)]


def _policy_of(
    record: Mapping[str, Any], threshold: str | None, soak: int | None, timeout: int | None, windows: list[str] | None
) -> Policy:
    """That of a run, but for what is said now. How it grows stays: its waves are planned."""
    return waves.changed(Policy(**record["policy"]), **_limits(threshold, soak, timeout, windows))


def _limits(threshold: str | None, soak: int | None, timeout: int | None, windows: list[str] | None) -> dict[str, Any]:
    """Return what a policy says of waves that are planned; None says nothing."""
    return {"threshold": waves.size_of(threshold), "soak_s": soak, "timeout_s": timeout, "window": windows}


def _show_plan(recipe: recipes.Recipe, policy: Policy, folder: Path, as_json: bool) -> None:
    """The waves: who, when and how long."""
    mine, left_out = waves.free(who.of(recipe, run))
    planned = waves.plan(mine, policy)
    seconds = _wave_seconds(folder, recipe.playbook)
    timed = list(_times(planned, policy, seconds, utc()))
    wide = waves.widened(planned, policy)
    if as_json:
        found = [{**item, "hosts": [{"host": name} for name in item["hosts"]]} for item in timed]
        document = {
            **{"playbook": recipe.playbook, "policy": asdict(policy), "wave_s": seconds},
            **{"widened": wide, "left_out": left_out, "waves": found},
        }
        print(json.dumps(document, indent=2))
        return
    for line in (*left_out, *([wide] if wide else [])):
        print(printable(line))
    hosts = sum(len(wave.hosts) for wave in planned)
    for item in timed:
        when = f", from about {item['begins']}" if item["begins"] else ""
        print(printable(f"wave {item['wave']}, {len(item['hosts'])} of {hosts}{when}:"))
        print(printable(f"    {', '.join(item['hosts'])}"))
    known = f"{seconds:.0f} s each, as earlier ones took" if seconds is not None else "no earlier run tells how long"
    how_many = "1 wave" if len(planned) == 1 else f"{len(planned)} waves"
    print(f"{how_many}, {known}; {policy.soak_s} s between them")


def _wave_seconds(folder: Path, playbook: str) -> float | None:
    try:
        with Journal(folder) as journal:
            return journal.seconds(playbook)
    except JournalError:  # of the first rollout there is nothing yet
        return None


def _times(planned: list[Wave], policy: Policy, seconds: float | None, now: datetime) -> Iterator[dict[str, Any]]:
    """Yield when each wave begins, if all goes well; null where nobody can tell."""
    moment = window.opening(policy.window, now)
    for wave in planned:
        known = seconds is not None or wave.number == 1
        yield {
            "wave": wave.number,
            "begins": text_of(moment) if known else None,
            "clusters": wave.clusters,
            "hosts": wave.hosts,
        }
        moment = window.opening(policy.window, moment + timedelta(seconds=(seconds or 0) + policy.soak_s))


@app.command("rollout", cls=Waves)
def roll_out(
    ctx: typer.Context,
    playbook: What,
    inventory: Inventory,
    to: To = None,
    reboot: Reboot = False,
    firmware: Firmware = False,
    accept: Accept = None,
    limit: Limit = None,
    canary: Canary = None,
    growth: Growth = None,
    threshold: Threshold = None,
    soak: Soak = None,
    timeout: Timeout = None,
    windows: Windows = None,
    drain: Drain = True,
    prove: Prove = True,
    state: State = None,
    plan: Plan = False,
    check: Check = False,
    as_json: Json = False,
) -> None:
    """Run a playbook wave after wave, and stop where a wave is not good."""

    def start(journal: Journal) -> tuple[str, int]:
        hosts, left_out = waves.free(who.of(recipe, run))
        planned = waves.plan(hosts, policy)
        wide = waves.widened(planned, policy)
        _say((*left_out, *([wide] if wide else [])), as_json)
        return rollout.begin(journal, recipe, policy, hosts, planned), 1

    words = (*ctx.obj, "--check") if check else ctx.obj
    with refusals(as_json):
        sizes = {"canary": waves.size_of(canary), "growth": [waves.size_of(text) for text in growth or ()]}
        policy = waves.policy(**sizes, **_limits(threshold, soak, timeout, windows))
        recipe = recipes.forward(
            playbook, inventory, to=to or (), reboot=reboot, limit=limit, words=words, drain=drain, prove=prove,
            firmware=firmware, **known_bad.of_rollout(place(inventory), accept or ()),
        )  # fmt: skip
        if plan:
            _show_plan(recipe, policy, place(inventory, state), as_json)
        else:
            _go(inventory, state, start, as_json)


@app.command(cls=Asking)
def resume(
    inventory: Inventory,
    run_: Run = None,
    threshold: Threshold = None,
    soak: Soak = None,
    timeout: Timeout = None,
    windows: Windows = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Go on with a rollout that was killed, interrupted or stopped, from where its journal says that it stands."""

    def start(journal: Journal) -> tuple[str, int]:
        record = journal.record(run_, resolved(inventory))
        recipes.refuse_resume(record, journal.later(record))
        policy = _policy_of(record, threshold, soak, timeout, windows)
        to_do, anew = boards.to_open(journal, record)
        now = who.everyone(recipes.Recipe.of(record), run)
        waves.refuse_regrouped(now, who.left(to_do), "begin a new rollout")
        _say(boards.reopen(journal, record, anew), as_json)
        return record["run"], journal.resume(record["run"], asdict(policy))

    with refusals(as_json):
        _go(inventory, state, start, as_json, write_new=False)


@app.command(cls=Waves)
def rollback(
    ctx: typer.Context,
    run_: Annotated[str, typer.Argument(metavar="RUN", help="The run to take back; gb10 status names it.")],
    inventory: Inventory,
    threshold: Threshold = None,
    soak: Soak = None,
    timeout: Timeout = None,
    windows: Windows = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Take back what a run did on the hosts that it touched: in the same waves, with the same gates, at any time."""

    def start(journal: Journal) -> tuple[str, int]:
        record, earlier, left_out = boards.to_take_back(journal, journal.record(run_, resolved(inventory)))
        recipe = recipes.back(record, earlier, journal.later(record), ctx.obj, journal.unheard(record["run"]))
        # What has to be taken back does not wait for the hours in which changes were allowed.
        policy = _policy_of(record, threshold, soak, timeout, windows or ["always"])
        hosts, planned = who.touched(record)
        way_out = "put the inventory back as it was, and roll it out"
        waves.refuse_regrouped(who.everyone(recipe, run), hosts, way_out)
        _say(left_out, as_json)
        return rollout.begin(journal, recipe, policy, hosts, planned, of=record["run"]), 1

    with refusals(as_json, "rollback"):
        _go(inventory, state, start, as_json, write_new=False)


@app.command(cls=NoLists)
def status(
    ctx: typer.Context,
    inventory: Inventory,
    run_: Run = None,
    hosts: Annotated[
        bool, typer.Option("--hosts", help="Ask every host first how it is; with --json nothing else.")
    ] = False,
    limit: Limit = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Say how the latest rollout stands, or another one.

    Exits with 7 where it was killed or interrupted, and nobody goes on with it, or where it has left a model stopped.
    A rollout that stopped at a bad wave is at its end: 0, and its outcome is among the words. Touches no host, unless
    --hosts asks all of them; then it exits with 3 where one gave no answer.
    """
    asked = Outcome.done
    if hosts:
        from gb10_fleet import top  # here, for it reads catalogs

        asked = top.once(inventory, limit, ctx.obj, as_json)
        if as_json or asked not in (Outcome.done, Outcome.unreachable):
            raise typer.Exit(asked)
    with refusals(as_json):
        folder = place(inventory, state)
        try:
            with effort.files(), Journal(folder) as journal:
                record = journal.record(run_, resolved(inventory))
                runs = journal.runs(resolved(inventory))
        except NoRun as error:
            if run_ is not None:
                raise
            if as_json:
                print(json.dumps({"run": None}))
            elif not hosts:  # whoever asks for a status may mean the hosts
                where = " ".join(f"-i {shlex.quote(name)}" for name in inventory)
                print(f"{error}\ngb10 status --hosts {where} says how each host is")
            raise typer.Exit(asked) from None
        owner = locks.owner(folder)
        orphans = [] if owner else locks.orphans([record["run"]])
        waits = owner is None and (record["ended"] is None or bool(models.down(record)))
        if as_json:
            more = {"owner": asdict(owner) if owner else None, "orphans": [asdict(process) for process in orphans]}
            print(json.dumps({**record, **more}, indent=2))
            raise typer.Exit(Outcome.unfinished if waits else Outcome.done)
        for other in [item for item in runs if item["run"] != record["run"]][-OTHERS:]:
            print(printable(f"{shown.title(other)}: {other['outcome'] or 'not at its end'}"))
        shown.summary(record)
        for process in orphans:
            print(printable(process.words))
        if record["ended"] is None and owner:
            print(printable(f"at work: process {owner.pid}{shown.where(record)}"))
        elif record["ended"] is None:
            print(printable(f"nobody is at work on it{shown.where(record)}"))
        if owner is None:
            shown.way_on(record, folder)
    raise typer.Exit(Outcome.unfinished if waits else asked)


# -- what all have in common -------------------------------------------------------------------------------------------


def _say(lines: Iterable[str], as_json: bool) -> None:
    for line in lines if not as_json else ():
        live.out(line)


@contextmanager
def refusals(as_json: bool, kind: str = "rollout") -> Iterator[None]:
    """End the command with the reason where something cannot be done, before anything is touched."""
    try:
        yield
    except (Refused, JournalError, locks.Busy, known_bad.NotTrusted, effort.TooMuch) as error:
        _give_up(Outcome.refused, str(error), as_json, kind)
    except (OSError, sqlite3.Error) as error:
        _give_up(Outcome.refused, _words(error), as_json, kind)


def _words(error: OSError | sqlite3.Error) -> str:
    """Of the system or of SQLite, with the file if there is one."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return f"the journal cannot be used: {error}; {WAY_OUT}"


def _give_up(outcome: Outcome, reason: str, as_json: bool, kind: str) -> NoReturn:
    if as_json:
        live.out(json.dumps({**refusal(kind, reason), "outcome": outcome.name}, indent=2), keep="\n")
    else:
        print(printable(f"{outcome.name}: {reason}"), file=sys.stderr)
    raise typer.Exit(outcome) from None


def _go(
    inventory: list[str],
    state: Path | None,
    start: Callable[[Journal], tuple[str, int]],
    as_json: bool,
    *,
    write_new: bool = True,
) -> NoReturn:
    """Under the fleet's lock: clear what a killed command left, begin or go on, and end with the outcome."""
    folder = place(inventory, state)
    if not write_new:
        Journal(folder).close()  # says what is missing before a folder is made
    with locks.held_for(folder, inventory) as say, Journal(folder, write=True) as journal:
        first: live.Silent = Silent() if as_json else Lines()
        rollout.clear(journal, first)
        name, attempt = start(journal)
        say(name)
        record = journal.record(name)
        here = Path.cwd()
        os.chdir(record["order"]["directory"])
        console = Console()
        seconds = journal.seconds(record["order"]["playbook"])
        soak_s = record["policy"]["soak_s"]
        view = Terminal(console, seconds, soak_s) if console.is_terminal and not as_json else first
        going = rollout.Rollout(journal, name, run, view, attempt)
        heard = _end_on_signals(going)
        try:
            with view if isinstance(view, Terminal) else nullcontext():
                record = going.go()
        except rollout.Stopped:
            record = journal.record(name)
        except Exception as error:  # hosts are changed already: this is no refusal, and nothing of it goes on by itself
            with suppress(rollout.Orphaned, sqlite3.Error):
                rollout.end_orphans(journal, [name], first)
            if not isinstance(error, rollout.Orphaned | OSError | sqlite3.Error):
                raise
            why = str(error) if isinstance(error, rollout.Orphaned) else _words(error)
            _give_up(Outcome.failed, f"{name} is not at its end: {why}", as_json, record["kind"])
        page = _report(journal, name)
    if unheard := people.tell(record, page, run):
        print(printable(unheard), file=sys.stderr)
    if as_json:
        live.out(json.dumps(record, indent=2), keep="\n")
    else:
        os.chdir(here)
        shown.summary(record)
        shown.way_on(record, folder)
        if page is not None:
            live.out(f"report: {page}")
    # As a shell has it for a command that a signal has ended.
    signalled = 128 + (heard[0] if heard else signal.SIGINT)
    raise typer.Exit(signalled if record["ended"] is None else Outcome[record["outcome"]])


def _end_on_signals(going: rollout.Rollout) -> list[int]:
    """Ctrl-C, SIGTERM and a terminal that goes away end it in order. Returns the list of those that came."""
    heard: list[int] = []

    def end(number: int, _: object) -> None:
        heard.append(number)
        going.stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, end)
    return heard


def _report(journal: Journal, name: str) -> Path | None:
    """The page of the run. What a rollout did counts, and not whether a page could be written of it."""
    from gb10_fleet import report  # templates and Ansible: 0.3 s that no other command should pay

    try:
        return report.put(journal, name)
    except (OSError, sqlite3.Error) as error:
        print(printable(f"no report: {_words(error)}"), file=sys.stderr)
        return None
