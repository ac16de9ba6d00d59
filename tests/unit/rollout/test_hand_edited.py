"""A journal that a hand or a disk has changed, at any place of the right form: a sentence, and no traceback."""

from __future__ import annotations

import contextlib
import copy
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gb10_fleet import report
from gb10_fleet.enrol.judging import Known
from gb10_fleet.report import model, page
from gb10_fleet.rollout import boards, locks, loop, models, recipes, shown, who, window
from gb10_fleet.rollout.journal import MODELS, Journal, JournalError
from gb10_fleet.rollout.live import Silent
from gb10_fleet.rollout.waves import FleetHost, Policy, Refused, Wave
from tests.support.answers import GONE, altered, places
from tests.support.attacker import TRIES, Compared, tally

NOW = datetime(2026, 11, 21, 1, 0, tzinfo=UTC)
HOSTS = [FleetHost("a", "pair", serves=True), FleetHost("b", "pair", serves=True), FleetHost("c")]
WAVES = [Wave(1, ("a", "b"), ("pair",)), Wave(2, ("c",), ())]
POLICY = Policy("10%", ("100%",), 0, 60, 60, ("Sat,Sun 22:00-06:00",))
CHANGE = {"role": "driver", "resource": "package:x", "action": "update", "detail": "1 -> 2"}
WRONG: tuple[Any, ...] = (
    None, True, -1, 2**62, 10**400, 1.5, "", "text", "\0", "../../x", [], ["text"], [7], [{}], {}, {"a": 1}, GONE,
    "9999-12-31T23:59:59Z",
)  # fmt: skip


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """A run whose first wave is done, and whose second one is under way."""
    recipe = recipes.forward("site", [], to=["OTA2607", "vllm/vllm-openai:v0.20.0"])
    recipe = recipes.replace(recipe, directory=str(tmp_path))
    (tmp_path / "evidence.json").write_text('{"clusters": [], "hosts": {}}')
    with Journal(tmp_path / "state", write=True, clock=lambda: NOW) as journal:
        run = journal.begin("rollout", asdict(recipe), asdict(POLICY), HOSTS, WAVES)
        journal.begin_wave(run, 1, ["a", "b"], {"a": {"machine": "m", "macs": ["48:b0:2d:00:00:01"]}, "b": None})
        journal.note(run, MODELS, 1, models={"a": "stopped"})
        journal.end_step(run, 1, 0, {}, {"a": [CHANGE]}, str(tmp_path))
        journal.end_wave(run, 1, {"a": ("done", None), "b": ("failed", "no space")}, stop=False)
        journal.begin_wave(run, 2, ["c"])
    return tmp_path / "state"


def use(folder: Path) -> None:
    """What the commands do with a journal."""
    with Journal(folder) as journal:
        record = journal.record()
        shown.summary(record)
        shown.way_on(record, folder)
        shown.where(record)
        journal.seconds("site")
        going = loop.Rollout(journal, record["run"], lambda: None, None)  # type: ignore[arg-type, return-value]
        window.opening(going.policy.window, NOW)
        going.policy.tolerated(2)
        who.touched(record)
        models.down(record)
        for host, board in journal.boards(record["run"]).items():
            boards.another(board, Known(host, "n", [], "Spark", "2026-11-01"))
        for refusing in (recipes.back, recipes.refuse_resume):
            with contextlib.suppress(Refused):
                refusing(record, journal.later(record))
        report.put(journal)


def cells(folder: Path) -> Iterator[tuple[str, str, int, Any]]:
    with contextlib.closing(sqlite3.connect(folder / "journal.db")) as db:
        db.row_factory = sqlite3.Row
        for table in ("run", "wave", "host", "event"):
            for number, row in enumerate(db.execute(f"SELECT * FROM {table}")):  # noqa: S608 - names of this test
                for column in row.keys():  # noqa: SIM118 - of a row
                    yield table, column, number, row[column]


def altogether(said: Any) -> Iterator[Any]:
    """Other values of a cell, and of JSON in it each value changed."""
    yield from (wrong for wrong in WRONG if not isinstance(wrong, (list, dict, bool)) and wrong is not GONE)
    yield b"\xff"
    with contextlib.suppress(TypeError, ValueError):
        whole = json.loads(said)
        if isinstance(whole, (dict, list)):
            yield from (json.dumps(wrong) for wrong in WRONG if wrong is not GONE)
            yield from (
                json.dumps(altered(copy.deepcopy(whole), way, wrong)) for way in places(whole) for wrong in WRONG
            )


def _put(folder: Path, table: str, column: str, number: int, said: Any) -> None:
    key = "id" if table == "event" else table
    refused = (sqlite3.Error, OverflowError)
    with contextlib.closing(sqlite3.connect(folder / "journal.db")) as db, contextlib.suppress(*refused), db:
        which = f"(SELECT {key} FROM {table} ORDER BY {key} LIMIT 1 OFFSET {number})"  # noqa: S608 - names of this test
        db.execute(f'UPDATE {table} SET "{column}" = ? WHERE {key} = {which}', (said,))  # noqa: S608


def test_a_journal_that_a_hand_has_changed_is_a_sentence(sound: Path, capsys: pytest.CaptureFixture[str]) -> None:
    use(sound)
    tries, lost, step = 0, list[str](), 1 if TRIES > 1000 else 7
    found = list(cells(sound))
    for file in sound.glob("journal.db-*"):
        file.unlink()
    with contextlib.closing(sqlite3.connect(sound / "journal.db")) as db:
        for trigger in ("event_stays", "event_never_goes"):
            db.execute(f"DROP TRIGGER {trigger}")
    kept = (sound / "journal.db").read_bytes()
    for table, column, number, said in found:
        for wrong in [*altogether(said)][number % step :: step]:
            (sound / "journal.db").write_bytes(kept)
            _put(sound, table, column, number, wrong)
            tries += 1
            try:
                use(sound)
            except (JournalError, Refused, sqlite3.Error, OSError):
                pass
            except Exception as error:
                lost.append(f"{table}.{column} = {wrong!r:.150}: {error!r:.200}")
    capsys.readouterr()
    tally("a journal changed by hand", tries, len(lost))
    assert tries > 200 and not lost, f"{len(lost)} of {tries}: " + "\n".join(lost[:40])


def test_nothing_of_anybody_else_is_cleared_away(tmp_path: Path) -> None:
    """A folder of one's own for --state lost its checkout `gb10-fleet`."""
    with Journal(tmp_path, write=True) as journal:
        left = [tmp_path / "gb10-fleet", tmp_path / ".jobs/gb10-x"]
        for folder in left:
            folder.mkdir(parents=True)
        loop.clear(journal, Silent())
    assert [folder.is_dir() for folder in left] == [True, False]


@pytest.mark.parametrize(
    "said", ["[" * 4000, "{}", "5", '{"pid": "x", "started": 1, "boot_id": "", "run": null, "since": ""}']
)
def test_a_lock_that_says_nonsense_is_a_lock(tmp_path: Path, said: str) -> None:
    with locks.held(tmp_path):
        (tmp_path / "lock").write_text(said)
        with pytest.raises(locks.Busy, match="another gb10 is at work"), locks.held(tmp_path):
            pass
        assert locks.owner(tmp_path) == locks.Owner(0, 0, "", None, "")


@pytest.mark.parametrize("role", ["{{ lookup('ansible.builtin.pipe', 'id') }}", "all", "docker,firewall", ""])
def test_a_role_that_is_none_is_no_change(sound: Path, role: str) -> None:
    _put(sound, "host", "changes", 0, json.dumps([{**CHANGE, "role": role}]))
    with Journal(sound) as journal, pytest.raises(JournalError, match="the changes of a are no list of changes"):
        journal.record()


def test_changes_without_an_end_are_compared_with_none(tmp_path: Path) -> None:
    """In a second step 37,000 took two minutes, and all of a rollout an hour, in which nobody could end it."""

    Compared.times = 0
    many = [Compared(role="r", resource=f"file:{number}") for number in range(2000)]
    with Journal(tmp_path, write=True) as journal:
        run = journal.begin("rollout", {}, {}, HOSTS, WAVES)
        for step in range(2):
            journal.end_step(run, 1, step, {}, {"a": many}, None)
        (kept,) = journal._db.execute("SELECT changes FROM host WHERE host = 'a'").fetchone()
    tally("a host says so much that a run does not end", 2 * len(many), int(Compared.times > 10 * len(many)))
    assert json.loads(kept) == many and Compared.times <= 10 * len(many) + len(many)


PROOF: dict[str, Any] = {
    "clusters": [
        {
            "hosts": ["a", "b"], "verdict": "healthy", "serving": {"tokens_per_s": 5.0},
            "pairings": [{"server": {"host": "a"}, "client": {"host": "b"}, "severity": "ok", "verdict": "as_planned",
                          "figures": {"gbps": 190.0}}],
        }
    ],
    "hosts": {"a": {"findings": [{"id": "security_floor", "fact": "x"}]}, "b": {"findings": []}},
}  # fmt: skip
DRIFT: dict[str, Any] = {
    "created": "2026-11-21T02:00:00Z", "clean": 1, "drifted": ["a"], "silent": [],
    "hosts": {"a": {"state": "drift", "changes": {"r": [{"resource": "x", "action": "y"}]}, "silence": None}},
}  # fmt: skip


def test_a_proof_that_a_hand_has_changed_is_left_out_of_the_report(sound: Path) -> None:
    with Journal(sound) as journal:
        record, events = journal.record(), journal.events(journal.record()["run"])
    tries, lost = 0, list[str]()
    for which, whole in ((0, PROOF), (1, DRIFT)):
        for way in places(whole):
            for wrong in WRONG:
                said: list[Any] = [PROOF, DRIFT]
                said[which] = altered(whole, way, wrong)
                tries += 1
                try:
                    page.render(model.build(record, events, {1: said[0]}, said[1], NOW))
                except Exception as error:
                    lost.append(f"{way} = {wrong!r:.80}: {error!r:.200}")
    tally("a proof changed by hand", tries, len(lost))
    assert tries > 300 and not lost, f"{len(lost)} of {tries}: " + "\n".join(lost[:40])
