"""What a person reads of a run: how it stands, what it did, and the command that goes on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import some
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import changes

from gb10_fleet import home, passwords
from gb10_fleet.playbook import Outcome
from gb10_fleet.rollout import live, models, recipes
from gb10_fleet.rollout import loop as rollout
from gb10_fleet.rollout.journal import changes_of, place

_AT_ITS_END = (Outcome.done.name, Outcome.drift.name)  # there is nothing to go on with


def summary(record: Mapping[str, Any]) -> None:
    """Show how it stands, and what it changed."""
    counts = ", ".join(f"{count} {state}" for state, count in record["counts"].items())
    live.out(f"{title(record)}: {counts}")
    for line in rollout.bad_lines(record):
        live.out(line)
    for line in changes.fleet_lines(changes_of(record), f"gb10 report {record['run']}"):
        live.out(line)
    if record["attempt"] > 1:
        live.out("what an attempt that was cut off had changed may be missing here: nobody heard of it")
    if record["ended"] is not None:
        live.out(f"{record['outcome']}{': ' + record['reason'] if record['reason'] else ''}")
    if record["outcome"] == Outcome.done.name:
        for name, value in recipes.named(record).items():
            live.out(f"the next gb10 site brings what the inventory says: make that {name}: {value}")


def title(record: Mapping[str, Any]) -> str:
    return f"run {record['run']}, {record['kind']} of {record['of'] or record['order']['playbook']}"


def way_on(record: Mapping[str, Any], folder: Path) -> None:
    """Show who does not serve now, and the command that goes on. After a failure that is a repair, or the way back."""
    for line in models.words(record):
        live.out(line)
    if record["outcome"] in _AT_ITS_END and not models.down(record):
        return
    words = f"{record['run']} {_place(record, folder)}".rstrip() + passwords.options()
    command = f"gb10 resume {words}"
    hosts = [host for wave in record["waves"] for host in wave["hosts"]]
    silent = [host["host"] for host in hosts if host["state"] == "unreachable"]
    if record["ended"] is None:
        live.out(f"not at its end, gb10 resume goes on: {command}")
    elif silent:
        live.out(f"check power, network and SSH of {some(silent)}; when it answers: {command}")
    else:
        live.out(f"when it is repaired: {command}")
        if record["kind"] == "rollout" and any(changes_of(record).values()):
            live.out(f"or take back what it did: gb10 rollback {words}")


def _place(record: Mapping[str, Any], folder: Path) -> str:
    """The options by which a command finds this run again, from the current folder."""
    inventories = record["order"]["inventories"]
    words = [] if inventories == home.default() else [w for name in inventories for w in ("-i", _from_here(name))]
    if folder != place(inventories):
        words += ["--state", _from_here(str(folder))]
    return shlex.join(words)


def _from_here(name: str) -> str:
    path = Path(name)
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(Path.cwd()) else name


def where(record: Mapping[str, Any]) -> str:
    """Return which wave, and which of its steps."""
    steps = record["order"]["steps"]
    for wave in record["waves"]:
        if wave["state"] == "running":
            step = steps[min(wave["step"], len(steps) - 1)]["name"]
            return f", wave {wave['wave']} of {len(record['waves'])}: {step}"
    return ""
