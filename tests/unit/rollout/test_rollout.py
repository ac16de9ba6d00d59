"""The rollout itself, over a fleet that is made up: waves, gate, resume at every moment, rollback, refusals."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from gb10_fleet import playbook
from gb10_fleet.playbook import Order, Outcome, Report, Trouble
from gb10_fleet.rollout import live, recipes, waves, who
from gb10_fleet.rollout import loop as rollout
from gb10_fleet.rollout.gate import ROLL_CALL_PLAY
from gb10_fleet.rollout.journal import Journal, hosts_of
from gb10_fleet.rollout.live import Silent
from gb10_fleet.rollout.loop import Rollout, Stopped
from gb10_fleet.rollout.recipes import Recipe, Step
from gb10_fleet.rollout.waves import FleetHost, Policy, Refused
from tests.support.attacker import tally

SET, OTHER_SET = list(catalog.load("host_sets")["host_sets"])[:2]
IMAGE = f"vllm@sha256:{'0' * 64}"
NOW = datetime(2026, 11, 21, 1, 0, tzinfo=UTC)
ROLL_CALL = ROLL_CALL_PLAY["name"]
CHANGE = {"role": "driver", "resource": "package:x", "action": "update"}


def policy(**said: Any) -> Policy:
    return waves.policy(**{"soak_s": 0, **said})


class Killed(BaseException):
    """As SIGKILL: nobody handles it."""


@dataclass
class World:
    """A fleet of hosts that do what they are told, except for those in `bad` ({host: Trouble})."""

    folder: Path
    bad: dict[str, Trouble] = field(default_factory=dict)
    sick: set[str] = field(default_factory=set)  # not healthy after all went well
    calls: list[tuple[list[str], list[str]]] = field(default_factory=list)  # plays, hosts
    orders: list[Order] = field(default_factory=list)
    done: Counter[tuple[str, str]] = field(default_factory=Counter)  # (host, play)
    kept_out: dict[str, str] = field(default_factory=dict)  # a router does not take these back
    stops_all: bool = False  # any_errors_fatal
    refuses: bool = False
    hangs: str = ""  # this host, until the time of the wave is up
    stop: Callable[[], None] = lambda: None
    canceled: bool = False

    def play(self, order: Order, **_: Any) -> tuple[Outcome, Report]:
        hosts = Path(str(order.limit)[1:]).read_text().split()
        plays = [item.get("import_playbook", item.get("name")) for item in DataLoader().load_from_file(order.playbook)]
        self.calls.append((plays, hosts))
        self.orders.append(order)
        self.stop()
        report = Report(tasks=True, canceled=self.canceled, refused=self.refuses)
        if self.canceled:
            return Outcome.failed, report
        if self.hangs in hosts and ROLL_CALL in plays:
            report.timed_out, report.busy, report.seen = True, {self.hangs}, set(hosts)
            return Outcome.failed, report
        fails = {host: self.bad[host] for host in hosts if host in self.bad and ROLL_CALL in plays}
        report.troubles, report.seen = fails, set(hosts)
        going = [] if fails and self.stops_all else [host for host in hosts if host not in fails]
        report.through = set(going) if going else None
        for host in going:
            report.changes[host] = [CHANGE]
            self.done.update((host, play) for play in plays)
        if "gb10.fleet.rejoin" in plays:
            report.kept_out = {host: why for host, why in self.kept_out.items() if host in hosts}
        if "gb10.fleet.validate" in plays and going:
            report.evidence = str(self.proof(going))
        return Outcome.done, report

    def proof(self, hosts: Sequence[str]) -> Path:
        found = [
            {"hosts": [host], "verdict": "unhealthy" if host in self.sick else "healthy", "reasons": []}
            for host in hosts
        ]
        folder = self.folder / f"proof-{len(self.calls)}"
        folder.mkdir()
        (folder / "evidence.json").write_text(json.dumps({"clusters": found}))
        return folder

    @property
    def waves(self) -> list[list[str]]:
        """The hosts of each call that did the work."""
        return [hosts for plays, hosts in self.calls if ROLL_CALL in plays]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "state", write=True, clock=lambda: NOW) as opened:
        yield opened


def fleet(count: int, pairs: int = 0, *, serves: bool = False) -> list[FleetHost]:
    return [FleetHost(f"h{n:02d}", f"pair{n // 2}" if n < 2 * pairs else None, serves) for n in range(count)]


def begin(journal: Journal, hosts: Sequence[FleetHost], chosen: Policy, recipe: Recipe | None = None) -> str:
    recipe = recipe or recipes.forward("site", ["a,"], prove=False)
    return rollout.begin(journal, recipe, chosen, hosts, waves.plan(hosts, chosen))


def go(journal: Journal, run: str, world: World, attempt: int = 1) -> dict[str, Any]:
    return Rollout(journal, run, world.play, Silent(), attempt).go()


def states(record: Mapping[str, Any]) -> dict[str, str]:
    return {host["host"]: host["state"] for host in hosts_of(record)}


FAILED = Trouble("failed", "Update: no space left")
AWAY = Trouble("unreachable", "Update: No route to host")


# -- waves and gate ----------------------------------------------------------------------------------------------------


def test_one_ansible_for_each_wave_with_exactly_its_hosts(journal: Journal, world: World) -> None:
    hosts, chosen = fleet(60, 5), policy()
    record = go(journal, begin(journal, hosts, chosen), world)
    assert record["outcome"] == "done" and set(states(record).values()) == {"done"}
    assert world.waves == [[*wave.hosts] for wave in waves.plan(hosts, chosen)] and len(world.calls) == len(world.waves)
    assert {count for (_, play), count in world.done.items() if play != "gb10.fleet.planned"} == {1}
    assert {order.environment["GB10_ROLLOUT"] for order in world.orders} == {f"{record['run']}/1"}
    assert not [*journal.folder.glob(".gb10-*")], "the playbook of a wave is left behind"


@pytest.mark.parametrize("trouble", [FAILED, AWAY, Trouble("ignored", "no")], ids=lambda trouble: trouble.kind)
def test_a_bad_canary_stops_before_the_next_wave(journal: Journal, world: World, trouble: Trouble) -> None:
    hosts = fleet(10)
    run = begin(journal, hosts, policy(canary="h04"))
    world.bad = {"h04": trouble}
    record = go(journal, run, world)
    assert world.waves == [["h04"]] and states(record)["h04"] == trouble.kind
    assert record["counts"] == {"planned": 9, trouble.kind: 1}
    assert record["outcome"] == ("unreachable" if trouble is AWAY else "failed")
    assert record["reason"] == f"wave 1: h04 {trouble.kind}"


@pytest.mark.parametrize("percent", [10, 30, 90])
def test_exactly_the_unreachable_ones_are_named(journal: Journal, world: World, percent: int) -> None:
    hosts = fleet(60)
    names = [host.name for host in hosts]
    away = set(names[:: round(100 / percent)][: 60 * percent // 100]) if percent < 50 else set(names[6:])
    assert len(away) == 60 * percent // 100
    world.bad = dict.fromkeys(away, AWAY)
    record = go(journal, begin(journal, hosts, policy(canary=60)), world)
    assert {host for host, state in states(record).items() if state == "unreachable"} == away
    assert record["counts"] == {"done": 60 - len(away), "unreachable": len(away)}
    assert record["outcome"] == "partial"
    assert {line.split(": ")[1] for line in rollout.bad_lines(record)} == away


def test_a_bad_host_takes_its_cluster_along_and_nobody_else(journal: Journal, world: World) -> None:
    world.bad = {"h02": FAILED}
    record = go(journal, begin(journal, fleet(6, 2), policy(canary=6)), world)
    assert states(record) == {
        "h00": "done",
        "h01": "done",
        "h02": "failed",
        "h03": "skipped",
        "h04": "done",
        "h05": "done",
    }
    assert next(host["reason"] for host in hosts_of(record) if host["host"] == "h03") == "h02 of its cluster is failed"


def test_a_tolerated_bad_host_that_stopped_ansible_for_all_is_left_out_and_the_others_go_on(
    journal: Journal, world: World
) -> None:
    world.bad, world.stops_all = {"h02": FAILED}, True
    record = go(journal, begin(journal, fleet(6), policy(canary=6, threshold=1)), world)
    assert [sorted(wave) for wave in world.waves] == [
        ["h00", "h01", "h02", "h03", "h04", "h05"], ["h00", "h01", "h03", "h04", "h05"],
    ]  # fmt: skip
    assert record["counts"] == {"done": 5, "failed": 1} and record["outcome"] == "partial"


def test_one_dead_host_of_a_cluster_is_one_fault(journal: Journal, world: World) -> None:
    """One bad host is tolerated: its mate does not use that up twice, in this wave or in a later one."""
    world.bad = {"h00": AWAY}
    hosts, chosen = fleet(6, 1), policy(canary="h00", growth=(2,), threshold=1)
    record = go(journal, begin(journal, hosts, chosen), world)
    assert record["counts"] == {"done": 4, "unreachable": 1, "skipped": 1}
    assert record["reason"] == "h00 unreachable; 1 skipped"
    assert [*rollout.bad_lines(record)] == [
        "wave 1: h00: unreachable: Update: No route to host",
        "wave 1: h01: skipped: h00 of its cluster is unreachable",
    ]


def test_a_reason_that_begins_with_a_heading_is_said_with_what_it_heads(
    journal: Journal, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "Update: doctor refuses to go on:\nh00: disk_full: / has 0.0 GiB free\n    Fix: make room"
    world.bad = {"h00": Trouble("failed", said)}
    record = go(journal, begin(journal, fleet(1), policy(canary=1)), world)
    line = "Update: doctor refuses to go on: h00: disk_full: / has 0.0 GiB free ..."
    assert [*rollout.bad_lines(record)] == [f"wave 1: h00: failed: {line}"]
    result = {"host": "h00", "task": "Update", "res": {"msg": said.removeprefix("Update: ")}}
    live.Lines().event({"event": "runner_on_failed", "event_data": result})
    assert capsys.readouterr().out == f"  h00: failed: {line}\n"


def test_who_only_stood_beside_a_bad_host_is_skipped(journal: Journal, world: World) -> None:
    world.bad, world.stops_all = {"h02": FAILED}, True
    record = go(journal, begin(journal, fleet(6), policy(canary=6)), world)
    assert record["counts"] == {"failed": 1, "skipped": 5} and len(world.waves) == 1


def test_a_bad_host_keeps_its_place_in_later_waves(journal: Journal, world: World) -> None:
    """One is tolerated: of the first wave it does not stop, with one of the second it does."""
    hosts, chosen = fleet(10), policy(canary=2, growth=(4,), threshold=1)
    first, second, third = waves.plan(hosts, chosen)
    world.bad = {first.hosts[0]: FAILED, second.hosts[1]: AWAY}
    record = go(journal, begin(journal, hosts, chosen), world)
    assert world.waves == [[*first.hosts], [*second.hosts]]
    assert {states(record)[host] for host in third.hosts} == {"planned"}


def test_who_is_sick_after_all_went_well_stops_it(journal: Journal, world: World) -> None:
    world.sick = {"h01"}
    recipe = recipes.forward("site", ["a,"])
    record = go(journal, begin(journal, fleet(4), policy(canary="h01"), recipe), world)
    assert states(record)["h01"] == "unhealthy" and record["outcome"] == "failed" and len(world.waves) == 1
    assert record["waves"][0]["evidence"] == str(world.folder / "proof-1")


def test_no_evidence_is_no_proof(journal: Journal, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "proof", lambda *_: "nowhere")
    record = go(journal, begin(journal, fleet(2), policy(), recipes.forward("site", ["a,"])), world)
    assert record["counts"] == {"planned": 1, "unhealthy": 1}


# -- what is around the work -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "plays"),
    [
        (
            {},
            [
                "fetch",
                "planned",
                "withdraw",
                "drain",
                "doctor",
                "converge",
                ROLL_CALL,
                "serve",
                "validate",
                "rejoin",
                "planned",
            ],
        ),
        ({"drain": False}, ["planned", "doctor", "converge", ROLL_CALL, "validate", "planned"]),
        (
            {"prove": False},
            ["fetch", "planned", "withdraw", "drain", "doctor", "converge", ROLL_CALL, "serve", "rejoin", "planned"],
        ),
        ({"drain": False, "prove": False}, ["planned", "doctor", "converge", ROLL_CALL, "planned"]),
    ],
)
def test_a_model_is_stopped_before_and_proven_after(
    journal: Journal, world: World, recipe: dict[str, Any], plays: list[str]
) -> None:
    go(journal, begin(journal, fleet(1, serves=True), policy(), recipes.forward("site", ["a,"], **recipe)), world)
    assert [play.removeprefix("gb10.fleet.") for play in world.calls[0][0]] == plays


def test_a_driver_moves_alone_then_boots_then_everything_else(journal: Journal, world: World) -> None:
    recipe = recipes.forward("site", ["a,"], to=[SET], reboot=True)
    go(journal, begin(journal, fleet(1, serves=True), policy(), recipe), world)
    assert [[play.removeprefix("gb10.fleet.") for play in plays] for plays, _ in world.calls] == [
        ["fetch", "planned", "withdraw", "drain", "doctor", "converge", ROLL_CALL],
        ["planned", "withdraw", "drain", "reboot", ROLL_CALL],
        ["planned", "withdraw", "drain", "doctor", "converge", ROLL_CALL, "serve", "validate", "rejoin", "planned"],
    ]
    assert all(order.variables == {"driver_host_set": SET, "driver_allow_move": True} for order in world.orders)
    assert SET not in " ".join(world.orders[0].cmdline(Path("vars.json")).split()), "variables are no argument"


def test_where_it_was_refused_the_model_is_started_again(journal: Journal, world: World) -> None:
    world.bad, world.refuses, world.stops_all = {"h00": FAILED}, True, True
    record = go(journal, begin(journal, fleet(2, 1, serves=True), policy()), world)
    assert world.calls[-1] == (["gb10.fleet.serve", "gb10.fleet.rejoin", "gb10.fleet.planned"], ["h00", "h01"])
    assert record["outcome"] == "refused"


def test_who_waits_for_one_that_hangs_gets_its_model_back(journal: Journal, world: World) -> None:
    """Before, one host that hung left the models of a whole wave stopped, and half of a fleet may be one."""
    world.hangs = "h01"
    record = go(journal, begin(journal, fleet(3, serves=True), policy(canary=3)), world)
    again = ["gb10.fleet.serve", "gb10.fleet.rejoin", "gb10.fleet.planned"]
    served = {host for plays, hosts in world.calls if plays == again for host in hosts}
    tally("a host that hangs until a wave is over", 2, len({"h00", "h02"} - served))
    assert world.calls[-1] == (again, ["h00", "h02"])
    assert states(record) == {"h00": "skipped", "h01": "timed_out", "h02": "skipped"}


def test_where_one_that_hangs_is_tolerated_the_wave_goes_on_without_it(journal: Journal, world: World) -> None:
    world.hangs = "h01"
    record = go(journal, begin(journal, fleet(3, serves=True), policy(canary=3, threshold=1)), world)
    assert states(record) == {"h00": "done", "h01": "timed_out", "h02": "done"} and record["outcome"] == "partial"


def test_good_hosts_of_a_bad_wave_get_requests_again(journal: Journal, world: World) -> None:
    """The proof of a wave fails for all of its hosts; one that is not proven stays out of the routers."""
    world.sick = {"h01"}
    chosen = policy(canary=3, threshold=1)
    go(journal, begin(journal, fleet(3, serves=True), chosen, recipes.forward("site", ["a,"])), world)
    assert world.calls[-1] == (["gb10.fleet.rejoin", "gb10.fleet.planned"], ["h00", "h02"])


def test_a_host_that_a_router_keeps_out_is_failed_and_no_other_wave_begins(journal: Journal, world: World) -> None:
    """Else the next wave would take away another replica."""
    world.kept_out = {"h00": "h00 gets no requests from the router of r"}
    record = go(journal, begin(journal, fleet(2, serves=True), policy(), recipes.forward("site", ["a,"])), world)
    host = record["waves"][0]["hosts"][0]
    assert (host["state"], host["reason"]) == ("failed", world.kept_out["h00"])
    assert world.waves == [["h00"]] and record["outcome"] == "failed"


def test_an_own_playbook_is_run_from_beside_itself(journal: Journal, world: World, tmp_path: Path) -> None:
    own = tmp_path / "mine" / "play.yml"
    own.parent.mkdir()
    own.touch()
    go(journal, begin(journal, fleet(1), policy(), recipes.forward(str(own), ["a,"], prove=False)), world)
    assert world.calls[0][0][1:3] == [str(own), ROLL_CALL] and Path(world.orders[0].playbook).parent == own.parent
    assert [*own.parent.iterdir()] == [own]


# -- time --------------------------------------------------------------------------------------------------------------


class Waiting:
    """In place of the event that a signal sets: waits for nobody, and knows for how long it was to wait."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return False

    def is_set(self) -> bool:
        return False


def test_a_good_wave_is_left_alone_for_a_while(journal: Journal, world: World) -> None:
    run = begin(journal, fleet(3), policy(canary=1, growth=(1,), soak_s=120))
    going = Rollout(journal, run, world.play, Silent())
    waiting = Waiting()
    going.stop = waiting  # type: ignore[assignment]
    moments = iter(NOW + timedelta(seconds=seconds) for seconds in range(0, 100_000, 5))
    journal.clock = lambda: next(moments)
    assert going.go()["outcome"] == "done"
    first, second, third = waiting.waited
    assert first == 0 and 0 < second < 120 and 0 < third < 120


def test_what_an_earlier_attempt_has_waited_counts(journal: Journal, world: World) -> None:
    run = begin(journal, fleet(2), policy(soak_s=120))
    with pytest.raises(Stopped):
        _stopped_in_the_soak(journal, run, world)
    journal.clock = lambda: NOW + timedelta(seconds=100)
    going, waiting = Rollout(journal, run, world.play, Silent(), journal.resume(run)), Waiting()
    going.stop = waiting  # type: ignore[assignment]
    assert going.go()["outcome"] == "done" and waiting.waited == [20.0]


def _stopped_in_the_soak(journal: Journal, run: str, world: World) -> None:
    going = Rollout(journal, run, world.play, Silent())
    world.stop = lambda: None
    original = going._soak

    def soak(waves: Sequence[Mapping[str, Any]]) -> None:
        if any(wave["state"] == "done" for wave in waves):
            going.stop.set()
        original(waves)

    going._soak = soak  # type: ignore[method-assign]
    going.go()


def test_outside_of_the_window_no_wave_begins(journal: Journal, world: World) -> None:
    record = go(journal, begin(journal, fleet(3), policy(window=("22:00-23:00",))), world)
    assert record["outcome"] == "refused" and world.calls == []
    assert record["reason"] == "wave 1 may not begin before 2026-11-21T22:00:00Z, when the window opens"


def test_where_the_window_closes_between_waves_the_rest_waits_for_a_resume(journal: Journal, world: World) -> None:
    run = begin(journal, fleet(2), policy(window=("01:00-01:10",)))
    world.stop = lambda: setattr(journal, "clock", lambda: NOW + timedelta(minutes=11))
    record = go(journal, run, world)
    assert record["outcome"] == "partial" and record["counts"] == {"planned": 1, "done": 1}
    journal.clock = lambda: NOW + timedelta(days=1)
    world.stop = lambda: None
    assert go(journal, run, world, journal.resume(run))["outcome"] == "done"


# -- kills and resume --------------------------------------------------------------------------------------------------


class Mortal(Journal):
    """Dies at the n-th transaction: before it is on the disk, or right after."""

    left = 10**6
    after = True

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self.left -= 1
        with super()._transaction():
            yield
            if self.left == 0 and not self.after:
                raise Killed
        if self.left == 0:
            raise Killed


def deaths(
    tmp_path: Path, start: Callable[[Journal], str], *, after: bool = True
) -> Iterator[tuple[World, Journal, str]]:
    """A run that dies at each of its moments in turn, until it comes to its end: what the next command finds."""
    for moment in itertools.count(1):
        folder = tmp_path / str(moment)
        folder.mkdir()
        world = World(folder)
        with Journal(folder / "state", write=True, clock=lambda: NOW) as journal:
            run = start(journal)
        with Mortal(folder / "state", write=True, clock=lambda: NOW) as mortal:
            mortal.left, mortal.after = moment, after
            try:
                go(mortal, run, world)
                return
            except Killed:
                pass
        with Journal(folder / "state", write=True, clock=lambda: NOW) as journal:
            yield world, journal, run


@pytest.mark.parametrize("after", [True, False], ids=["after", "before"])
def test_killed_at_any_moment_it_ends_as_an_undisturbed_run_and_does_nothing_twice(tmp_path: Path, after: bool) -> None:
    hosts, chosen = fleet(5, 2), policy(canary=2, growth=("100%",))
    recipe = recipes.forward("site", ["a,"], to=[SET], reboot=True)
    moment = 0
    all_deaths = deaths(tmp_path, lambda journal: begin(journal, hosts, chosen, recipe), after=after)
    for moment, (world, journal, run) in enumerate(all_deaths, 1):
        known = states(journal.record(run))
        before = [*world.calls]
        finished = sum(event["kind"] == "step_ended" for event in journal.events(run))
        record = go(journal, run, world, journal.resume(run))
        assert record["outcome"] == "done" and set(states(record).values()) == {"done"}, moment
        assert {host for host, state in known.items() if state == "done"}.isdisjoint(
            host for _, names in world.calls[len(before) :] for host in names
        ), f"kill {moment}: a host that was done was touched again"
        # Every step of every wave, once; the one that nobody has written down as ended is done again as a whole.
        assert world.calls[finished : len(before)] in ([], world.calls[len(before) : len(before) + 1]), moment
        once = world.calls[:finished] + world.calls[len(before) :]
        assert len(once) == 3 * len(record["waves"]) and len({str(call) for call in once}) == len(once), moment
        assert {host for host, _ in world.done} == {host.name for host in hosts}
    assert moment + 1 == 2 + sum(2 + 2 * 3 for _ in record["waves"]), "every transaction was a moment"


def test_a_stopped_rollout_goes_on_with_the_bad_host(journal: Journal, world: World) -> None:
    hosts, chosen = fleet(8, 2), policy(canary=2, growth=(4, "100%"))
    run = begin(journal, hosts, chosen)
    second = waves.plan(hosts, chosen)[1]
    bad = second.hosts[-1]
    world.bad = {bad: FAILED}
    record = go(journal, run, world)
    assert record["outcome"] == "partial" and states(record)[bad] == "failed"
    world.bad, world.calls = {}, []
    record = go(journal, run, world, journal.resume(run))
    assert record["outcome"] == "done" and record["attempt"] == 2
    mates = [host.name for host in hosts if host.name == bad or (host.cluster and host.cluster == _cluster(hosts, bad))]
    assert sorted(world.waves[0]) == sorted(mates), "only who was not done, and its cluster"
    assert {order.environment["GB10_ROLLOUT"] for order in world.orders[2:]} == {f"{run}/2"}


def _cluster(hosts: Sequence[FleetHost], name: str) -> str | None:
    return next(host.cluster for host in hosts if host.name == name)


def test_a_bad_host_of_a_step_that_was_ended_is_bad_after_the_kill_too(journal: Journal, world: World) -> None:
    chosen = policy(canary=4)
    run = begin(journal, fleet(4), chosen, recipes.forward("site", ["a,"], to=[SET], reboot=True, prove=False))
    world.bad = {"h01": FAILED}
    rollouts = Rollout(journal, run, world.play, Silent())
    rollouts.policy = replace(chosen, threshold=1)
    world.stop = lambda: (_ for _ in ()).throw(Killed) if len(world.calls) == 2 else None
    with pytest.raises(Killed):
        rollouts.go()
    world.stop, world.bad = (lambda: None), {}
    record = go(journal, run, world, journal.resume(run))
    assert states(record)["h01"] == "failed" and record["counts"] == {"done": 3, "failed": 1}


def test_an_interrupt_leaves_the_run_open(journal: Journal, world: World) -> None:
    run = begin(journal, fleet(2), policy())
    world.canceled = True
    with pytest.raises(Stopped):
        go(journal, run, world)
    record = journal.record(run)
    assert (record["ended"], record["outcome"]) == (None, None) and record["counts"] == {"planned": 1, "running": 1}
    assert journal.events(run)[-1]["kind"] == "interrupted"
    world.canceled = False
    assert go(journal, run, world, journal.resume(run))["outcome"] == "done"


def test_what_cannot_go_on_ends_with_its_reason(
    journal: Journal, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise Refused("processes 7 of it do not end")

    monkeypatch.setattr(rollout, "end_orphans", refuse)
    world.canceled = True
    record = go(journal, begin(journal, fleet(2), policy()), world)
    assert (record["outcome"], record["reason"]) == ("refused", "processes 7 of it do not end")


@pytest.mark.parametrize(
    ("found", "refused", "outcome"),
    [
        (["done", "done"], False, Outcome.done), (["done", "failed"], False, Outcome.partial),
        (["done", "planned"], True, Outcome.partial), (["planned", "unreachable"], False, Outcome.unreachable),
        (["failed", "unreachable"], False, Outcome.unreachable), (["failed", "planned"], False, Outcome.failed),
        (["failed", "planned"], True, Outcome.refused), (["absent"], False, Outcome.failed),
    ],
)  # fmt: skip
def test_one_word_for_all(found: list[str], refused: bool, outcome: Outcome) -> None:
    assert rollout.outcome_of(found, refused=refused) is outcome


# -- what is to be done ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "variables"),
    [
        ([], {}),
        ([SET], {"driver_host_set": SET, "driver_allow_move": True}),
        ([IMAGE], {"vllm_image": IMAGE, "vllm_allow_tag": False}),
        (["nvcr.io/nvidia/vllm:26.01-py3"], {"vllm_image": "nvcr.io/nvidia/vllm:26.01-py3", "vllm_allow_tag": True}),
        ([SET, IMAGE], {**recipes.targets([SET]), **recipes.targets([IMAGE])}),
    ],
)
def test_what_to_says(to: list[str], variables: dict[str, Any]) -> None:
    assert recipes.targets(to) == variables


@pytest.mark.parametrize("to", [["nonsense"], [SET, OTHER_SET], [IMAGE, "a:b"], ["-e:x"], ["a b:c"]])
def test_what_to_cannot_say(to: list[str]) -> None:
    with pytest.raises(Refused, match="--to"):
        recipes.targets(to)


@pytest.mark.parametrize(
    "words",
    [
        ["--check"],
        ["-C"],
        ["-e", "token=secret"],
        ["-etoken=secret"],
        ["--extra-vars", "a=b"],
        ["--extra-vars=a=b"],
        ["-e"],
        ["-vC"],
        ["-CD"],
        ["--chec"],
        ["--list-hosts"],
        ["-ve", "token=secret"],
        ["--extra", "token=secret"],
        ["-e", "@vars.yml", "-e", "token=secret"],
        ["-l", "a"],
        ["-i", "other.yml"],
        ["--no-such-option"],
        ["other.yml"],
        ["--version"],
    ],
)
def test_words_that_only_look_or_would_be_kept_are_refused(words: list[str]) -> None:
    with pytest.raises(Refused) as refused:
        recipes.forward("site", ["a,"], words=words)
    assert "secret" not in str(refused.value)


def test_words_that_may_be_kept() -> None:
    words = ["-e", "@vars.yml", "--extra-vars=@more.yml", "-e@third.yml", "--tags", "serving"]
    assert recipes.forward("site", ["a,"], words=words).words == words


@pytest.mark.parametrize(
    ("name", "plays"),
    [
        ("site", ["gb10.fleet.doctor", "gb10.fleet.converge"]),
        ("gb10.fleet.site", ["gb10.fleet.doctor", "gb10.fleet.converge"]),
        ("reboot", ["gb10.fleet.reboot"]), ("community.general.thing", ["community.general.thing"]),
    ],
)  # fmt: skip
def test_playbooks(name: str, plays: list[str]) -> None:
    assert [play["import_playbook"] for play in recipes.forward(name, ["a,"]).steps[0].plays] == plays


@pytest.mark.parametrize("name", ["nonsense", "gb10.fleet.nonsense", "../site", "a.b", ""])
def test_what_is_no_playbook(name: str) -> None:
    with pytest.raises(Refused, match="is no playbook"):
        recipes.forward(name, ["a,"])


def test_a_recipe_comes_back_from_the_journal_as_it_was(journal: Journal) -> None:
    recipe = recipes.forward("site", ["a,"], to=[SET], reboot=True, limit="sparks", words=["-v"])
    run = begin(journal, fleet(1), policy(), recipe)
    assert Recipe.of(journal.record(run)) == replace(
        recipe, steps=[Step(step.name, [*map(dict, step.plays)]) for step in recipe.steps]
    )


def test_reboot_goes_with_a_host_set() -> None:
    with pytest.raises(Refused, match="--reboot goes with --to HOST_SET"):
        recipes.forward("site", ["a,"], reboot=True)


# -- who ---------------------------------------------------------------------------------------------------------------


def listing(*strangers: str, **limited: Sequence[FleetHost]) -> Callable[..., tuple[Outcome, Report]]:
    """Says the hosts, of a limit or (`everybody`) without one."""

    def play(order: Order, *, watch: Any, **_: Any) -> tuple[Outcome, Report]:
        hosts = limited[order.limit or "everybody"]
        said = {
            "hosts": [host.name for host in hosts], "clusters": [host.cluster or "" for host in hosts],
            "roles": [["vllm"] if host.serves else [] for host in hosts], "groups": ["pair1", "sparks"],
            "in_groups": [[] if host.cluster in strangers else [host.cluster] for host in hosts],
            "consents": [False] * len(hosts), "reserved": [host.reserved for host in hosts],
        }  # fmt: skip
        if hosts:
            data = {"task": "List the hosts", "host": "h00", "res": {"msg": json.dumps(said)}}
            watch({"event": "runner_on_ok", "event_data": data})
        return Outcome.done, Report(errors=[] if hosts else ["no hosts matched"])

    return play


def test_a_mistyped_cluster_is_no_cluster_of_its_own() -> None:
    """It would have a wave for itself, and half of a cluster would be down."""
    hosts = [FleetHost("a", "pair1"), FleetHost("b", "piar1")]
    with pytest.raises(Refused, match=r"^b: gb10_cluster is piar1, which is no group .*: did you mean pair1\?"):
        who.of(recipes.forward("site", ["a,"]), listing("piar1", everybody=hosts))
    with pytest.raises(Refused, match="a: gb10_cluster is pair1, which does not hold this host: name the group"):
        who.of(recipes.forward("site", ["a,"]), listing("pair1", everybody=hosts))


def test_a_reserved_host_has_no_part_and_its_cluster_waits_with_it() -> None:
    hosts = [FleetHost("a", "pair1", reserved="ada until 2999-12-24"), FleetHost("b", "pair1"), FleetHost("c")]
    mine, left_out = waves.free(who.of(recipes.forward("site", ["a,"]), listing(everybody=hosts)))
    assert [host.name for host in mine] == ["c"]
    assert left_out == ["left out: cluster pair1: a is reserved for ada until 2999-12-24"]
    with pytest.raises(Refused, match="all hosts are reserved: a for ada"):
        waves.free(hosts[:2])
    with pytest.raises(Refused, match="c: gb10_reserved is 'mine'; write WHO until DAY"):
        who.of(recipes.forward("site", ["a,"]), listing(everybody=[FleetHost("c", reserved="mine")]))


def test_the_advice_for_another_group_is_one_that_a_rollout_takes(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("gpus: {hosts: {a: {}}}\n")
    inventory = [str(tmp_path / "hosts.yml")]
    with pytest.raises(Refused, match="a file with the line `gb10_hosts: GROUP`, said as `-- -e @FILE`") as refused:
        who.of(recipes.forward("site", inventory), playbook.run)
    assert "-e gb10_hosts=" not in str(refused.value)
    (tmp_path / "vars.yml").write_text("gb10_hosts: gpus\n")
    recipe = recipes.forward("site", inventory, words=["-e", f"@{tmp_path / 'vars.yml'}"])
    assert [host.name for host in who.of(recipe, playbook.run)] == ["a"]
    with pytest.raises(Refused, match="-- -e @FILE"):
        recipes.forward("site", inventory, words=["-e", "gb10_hosts=gpus"])


def test_a_host_of_which_ansible_knows_no_address_is_named(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("sparks: {hosts: {a: {ansible_host: '{{ nosuch }}'}, b: {}}}\n")
    with pytest.raises(Refused, match=r"^a: .*set nosuch in the inventory, or correct ansible_host there"):
        who.of(recipes.forward("site", [str(tmp_path / "hosts.yml")]), playbook.run)


def test_hosts_are_those_that_ansible_sees() -> None:
    hosts = [FleetHost("a", "pair", serves=True), FleetHost("b")]
    assert who.of(recipes.forward("site", ["a,"]), listing(everybody=hosts)) == hosts


def test_a_limit_does_not_cut_a_cluster() -> None:
    everybody = fleet(4, 2)
    recipe = recipes.forward("site", ["a,"], limit="part")
    assert who.of(recipe, listing(everybody=everybody, part=everybody[:2])) == everybody[:2]
    with pytest.raises(Refused, match="--limit leaves out h03 of cluster pair1"):
        who.of(recipe, listing(everybody=everybody, part=everybody[:3]))


@pytest.mark.parametrize("name", ["!new", "&a", "~h.*", "@file", "h*", "h[1]", "a b", "-l"])
def test_a_host_whose_name_is_a_pattern_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="to Ansible that is a pattern and not a name"):
        who.of(recipes.forward("site", ["a,"]), listing(everybody=[FleetHost("a"), FleetHost(name)]))


@pytest.mark.parametrize(
    ("name", "consent"),
    [("reboot", "reboot_allow"), ("trial_boot", "trial_boot_allow"), ("release_update", "release_update_allow")],
)
def test_a_playbook_that_needs_consent_is_refused_before_a_model_stops(name: str, consent: str, tmp_path: Path) -> None:
    """Its own refusal comes after the drain, so a model would load again for nothing."""
    (tmp_path / "hosts.yml").write_text(
        f"sparks: {{hosts: {{a: {{{consent}: true}}, b: {{{consent}: 'no'}}, c: {{}}, d: {{}}}}}}\n"
    )
    (tmp_path / "yes.yml").write_text(f"{consent}: true\n")
    inventory, file = [str(tmp_path / "hosts.yml")], f"@{tmp_path / 'yes.yml'}"
    with pytest.raises(Refused, match=rf"^b, c, d: {consent} is not true.*`{consent}: true`, said as `-- -e @FILE`"):
        who.of(recipes.forward(name, inventory), playbook.run)
    assert [host.name for host in who.of(recipes.forward(name, inventory, limit="a"), playbook.run)] == ["a"]
    assert len(who.of(recipes.forward(f"gb10.fleet.{name}", inventory, words=["-e", file]), playbook.run)) == 4


def test_where_the_rollout_says_the_consent_itself_no_host_needs_it() -> None:
    recipe = recipes.forward("site", ["a,"], to=[SET], reboot=True)
    assert who.of(recipe, listing(everybody=[FleetHost("a")])) == [FleetHost("a")]


def test_an_interrupt_while_hosts_are_listed_is_no_missing_group() -> None:
    def play(order: Order, **_: Any) -> tuple[Outcome, Report]:
        return Outcome.failed, Report(canceled=True, errors=["the inventory has no group"])

    with pytest.raises(Refused, match="interrupted"):
        who.of(recipes.forward("site", ["a,"]), play)


def test_nobody_to_roll_out_to_says_why() -> None:
    with pytest.raises(Refused, match="no hosts matched"):
        who.of(recipes.forward("site", ["a,"]), listing(everybody=[]))


# -- rollback ----------------------------------------------------------------------------------------------------------


def did(journal: Journal, world: World, *to: str, hosts: int = 2, **more: Any) -> dict[str, Any]:
    recipe = recipes.forward("site", ["a,"], to=to, prove=False, **more)
    return go(journal, begin(journal, fleet(hosts), policy(), recipe), world)


def test_back_is_undo_where_nothing_was_rolled_out_before(journal: Journal, world: World) -> None:
    recipe = recipes.back(did(journal, world), [])
    assert [step.name for step in recipe.steps] == ["undo"]
    roles = {host: ["driver"] for host in ("h00", "h01")}
    said = {"gb10_undo": roles, "gb10_undo_of": journal.runs()[-1]["run"]}
    assert recipe.steps[0].plays == [{"import_playbook": "gb10.fleet.undo", "vars": said}]
    assert recipe.to == {"driver_allow_move": True}


def roles_back(record: Mapping[str, Any], unheard: Collection[str] = (), **said: list[str]) -> dict[str, list[str]]:
    """What each host takes back of a run in which the hosts have said that they changed these roles."""
    for host in hosts_of(record):
        host["changes"] = [{**CHANGE, "role": role} for role in said[host["host"]]]
    back = recipes.back(record, [], unheard=unheard)
    found: dict[str, list[str]] = back.steps[0].plays[0]["vars"]["gb10_undo"]
    return found


def test_each_host_takes_back_what_it_has_changed_itself(journal: Journal, world: World) -> None:
    """Before, one host's word had the firewall of all others taken back."""
    record = did(journal, world, hosts=3)
    found = roles_back(record, h00=["docker"], h01=["docker", "vllm"], h02=["firewall", "accounts"])
    tally("one host says what others take back", 3, sum("firewall" in found[host] for host in ("h00", "h01")))
    assert found == {"h00": ["docker"], "h01": ["docker", "vllm"], "h02": ["accounts", "firewall"]}


def test_of_a_host_that_nobody_may_have_heard_what_two_others_say_goes_back(journal: Journal, world: World) -> None:
    record = did(journal, world, hosts=4)
    said: dict[str, list[str]] = {"h00": ["docker"], "h01": ["docker"], "h02": ["firewall"], "h03": []}
    assert roles_back(record, **said)["h03"] == []
    assert roles_back(record, {"h03"}, **said)["h03"] == ["docker"]
    assert roles_back(record, {"h00"}, **said)["h03"] == []


def test_who_may_have_changed_without_a_word_is_who_was_cut_in_a_step(journal: Journal, world: World) -> None:
    """One that failed once was enough before: all others that said nothing took back what it named."""
    world.bad = {"h02": AWAY}
    run = begin(journal, fleet(6), policy(canary=3, threshold=0))
    assert states(go(journal, run, world))["h02"] == "unreachable"
    world.bad = {}
    record = go(journal, run, world, journal.resume(run))
    assert record["outcome"] == "done" and journal.unheard(run) == {"h02"}


def test_a_run_that_is_cut_between_two_waves_leaves_nobody_unheard(tmp_path: Path) -> None:
    """At each of its moments: whom the step that was cut was at work on, and nobody else."""
    hosts, chosen, found = fleet(3), policy(canary=1, growth=("100%",)), []
    for world, journal, run in deaths(tmp_path, lambda journal: begin(journal, hosts, chosen)):
        go(journal, run, world, journal.resume(run))
        found.append(journal.unheard(run))
    one, others = waves.plan(hosts, chosen)
    assert found == [set(), {*one.hosts}, set(), set(), set(), {*others.hosts}, set(), set(), set()]


def test_a_pair_of_which_one_host_was_cut_off_goes_back_as_a_whole(journal: Journal, world: World) -> None:
    record = did(journal, world, hosts=2)
    assert roles_back(record, {"h01"}, h00=["docker"], h01=[]) == {"h00": ["docker"], "h01": ["docker"]}


def test_no_word_in_the_playbook_of_a_wave_is_a_template(tmp_path: Path) -> None:
    """Before, a role by the name of a template ran here, when somebody took the run back."""
    evil = "{{ lookup('ansible.builtin.pipe', 'id') }}"
    text = rollout.playbook_of([
        {"import_playbook": "gb10.fleet.undo", "vars": {"gb10_undo": {"a": [evil], "b": [evil]}, "x": evil}},
        ROLL_CALL_PLAY,
    ])  # fmt: skip
    (tmp_path / "wave.yml").write_text(text)
    imported, call = DataLoader().load_from_file(str(tmp_path / "wave.yml"), trusted_as_template=True)  # as a playbook
    said = imported["vars"]
    words = [said["x"], *said["gb10_undo"]["a"], *said["gb10_undo"]["b"]]
    trusted = [word for word in words if Templar(DataLoader()).template(word) != evil]
    tally("a word of a host is a template here", len(words), len(trusted))
    assert words == [evil] * 3 and not trusted
    assert call == ROLL_CALL_PLAY


def test_back_is_forward_to_the_set_before(journal: Journal, world: World) -> None:
    first, second = did(journal, world, SET), did(journal, world, OTHER_SET)
    recipe = recipes.back(second, [first])
    assert recipe.to == recipes.targets([SET]) and recipe.steps == Recipe.of(second).steps


def test_an_image_goes_back_to_that_of_the_inventory(journal: Journal, world: World) -> None:
    recipe = recipes.back(did(journal, world, IMAGE), [])
    assert recipe.to == {} and [step.name for step in recipe.steps] == ["work"]


def test_what_a_manifest_cannot_tell_apart_is_refused(journal: Journal, world: World) -> None:
    first, second = did(journal, world), did(journal, world)
    with pytest.raises(Refused, match=f"driver on h0. came with {first['run']}"):
        recipes.back(second, [first])


def test_nothing_touched_nothing_to_take_back(journal: Journal, world: World) -> None:
    run = begin(journal, fleet(2), policy(window=("22:00-23:00",)))
    with pytest.raises(Refused, match="has touched no host"):
        recipes.back(go(journal, run, world), [])


def moved(journal: Journal, world: World, *to: str, hosts: Sequence[str] = ("a", "b"), bad: str = "") -> dict[str, Any]:
    world.bad = {bad: FAILED} if bad else {}
    recipe = recipes.forward("site", ["a,"], to=to, prove=False)
    names = [FleetHost(name) for name in hosts]
    return go(journal, begin(journal, names, policy(canary=1, growth=(1,)), recipe), world)


def taken_back(journal: Journal, world: World, record: Mapping[str, Any]) -> dict[str, Any]:
    recipe = recipes.back(record, journal.earlier(record), journal.later(record))
    again, taken = who.touched(record)
    return go(journal, rollout.begin(journal, recipe, policy(), again, taken, of=record["run"]), world)


def back(journal: Journal, record: Mapping[str, Any]) -> Recipe:
    return recipes.back(record, journal.earlier(record), journal.later(record))


def test_what_was_taken_back_is_nobodys_before(journal: Journal, world: World) -> None:
    taken_back(journal, world, moved(journal, world, "img:1"))
    assert back(journal, moved(journal, world, "img:2")).to == {}, "back to the image of the inventory"


def test_what_another_playbook_moved_and_was_taken_back_is_not_before_either(journal: Journal, world: World) -> None:
    recipe = recipes.forward("reboot", ["a,"], to=["img:1"], prove=False)
    taken_back(journal, world, go(journal, begin(journal, [FleetHost("a"), FleetHost("b")], policy(), recipe), world))
    assert back(journal, moved(journal, world, "img:2")).to == {}, "back to the image of the inventory"


def test_before_is_what_each_host_had_itself(journal: Journal, world: World) -> None:
    moved(journal, world, "img:1")
    moved(journal, world, "img:2", hosts=["a"])
    last = moved(journal, world, "img:3")
    with pytest.raises(
        Refused, match=r"vllm_image: the hosts did not have the same before \(a img:2, b img:1\). Say it: "
    ):
        back(journal, last)
    assert back(journal, moved(journal, world, "img:4")).to == recipes.targets(["img:3"])


def test_a_rollout_without_a_word_brings_what_the_inventory_says(journal: Journal, world: World) -> None:
    moved(journal, world, "img:1")
    moved(journal, world)
    assert back(journal, moved(journal, world, "img:2")).to == {}


def test_hosts_that_are_done_count_in_a_rollout_that_was_stopped(journal: Journal, world: World) -> None:
    first = next(iter(waves.plan([FleetHost("a"), FleetHost("b")], policy(canary=1)))).hosts[0]
    other = ({"a", "b"} - {first}).pop()
    moved(journal, world, "img:1", bad=other)
    assert back(journal, moved(journal, world, "img:2", hosts=[first])).to == recipes.targets(["img:1"])
    with pytest.raises(Refused, match=f"what {other} has had before is not known, for 20.* did not end well"):
        back(journal, moved(journal, world, "img:2", hosts=[other]))


def test_what_came_later_goes_first(journal: Journal, world: World) -> None:
    first, second = moved(journal, world, "img:1"), moved(journal, world, "img:2")
    with pytest.raises(Refused, match=f"{second['run']} has worked on a since: take that one back first"):
        back(journal, first)
    taken_back(journal, world, second)
    assert back(journal, first).to == {}
    again = taken_back(journal, world, first)
    with pytest.raises(Refused, match=f"was taken back already, by {again['run']}"):
        back(journal, first)


def test_after_an_undo_the_manifest_starts_anew(journal: Journal, world: World) -> None:
    taken_back(journal, world, moved(journal, world))
    assert [step.name for step in back(journal, moved(journal, world)).steps] == ["undo"]


def test_what_was_moved_elsewhere_since_is_not_resumed(journal: Journal, world: World) -> None:
    hosts = [host for wave in waves.plan([FleetHost("a"), FleetHost("b")], policy(canary=1)) for host in wave.hosts]
    stopped = moved(journal, world, "img:1", bad=hosts[1])
    recipes.refuse_resume(stopped, journal.later(stopped))
    world.bad = {}
    taken = taken_back(journal, world, stopped)
    with pytest.raises(Refused, match=f"was taken back by {taken['run']}: begin a new rollout"):
        recipes.refuse_resume(stopped, journal.later(stopped))
    stopped = moved(journal, world, "img:1", bad=hosts[1])
    later = moved(journal, world, "img:2", hosts=hosts[:1])
    with pytest.raises(Refused, match=f"{later['run']} has moved {hosts[0]} to another vllm_image since"):
        recipes.refuse_resume(stopped, journal.later(stopped))
    with pytest.raises(Refused, match="is done"):
        recipes.refuse_resume(later, [])


def test_a_rollback_takes_the_same_waves_of_who_was_touched(journal: Journal, world: World) -> None:
    hosts, chosen = fleet(8, 2), policy(canary=2, growth=(4, "100%"))
    planned = waves.plan(hosts, chosen)
    world.bad = {planned[1].hosts[0]: FAILED}
    record = go(journal, begin(journal, hosts, chosen), world)
    again, taken = who.touched(record)
    assert [wave.hosts for wave in taken] == [wave.hosts for wave in planned[:2]]
    world.bad, world.calls = {}, []
    run = rollout.begin(journal, recipes.back(record, []), chosen, again, taken, of=record["run"])
    back = go(journal, run, world)
    assert (back["kind"], back["of"], back["outcome"]) == ("rollback", record["run"], "done")
    assert world.waves == [[*wave.hosts] for wave in planned[:2]]
