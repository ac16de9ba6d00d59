"""A folder that somebody has handed over: its journal, its proofs, its links."""

from __future__ import annotations

import os
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.system import texts
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import effort
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import draft_figures
from typer.testing import CliRunner

from gb10_fleet import cli, report
from gb10_fleet.report import page
from gb10_fleet.rollout import locks, recipes
from gb10_fleet.rollout.journal import Journal, JournalError
from gb10_fleet.rollout.waves import FleetHost, Policy, Wave
from tests.support.attacker import tally

PAGE = 4096
POLICY = Policy("10%", ("100%",), 0, 60, 60, ())
MANY = "WITH RECURSIVE many(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM many LIMIT 9) SELECT was.* FROM was, many"
MANY_VALUES = '{"":0},' * 600_000  # 4 MB, of which some 120 are made here
LARGE = "SELECT *, hex(zeroblob(9)) AS more FROM was"


@pytest.fixture
def handed(tmp_path: Path) -> Path:
    """A sound one, as `gb10 rollout` writes it."""
    order = recipes.replace(recipes.forward("site", [], to=["OTA2607"]), directory=str(tmp_path))
    with Journal(tmp_path / "state", write=True) as journal:
        run = journal.begin("rollout", asdict(order), asdict(POLICY), [FleetHost("a")], [Wave(1, ("a",), ())])
        journal.end_step(run, 1, 0, {}, {}, str(tmp_path / "proof"))
    return tmp_path / "state"


def refused(folder: Path) -> bool:
    try:
        with Journal(folder) as journal:
            report.put(journal)
    except JournalError:
        return True
    return False


@contextmanager
def in_time() -> Iterator[None]:
    """Whoever waits for a pipe is woken, again and again."""

    def late(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 20, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("view", [MANY, LARGE], ids=["rows without an end", "a large cell"])
def test_a_table_that_is_a_view_is_no_journal(handed: Path, view: str) -> None:
    """One without an end held `gb10 report` for ever: SQLite heard no Ctrl-C. One with a large cell took 2.8 GB."""
    assert not refused(handed)
    with closing(sqlite3.connect(handed / "journal.db")) as db:
        db.executescript(f"ALTER TABLE run RENAME TO was; CREATE VIEW run AS {view};")
    won = not refused(handed)
    tally("a journal that somebody has made", 1, int(won))
    assert not won


def test_a_journal_that_a_tool_has_looked_at_is_one(handed: Path) -> None:
    with closing(sqlite3.connect(handed / "journal.db")) as db:
        db.execute("ANALYZE")
        db.execute("VACUUM")
    assert not refused(handed)


def _page(kind: int, child: int, cells: int) -> bytes:
    """A page of a tree, with the same page below it again and again."""
    body, at, places = bytearray(PAGE), PAGE, list[int]()
    for _ in range(cells):
        at -= 5
        body[at : at + 5] = struct.pack(">IB", child, 1)
        places.append(at)
    body[:12] = struct.pack(">BHHHBI", kind, 0, cells, at, 0, child)
    body[12 : 12 + 2 * cells] = struct.pack(f">{cells}H", *places)
    return bytes(body)


def test_a_page_that_is_read_again_and_again_is_a_damage(handed: Path) -> None:
    """Our own tables. With five such pages, one below the other, 52 KB had 10 million million rows."""
    file = handed / "journal.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'run' AND type = 'table'").fetchone()
    raw = bytearray(file.read_bytes())
    assert struct.unpack(">H", raw[16:18]) == (PAGE,)
    raw += raw[(root - 1) * PAGE : root * PAGE]
    raw[(root - 1) * PAGE : root * PAGE] = _page(5, len(raw) // PAGE, 3)
    raw[28:32] = struct.pack(">I", len(raw) // PAGE)
    file.write_bytes(raw)
    won = not refused(handed)
    tally("a journal that somebody has made", 1, int(won))
    assert not won


@pytest.mark.parametrize("linked", [False, True], ids=["beside it", "beside what it is a link to"])
def test_an_undo_log_of_sqlite_removes_no_file_of_ours(handed: Path, tmp_path: Path, linked: bool) -> None:
    """SQLite believes a rollback journal that it finds there, and removes the file that it calls its master."""
    (ours := tmp_path / "share-authority-key.txt").touch()
    file, name = handed / "journal.db", str(ours).encode()
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    magic = bytes.fromhex("d9d505f920a163d7")
    head = magic + struct.pack(">IIIII", 0, 1, file.stat().st_size // PAGE, 512, PAGE)
    tail = struct.pack(">I", 2**30 // PAGE + 1) + name + struct.pack(">II", len(name), sum(name)) + magic
    (log := handed / "journal.db-journal").write_bytes(head.ljust(512, b"\0") + tail)
    if linked:
        (handed / "real").mkdir()
        for each in (file, log):
            each.rename(handed / "real" / each.name)
        file.symlink_to("real/journal.db")
    said = refused(handed)
    tally("a journal that somebody has made", 1, int(not (said and ours.exists())))
    assert said and ours.exists()


def in_little(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run some lines with 64 MiB for all that they read. In a new process: the heap of this one has room left."""
    limit = f"import sys; import {effort.__name__} as effort; effort.FILES_LIMIT = effort.MEMORY_LIMIT = 64 * 2**20\n"
    command = [sys.executable, "-c", limit + program, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


COMMAND = "from gb10_fleet.cli import main; main()"


@pytest.mark.parametrize("where", ["proofs", "the journal"])
def test_all_files_of_a_stranger_have_one_bound_together(handed: Path, tmp_path: Path, where: str) -> None:
    """A file had 48 MiB, and of 48 MiB 1.5 GB can be made here: two proofs, or a row of the journal, took 2.8 GB."""
    text = f"[{MANY_VALUES}0]"
    (tmp_path / "proof").mkdir()
    if where == "proofs":
        (tmp_path / "proof/evidence.json").write_text(f'{{"hosts": {text}}}')
    else:
        with closing(sqlite3.connect(handed / "journal.db")) as db:
            db.execute("UPDATE host SET changes = ?", (text,))
            db.commit()
    done = in_little(COMMAND, "report", "--state", str(handed))
    told = " ".join((done.stdout + done.stderr).split())
    tally("files of a stranger that take more memory than they may", 1, int("MiB of memory" not in told))
    assert done.returncode == 4 and "takes more than 64 MiB of memory" in told, told


def test_a_proof_that_takes_too_much_to_show_is_left(tmp_path: Path) -> None:
    (tmp_path / "evidence.json").write_text(f"[{MANY_VALUES}0]")
    done = in_little(COMMAND, "evidence", str(tmp_path))
    assert done.returncode == 2 and "MiB of memory" in " ".join(done.stderr.split())


def test_earlier_results_that_take_too_much_are_left_out(tmp_path: Path) -> None:
    for number, more in ((3, "[]"), (2, f"[{MANY_VALUES}0]"), (1, "[]")):
        (folder := tmp_path / f"2026110{number}T000000Z").mkdir()
        (folder / "benchmark.json").write_text(f'{{"schema_version": 1, "more": {more}}}')
    assert len(draft_figures.earlier(tmp_path, "benchmark.json", 1)) == 3
    program = f"""
from pathlib import Path
from {draft_figures.__name__} import earlier
print(len(earlier(Path(sys.argv[1]), "benchmark.json", 1)))
"""
    assert in_little(program, str(tmp_path)).stdout == "1\n", "the newest"


def test_many_waves_look_through_no_host_and_event_again(handed: Path) -> None:
    """5 MB of a journal took minutes, and 50 MB hours."""
    many, at = 12_000, "2026-01-01T00:00:00Z"
    with Journal(handed, write=True) as journal:
        run = journal.record()["run"]
        waves = [(run, number, "[]", "running", 0, at) for number in range(2, many)]
        hosts = [(run, 1, f"h{number}", 0, 0, "done") for number in range(many)]
        journal._db.execute("BEGIN")
        for table, columns, rows in (
            ("wave", "run, wave, clusters, state, step, started", waves),
            ("host", "run, wave, host, serves, place, state", hosts),
            ("event", "run, at, wave, kind, data", [(run, at, 1, "x", "{}")] * many),
        ):
            marks = ", ".join("?" * len(rows[0]))
            journal._db.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)  # noqa: S608 - ours
        journal._db.execute("COMMIT")
    began = time.process_time()
    with Journal(handed) as journal:
        page.page_model(report.of(journal))
    took = time.process_time() - began
    tally("a journal that somebody has made", 1, int(took > 8))
    assert took < 8


def test_a_report_is_written_beside_its_journal_and_nowhere_else(handed: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (handed / "reports").symlink_to(tmp_path / "elsewhere")
    with Journal(handed) as journal, pytest.raises(OSError, match="is a link"):
        report.put(journal)
    tally("a link in a folder that somebody has made", 1, len(list((tmp_path / "elsewhere").iterdir())))
    assert not [*(tmp_path / "elsewhere").iterdir()]


@pytest.mark.parametrize("kind", ["a pipe", "a device", "without an end"])
def test_a_proof_that_is_no_plain_file_is_no_proof(handed: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "proof").mkdir()
    file = tmp_path / "proof/evidence.json"
    if kind == "a pipe":
        os.mkfifo(file)
    elif kind == "a device":
        file.symlink_to("/dev/null")
    else:
        with file.open("wb") as sparse:
            sparse.truncate(texts._LARGEST_FILE + 1)

    with in_time():
        said = CliRunner().invoke(cli.app, ["evidence", str(tmp_path / "proof")])
        assert not refused(handed), "a report leaves it out"
    told = " ".join(said.output.split())
    tally("a file of a stranger that is no plain file", 1, int("cannot be read" not in told))
    assert said.exit_code == 2 and "cannot be read" in told


def test_a_lock_that_is_a_pipe_is_waited_for_by_nobody(handed: Path) -> None:
    (handed / "lock").unlink(missing_ok=True)
    os.mkfifo(handed / "lock")
    with in_time():
        assert locks.owner(handed) is None
