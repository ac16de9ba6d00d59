"""`gb10 discover`: who is there, is every SSH host key its own, and an inventory to begin with.

What it runs on is imported when it runs: Ansible's plugin loader would cost every other command 0.3 s.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gb10_fleet.home import KNOWN_HOSTS
from gb10_fleet.options import NoLists
from gb10_fleet.playbook import Outcome
from gb10_fleet.up.people import Person, Stop

if TYPE_CHECKING:
    from gb10_fleet.discover.asking import Answer
    from gb10_fleet.discover.host_keys import Keys
    from gb10_fleet.discover.machines import Discovery
    from gb10_fleet.discover.places import Place

app = typer.Typer()


@app.command("discover", cls=NoLists)
def find(
    ctx: typer.Context,
    where: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ADDRESS...",
            help="Names, addresses, 192.0.2.11-20, 192.0.2.0/24, any with :PORT, or @FILE. None: multicast DNS.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Who logs in; else as your ssh would.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The inventory to write.")] = Path(
        "inventory/found/hosts.yml"
    ),
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=600, help="How long to listen to multicast DNS.")
    ] = 5,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing inventory.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
) -> None:
    """Find Sparks, refuse host keys that several of them have, write an inventory. Changes nothing on any host."""
    from gb10_fleet.discover import asking, host_keys, machines, places

    if not output.name or output.is_dir():
        raise typer.BadParameter(f"{output} is a folder; name the file, as in --output inventory/mine/hosts.yml")
    for file in (output, output.with_name(KNOWN_HOSTS)):
        if file.exists() and not force:
            raise typer.BadParameter(f"{file} is there; name another file with --output, or say --force")
    try:
        asked = places.places(where or ()) if where else places.browse(seconds)
        keys = host_keys.keys_of(asked)
        answers = asking.ask(keys, user, progress=_progress)
        found = machines.judge(asked, _with_passwords(answers, keys, user, ctx.obj))
    except places.BadPlace as error:
        raise typer.BadParameter(str(error)) from None
    except FileNotFoundError as error:
        raise typer.BadParameter(f"{error.filename} is not on this machine: install the client of OpenSSH") from None
    outcome = _outcome(found)
    written = bool(found.sparks) and not found.duplicates
    if written:
        try:
            machines.write(found, output, user, datetime.now(UTC))
        except OSError as error:
            raise typer.BadParameter(f"{output} cannot be written: {error.strerror}") from None
    if as_json:
        print(json.dumps(_answer(found, outcome, output if written else None), indent=2))
    else:
        _show(found, output if written else None)
    raise typer.Exit(outcome)


def _with_passwords(
    answers: list[Answer], keys: Mapping[Place, Keys], user: str | None, words: Sequence[str]
) -> list[Answer]:
    """The same, with what Ansible reads where keys alone open nothing; with a password of sudo, at every place."""
    from gb10_fleet.discover import password

    if not password.given(words):
        return answers
    wanted = [one.place for one in answers if one.facts is None or password.as_root(words)]
    strangers = [place for place in wanted if not place.named]
    where = password.trusted(wanted, confirmed=bool(strangers) and _vouched(strangers, keys))
    if not where:
        return answers
    again = {one.place: one for one in password.ask({place: keys[place] for place in where}, user, words)}
    return [again.get(one.place, one) for one in answers]


def _vouched(strangers: Sequence[Place], keys: Mapping[Place, Keys]) -> bool:
    """As ssh asks before it types a password. Where nobody can answer, nobody has vouched."""
    from gb10_fleet.discover.host_keys import fingerprint

    if not _at_a_terminal():
        return False
    for place in strangers:
        shown = " ".join(fingerprint(key) for key in keys[place].values())
        print(f"{place}  {shown}", file=sys.stderr)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for what was found
            Person().consent("You did not name these hosts yourself. Send them your password?")
    except Stop:
        return False
    return True


def _at_a_terminal() -> bool:
    return sys.stdin.isatty()


def _progress(done: int, total: int) -> None:
    print(f"{done} of {total} hosts answered", file=sys.stderr)


def _outcome(found: Discovery) -> Outcome:
    if found.duplicates:
        return Outcome.refused
    named_and_locked = any(place.named for place in found.locked)
    if found.silent or named_and_locked:
        return Outcome.unreachable
    return Outcome.done if found.sparks else Outcome.failed


def _answer(found: Discovery, outcome: Outcome, file: Path | None) -> dict[str, Any]:
    from gb10_fleet.discover.machines import WAY_OUT

    return {
        "outcome": outcome.name,
        "sparks": [
            {
                "name": spark.name,
                "address": spark.place.address,
                "port": spark.place.port,
                "also": [str(place) for place in spark.also],
                "product": spark.product,
                "boot_id": spark.facts["boot_id"],
                "fingerprints": spark.fingerprints,
            }
            for spark in found.sparks
        ],
        "others": [str(place) for place in found.others],
        "locked": {str(place): silence for place, silence in found.locked.items()},
        "silent": [str(place) for place in found.silent],
        "duplicates": [{"fingerprint": one.fingerprint, "machines": [*one.machines]} for one in found.duplicates],
        "way_out": WAY_OUT if found.duplicates else None,
        "inventory": str(file) if file else None,
        "known_hosts": str(file.with_name(KNOWN_HOSTS)) if file else None,
    }


def _no_answer(place: Place) -> str:
    """A name that leads nowhere is no matter of power."""
    try:
        socket.getaddrinfo(place.address, place.port)
    except (socket.gaierror, UnicodeError):
        return "this name is not known here; check its spelling, or give the address"
    return "no answer over SSH; check power, network and the address"


def _show(found: Discovery, file: Path | None) -> None:
    from gb10_fleet.discover.machines import WAY_OUT

    for spark in found.sparks:
        print(f"{spark.name}  {spark.place}  {spark.product}  {spark.fingerprint}")
    for place in found.others:
        print(f"{place}  is no Spark")
    for place, silence in found.locked.items():
        print(f"{place}  {silence}")
    for place in found.silent:
        print(f"{place}  {_no_answer(place)}", file=sys.stderr)
    for duplicate in found.duplicates:
        print(f"refused: {duplicate}", file=sys.stderr)
    if found.duplicates:
        print(f"    Fix: {WAY_OUT}", file=sys.stderr)
    elif file:
        print(f"{file}: compare the fingerprints, then go on with: gb10 doctor -i {file}")
    elif not found.silent:
        print("no Spark was found; name addresses if multicast DNS does not reach them", file=sys.stderr)
