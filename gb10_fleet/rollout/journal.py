"""What rollouts did, in one SQLite file of the fleet; after a SIGKILL or a power cut a rollout goes on from there.

    run    one rollout or rollback: what was ordered, by which policy, how it ended (`ended` is null until then)
    wave   its waves: which step has begun (`step` counts from 0), and where the evidence of the proof lies
    host   its hosts in each wave: the state, and why it is that one
    event  everything that happened, in order; only ever appended

A change and its event are one transaction, and on the disk (fsync) before the next thing is done.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import typer
from ansible_collections.gb10.fleet.plugins.module_utils.system.folders import Planted, planted

from gb10_fleet import __version__
from gb10_fleet.home import folder_of, is_there
from gb10_fleet.rollout import written
from gb10_fleet.rollout.waves import FleetHost, Wave
from gb10_fleet.rollout.written import BAD, GOOD, moment_of, text_of
from gb10_fleet.untold import Untold

SCHEMA_VERSION = 1
MOST_KEPT = 2**20  # characters, as JSON: changes of a host in a run; some hundreds have 60,000
NOT_KEPT = "not_kept"  # the event that says how many changes of a host are left out: {host, changes}
WAVE_BEGUN = "wave_begun"  # the event that has the boards of its hosts, too
OTHER_BOARDS = "other_boards"  # the event that names hosts which are other boards since: {hosts}
MODELS = "models"  # the event that says what became of models, {host: state}: rollout/models.py

_TABLES = """
CREATE TABLE run (
  run TEXT PRIMARY KEY, kind TEXT NOT NULL, of TEXT, version TEXT NOT NULL, attempt INTEGER NOT NULL DEFAULT 1,
  "order" TEXT NOT NULL, policy TEXT NOT NULL, created TEXT NOT NULL, ended TEXT, outcome TEXT, reason TEXT);
CREATE TABLE wave (
  run TEXT NOT NULL REFERENCES run, wave INTEGER NOT NULL, clusters TEXT NOT NULL, state TEXT NOT NULL,
  step INTEGER NOT NULL DEFAULT 0, started TEXT, ended TEXT, evidence TEXT, PRIMARY KEY (run, wave)) WITHOUT ROWID;
CREATE TABLE host (
  run TEXT NOT NULL, wave INTEGER NOT NULL, host TEXT NOT NULL, cluster TEXT, serves INTEGER NOT NULL,
  place INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT, started TEXT, ended TEXT, changes TEXT,
  PRIMARY KEY (run, host), FOREIGN KEY (run, wave) REFERENCES wave) WITHOUT ROWID;
CREATE TABLE event (
  id INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run, at TEXT NOT NULL, wave INTEGER, kind TEXT NOT NULL,
  data TEXT NOT NULL);
CREATE INDEX event_of_run ON event (run, id);
CREATE TRIGGER event_stays BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'events are only appended'); END;
CREATE TRIGGER event_never_goes BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'events are only appended'); END;
"""

Record = dict[str, Any]
WAY_OUT = "if it is broken, move it away: hosts lose nothing by that"
# But for statistics, which a tool for SQLite may have written.
_MADE = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'"


class JournalError(Exception):
    """A journal that is not there, cannot be read, or does not know the run."""


class NoRun(JournalError):
    """No rollout has begun yet."""


def place(inventories: Sequence[str], state: Path | None = None) -> Path:
    """The fleet's folder: `.gb10` in the folder of its (first) inventory, which Ansible does not read, or `--state`."""
    if state is not None:
        return state.resolve()
    first = inventories[0] if inventories else "."
    here = "," in first and not is_there(first)
    if planted(found := (Path() if here else folder_of(first)) / ".gb10"):
        raise typer.BadParameter(f"{Planted(found)}; work in a folder of your own")
    return found.resolve()


def utc() -> datetime:
    return datetime.now(UTC)


class Journal:
    """The file, open. Whoever writes holds the fleet's lock (`locks.held`); to read needs none."""

    def __init__(self, folder: Path, *, write: bool = False, clock: Callable[[], datetime] = utc) -> None:
        self.folder, self.clock = folder, clock
        file = folder / "journal.db"
        if write:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        elif not file.exists():
            raise NoRun(f"{file} is not there: no rollout of this fleet has begun, or --state names another folder")
        # Who only reads changes nothing: of an undo log beside it, SQLite would remove the file that is named there.
        name = f"{file.absolute().as_uri()}?mode={'rw' if write else 'ro'}"
        try:
            self._db = sqlite3.connect(name, uri=True, isolation_level=None, timeout=10)
            self._db.row_factory = sqlite3.Row
            self._open(write)
        except sqlite3.DatabaseError as error:
            raise JournalError(f"{file}: {error}; {WAY_OUT}") from None

    def _open(self, write: bool) -> None:
        if write:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0 and write:
            self._db.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        elif version != SCHEMA_VERSION:
            raise JournalError(f"{self.folder}: a journal of format {version}, and this gb10 reads {SCHEMA_VERSION}")
        self._refuse_strange()

    def _refuse_strange(self) -> None:
        """A view, or a page with itself below it, has rows without an end, and SQLite hears no Ctrl-C meanwhile."""
        with contextlib.closing(sqlite3.connect(":memory:")) as sound:
            sound.executescript(_TABLES)
            ours = {tuple(row) for row in sound.execute(_MADE)}
        if {tuple(row) for row in self._db.execute(_MADE)} != ours:
            raise sqlite3.DatabaseError("its tables are not those of a journal")
        if self._db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("its pages are damaged")

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- write ---------------------------------------------------------------------------------------------------------

    def begin(
        self,
        kind: str,
        order: Mapping[str, Any],
        policy: Mapping[str, Any],
        hosts: Sequence[FleetHost],
        waves: Sequence[Wave],
        of: str | None = None,
    ) -> str:
        """A new run, with all that it is going to do. Returns its name."""
        now = self.clock()
        run = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        known = {host.name: host for host in hosts}
        with self._transaction():
            self._db.execute(
                'INSERT INTO run (run, kind, of, version, "order", policy, created) VALUES (?, ?, ?, ?, ?, ?, ?)',
                (run, kind, of, __version__, json.dumps(order), json.dumps(policy), text_of(now)),
            )
            self._db.executemany(
                "INSERT INTO wave (run, wave, clusters, state) VALUES (?, ?, ?, 'planned')",
                [(run, wave.number, json.dumps(wave.clusters)) for wave in waves],
            )
            self._db.executemany(
                "INSERT INTO host (run, wave, host, cluster, serves, place, state)"
                " VALUES (?, ?, ?, ?, ?, ?, 'planned')",
                [
                    (run, wave.number, name, known[name].cluster, known[name].serves, position)
                    for wave in waves
                    for position, name in enumerate(wave.hosts)
                ],
            )
            self._append(run, None, "begun", {"kind": kind, "of": of, "pid": os.getpid()})
        return run

    def resume(self, run: str, policy: Mapping[str, Any] | None = None) -> int:
        """The run goes on, under another policy if one is given. Returns the number of the attempt: hosts know it."""
        with self._transaction():
            self._db.execute(
                "UPDATE run SET attempt = attempt + 1, policy = coalesce(?, policy), ended = NULL, outcome = NULL,"
                " reason = NULL WHERE run = ?",
                (policy and json.dumps(policy), run),
            )
            (attempt,) = self._db.execute("SELECT attempt FROM run WHERE run = ?", (run,)).fetchone()
            self._append(run, None, "resumed", {"attempt": attempt, "pid": os.getpid()})
        return int(attempt)

    def end(self, run: str, outcome: str, reason: str | None) -> None:
        with self._transaction():
            self._db.execute(
                "UPDATE run SET ended = ?, outcome = ?, reason = ? WHERE run = ?",
                (text_of(self.clock()), outcome, reason, run),
            )
            self._append(run, None, "ended", {"outcome": outcome, "reason": reason})

    def reopen(self, run: str, hosts: Sequence[str]) -> None:
        """Their waves begin anew: what the run did was done on other boards."""
        with self._transaction():
            for host in hosts:
                self._db.execute(
                    "UPDATE wave SET state = 'planned', step = 0 WHERE run = ?1"
                    " AND wave = (SELECT wave FROM host WHERE run = ?1 AND host = ?2)",
                    (run, host),
                )
                self._db.execute(
                    "UPDATE host SET state = 'planned', reason = NULL, started = NULL, ended = NULL, changes = NULL"
                    " WHERE run = ? AND host = ?",
                    (run, host),
                )
            self._append(run, None, OTHER_BOARDS, {"hosts": [*hosts]})

    def begin_wave(
        self, run: str, wave: int, hosts: Sequence[str], boards: Mapping[str, written.Board | None] | None = None
    ) -> None:
        """These hosts of the wave are being worked on from now on, from its first step. `boards`: rollout/boards.py."""
        now = text_of(self.clock())
        with self._transaction():
            self._db.execute(
                "UPDATE wave SET state = 'running', step = 0, started = ?, ended = NULL, evidence = NULL"
                " WHERE run = ? AND wave = ?",
                (now, run, wave),
            )
            self._db.executemany(
                "UPDATE host SET state = 'running', reason = NULL, started = ?, ended = NULL"
                " WHERE run = ? AND host = ?",
                [(now, run, host) for host in hosts],
            )
            self._append(run, wave, WAVE_BEGUN, {"hosts": [*hosts], "boards": dict(boards or {})})

    def begin_step(self, run: str, wave: int, step: int, name: str) -> None:
        with self._transaction():
            self._db.execute("UPDATE wave SET step = ? WHERE run = ? AND wave = ?", (step, run, wave))
            self._append(run, wave, "step_begun", {"step": step, "name": name})

    def end_step(
        self,
        run: str,
        wave: int,
        step: int,
        judged: Mapping[str, tuple[str, str | None]],
        changes: Mapping[str, Sequence[Any]],
        evidence: str | None,
    ) -> None:
        """A step is over: who turned out bad in it and why (`{host: (state, reason)}`), and what it changed on whom."""
        now = text_of(self.clock())
        with self._transaction():
            self._db.execute(
                "UPDATE wave SET step = ?, evidence = coalesce(?, evidence) WHERE run = ? AND wave = ?",
                (step + 1, evidence, run, wave),
            )
            self._judge(run, now, judged)
            for host, items in changes.items():
                row = self._db.execute("SELECT changes FROM host WHERE run = ? AND host = ?", (run, host)).fetchone()
                if row is not None and items:
                    known = Untold().of(host, [*json.loads(row["changes"] or "[]"), *items])
                    kept = _kept(known)
                    self._db.execute(
                        "UPDATE host SET changes = ? WHERE run = ? AND host = ?", (json.dumps(kept), run, host)
                    )
                    if len(kept) < len(known):
                        self._append(run, wave, NOT_KEPT, {"host": host, "changes": len(known) - len(kept)})
            self._append(run, wave, "step_ended", {"step": step, "evidence": evidence, "judged": dict(judged)})

    def end_wave(self, run: str, wave: int, judged: Mapping[str, tuple[str, str | None]], *, stop: bool) -> None:
        """The gate has spoken. `judged` has every host of the wave."""
        now = text_of(self.clock())
        with self._transaction():
            self._judge(run, now, judged)
            self._db.execute(
                "UPDATE wave SET state = ?, ended = ? WHERE run = ? AND wave = ?",
                ("stopped" if stop else "done", now, run, wave),
            )
            self._append(run, wave, "gate", {"stop": stop, "judged": dict(judged)})

    def note(self, run: str, kind: str, wave: int | None = None, **data: Any) -> None:
        """An event that changes nothing else."""
        with self._transaction():
            self._append(run, wave, kind, data)

    def _judge(self, run: str, now: str, judged: Mapping[str, tuple[str, str | None]]) -> None:
        self._db.executemany(
            "UPDATE host SET state = ?, reason = ?, ended = ? WHERE run = ? AND host = ?",
            [(state, reason, now, run, host) for host, (state, reason) in judged.items()],
        )

    def _append(self, run: str, wave: int | None, kind: str, data: Mapping[str, Any]) -> None:
        self._db.execute(
            "INSERT INTO event (run, at, wave, kind, data) VALUES (?, ?, ?, ?, ?)",
            (run, text_of(self.clock()), wave, kind, json.dumps(data)),
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # -- read ----------------------------------------------------------------------------------------------------------

    def runs(self, inventories: Sequence[str] | None = None) -> list[Record]:
        """All of them, or those of these inventories, in order: what was ordered and how it ended, without waves."""
        with self._readable():
            runs = [self._run(row) for row in self._db.execute("SELECT * FROM run ORDER BY rowid")]
        return [run for run in runs if inventories is None or run["order"]["inventories"] == [*inventories]]

    def record(self, run: str | None = None, inventories: Sequence[str] | None = None) -> Record:
        """Everything about a run, or the latest one of these inventories: what `--json` prints and the report shows.

        `{schema_version, run, kind, of, version, attempt, order, policy, created, ended, outcome, reason,
        counts: {state: hosts}, models: {host: state}, waves: [{wave, clusters, state, step, started, ended, evidence,
        hosts: [{host, cluster, serves, state, reason, started, ended, changes: [...]}]}]}`; null is not known.
        """
        if not run:
            if not (known := self.runs(inventories)):
                raise NoRun(f"no rollout of {', '.join(inventories or ['this fleet'])} has begun ({self.folder})")
            run = str(known[-1]["run"])
        with self._readable():
            row = self._db.execute("SELECT * FROM run WHERE run = ?", (run,)).fetchone()
            found = row and self._run(row)
        if found is None:
            latest = ", ".join(item["run"] for item in self.runs(inventories)[-5:]) or "none"
            raise JournalError(f"no run is called {run}; the latest are: {latest}")
        if inventories is not None and (theirs := found["order"]["inventories"]) != [*inventories]:
            raise JournalError(f"{run} is a run of another inventory: {' '.join(f'-i {name}' for name in theirs)}")
        with self._readable():
            parts = self._parts(run)
            written.refuse_parts(parts)
        return {**found, **parts}

    def _parts(self, run: str) -> Record:
        """What a record has beside the run itself."""
        hosts = self._db.execute("SELECT * FROM host WHERE run = ? ORDER BY wave, place", (run,)).fetchall()
        waves = self._db.execute("SELECT * FROM wave WHERE run = ? ORDER BY wave", (run,)).fetchall()
        states = [host["state"] for host in hosts]
        of_wave: dict[Any, list[sqlite3.Row]] = {}
        for host in hosts:
            of_wave.setdefault(host["wave"], []).append(host)
        return {
            "counts": {state: states.count(state) for state in (*GOOD, *BAD) if state in states},
            "models": self.models(run),
            "waves": [
                {
                    **_without(wave, "run"),
                    "clusters": json.loads(wave["clusters"]),
                    "hosts": [
                        {
                            **_without(host, "run", "wave", "place"),
                            "serves": bool(host["serves"]),
                            "changes": json.loads(host["changes"] or "[]"),
                        }
                        for host in of_wave.get(wave["wave"], ())
                    ],
                }
                for wave in waves
            ],
        }

    def earlier(self, record: Mapping[str, Any]) -> list[Record]:
        """The records of the runs of the same inventories before that one, in order."""
        names = self._mates(record)
        return [self.record(name) for name in names[: names.index(record["run"])]]

    def later(self, record: Mapping[str, Any]) -> list[Record]:
        """The records of those after it."""
        names = self._mates(record)
        return [self.record(name) for name in names[names.index(record["run"]) + 1 :]]

    def _mates(self, record: Mapping[str, Any]) -> list[str]:
        return [run["run"] for run in self.runs(record["order"]["inventories"])]

    def models(self, run: str) -> dict[str, str]:
        """Return what became of the model of each host that the run was about to stop, as far as anybody heard."""
        return self._by_host(run, MODELS, "models", str, {})

    def unheard(self, run: str) -> set[str]:
        """Return the hosts that a step was at work on when it was cut, or that turned out bad in one."""
        begun: dict[int | None, set[str]] = {}
        at_work, found = set[str](), set[str]()
        with self._readable():
            for event in self.events(run):
                kind, data = event["kind"], event["data"]
                if kind == WAVE_BEGUN:
                    begun[event["wave"]] = {*data["hosts"]}
                elif kind == "step_begun":
                    at_work = begun[event["wave"]]
                elif kind == "step_ended":
                    found |= {host for host, (state, __) in data["judged"].items() if state not in GOOD}
                    at_work = set()
                elif kind == "resumed":
                    found, at_work = found | at_work, set()
                elif kind == OTHER_BOARDS:
                    found, at_work = found - {*data["hosts"]}, at_work - {*data["hosts"]}
        return found | at_work

    def boards(self, run: str) -> dict[str, written.Board | None]:
        """Return which board was behind the name of each host when the run began to work there; None is not known."""
        return self._by_host(run, WAVE_BEGUN, "boards", written.Board | None, {"boards": {}})

    def _by_host(self, run: str, kind: str, word: str, shape: Any, usual: Mapping[str, Any]) -> dict[str, Any]:
        """Return what events of a kind say of each host, the last word of each; `usual`: where one does not say it."""
        found: dict[str, Any] = {}
        rows = self._db.execute("SELECT data FROM event WHERE run = ? AND kind = ? ORDER BY id", (run, kind))
        with self._readable():
            for row in rows:
                found |= {**usual, **json.loads(row["data"])}[word]
            written.refuse(found, dict[str, shape], word)
        return found

    def events(self, run: str) -> list[Record]:
        """`{at, wave, kind, data}`, in order."""
        with self._readable():
            rows = self._db.execute("SELECT at, wave, kind, data FROM event WHERE run = ? ORDER BY id", (run,))
            found = [{**dict(row), "data": json.loads(row["data"])} for row in rows]
            written.refuse(found, list[written.Event], "events")
        return found

    def seconds(self, playbook: str) -> float | None:
        """Return how long a wave of that playbook took, the median of all waves that ended; None where none has."""
        rows = self._db.execute(
            "SELECT wave.started, wave.ended FROM wave JOIN run USING (run)"
            " WHERE wave.state = 'done' AND json_extract(run.\"order\", '$.playbook') = ?",
            (playbook,),
        ).fetchall()
        with self._readable():
            found = [(moment_of(row["ended"]) - moment_of(row["started"])).total_seconds() for row in rows]
        return statistics.median(found) if found else None

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """SQLite finds a damage in its own pages; one in what we wrote comes to us as it is."""
        try:
            yield
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            text = f"{self.folder / 'journal.db'} is damaged: {kind}{str(error)[:100]}"
            raise JournalError(f"{text}; {WAY_OUT}") from None

    @staticmethod
    def _run(row: sqlite3.Row) -> Record:
        said = {**dict(row), "order": json.loads(row["order"]), "policy": json.loads(row["policy"])}
        written.refuse_run(said)
        return {"schema_version": SCHEMA_VERSION, **said}


def refusal(kind: str, reason: str) -> Record:
    """The record of a run that was refused before it began: the same keys as of one that is in a journal."""
    return {
        "schema_version": SCHEMA_VERSION,
        **{"run": None, "kind": kind, "of": None, "version": __version__, "attempt": 0, "order": {}, "policy": {}},
        **{
            "created": None,
            "ended": None,
            "outcome": "refused",
            "reason": reason,
            "counts": {},
            "models": {},
            "waves": [],
        },
    }


def _kept(changes: Sequence[Record]) -> list[Record]:
    """The first of them, as many as a journal keeps: each step reads them all, and the page of the run shows them."""
    lengths = accumulate(len(json.dumps(change)) for change in changes)
    return [change for change, length in zip(changes, lengths, strict=True) if length <= MOST_KEPT]


def _without(row: sqlite3.Row, *keys: str) -> Record:
    return {key: value for key, value in dict(row).items() if key not in keys}


def hosts_of(record: Mapping[str, Any]) -> Iterable[Record]:
    """Every host of a run's record, in the order of the waves."""
    return (host for wave in record["waves"] for host in wave["hosts"])


def changes_of(record: Mapping[str, Any]) -> dict[str, list[Record]]:
    """Return what a run has changed on each of its hosts, as far as playbooks of ours say it."""
    return {host["host"]: host["changes"] for host in hosts_of(record)}
