"""`gb10 enrol`: waits for Sparks that were seeded, lets in those that hold the key of their seed, and sets them up.

It is made of what other commands do: it asks for host keys and logs in as `gb10 discover`, and goes on with
`gb10 site`.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import advice

from gb10_fleet.ending import told
from gb10_fleet.options import Inventory, Json, NoLists
from gb10_fleet.playbook import Order, Outcome, Report, run

if TYPE_CHECKING:
    from gb10_fleet.discover.asking import Answer
    from gb10_fleet.discover.host_keys import Keys
    from gb10_fleet.discover.places import Place
    from gb10_fleet.enrol.judging import Known, Verdict
    from gb10_fleet.seed.store import Seed

app = typer.Typer()

EVERY_S = 10
BROWSE_S = 3.0
_MOST_ERRORS, _LONGEST = 20, 300  # of a host's first start that are shown, and characters of what it says
_ASKS = {
    "enrol": "msg",
    "gb10.fleet.spark_facts": "ansible_facts",
    "gb10.fleet.rail_neighbours": "heard",
}


@app.command("enrol", cls=NoLists)
def enrol(
    ctx: typer.Context,
    inventory: Inventory,
    seeds: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The folder of gb10 seed.", show_default=False)],
    hosts: Annotated[
        list[str] | None, typer.Argument(metavar="[HOST]...", help="Only these hosts.", show_default=False)
    ] = None,
    minutes: Annotated[float, typer.Option("--minutes", min=0, help="How long to wait for all of them.")] = 60,
    site: Annotated[bool, typer.Option("--site/--no-site", help="Go on with gb10 site.")] = True,
    new_board: Annotated[
        list[str] | None,
        typer.Option("--new-board", metavar="HOST", help="A host that has come back as another board."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Wait for seeded Sparks, check their keys, refuse strangers, and set them up, cluster by cluster."""
    from gb10_fleet.enrol import written
    from gb10_fleet.rollout import journal
    from gb10_fleet.seed import store

    try:
        known = store.read(seeds)
        chosen = {name: one for name, one in known.items() if not hosts or name in hosts}
        if missing := [name for name in hosts or [] if name not in known]:
            raise typer.BadParameter(f"{', '.join(missing)}: no seed in {seeds}; it has {', '.join(known)}")
        task = _Enrol(
            list(inventory), tuple(ctx.obj), chosen, journal.place(inventory), frozenset(new_board or ()), as_json
        )
        outcome = task.run(time.monotonic() + minutes * 60, site=site)
    except (store.NoFolder, written.NotWritable) as error:
        raise typer.BadParameter(printable(str(error))) from None
    except FileNotFoundError as error:
        raise typer.BadParameter(f"{error.filename} is not on this machine: install the client of OpenSSH") from None
    if as_json:
        print(json.dumps({"outcome": outcome.name, "hosts": task.document()}, indent=2))
    raise typer.Exit(outcome)


@dataclass
class _Enrol:
    inventories: list[str]
    words: Sequence[str]
    seeds: Mapping[str, Seed]
    state: Path  # the fleet's folder, with the list of who was enrolled
    new_boards: frozenset[str]
    quiet: bool
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    enrolled: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)  # their gb10 site has begun
    ready: list[str] = field(default_factory=list)  # set up, too
    told: set[str] = field(default_factory=set)

    def run(self, until: float, *, site: bool) -> Outcome:
        """Look again and again until all are there or the time is over; a cluster is set up when it is complete."""
        from gb10_fleet.enrol import written

        self.rows = _settings(self.inventories, self.words)
        if lost := [name for name in self.seeds if name not in self.rows]:
            raise written.NotWritable(f"{', '.join(lost)}: not in the inventory any more; add it, or name the others")
        self.folder = written.folder_of(self.inventories)
        for name in self.seeds:
            written.refuse_hidden(self.folder, name)
        self.known = written.ledger(self.state)
        for name, one in self.seeds.items():
            self._say(f"{name}: put the stick {one.stick} in and switch it on")
        worst = Outcome.done
        while True:
            last = self.clock() >= until  # told before the work: gb10 site may take long, and others come meanwhile
            there = self._look()
            if there:
                self._let_in(there)
            if site and (wave := self._complete()):
                worst = max(worst, self._site(wave))
            if len(self.enrolled) == len(self.seeds) or last:
                break
            self.sleep(max(0.0, min(EVERY_S, until - self.clock())))
        return max(worst, self._end())

    # -- who is there

    def _look(self) -> list[str]:
        """Ask all places that may be a host that is missing; return those that are there now."""
        from gb10_fleet.discover import host_keys
        from gb10_fleet.enrol import judging

        missing = {name: one for name, one in self.seeds.items() if name not in self.enrolled}
        own = {name: places_of(one) for name, one in missing.items()}
        heard = _heard() if any(one.address is None for one in missing.values()) else []
        keys = host_keys.keys_of(list(dict.fromkeys([*(place for each in own.values() for place in each), *heard])))
        drawn = _drawn({name: judging.holders(one, keys) for name, one in missing.items()}, own)
        answers = self._ask({name: {place: keys[place] for place in places} for name, places in drawn.items()})
        there = []
        for name, one in missing.items():
            said = {place: answers[place] for place in drawn[name] if place in answers}
            found = judging.judge(one, own[name], keys, said, self.known.get(name), new_board=name in self.new_boards)
            self._take(name, found)
            if found.state is judging.State.there:
                there.append(name)
        return there

    def _ask(self, places: Mapping[str, Mapping[Place, Keys]]) -> dict[Place, Answer]:
        """Log in at the places of all hosts at once, but for each user and key: one that stalls holds up no other."""
        from gb10_fleet.discover import asking

        alike: dict[tuple[str, str], dict[Place, Keys]] = {}
        for name, mine in places.items():
            alike.setdefault((self.seeds[name].user, str(self.rows[name]["identity"])), {}).update(mine)
        found: dict[Place, Answer] = {}
        for (user, identity), mine in alike.items():
            options = ("-i", identity) if identity else ()
            found |= {said.place: said for said in asking.ask(mine, user, options=options)} if mine else {}
        return found

    def _take(self, name: str, found: Verdict) -> None:
        """Keep what was found of a host, and say it once: it is looked at again and again."""
        self.verdicts[name] = found
        self._once(f"{name}: {found.state.value}: {found.text}")

    # -- into the inventory

    def _let_in(self, names: Sequence[str]) -> None:
        """Ask as root for what only root sees, and write down those that are what they should be."""
        from gb10_fleet.enrol import judging, written

        hosts = {
            name: (self.seeds[name].blob, place, str(self.rows[name]["common_args"]))
            for name in names
            if (place := self.verdicts[name].place)
        }
        with tempfile.TemporaryDirectory(prefix="gb10-enrol-") as draft:
            written.write(Path(draft), hosts)
            inventory = Path(draft, "hosts.yml")
            inventory.write_text(json.dumps({"all": {"hosts": dict.fromkeys(names)}}), encoding="utf-8")
            order = Order(
                "gb10.fleet.enrol", [*self.inventories, str(inventory)], ",".join(names), words=self.words, asks=_ASKS
            )
            _, report = run(order, quiet=True)
        good: dict[str, Any] = {}
        for name in names:
            answer = report.answers["enrol"].get(name)
            said = advice.plain(json.loads(answer["msg"])) if answer else None
            if said is None:
                self._take(name, judging.Verdict(judging.State.waiting, "its board could not be read yet"))
            elif wrong := _wrong_serial(self.seeds[name], said["serial"][:_LONGEST]):
                self._take(name, judging.Verdict(judging.State.refused, wrong))
            else:
                good[name] = said
        self._tell(report, but=good)
        if not good:
            return
        written.write(self.folder, {name: hosts[name] for name in good})
        for name, said in good.items():
            self.known[name] = self._known(name)
            self.enrolled.append(name)
            self._say(f"{name}: enrolled")
            for error in said["errors"][:_MOST_ERRORS]:
                self._say(f"{name}: its first start had an error: {error[:_LONGEST]}")
        written.keep(self.state, {name: self.known[name] for name in good})
        for line in _cables(list(good), report):
            self._say(line)

    def _known(self, name: str) -> Known:
        from gb10_fleet.enrol import judging

        day = f"{datetime.now(UTC):%Y-%m-%d}"
        before = self.known.get(name)
        replaced = name in self.new_boards or (before is not None and before.replaced)
        return judging.known_of(self.seeds[name].public_key, self.verdicts[name].facts, day, replaced=replaced)

    # -- and on

    def _complete(self) -> list[str]:
        """Hosts of clusters of which each host that was seeded is there, and that are not set up yet."""

        missing = {self._cluster(name) for name in self.seeds if name not in self.enrolled}
        return [name for name in self.enrolled if self._cluster(name) not in missing and name not in self.begun]

    def _cluster(self, name: str) -> str:
        return str(self.rows[name]["cluster"]) or name

    def _site(self, wave: list[str]) -> Outcome:
        """Set up all at once; where that fails, cluster by cluster: an error of one host ends a run for all."""
        self.begun += wave
        outcome, clusters = self._set_up(wave), [*dict.fromkeys(self._cluster(name) for name in wave)]
        if outcome in (Outcome.done, Outcome.interrupted) or len(clusters) == 1:
            return outcome
        return max(self._set_up([name for name in wave if self._cluster(name) == one]) for one in clusters)

    def _set_up(self, wave: list[str]) -> Outcome:
        self._say(f"{', '.join(wave)}: gb10 site begins")
        outcome, report = run(
            Order("gb10.fleet.site", self.inventories, ",".join(wave), words=self.words), quiet=self.quiet
        )
        if self.quiet:  # else Ansible has said it
            self._tell(report)
        self._say(f"{', '.join(wave)}: gb10 site: {outcome.name}")
        self.ready += wave if outcome is Outcome.done else []
        return outcome

    def _end(self) -> Outcome:
        from gb10_fleet.enrol import judging

        left = {name: self.verdicts[name] for name in self.seeds if name not in self.enrolled}
        for name, found in left.items():
            self._say(f"{name}: not enrolled: {found.state.value}: {found.text}")
        if any(found.state is judging.State.refused for found in left.values()):
            return Outcome.refused
        return Outcome.unreachable if left else Outcome.done

    def document(self) -> list[dict[str, Any]]:
        return [
            {"host": name, "enrolled": name in self.enrolled, "set_up": name in self.ready, "text": found.text}
            for name, found in self.verdicts.items()
        ]

    def _tell(self, report: Report, but: Mapping[str, Any] = {}) -> None:  # only read
        for line in (*told(report, but), *report.errors):
            self._once(line)

    def _once(self, line: str) -> None:
        if line not in self.told:
            self.told.add(line)
            self._say(line)

    def _say(self, line: str) -> None:
        print(printable(line), file=sys.stderr if self.quiet else sys.stdout, flush=True)


def places_of(seed: Seed) -> list[Place]:
    """Where the host is by the inventory, else by its name in DHCP's DNS and in multicast DNS."""
    from gb10_fleet.discover.places import Place

    names = [seed.address] if seed.address else [seed.name, f"{seed.name}.local"]
    return [Place(name, seed.port) for name in names]


def _drawn(holders: Mapping[str, Sequence[Place]], own: Mapping[str, Sequence[Place]]) -> dict[str, list[Place]]:
    """Return by host the places to ask: its own, and of others as many as are asked at once, in equal shares.

    Anybody may show a public key. Chance draws the others, so none is kept out for ever.
    """
    from gb10_fleet.discover import asking

    first = {name: [place for place in held if place in own[name]] for name, held in holders.items()}
    others = {name: [place for place in held if place not in own[name]] for name, held in holders.items()}
    room = asking.CONCURRENCY - sum(map(len, first.values()))
    share = max(1, room // max(1, sum(map(bool, others.values()))))
    return {name: [*first[name], *random.sample(held, min(len(held), share))] for name, held in others.items()}


def _heard() -> list[Place]:
    from gb10_fleet.discover import places

    return places.browse(BROWSE_S)


def _settings(inventories: Sequence[str], words: Sequence[str]) -> dict[str, dict[str, Any]]:
    from gb10_fleet.seed.cli import rows

    return {str(row["name"]): row for row in rows(Order("gb10.fleet.seed", inventories, words=words))}


def _wrong_serial(seed: Seed, serial: str) -> str:
    if not seed.serial or not serial or seed.serial == serial:
        return ""
    return (
        f"has its key and the serial number {serial}, not {seed.serial}: the stick of another Spark. Correct "
        "gb10_seed_serial, or change the sticks and set both up anew"
    )


def _cables(names: Sequence[str], report: Report) -> Iterator[str]:
    """What the cables say of the hosts that came together; gb10 site compares it with the inventory."""
    from gb10_fleet.up import cables

    heard = {name: one["heard"] for name, one in report.answers["gb10.fleet.rail_neighbours"].items()}
    if not heard:
        return
    try:
        for cluster in cables.clusters(names, heard):
            yield f"cables: {cluster.words}"
    except cables.WrongCables as error:
        yield f"cables: {error}"
