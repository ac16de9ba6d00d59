"""`gb10 up`: from Sparks that nobody has touched to a model that answers, with three questions at most.

It is made of what the other commands do: it finds and logs in as `gb10 discover`, judges as `gb10 doctor`, plans as
`gb10 plan`, and runs `gb10 site` with an ordinary inventory. That inventory is all that it keeps.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable

from gb10_fleet import home, passwords
from gb10_fleet.ending import by_name, how_to_use, told
from gb10_fleet.options import Check, Json, NoLists
from gb10_fleet.playbook import Order, Outcome, Report, run
from gb10_fleet.up.people import Person, Progress, Stop

if TYPE_CHECKING:
    from gb10_fleet.up.offers import Offer, Room
    from gb10_fleet.up.screen import Preview
    from gb10_fleet.up.search import Found
    from gb10_fleet.up.written import Fleet

app = typer.Typer()

_LOOK = {
    "gb10.fleet.spark_facts": "ansible_facts",
    "gb10.fleet.in_use": "containers",
    "gb10.fleet.rail_neighbours": "heard",
}
_PATH = re.compile(r"(/[A-Za-z0-9._-]+)+\Z")
_LEAST_MEMORY = 2**30  # bytes; below it nobody plans
_ROUNDS = 4  # of the check, each with the consents that the one before has named
# How tasks of the playbooks begin, and what they are to the person who waits.
STEPS = {
    "Look at all hosts": "looking at each Spark",
    "Apply the state of host": "packages, files and services of the system",
    "Give the rails": "addresses of the QSFP ports",
    "Fetch | Pull the image": "downloading the image of vLLM (20 GB can take half an hour)",
    "Fetch | Name the image": "downloading the model",
    "Fetch | Take it over the fabric": "copying it over the cable to the other Sparks",
    "Close the cluster's ports": "starting the model",
    "Prove | Read the GID tables": "proof: every cable",
    "Prove | Wait until the model": "proof: waiting for the model to load, then asking it",
}
OF_TWO = ("Give the rails", "Fetch | Take it over the fabric", "Prove | Read the GID tables")
FETCHES = {name: words for name, words in STEPS.items() if name.startswith("Fetch | ")}
_HUB = "group_vars/sparks/hub.yml"


@app.command("up", cls=NoLists)
def up(
    ctx: typer.Context,
    where: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ADDRESS...",
            help="Names or addresses of the Sparks, or USER@ADDRESS. None: this one, or look for them.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="What to serve; else three models are proposed.")] = "",
    user: Annotated[str | None, typer.Option("--user", "-u", help="Who logs in; else as your ssh would.")] = None,
    fingerprint: Annotated[
        list[str] | None, typer.Option("--fingerprint", metavar="SHA256:...", help="A host key that you know.")
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="CONSENT", help="With --yes: what may restart, by its name.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=600, help="How long to look for Sparks.")] = 5,
    check: Check = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; what may restart needs --allow.")] = False,
    as_json: Json = False,
) -> None:
    """Find Sparks, choose a model, set all up, prove it, and say how to use it. Asks before it changes anything."""
    person = Person(yes, as_json)
    task = _Up(person, tuple(ctx.obj), model, user, frozenset(fingerprint or ()), frozenset(allow or ()), check)
    try:
        outcome = task.run(where or [], seconds)
    except Stop as stop:
        outcome = stop.outcome
        task.said["error"] = str(stop)
        print(printable(str(stop)), file=sys.stderr)
    except (KeyboardInterrupt, EOFError):
        outcome = Outcome.interrupted
        task.said["error"] = "interrupted; `gb10 up` goes on where it stopped"
        print(f"\n{task.said['error']}", file=sys.stderr)
    if as_json:
        print(json.dumps({"outcome": outcome.name, **task.said}, indent=2))
    raise typer.Exit(outcome)


@contextlib.contextmanager
def _refused_beside() -> Iterator[tuple[ModuleType, Path]]:
    """The locks, and the folder of those of the fleet; who finds it locked is told what to wait for."""
    from gb10_fleet.rollout import journal, locks

    try:
        yield locks, journal.place([str(home.inventory())])
    except locks.Busy as busy:
        raise Stop(f"{busy}, then run `gb10 up` again", Outcome.refused) from None


@dataclass
class _Up:
    person: Person
    words: Sequence[str]
    model: str
    user: str | None
    fingerprints: frozenset[str]
    allowed: frozenset[str]
    check: bool
    said: dict[str, Any] = field(default_factory=dict)  # for a program

    def run(self, where: Sequence[str], seconds: float) -> Outcome:
        """Go on with the inventory that is there, or begin; a new host or model begins with what is there."""
        from gb10_fleet.discover import places
        from gb10_fleet.up import search, written

        if not self.check:
            with _refused_beside() as (locks, folder):  # before anybody types a password
                locks.refuse(folder)
        try:
            named = places.places(self._without_user(where))
            known = written.read(home.inventory())
            mine = [host.place for host in known.hosts if host.place] if known else []
            new = [place for place in named if place not in mine]
            if known and not new and (not self.model or _same_model(self.model, known.model)):
                return self._go_on(known)
            if known:
                written.refuse_edited(home.inventory())
                self.user = self.user or known.user
                self.person.say(f"Your fleet has {', '.join(host.name for host in known.hosts)}.")
            local = known is None or any(host.place is None for host in known.hosts)
            hosts = {host.place or search.HERE: host.name for host in known.hosts} if known else {}
            found = search.find(
                [*mine, *new], self.user, self.fingerprints, home.inventory() / home.KNOWN_HOSTS, seconds, self.words,
                self.person, local=local, members=search.members_of(home.inventory(), hosts),
            )  # fmt: skip
        except places.BadPlace as error:
            raise typer.BadParameter(str(error)) from None
        except written.Edited as error:
            raise Stop(str(error), Outcome.refused) from None
        except FileNotFoundError as error:
            raise Stop(
                f"{error.filename} is not on this machine: install the client of OpenSSH", Outcome.failed
            ) from None
        return self._begin(found, known)

    def _without_user(self, where: Sequence[str]) -> list[str]:
        """Take USER@ADDRESS as ssh does; one user is the whole fleet's."""
        users = {word.rpartition("@")[0] for word in where if "@" in word[1:]} | ({self.user} if self.user else set())
        if len(users) > 1:
            raise typer.BadParameter(f"{', '.join(sorted(users))}: one user logs in to all Sparks; say -u USER")
        self.user = next(iter(users), None)
        return [word.rpartition("@")[2] if "@" in word[1:] else word for word in where]

    # -- a fleet that is not set up yet, or gets another host or model

    def _begin(self, found: Found, known: Fleet | None) -> Outcome:
        from gb10_fleet.up import screen, written

        with tempfile.TemporaryDirectory(prefix="gb10-up-") as folder:
            draft = Path(folder)
            fleet = self._joined(found, draft, known)
            if known and len(known.hosts) != len(fleet.hosts):
                self._refuse_new_topology(fleet)
            offers = self._offers(known)
            fleet = self._serving(fleet, offers[0])
            preview = self._preview(fleet, found, draft)
        self.said["consents"] = {name: list(hosts) for name, hosts in preview.consents.items()}
        self.said["changes"] = {name: list(rows) for name, rows in preview.changes.items()}
        self.person.say(*screen.lines(found.sparks, fleet.clusters, self.foreign, preview, offers, self.caches))
        if self.check:
            self.person.say("", "Nothing was changed.")
            return Outcome.done
        offer = self._answer(offers, [*preview.consents])
        fleet = self._serving(fleet, offer)
        file = written.write(fleet.allowing(preview.consents), home.inventory(), found.keys)
        self.person.say("", f"Inventory: {file}")
        return self._site(fleet)

    def _joined(self, found: Found, draft: Path, known: Fleet | None) -> Fleet:
        """Look as root, and find the clusters out from the cables. Who serves already stays the first host."""
        from gb10_fleet.up import cables, offers, search, written

        hosts = [written.Host(one.name, None if one.place == search.HERE else one.place) for one in found.sparks]
        hosts.sort(key=lambda host: host.name not in [one.name for one in known.hosts] if known else False)  # stable
        names = [host.name for host in hosts]
        alone = [cables.Cluster((name,)) for name in names]
        evidence = {"gb10_evidence_directory": str(home.evidence())}
        fleet = written.Fleet(hosts, alone, self.user, evidence)
        written.write(fleet, draft, found.keys)
        self.person.begin("looking at what is there")
        outcome, report = self._as_root(self._order("gb10.fleet.look", draft, asks=_LOOK))
        if report.cut:
            self._refuse(outcome, report, draft)
        facts = {
            name: one["ansible_facts"]["gb10_spark"] for name, one in report.answers["gb10.fleet.spark_facts"].items()
        }
        in_use = report.answers["gb10.fleet.in_use"]
        if missing := [name for name in names if name not in facts or name not in in_use]:
            self._tell(report, draft)
            raise Stop(f"{', '.join(missing)}: no answer. Nothing was changed", Outcome.unreachable)
        if small := [name for name in names if facts[name]["memory_bytes"] < _LEAST_MEMORY]:
            said = "says that it has less than 1 GiB of memory, which no Spark has; leave it out. Nothing was changed"
            raise Stop(f"{', '.join(small)}: {said}", Outcome.refused)
        heard = {name: one["heard"] for name, one in report.answers["gb10.fleet.rail_neighbours"].items()}
        try:
            fleet = replace(fleet, clusters=cables.clusters(names, heard))
        except cables.WrongCables as error:
            raise Stop(f"{error}. Nothing was changed", Outcome.refused) from None
        self._see_in_use(in_use, facts)
        if len(names) == 1 and (
            ports := sorted({rail["port"] for rail in facts[names[0]]["rails"] if rail["carrier"] and rail["port"]})
        ):
            self.person.say(
                f"{names[0]}: a cable is in {', '.join(ports)}. For the Spark at its other end, too: gb10 up ADDRESS..."
            )
        self.rooms: list[Room] = [offers.room([facts[name] for name in cluster.hosts]) for cluster in fleet.clusters]
        self.said["hosts"] = names
        self.said["clusters"] = [
            {"hosts": list(one.hosts), "topology": one.topology, "cables": list(one.cables)} for one in fleet.clusters
        ]
        return fleet

    def _see_in_use(self, answers: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Name what others serve there; whoever has the port of the model is asked to leave by its owner, not by us."""
        self.foreign = {
            name: [f"container {each['name']} ({each['image']})" for each in said["containers"]]
            for name, said in answers.items()
        }
        self.said["left_alone"] = self.foreign
        # A path goes into the inventory, where words of a host would be a template.
        caches = {name: said["cache"] for name, said in answers.items() if "cache" in said}
        self.caches = {name: cache for name, cache in caches.items() if _PATH.match(str(cache["path"]))}
        for name, said in answers.items():
            for each in said["listeners"] if facts[name].get("model_phase") is None else ():
                beside = f" Containers there: {', '.join(self.foreign[name])}." if self.foreign[name] else ""
                raise Stop(
                    f"{name}: port {each['port']} is taken by {each['who']}.{beside} gb10 up stops nothing of yours: "
                    "stop it (docker stop NAME), then run `gb10 up` again. Nothing was changed",
                    Outcome.refused,
                )

    def _refuse_new_topology(self, fleet: Fleet) -> None:
        """From one Spark to a pair a run does all; every other way has steps of its own."""
        if any(cluster.topology in ("ring", "switch") for cluster in fleet.clusters):
            raise Stop(
                "the Sparks that serve already and the new one make another kind of cluster, which takes steps at the "
                "cables: docs/inventory.md, `From a pair to a ring`. Nothing was changed",
                Outcome.refused,
            )

    def _offers(self, known: Fleet | None) -> list[Offer]:
        from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import serving_plan

        from gb10_fleet import model_files
        from gb10_fleet.up import offers

        wanted = self.model or (known.model if known else "")
        if not wanted:
            found = offers.best(self.rooms)
            if not found:
                raise Stop("none of the known models fits on these hosts: name another with --model", Outcome.refused)
        else:
            try:
                facts = model_files.facts(wanted, "", None)
                found = [offers.offer(wanted, self.rooms, facts=facts)]
            except (serving_plan.PlanError, model_files.FactsError) as error:
                raise Stop(f"{error}. Nothing was changed", Outcome.refused) from None
            if found[0].refusal:
                raise Stop(f"{found[0].refusal}. Nothing was changed", Outcome.refused)
        self.said["models"] = [one.as_dict() for one in found]
        return found

    def _serving(self, fleet: Fleet, offer: Offer) -> Fleet:
        """With the model, copied from a cache of the user's where it lies in one."""
        served = {plan.checkpoint.id for plan in offer.plans if plan.checkpoint}
        hosts = [
            replace(host, source=cache["path"] if served & set(cache["models"]) else "")
            for host in fleet.hosts
            for cache in [self.caches.get(host.name, {"path": "", "models": []})]
        ]
        return replace(fleet, hosts=hosts, serving=[plan.variables for plan in offer.plans])

    def _preview(self, fleet: Fleet, found: Found, draft: Path) -> Preview:
        """Check what a run would do, and again with each consent that it lacks."""
        from gb10_fleet.up import screen, written

        self.person.begin("working out what would change; nothing changes yet")
        needed: dict[str, list[str]] = {}
        for _ in range(_ROUNDS):
            written.write(fleet.allowing(needed), draft, found.keys)
            outcome, report = self._checked(draft)
            before = sum(map(len, needed.values()))
            for name, hosts in screen.lacking(report).items():
                needed[name] = [*dict.fromkeys([*needed.get(name, []), *hosts])]
            if sum(map(len, needed.values())) == before or report.cut:
                break
        if outcome is not Outcome.done:
            self._refuse(outcome, report, draft)
        warnings = [one for one in report.findings if one["severity"] == "warn" and not one["accepted"]]
        return screen.Preview(report.changes, needed, warnings)

    def _checked(self, folder: Path) -> tuple[Outcome, Report]:
        return self._as_root(self._order("gb10.fleet.site", folder, check=True))

    def _answer(self, offers: Sequence[Offer], consents: Sequence[str]) -> Offer:
        from gb10_fleet.up import screen

        if self.person.yes:
            if lacking := [name for name in consents if name not in self.allowed]:
                words = " ".join(f"--allow {name}" for name in lacking)
                raise Stop(f"needs your consent: say {words} (docs/consent.md). Nothing was changed", Outcome.refused)
            return offers[0]
        by_answer = {str(number): offer for number, offer in enumerate(offers, 1)}
        if len(offers) == 1:
            by_answer |= dict.fromkeys(("y", "yes"), offers[0])
        return self.person.choose(screen.question(offers, consents), "say --yes", by_answer.get)

    # -- a fleet with an inventory

    def _go_on(self, fleet: Fleet) -> Outcome:
        """What a killed run, a closed lid or a reboot has left; nothing, where all is there and proven."""
        self.said |= {"hosts": [host.name for host in fleet.hosts], "inventory": str(home.inventory())}
        self.person.begin("looking at what is left to do")
        outcome, report = self._checked(home.inventory())
        if outcome is not Outcome.done:
            self._refuse(outcome, report, home.inventory())
        left = {name: rows for name, rows in report.changes.items() if rows}
        self.said["changes"] = left
        if not left and _is_proven(fleet):
            self.person.say("Nothing to do: all is set up, and the last proof was healthy.")
            stopped = [one for one in report.findings if one["id"] == "stopped_by_wish"]
            self.person.say(*(f"But {one['host']}: {one['fact']}; `gb10 start SERVICE` starts it" for one in stopped))
            self.person.show(*self._use(fleet, _last_proof()))
            return Outcome.done
        what = "; ".join(f"{name}: {len(rows)} steps" for name, rows in left.items()) or "the proof"
        self.person.say(f"Going on with {home.inventory()}. Left: {what}.")
        if self.check:
            self.person.say("Nothing was changed.")
            return Outcome.done
        # An undo, or a hand: whoever has done it may want it so. Another model was asked for here, and its run was cut.
        if left and _is_proven(fleet, fleet.model):
            self.person.consent("All of it was set up once, and something has changed since. Set it up again?")
        return self._site(fleet)

    def _site(self, fleet: Fleet) -> Outcome:
        """Run and prove. A model that the hub gives out with a token only is the one more question."""
        with _refused_beside() as (locks, folder), locks.held(folder) as name:
            name("gb10 up")
            return self._set_up(self._order("gb10.fleet.site", home.inventory()), fleet)

    def _set_up(self, order: Order, fleet: Fleet) -> Outcome:
        self.person.say("Setting up; the first time it downloads for a while. If it is cut off, run `gb10 up` again.")
        outcome, report = run(order, quiet=True, watch=_progress(self.person, fleet))
        unauthorized = any("unauthorized: " in text for texts in report.messages.values() for text in texts)
        if outcome is Outcome.failed and unauthorized and not (home.inventory() / _HUB).exists():
            self._tell(report, home.inventory())
            _keep_token(
                self.person.secret(
                    "Token of the Hugging Face hub (hf_...):",
                    f"put vllm_huggingface_token into {_HUB} of the inventory",
                )
            )
            outcome, report = run(order, quiet=True, watch=_progress(self.person, fleet))
        self.said["evidence"] = report.evidence
        self.said["inventory"] = str(home.inventory())
        if outcome is not Outcome.done:
            self._refuse(outcome, report, home.inventory(), "Run `gb10 up` again: it goes on where it stopped")
        proof = Path(report.evidence or _last_proof())
        self.person.say(f"Proven: {proof}/index.html", "")
        self.person.show(*self._use(fleet, proof))
        return outcome

    def _use(self, fleet: Fleet, proof: Path) -> Iterator[str]:
        self.said["model"] = fleet.model
        return how_to_use(Order("", [str(home.inventory())]), proof)

    # -- Ansible

    def _order(self, playbook: str, folder: Path, **more: Any) -> Order:
        """With connections of its own: by one that another command left open, nobody would be asked for a password."""
        own = {"ANSIBLE_SSH_CONTROL_PATH": f"%(directory)s/up-{os.getpid()}-%%C"}
        return Order(playbook, [str(folder)], words=self.words, environment=own, **more)

    def _as_root(self, order: Order) -> tuple[Outcome, Report]:
        """Run what only reads, and ask for the password of sudo where it wants one."""
        from gb10_fleet.up import search

        for attempt in range(search.TRIES + 1):
            outcome, report = run(order, quiet=True, watch=Progress(self.person))
            wanted = _wanted_passwords(report)
            if not wanted or report.cut:
                return outcome, report
            if attempt == search.TRIES:
                break
            wrong = "Not the right password. " if set(wanted) & set(passwords.typed) else ""
            secret = self.person.secret(
                f"{wrong}{passwords.question(wanted)}", "say -kK, or -- --become-password-file FILE"
            )
            passwords.typed |= dict.fromkeys(wanted, secret)
        raise Stop("that password is not taken. Nothing was changed", Outcome.refused)

    def _tell(self, report: Report, folder: Path) -> None:
        order = Order("", [str(folder)])
        for one in report.blocking:
            self.person.say(f"{one['host']}: {one['id']}: {one['fact']}", f"    Fix: {by_name(order, one['way_out'])}")
        judged = {one["host"] for one in report.blocking}
        self.person.say(*(by_name(order, line) for line in told(report, judged)), *report.errors)

    def _refuse(self, outcome: Outcome, report: Report, folder: Path, then: str = "Nothing was changed") -> NoReturn:
        self.said["findings"] = report.findings
        self._tell(report, folder)
        raise Stop(then, outcome)


def _progress(person: Person, fleet: Fleet) -> Progress:
    """What takes two Sparks, only where two serve together."""
    alone = len(fleet.serving) == len(fleet.hosts)
    return Progress(person, {name: words for name, words in STEPS.items() if not (alone and name in OF_TWO)})


def _wanted_passwords(report: Report) -> Sequence[str]:
    """Return what ansible-playbook was not let in for: SSH and then sudo too, or sudo alone."""
    from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import from_failure

    found = {one["id"] for one in report.findings}
    found |= {from_failure("", text).id for texts in report.messages.values() for text in texts}
    if "permission" in found:
        return passwords.CONNECTION, passwords.BECOME
    return (passwords.BECOME,) if "no_sudo" in found else ()


def _keep_token(token: str) -> None:
    """In a file of the inventory that nobody else reads."""
    file = home.inventory() / _HUB
    file.parent.mkdir(parents=True, exist_ok=True)
    output.write(file, f"---\nvllm_huggingface_token: {json.dumps(token)}\n", secret=True)


def _same_model(asked: str, known: str) -> bool:
    """Tell whether a checkpoint is one of the model that was asked for; a checkpoint by its name is that one alone."""
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models

    found = models.find(known)
    return asked == known or (found is not None and asked.lower() == found.id.lower())


def _last_proof() -> Path:
    return home.evidence() / "latest"


def _is_proven(fleet: Fleet, model: str = "") -> bool:
    """Tell whether the last proof was of these hosts, and healthy; `model`: and had this one, by its own name."""
    try:
        proof = document_in(_last_proof() / "evidence.json")
        served = {name for one in proof["clusters"] for each in one["services"] for name in each["served_models"]}
        same = set(proof["hosts"]) == {host.name for host in fleet.hosts} and (not model or model in served)
        return bool(proof["verdict"] == "healthy" and same)
    except (KeyError, TypeError):
        return False
