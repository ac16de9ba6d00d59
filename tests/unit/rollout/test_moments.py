"""The moments at which the campaign kills a rollout: read from journal and plays, and spread over all of them."""

from __future__ import annotations

import json
import os
import random
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from gb10_fleet.rollout import waves
from gb10_fleet.rollout.journal import Journal
from gb10_fleet.rollout.waves import FleetHost
from tests.fleet.moments import STEPS, Moment, Moments, Plan, Tally, wait_for
from tests.support.ways import GB10, Rollout, Way


def test_they_are_read_from_the_journal_and_the_plays_of_the_attempt(tmp_path: Path) -> None:
    moments = Moments(tmp_path)
    moments.start()
    hosts, policy = [FleetHost("a"), FleetHost("b")], waves.policy(soak_s=0)
    with Journal(tmp_path, write=True) as journal:
        run = journal.begin("rollout", {"inventories": []}, asdict(policy), hosts, waves.plan(hosts, policy))

        def play(attempt: int, process: int, *steps: str) -> None:
            with moments.file.open("a") as file:
                file.writelines(json.dumps([f"{run}/{attempt}", process, step, 1.0]) + "\n" for step in steps)

        assert moments.now() is None
        journal.begin_step(run, 1, 0, "work")
        play(1, 11, "drain", "work", "work", "roll_call", "proof")
        journal.end_wave(run, 1, {}, stop=False)
        journal.begin_step(run, 2, 0, "work")
        play(1, 12, "drain", "work")
        seen = [str(moment) for moment, _ in moments.seen()]
        assert seen == [
            "wave 1 begin", "wave 1 drain", "wave 1 work", "wave 1 work", "wave 1 roll_call", "wave 1 proof",
            "wave 1 gate", "wave 2 begin", "wave 2 drain", "wave 2 work",
        ]  # fmt: skip
        assert str(moments.now()) == "wave 2 work"
        moments.start()
        play(1, 12, "roll_call")  # of an orphan
        assert moments.now() is None, "the attempt before is none of the next one"
        journal.resume(run)
        journal.begin_step(run, 2, 0, "work")
        assert str(moments.now()) == "wave 2 begin"
        play(2, os.getpid(), "fetch")
        assert str(moments.now()) == "wave 2 fetch"


def test_every_moment_has_its_turn_and_five_in_a_row_go_forward() -> None:
    seen = [(Moment(wave, step), 10.0 * wave + step) for wave in (1, 2, 3, 4) for step in range(len(STEPS))]
    plan = Plan(seen, 60.0, random.Random(1))  # noqa: S311  # moments, not keys
    taken = [plan.take(4) for _ in STEPS]
    assert all(row == sorted(row) for row in taken)
    assert sorted(moment for row in taken for moment in row) == [moment for moment, _ in seen]
    assert 0 <= plan.delay(Moment(4, 8)) <= 13.0


def test_the_tally_says_where_the_kills_have_hit() -> None:
    tally = Tally()
    tally.add(None, {})
    tally.add(Moment(2, STEPS.index("drain")), {"a": "done", "b": "running"})
    tally.add(Moment(2, STEPS.index("drain")), {"a": "done", "b": "done"})
    assert tally.lines() == [
        "before the first wave:   1 kills (33 %), 0 with some hosts done",
        "                drain:   2 kills (67 %), 1 with some hosts done",
        "1 of 3 kills hit with some hosts done and some not",
    ]


@pytest.mark.long  # `make test-all` has the campaign, too; the first test here reads the same journal and plays
def test_a_real_rollout_is_met_at_its_moment_and_goes_on_after_the_kill(tmp_path: Path) -> None:
    made = Rollout(tmp_path, ["spark-1", "spark-2", "spark-3"], Way("good", "done", "", 0, 0, False), "nobody")
    (tmp_path / ".gb10").mkdir()
    moments = Moments(tmp_path / ".gb10")

    def start(*words: str) -> subprocess.Popen[bytes]:
        moments.start()
        return subprocess.Popen(
            [*GB10, *words, "-i", "inventory.yml", "--json"], cwd=tmp_path, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**made.environment, **moments.environment},
        )  # fmt: skip

    child = start("rollout", "play.yml", "--canary", "1", "--growth", "1", "--soak", "0", "--no-prove", "--no-drain")
    assert wait_for(moments, Moment(2, STEPS.index("work")), lambda: child.poll() is not None)
    child.kill()
    child.wait()
    assert moments.now() is not None and moments.now()[0] == 2  # type: ignore[index]
    child = start("resume")
    assert not wait_for(moments, Moment(4, 0), lambda: child.poll() is not None), "there is no fourth wave"
    assert child.returncode == 0
    attempt = dict.fromkeys(str(moment) for moment, _ in moments.seen())
    one_wave = ["begin", "planned", "work", "roll_call", "gate"]
    assert [*attempt] == [f"wave {wave} {step}" for wave in (2, 3) for step in one_wave]
