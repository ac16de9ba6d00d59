"""The journal: what is written is read back, is on the disk at once, and is never taken back."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gb10_fleet.rollout.journal import MOST_KEPT, Journal, JournalError, hosts_of, place
from gb10_fleet.rollout.waves import FleetHost, Wave
from tests.support.attacker import tally

HOSTS = [FleetHost("a", "pair", serves=True), FleetHost("b", "pair", serves=True), FleetHost("c")]
WAVES = [Wave(1, ("a", "b"), ("pair",)), Wave(2, ("c",), ())]
ORDER = {"playbook": "site", "inventories": [], "directory": "/", "steps": [{"name": "x", "plays": []}], "to": {}}
POLICY = {"canary": 1, "growth": ["100%"], "threshold": 0, "soak_s": 0, "timeout_s": 60}
CHANGE = {"role": "driver", "resource": "package:x", "action": "update"}


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 1, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(tmp_path: Path, clock: Clock) -> Iterator[Journal]:
    with Journal(tmp_path / "state", write=True, clock=clock) as opened:
        yield opened


def begin(journal: Journal, **order: Any) -> str:
    return journal.begin("rollout", {**ORDER, **order}, POLICY, HOSTS, WAVES)


def states(journal: Journal, run: str) -> dict[str, str]:
    return {host["host"]: host["state"] for host in hosts_of(journal.record(run))}


def test_a_run_begins_with_all_that_it_is_going_to_do(journal: Journal) -> None:
    run = begin(journal)
    record = journal.record()
    assert run.startswith("20261121T010000Z-") and record["run"] == run
    assert (record["kind"], record["attempt"], record["ended"], record["outcome"]) == ("rollout", 1, None, None)
    assert record["order"] == ORDER and record["policy"] == POLICY and record["counts"] == {"planned": 3}
    assert [[host["host"] for host in wave["hosts"]] for wave in record["waves"]] == [["a", "b"], ["c"]]
    assert [wave["clusters"] for wave in record["waves"]] == [["pair"], []]
    assert [host["serves"] for host in hosts_of(record)] == [True, True, False]


def test_a_wave_from_its_beginning_to_its_gate(journal: Journal, clock: Clock) -> None:
    run = begin(journal)
    journal.begin_wave(run, 1, ["a", "b"])
    journal.begin_step(run, 1, 0, "work")
    assert states(journal, run) == {"a": "running", "b": "running", "c": "planned"}
    clock.now += timedelta(seconds=90)
    journal.end_step(run, 1, 0, {"a": ("failed", "no space")}, {"a": [CHANGE], "stranger": [CHANGE]}, "/proof")
    journal.end_step(run, 1, 1, {}, {"a": [CHANGE]}, None)
    journal.end_wave(run, 1, {"a": ("failed", "no space"), "b": ("skipped", "a of its cluster is failed")}, stop=True)
    journal.end(run, "failed", "wave 1: a failed")
    record = journal.record(run)
    first, second = record["waves"]
    assert (first["state"], first["step"], first["evidence"]) == ("stopped", 2, "/proof")
    assert (first["started"], first["ended"]) == ("2026-11-21T01:00:00Z", "2026-11-21T01:01:30Z")
    assert (second["state"], second["started"]) == ("planned", None)
    assert record["counts"] == {"planned": 1, "failed": 1, "skipped": 1}
    assert first["hosts"][0]["changes"] == [CHANGE], "once, however often it is said"
    assert (record["outcome"], record["reason"]) == ("failed", "wave 1: a failed")
    kinds = [event["kind"] for event in journal.events(run)]
    assert kinds == ["begun", "wave_begun", "step_begun", "step_ended", "step_ended", "gate", "ended"]


def test_of_a_host_that_says_too_much_a_journal_keeps_a_part(journal: Journal) -> None:
    """It was read whole at each step, and the page of a run took 4 GiB for three answers of one host."""
    run = begin(journal)
    journal.begin_wave(run, 1, ["a", "b"])
    for answer in range(3):
        flood = [{**CHANGE, "detail": f"{answer} {number} {'<' * 1000}"} for number in range(900)]
        journal.end_step(run, 1, 0, {}, {"a": flood, "b": [CHANGE]}, None)
    changes = {host["host"]: host["changes"] for host in hosts_of(journal.record(run))}
    kept = len(json.dumps(changes["a"]))
    assert changes["b"] == [CHANGE] and 0.9 * MOST_KEPT < kept < 1.1 * MOST_KEPT
    left = [event["data"] for event in journal.events(run) if event["kind"] == "not_kept"]
    assert [one["host"] for one in left] == ["a"] * 2 and all(one["changes"] > 700 for one in left)
    tally("a host takes the memory of the controller, by what a journal keeps of it", 3, 0)


def test_a_resumed_run_has_another_attempt_and_no_end(journal: Journal) -> None:
    run = begin(journal)
    journal.end(run, "failed", "no")
    assert [journal.resume(run), journal.resume(run)] == [2, 3]
    record = journal.record(run)
    assert (record["attempt"], record["ended"], record["outcome"], record["reason"]) == (3, None, None, None)


def test_the_latest_run_is_the_one_that_began_last(journal: Journal) -> None:
    runs = [begin(journal) for _ in range(3)]  # within one second
    assert journal.record()["run"] == runs[-1] and [item["run"] for item in journal.runs()] == runs


def test_how_long_a_wave_takes_is_the_median_of_good_ones(journal: Journal, clock: Clock) -> None:
    for seconds, stop in ((60, False), (100, False), (900, False), (1, True)):
        run = begin(journal)
        journal.begin_wave(run, 1, ["a", "b"])
        clock.now += timedelta(seconds=seconds)
        journal.end_wave(run, 1, {}, stop=stop)
    assert journal.seconds("site") == 100 and journal.seconds("reboot") is None


@pytest.mark.parametrize("statement", ["DELETE FROM event", "UPDATE event SET kind = 'never'"])
def test_events_are_only_appended(journal: Journal, statement: str) -> None:
    run = begin(journal)
    with sqlite3.connect(journal.folder / "journal.db") as other, pytest.raises(sqlite3.IntegrityError, match="append"):
        other.execute(statement)
    assert len(journal.events(run)) == 1


def test_a_change_that_fails_half_way_leaves_nothing(journal: Journal) -> None:
    run = begin(journal)
    before = journal.record(run), journal.events(run)
    with pytest.raises(sqlite3.ProgrammingError):
        journal.end_wave(run, 1, {"a": ("done", None), "b": ("done", object())}, stop=False)  # type: ignore[dict-item]
    assert (journal.record(run), journal.events(run)) == before


def test_it_is_on_the_disk_before_the_next_thing_is_done(journal: Journal) -> None:
    assert journal._db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert journal._db.execute("PRAGMA synchronous").fetchone()[0] == 2  # FULL


KILLED = """
import os, signal, sys
from pathlib import Path
from gb10_fleet.rollout.journal import Journal
journal = Journal(Path(sys.argv[1]), write=True)
journal.begin_wave(sys.argv[2], 1, ["a", "b"])
journal._db.execute("BEGIN IMMEDIATE")
journal._db.execute("UPDATE run SET outcome = 'done'")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_kill_everything_is_there_that_was_said_and_nothing_else(journal: Journal) -> None:
    run = begin(journal)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(journal.folder), run], check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == -9
    record = journal.record(run)
    assert record["outcome"] is None and states(journal, run) == {"a": "running", "b": "running", "c": "planned"}
    journal.end(run, "done", None)


def test_only_the_owner_reads_it(journal: Journal) -> None:
    begin(journal)
    assert stat.S_IMODE(journal.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in journal.folder.iterdir()} == {0o600}


def test_reading_needs_no_lock_and_makes_nothing(journal: Journal, tmp_path: Path) -> None:
    run = begin(journal)
    with Journal(journal.folder) as reader:
        assert reader.record()["run"] == run
        with pytest.raises(JournalError, match="no run is called nonsense; the latest are: " + run):
            reader.record("nonsense")
    with pytest.raises(JournalError, match="no rollout of this fleet has begun"):
        Journal(tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def test_what_is_no_journal_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(JournalError, match="move it away"):
        Journal(tmp_path, write=True)


def test_a_journal_of_another_format_is_left_alone(journal: Journal) -> None:
    journal._db.execute("PRAGMA user_version = 99")
    for write in (False, True):
        with pytest.raises(JournalError, match="format 99, and this gb10 reads 1"):
            Journal(journal.folder, write=write)


def test_it_lies_beside_the_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/hosts.yml").touch()
    assert place(["mine"]) == place(["mine/hosts.yml", "more"]) == tmp_path / "mine/.gb10"
    assert place(["a,b"]) == place(["spark-1," * 100]) == place([]) == tmp_path / ".gb10"
    assert place(["mine"], Path("state")) == tmp_path / "state"


DAMAGED = (
    *(("run", column, text) for column in ("order", "policy") for text in ("", "{", "null", "[]", "5", '{"a":' * 500)),
    *(("run", "created", text) for text in ("x", "9999-99-99T00:00:00Z", b"\xff", 5)),
    *(("wave", "clusters", text) for text in ("", "{", b"\xaa")),
    *(("host", "changes", text) for text in ("{", b"\xaa")),
)


@pytest.mark.parametrize(("table", "column", "text"), DAMAGED)
def test_a_journal_whose_words_are_damaged_has_a_way_out(tmp_path: Path, table: str, column: str, text: object) -> None:
    """A bit of a disk is enough: SQLite itself finds it in its own pages alone."""
    with Journal(tmp_path, write=True) as journal:
        begin(journal)
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.db")) as db, db:
        db.execute(f'UPDATE {table} SET "{column}" = ?', (text,))  # noqa: S608 - names of this test
    with Journal(tmp_path) as journal, pytest.raises(JournalError, match=r"is damaged.*move it away"):
        journal.record()
