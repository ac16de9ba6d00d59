"""`gb10 retire` and `gb10 replace`: the end of a Spark in the fleet, and another board in its place."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import counted
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice

from gb10_fleet.discover.places import BadPlace
from gb10_fleet.ending import by_name, show_errors, told
from gb10_fleet.enrol.written import NotWritable
from gb10_fleet.options import Check, Inventory, Json, NoLists, Yes
from gb10_fleet.playbook import Order, Outcome, Report, run
from gb10_fleet.rollout import boards, locks
from gb10_fleet.rollout.journal import place, utc
from gb10_fleet.rollout.written import text_of
from gb10_fleet.up.people import Person, Stop, shortly, stopped

if TYPE_CHECKING:
    from gb10_fleet import share_cli
    from gb10_fleet.enrol.judging import Known

app = typer.Typer()

UNDO = "gb10.fleet.undo"
ASKS = {UNDO: "changes", "retire": "msg", "retire_keys": "changed"}
# Of an inventory, an address, a missing ssh-keyscan, a folder, another command.
TROUBLES = (Stop, NotWritable, BadPlace, FileNotFoundError, PermissionError, locks.Busy)
_STEPS = {
    "Read the services": "looking at what can be taken back",
    "Put back what stood before": "putting back what stood before",
    "Remove the list": "looking at what is left",
}
_PUBLIC_KEY = re.compile(r"(?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+ +(AAAA[A-Za-z0-9+/]{40,}={0,2})(?:\s|\Z)")
_MOST_SHOWN, _LONGEST = 50, 4096  # lines and characters of what a host says: it may say 4 MiB


@app.command(cls=NoLists)
def retire(
    ctx: typer.Context,
    inventory: Inventory,
    host: Annotated[str, typer.Argument(help="The host, as the inventory names it.", show_default=False)],
    models: Annotated[bool, typer.Option("--models", help="Also remove models and caches, the consent to it.")] = False,
    check: Check = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take off a host that leaves all that is of the fleet: what was set up, secrets, SSH keys. Never wipes a disk."""
    person = Person(yes, as_json)
    try:
        # Else a key that somebody takes back meanwhile would be in the inventory again.
        alone = contextlib.nullcontext() if check else locks.held(place(inventory) / locks.SHARED)
        with alone:
            said = _Retire(list(inventory), tuple(ctx.obj), host, models, person).run(check=check)
    except TROUBLES as error:
        _stopped(error, inventory, as_json)
    if as_json:
        print(json.dumps({"outcome": Outcome.done.name, **said}, indent=2))


@app.command(cls=NoLists)
def replace(
    ctx: typer.Context,
    inventory: Inventory,
    old: Annotated[str, typer.Argument(help="The host, as the inventory names it.", show_default=False)],
    new: Annotated[str, typer.Argument(help="Where the new board answers: ADDRESS or ADDRESS:PORT.")],
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give the name of a host to another board: its host key, board and firmware are judged anew."""
    person = Person(yes, as_json)
    try:
        said = _replaced(list(inventory), tuple(ctx.obj), old, new, person)
    except TROUBLES as error:
        _stopped(error, inventory, as_json)
    if as_json:
        print(json.dumps({"outcome": Outcome.done.name, **said}, indent=2))


def _replaced(inventories: list[str], words: Sequence[str], host: str, new: str, person: Person) -> dict[str, Any]:
    from gb10_fleet.discover import asking, host_keys, places
    from gb10_fleet.enrol import judging, written

    row, _ = row_of(host, inventories, words)
    state, folder = place(inventories), written.folder_of(inventories)
    written.refuse_hidden(folder, host)
    known = written.ledger(state)
    there, *more = places.places([new])
    if more:
        raise Stop(f"{new}: that is more than one address; name the one of the new board", Outcome.refused)
    before = places.Place(str(row["address"] or host), row["port"])
    keys = host_keys.keys_of([there, before])
    if before != there and before in keys:
        raise Stop(
            f"{host} still answers at {before}: gb10 retire {host} -i INVENTORY, or switch it off", Outcome.refused
        )
    if judging.ED25519 not in keys.get(there, {}):
        raise Stop(f"{there} shows no Ed25519 host key over SSH: is it on, and set up?", Outcome.unreachable)
    options = ("-i", str(row["identity"])) if row["identity"] else ()
    (answer,) = asking.ask({there: keys[there]}, str(row["user"]) or None, options=options)
    if wrong := judging.not_new(answer, known.get(host)):
        raise Stop(f"{wrong}. Nothing was changed", Outcome.unreachable if answer.facts is None else Outcome.refused)
    blob, facts = keys[there][judging.ED25519], answer.facts or {}
    print_, product = host_keys.fingerprint(blob), judging.product_of(facts)
    person.say(
        f"{there}: {product}, called {facts['hostname']}, MAC {', '.join(judging.macs_of(facts))}",
        f"its host key is {print_}; on its own screen ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub says it too",
    )
    person.consent(f"Is this the new {host}?")
    written.forget(folder, host, before.address, before.port)
    written.write(folder, {host: (blob, there, str(row["common_args"]))})
    day = text_of(utc())[:10]
    written.keep(state, {host: judging.known_of(f"{judging.ED25519} {blob}", facts, day, replaced=True)})
    old = "the disk of the old board has secrets of the fleet: set new ones if it leaves your hands (docs/retire.md)"
    done = f"{host} is this board now. Set it up: gb10 site --limit {host} -i INVENTORY"
    left = boards.open_run(inventories, host)
    then = [f"run {left[0]} is not done and has {host}. After that: {left[1]}"] if left else []
    lines = [*_firmware(inventories, words, host), old, done, *then]
    person.say(*(by_name(Order("", inventories), line) for line in lines))
    return {"host": host, "address": there.address, "port": there.port, "host_key": print_, "product": product}


def _firmware(inventories: Sequence[str], words: Sequence[str], host: str) -> list[str]:
    """Return what `gb10 release` says of the new board."""
    from gb10_fleet import release

    order = Order("gb10.fleet.release", inventories, host, words=words, asks={release.MODULE: "release"})
    _, report = run(order, quiet=True)
    if answers := report.answers[release.MODULE]:
        return [*release.answered(answers, None)[1]]
    return [f"{host}: its firmware could not be read: gb10 release --limit {host} -i INVENTORY says why"]


def _stopped(error: Exception, inventories: Sequence[str], as_json: bool) -> NoReturn:
    outcome, text = Outcome.refused, str(error)
    if isinstance(error, Stop):
        outcome = error.outcome
    elif isinstance(error, FileNotFoundError):
        outcome, text = Outcome.failed, f"{error.filename} is not on this machine: install the client of OpenSSH"
    elif isinstance(error, PermissionError):
        outcome, text = Outcome.failed, f"{error.filename}: {error.strerror}; this user must be able to write there"
    stopped(Stop(by_name(Order("", inventories), text), outcome), as_json)


@dataclass
class _Retire:
    inventories: list[str]
    words: Sequence[str]
    host: str
    models: bool
    person: Person

    def run(self, *, check: bool) -> dict[str, Any]:
        """Ask, have the host set back, write down what was done, and forget the host here."""
        row, others = row_of(self.host, self.inventories, self.words)
        if others:
            raise Stop(
                f"{self.host} is in cluster {row['cluster']} with {', '.join(others)}, and half of it serves nothing. "
                "Fix: take it out of the cluster first (docs/inventory.md, One Spark of a pair is dead)",
                Outcome.refused,
            )
        state, keys = place(self.inventories), blobs(self.host, row["keys"])
        shared = self._known(state)[-1]  # what cannot be read ends it before anything changes, not after it
        if not check:
            self._ask(len(keys))
        order = Order(
            "gb10.fleet.retire", self.inventories, self.host, check=check, words=self.words, asks=ASKS,
            variables={"gb10_retire": {"models": self.models, "ssh_keys": keys, "secrets": secrets()}},
        )  # fmt: skip
        outcome, report = run(order, **shortly(order, _STEPS, self.person.quiet))
        if outcome is not Outcome.done:
            show_errors(report)
            then = "nothing was changed" if outcome is Outcome.refused else "correct it, then run the same again"
            why = [by_name(order, line) for line in told(report)]
            self.person.say(*why)
            end = f"gb10 retire: {outcome.name}; {then}"
            raise Stop("; ".join([*why, end]) if self.person.quiet else end, outcome)
        found = evidence(self.host, report)
        if check:
            return found
        file = _written(state, self.host, found)
        clients = self._forget(row, state)
        by_share = {*shared.get("vars", {}), *shared.get("hosts", {}).get(self.host, {})}
        said = lines({**found, "secrets": [name for name in found["secrets"] if name not in by_share]}, clients)
        self.person.say(*(by_name(order, line) for line in said), f"What was done: {file}")
        return {**found, "clients": clients, "file": str(file)}

    def _ask(self, keys: int) -> None:
        models = "models and caches" if self.models else "models and caches stay without --models"
        self.person.say(
            f"{self.host}: everything that gb10 set up is taken back, with its secrets; {models}; "
            f"{counted(keys, 'SSH key')} of the fleet removed: have a password or another key to log in."
        )
        self.person.consent(f"Retire {self.host}?")

    def _known(self, state: Path) -> tuple[Path, dict[str, Known], share_cli.Kept, dict[str, Any]]:
        """Return the folder of the inventory, who was enrolled, and what is shared."""
        from gb10_fleet import share_cli
        from gb10_fleet.enrol import written

        folder = written.folder_of(self.inventories)
        kept = share_cli.Kept(folder)
        return folder, written.ledger(state), kept, kept.read()

    def _forget(self, row: Mapping[str, Any], state: Path) -> list[str]:
        """Return the clients of the gateway whose keys the host knew."""
        from gb10_fleet.enrol import written

        folder, known, kept, shared = self._known(state)
        written.forget(folder, self.host, str(row["address"] or self.host), row["port"])
        if self.host in known:
            written.keep(state, {self.host: None})
        if self.host not in shared.get("hosts", {}):
            return []
        hosts = {name: own for name, own in shared["hosts"].items() if name != self.host}
        kept.write({**shared, "hosts": hosts} if hosts else {})
        return sorted(shared["vars"].get("gateway_keys") or {})


def row_of(host: str, inventories: Sequence[str], words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return what the inventory says of a host, and the others of its cluster."""
    from gb10_fleet.seed.cli import own_keys, rows

    if locks.owner(place(inventories)):
        raise Stop("a rollout is at work on this fleet; nothing was changed: see `gb10 status`", Outcome.refused)
    found = {str(row["name"]): row for row in rows(Order("gb10.fleet.seed", inventories, words=words))}
    if host not in found:
        raise Stop(f"{host} is not in the inventory; it has {', '.join(found)}", Outcome.refused)
    row, cluster = found[host], found[host]["cluster"]
    others = [name for name, one in found.items() if cluster and name != host and one["cluster"] == cluster]
    port = str(row["port"] or 22)
    if not port.isdecimal():
        raise Stop(f"{host}: ansible_port is {port!r}; write a number", Outcome.refused)
    return {**row, "keys": row["keys"] or own_keys(), "port": int(port)}, others


def blobs(host: str, keys: Any) -> list[str]:
    """Return the part of each public key that no comment changes. Half of one may be in the lines of others, too."""
    found = [_PUBLIC_KEY.match(str(key).strip()) for key in keys] if isinstance(keys, list) else [None]
    if None in found:
        text = f"{host}: gb10_seed_keys (or else a file ~/.ssh/id_*.pub) has what is no public key; nothing was changed"
        raise Stop(f"{text}. Write the line of a .pub file each", Outcome.refused)
    return [key[1] for key in found if key]


def secrets() -> list[str]:
    """Return the variables that hold secrets, by their specification; no host is told that of its plug."""
    from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
    from ansible_collections.gb10.fleet.plugins.plugin_utils.power.setting import VARIABLE

    known = catalog.declared_variables().variables
    return sorted(name for name, one in known.items() if one.get("no_log") and name != VARIABLE)


def evidence(host: str, report: Report) -> dict[str, Any]:
    """Return what was done on the host, by what it said."""
    try:
        told = advice.plain(json.loads(report.answers["retire"][host]["msg"]))
        said = {key: [str(text) for text in told[key]] for key in ("before", "after", "secrets")}
        undone = {key: [*report.answers[UNDO][host][key]] for key in ("changes", "remains")}
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Stop(f"{host} does not say what was taken off it: run the same again", Outcome.failed) from None
    return {
        "schema_version": 1,
        "host": host,
        "at": text_of(utc()),
        **said,
        **undone,
        "keys": bool(report.answers["retire_keys"].get(host, {}).get("changed")),
    }


def _written(state: Path, host: str, found: Mapping[str, Any]) -> Path:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output

    file = state / "retired" / f"{host}-{found['at'].replace(':', '')}.json"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    output.write(file, f"{json.dumps(found, indent=2)}\n")
    return file


def lines(found: Mapping[str, Any], clients: Sequence[str]) -> Iterator[str]:
    """Yield what was done, and what a person has to do now."""
    from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

    host = found["host"]
    keys = "its SSH keys of the fleet are gone" if found["keys"] else "no SSH key of the fleet was there"
    yield f"{host}: retired: {counted(len(found['changes']), 'change')} taken back; {keys}"
    stays = [*found["remains"], *found["after"]]
    yield from (f"{host}: stays: {text[:_LONGEST]}" for text in stays[:_MOST_SHOWN])
    if len(stays) > _MOST_SHOWN:
        yield f"{host}: {len(stays) - _MOST_SHOWN} more stay: the file below lists them"
    yield f"Take {host} out of the inventory, then run gb10 site -i INVENTORY: routers and peers forget it."
    if found["secrets"]:
        yield f"It knew these, so set new ones before that run: {', '.join(found['secrets'])}"
    for name in clients:
        again = f"gb10 share --revoke {name} -i INVENTORY, then gb10 share {name} -i INVENTORY"
        yield f"It knew the key of the client {name}. Give it another one: {again}"
    yield f"To wipe the disk, install it anew as NVIDIA says: {catalog.load('seeds')['recovery']['value']}"
