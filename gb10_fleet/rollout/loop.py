"""A playbook over a fleet in waves, each a job of ansible-runner with a gate behind it; on after a crash, and back.

It goes wave after wave, from wherever the journal says that the run stands: drain, work, roll call, serve, proof. What
decides is pure and lies in `recipes`, `waves` and `gate`; here it is asked, written down and waited for.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import some
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.run import ROLLOUT

from gb10_fleet.playbook import Order, Outcome, Report
from gb10_fleet.rollout import boards, gate, locks, window
from gb10_fleet.rollout.gate import State
from gb10_fleet.rollout.journal import Journal, Record, hosts_of
from gb10_fleet.rollout.models import Models
from gb10_fleet.rollout.recipes import Recipe, Step
from gb10_fleet.rollout.waves import FleetHost, Policy, Refused, Wave
from gb10_fleet.rollout.who import Playbook
from gb10_fleet.rollout.written import GOOD, first_line, moment_of, text_of
from gb10_fleet.stopping import Stop

REJOIN = {"import_playbook": "gb10.fleet.rejoin"}  # the routers of the fleet send requests again
# Alerts of hosts and their clusters wait, in each step for an hour at most: then a host that failed is told of.
WAIT, WAIT_NO_LONGER = (
    {"import_playbook": "gb10.fleet.planned", "vars": {"gb10_planned": verb, "__gb10_planner": "rollout"}}
    for verb in ("begin", "end")
)


class View(Protocol):
    """Whoever watches. `say` is for lines that stay."""

    def say(self, text: str) -> None: ...
    def wave(self, record: Mapping[str, Any], number: int, step: str) -> None: ...
    def event(self, event: Mapping[str, Any]) -> None: ...


class Orphaned(Refused):
    """Processes of this run do not end, and may still change hosts."""


class Stopped(Exception):
    """Somebody wants this to end: Ctrl-C or SIGTERM. The journal says where it stands."""


# -- doing it ----------------------------------------------------------------------------------------------------------


class Member(NamedTuple):
    """A host of a wave. `unit` is what it is down with: its cluster, or itself alone."""

    name: str
    unit: str
    serves: bool


@dataclass
class Rollout:
    """One run of the journal on its way; the caller holds the fleet's lock. `stop` is set by a signal."""

    journal: Journal
    run: str
    playbook: Playbook
    view: View
    attempt: int = 1
    stop: Stop = field(default_factory=Stop)

    def __post_init__(self) -> None:
        record = self.journal.record(self.run)
        self.recipe, self.policy = Recipe.of(record), Policy(**record["policy"])
        self.refused, self.number = False, 0

    def go(self) -> Record:
        """Wave after wave, until all are done or the gate stops it. Returns the record of the run."""
        try:
            reason, refused = self._waves()
        except Stopped:
            self.journal.note(self.run, "interrupted", attempt=self.attempt)
            raise
        except Orphaned as error:
            self.journal.note(self.run, "interrupted", attempt=self.attempt, reason=str(error))
            raise
        except Refused as error:  # on the way: the wave stays open, and a resume goes on with it
            reason, refused = str(error), True
        record = self.journal.record(self.run)
        outcome = outcome_of([host["state"] for host in hosts_of(record)], refused=refused)
        self.journal.end(self.run, outcome.name, reason)
        return self.journal.record(self.run)

    def _waves(self) -> tuple[str | None, bool]:
        """Return why it stopped, if it did, and whether that was before anything changed."""
        for number in [wave["wave"] for wave in self.journal.record(self.run)["waves"]]:
            waves = self.journal.record(self.run)["waves"]
            wave = waves[number - 1]
            if all(host["state"] == "done" for host in wave["hosts"]):
                continue
            self._soak(waves)
            if (opens := window.opening(self.policy.window, now := self.journal.clock())) > now:
                return f"wave {number} may not begin before {text_of(opens)}, when the window opens", True
            self.refused = False
            before = [host for item in waves[: number - 1] for host in item["hosts"]]  # later ones have their turn yet
            judged = self._wave(wave, gate.faults((host["state"], None) for host in before))
            if judged.stop:
                return f"wave {number}: {_bad_ones(judged.hosts)}", self.refused
        states = {host["host"]: (host["state"], None) for host in hosts_of(self.journal.record(self.run))}
        return (_bad_ones(states) or None), False

    def _soak(self, waves: Sequence[Mapping[str, Any]]) -> None:
        """Leave the last good wave alone for a while; what an earlier attempt has waited counts."""
        ended = max((moment_of(wave["ended"]) for wave in waves if wave["state"] == "done"), default=None)
        left = (ended + timedelta(seconds=self.policy.soak_s) - self.journal.clock()).total_seconds() if ended else 0.0
        left = min(left, self.policy.soak_s)  # the clock may have been ahead
        if left > 0:
            self.view.say(f"soak: the next wave begins in {left:.0f} s")
        if self.stop.wait(max(left, 0.0)):
            raise Stopped

    def _wave(self, wave: Mapping[str, Any], earlier: int) -> gate.Judgement:
        """The steps of a wave, for the clusters that are not done; after a bad step a host is left out of the next."""
        self.number = number = int(wave["wave"])
        members = [
            Member(host["host"], host["cluster"] or f"host {host['host']}", host["serves"]) for host in wave["hosts"]
        ]
        states = {host["host"]: (host["state"], host["reason"]) for host in wave["hosts"]}
        open_units = {member.unit for member in members if states[member.name][0] != "done"}
        open_ones = [member for member in members if member.unit in open_units]
        tolerated = self.policy.tolerated(len(members))
        bad: dict[str, State] = {}
        first = 0
        if wave["state"] == "running":  # an earlier attempt did not come to its end: what it finished is not done twice
            first = int(wave["step"])
            bad = {name: state for name, state in states.items() if state[0] not in GOOD}
        else:
            names = [member.name for member in open_ones]
            self.journal.begin_wave(self.run, number, names, boards.noted(self.recipe.inventories, names))
        for index, step in enumerate(self.recipe.steps):
            units = {member.unit for member in members if member.name in bad}
            alive = [member for member in open_ones if member.unit not in units]
            if index < first or not alive:
                continue
            self.journal.begin_step(self.run, number, index, step.name)
            self.view.wave(self.journal.record(self.run), number, step.name)
            found, report = self._step(step, alive, tolerated - earlier - gate.faults(bad.values()))
            self.journal.end_step(self.run, number, index, found, report.changes, report.evidence)
            bad |= found
        bad_units = {member.unit for member in members if member.name in bad}
        good = [member for member in open_ones if member.unit not in bad_units]
        if bad and good and self.recipe.drain and any(member.serves for member in good):
            # The proof of a wave fails for all of its hosts, and the end of that job was for none of them.
            for text in self._run([REJOIN, WAIT_NO_LONGER], good).kept_out.values():
                self.view.say(text)
        judged = gate.judge([member.name for member in members], _with_mates(members, bad), tolerated, earlier)
        self.journal.end_wave(self.run, number, judged.hosts, stop=judged.stop)
        self.view.wave(self.journal.record(self.run), number, "stop" if judged.stop else "done")
        return judged

    def _step(self, step: Step, members: Sequence[Member], room: int) -> tuple[dict[str, State], Report]:
        """A step for these hosts; where a bad one stopped Ansible for all and is tolerated, once more without it."""
        bad: dict[str, State] = {}
        merged, left = Report(), list(members)
        while True:
            report = self._job(step, left)
            merged.changes |= report.changes
            merged.evidence = str(Path(report.evidence).resolve()) if report.evidence else merged.evidence
            found = self._judge(step, left, report)
            units = {member.unit for member in left if found.get(member.name, ("done",))[0] not in ("done", gate.CUT)}
            cut = [member for member in left if member.name in found and member.unit not in units]
            bad |= {name: state for name, state in found.items() if name not in {member.name for member in cut}}
            if not (cut and units and gate.faults(bad.values()) <= room):
                bad |= {member.name: found[member.name] for member in cut}
                self.refused = self.refused or report.refused
                self._serve_again(left if report.refused else cut)
                return bad, merged
            left = cut

    def _judge(self, step: Step, members: Sequence[Member], report: Report) -> dict[str, State]:
        found = gate.work([member.name for member in members], report)
        if self._is_last(step) and self.recipe.prove:
            proven = document_in(Path(report.evidence or "", "evidence.json"))
            found |= gate.proof([member.name for member in members if member.name not in found], proven)
        return found

    def _is_last(self, step: Step) -> bool:
        return step is self.recipe.steps[-1]

    def _job(self, step: Step, members: Sequence[Member]) -> Report:
        """One ansible-playbook: the work, and around it what a wave needs, so that Ansible starts once."""
        serving = [member.name for member in members if self.recipe.drain and member.serves]
        serves, last = bool(serving), self._is_last(step)
        fetches = serves and self.recipe.fetches and step is self.recipe.steps[0]
        return self._run(
            [
                *([{"import_playbook": "gb10.fleet.fetch"}] if fetches else []),
                WAIT,
                *([{"import_playbook": f"gb10.fleet.{name}"} for name in ("withdraw", "drain")] if serves else []),
                *step.plays,
                gate.ROLL_CALL_PLAY,
                *([{"import_playbook": "gb10.fleet.serve"}] if serves and last else []),
                # Tags choose the work, and not whether it is proven.
                *(
                    [{"import_playbook": "gb10.fleet.validate", "tags": ["always"]}]
                    if last and self.recipe.prove
                    else []
                ),
                *([REJOIN] if serves and last else []),
                *([WAIT_NO_LONGER] if last else []),
            ],
            members,
            serving,
        )

    def _serve_again(self, members: Sequence[Member]) -> None:
        """Hosts on which nothing was changed after all."""
        if self.recipe.drain and any(member.serves for member in members):
            self._run([{"import_playbook": "gb10.fleet.serve"}, REJOIN, WAIT_NO_LONGER], members)

    def _run(
        self, plays: Sequence[Mapping[str, Any]], members: Sequence[Member], drained: Sequence[str] = ()
    ) -> Report:
        """`drained`: hosts whose model is stopped in it."""
        models = Models(self.journal, self.run, self.number, drained)

        def watch(event: Mapping[str, Any]) -> None:
            models.hear(event)
            self.view.event(event)

        file = _wave_file(self.recipe, self.journal.folder, self.run)
        try:
            file.write_text(playbook_of(plays), encoding="utf-8")
        except OSError as error:
            raise Refused(f"{file}: {error.strerror}; the playbook of a wave has to lie beside yours") from None
        try:
            # A thousand names are no command line. And not beside the journal: Ansible takes a space in this path for
            # the beginning of another pattern.
            with tempfile.NamedTemporaryFile("w", prefix="gb10-limit-", encoding="utf-8") as limit:
                limit.write("".join(f"{member.name}\n" for member in members))
                limit.flush()
                order = Order(
                    str(file),
                    self.recipe.inventories,
                    f"@{limit.name}",
                    variables=self.recipe.to,
                    words=self.recipe.words,
                    environment={ROLLOUT: f"{self.run}/{self.attempt}"},
                    timeout_s=self.policy.timeout_s,
                )
                _, report = self.playbook(
                    order,
                    quiet=True,
                    watch=watch,
                    cancel=lambda: models.canceled(self.stop),
                    folder=_jobs(self.journal),
                )
            # Of one that was cut short, what nobody has heard may have happened all the same.
            models.note(ended=not (report.timed_out or report.canceled or report.killed))
        finally:
            file.unlink(missing_ok=True)
        if report.timed_out or report.canceled or report.killed:
            end_orphans(self.journal, [self.run], self.view)
        if report.canceled or self.stop.is_set():
            raise Stopped
        return report


def outcome_of(states: Sequence[str], *, refused: bool = False) -> Outcome:
    """The one word for a rollout. Where at least one host is done and another is not, it is `partial`."""
    if all(state == "done" for state in states):
        return Outcome.done
    if "done" in states:
        return Outcome.partial
    if "unreachable" in states:
        return Outcome.unreachable
    return Outcome.refused if refused else Outcome.failed


def _bad_ones(states: Mapping[str, State]) -> str:
    """Return who is at fault, and how many only stand beside them."""
    bad = [f"{name} {state}" for name, (state, _) in states.items() if state not in ("planned", "done", gate.CUT)]
    cut = [name for name, (state, _) in states.items() if state == gate.CUT]
    return "; ".join(filter(None, (some(bad, 5), f"{len(cut)} skipped" if cut else "")))


def _with_mates(members: Iterable[Member], bad: Mapping[str, State]) -> dict[str, State]:
    """A cluster is good as a whole: the others of a bad host are `skipped`."""
    members = list(members)
    blame = {member.unit: member.name for member in reversed(members) if member.name in bad}
    mates = {
        member.name: (gate.CUT, f"{blame[member.unit]} of its cluster is {bad[blame[member.unit]][0]}")
        for member in members
        if member.unit in blame and member.name not in bad
    }
    return {**mates, **bad}


def _wave_file(recipe: Recipe, folder: Path, run: str) -> Path:
    """Beside the user's own playbook, for `playbook_dir` and group_vars are found from there; else with the journal."""
    theirs = next(
        (Path(play["import_playbook"]) for play in recipe.steps[-1].plays if "/" in play["import_playbook"]), None
    )
    return (theirs.parent if theirs else folder) / f".gb10-{run}.yml"


class _Unsafe(dict[str, Any]):
    """Variables of which Ansible takes none for a template."""


class _Dumper(yaml.SafeDumper):
    """With a word for that."""


_Dumper.add_representer(_Unsafe, lambda dumper, variables: dumper.represent_mapping("!unsafe", variables))


def playbook_of(plays: Sequence[Mapping[str, Any]]) -> str:
    """The playbook of a wave. No variable of an import is a template: a journal has words of hosts."""
    safe = [
        {**play, "vars": _Unsafe(play["vars"])} if "vars" in play and "import_playbook" in play else play
        for play in plays
    ]
    return yaml.dump(safe, Dumper=_Dumper, sort_keys=False)


# -- beginnings ------------------------------------------------------------------------------------------------------


def begin(
    journal: Journal,
    recipe: Recipe,
    policy: Policy,
    hosts: Sequence[FleetHost],
    waves: Sequence[Wave],
    of: str | None = None,
) -> str:
    """Write down a run with all that it is going to do. Returns its name."""
    return journal.begin("rollback" if of else "rollout", asdict(recipe), asdict(policy), hosts, waves, of)


def clear(journal: Journal, view: View) -> None:
    """Clear what killed commands have left on this machine: processes first, then files."""
    runs = journal.runs()
    end_orphans(journal, [run["run"] for run in runs], view)
    for run in runs:
        if run["ended"] is None:
            _wave_file(Recipe.of(run), journal.folder, run["run"]).unlink(missing_ok=True)
    for leftover in _jobs(journal).glob("gb10-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _jobs(journal: Journal) -> Path:
    """The folder of the jobs at work: all in it is ours. `--state` may name one that has a `gb10-fleet` of its own."""
    folder = journal.folder / ".jobs"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def end_orphans(journal: Journal, runs: Sequence[str], view: View) -> None:
    """End the processes that runs have left behind, by their ids; name them, and refuse to go on beside them."""

    def find() -> list[locks.Process]:
        return locks.orphans(runs)

    if not (found := find()):
        return
    for process in found:
        journal.note(process.rollout.rpartition("/")[0], "orphan", **asdict(process))
        view.say(process.words)
    if left := locks.end(found, find):
        pids = ", ".join(f"{process.pid} of {process.rollout}" for process in left)
        raise Orphaned(f"processes {pids} do not end; they may still change hosts, so end them first")


def bad_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """A line for each host that is at fault: which, what and why; one for all that are skipped for the same reason.

    All of a long reason is in the report.
    """
    for wave in record["waves"]:
        beside: dict[str, list[str]] = {}
        for host in wave["hosts"]:
            why = first_line(str(host["reason"]))
            if host["state"] == gate.CUT:
                beside.setdefault(why, []).append(host["host"])
            elif host["state"] not in GOOD:
                yield f"wave {wave['wave']}: {host['host']}: {host['state']}: {why}"
        for why, names in beside.items():
            yield f"wave {wave['wave']}: {', '.join(names)}: {gate.CUT}: {why}"
