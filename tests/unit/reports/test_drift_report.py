"""What the hosts replied becomes a judgement, a document of the schema, a table for people, and files for --limit."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.run import RUN
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.scan import Reply
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import drift_report
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports.drift_report import (
    Record,
    build,
    judge,
    silent,
    table,
    write,
)

from tests.support.attacker import tally

ME = RUN.partition(" ")[0]
SCHEMA = json.loads((Path(drift_report.__file__).parent / "schemas/drift.schema.json").read_text())
NOW = datetime(2026, 11, 21, 1, 2, 3, tzinfo=UTC)
CHANGE = {"role": "driver", "resource": "hold:driver-set", "action": "update", "detail": "to hold: libcuda"}
PENDING = {"role": "fabric", "resource": "nm_profile:gb10-a", "action": "create", "consent": "fabric_allow_activation"}


def reply(status: int | None = 0, stdout: str = "", stderr: str = "") -> Reply:
    return Reply("spark-a", status, stdout, stderr)


def answer(**said: Any) -> dict[str, Any]:
    sound = {"known": True, "recorded": True, "changes": [], "pending": [], "orphans": [], "error": None}
    return {**sound, **said}


def judged(**said: Any) -> Record:
    return judge(reply(), answer(**said), 60, "sparks")


def document(clusters: dict[str, str] | None = None, **hosts: Record) -> Record:
    found = build(hosts, clusters or {}, NOW, 1.23456)
    jsonschema.validate(found, SCHEMA)
    assert json.loads(json.dumps(found)) == found
    return found


CLEAN, MISSING = judged(), judged(known=False)
DRIFTED = judged(changes=[CHANGE], pending=[PENDING])
SILENT = silent("timeout", "no answer within 60 s", "look at it")


# --- one host


def test_a_host_as_it_should_be() -> None:
    assert CLEAN == {"state": "clean", "changes": {}, "orphans": [], "wishes": [], "silence": None}


def test_a_host_without_a_manifest_is_not_clean() -> None:
    assert MISSING["state"] == "no_manifest"


def test_a_host_whose_last_run_was_killed_is_not_clean() -> None:
    assert judged(recorded=False)["state"] == "unfinished"
    assert judged(recorded=False, changes=[CHANGE])["state"] == "drift"
    found = document(a=judged(recorded=False))
    assert found["drifted"] == ["a"] and "interrupted" in table(found)


def test_an_orphan_is_shown_and_is_no_drift() -> None:
    orphan = {"role": "driver", "resource": "file:/etc/old"}
    record = judged(orphans=[orphan])
    assert (record["state"], record["orphans"]) == ("clean", [orphan])
    assert "file:/etc/old" in table(document(a=record))


def test_a_wish_is_shown_and_is_no_drift() -> None:
    wish = {"unit": "gb10-vllm.service", "who": "x@y", "since": "a", "until": "b", "shown": "07:00 CET"}
    record = judged(wishes=[wish])
    assert (record["state"], record["wishes"]) == ("clean", [wish])
    said = table(document(a=record))
    assert "gb10-vllm.service  stopped by x@y until 07:00 CET (no drift)" in said and "1 clean" in said
    assert "stopped by you (no drift)" in table(document(a=judged(wishes=[{**wish, "who": ME, "shown": ""}])))


def test_what_differs_by_role_and_what_needs_a_consent_differs_too() -> None:
    assert DRIFTED["state"] == "drift"
    assert DRIFTED["changes"]["driver"] == [
        {"resource": "hold:driver-set", "action": "update", "detail": "to hold: libcuda", "consent": None}
    ]
    (pending,) = DRIFTED["changes"]["fabric"]
    assert pending["consent"] == "fabric_allow_activation" and "fabric_allow_activation" in pending["detail"]
    assert judged(pending=[PENDING])["state"] == "drift"


def test_an_error_of_the_engine_is_no_clean_host() -> None:
    record = judged(error={"kind": "host", "message": "the manifest is damaged"})
    assert record["silence"]["reason"] == "error" and record["silence"]["text"] == "the manifest is damaged"


@pytest.mark.parametrize("said", [{}, {"known": True, "error": None}, answer(changes=["x"]), answer(error="x")])
def test_an_answer_that_is_not_as_documented(said: dict[str, Any]) -> None:
    assert judge(reply(), said, 60, "sparks")["silence"]["reason"] == "garbled"


@pytest.mark.parametrize(
    ("status", "stderr", "reason", "text"),
    [
        (255, "ssh: connect to host 192.0.2.9 port 22: No route to host", "unreachable", "No route to host"),
        (255, "Host key verification failed.", "host_key", "Host key verification failed."),
        (255, "lab@192.0.2.9: Permission denied (publickey).", "permission", "publickey"),
        (1, "sudo: a password is required", "no_sudo", "a password is required"),
        (127, "/bin/sh: 1: /usr/bin/python3: not found", "error", "/usr/bin/python3: not found"),
        (-9, "", "error", "status -9"),
        (0, "", "garbled", "welcome"),
        (None, "half a word", "timeout", "within 2.5 s: half a word"),
        (None, "", "timeout", "within 2.5 s"),
    ],
)
def test_why_a_host_is_silent(status: int | None, stderr: str, reason: str, text: str) -> None:
    record = judge(reply(status, "welcome", stderr), None, 2.5, "sparks")
    assert record["state"] == "silent" and record["changes"] == {}
    assert record["silence"]["reason"] == reason
    assert text in record["silence"]["text"]
    assert record["silence"]["way_out"]
    if reason in ("unreachable", "permission"):
        assert f"ansible {reply().host} -i INVENTORY -m raw -a true must work" in record["silence"]["way_out"]
    assert ("--limit '!sparks'" in record["silence"]["way_out"]) == (reason in ("unreachable", "permission"))
    assert ("--limit sparks -vvv" in record["silence"]["way_out"]) == (reason == "garbled")
    document(a=record)


# --- the document


def test_every_host_is_in_the_document_once() -> None:
    found = document(a=CLEAN, b=DRIFTED, c=SILENT, d=MISSING)
    assert list(found["hosts"]) == ["a", "b", "c", "d"]
    assert (found["clean"], found["drifted"], found["silent"]) == (1, ["b", "d"], ["c"])
    assert (found["created"], found["seconds"]) == ("2026-11-21T01:02:03Z", 1.23)


def test_a_cluster_is_converged_as_a_whole_or_not_at_all() -> None:
    pairs = {"a": "one", "b": "one", "c": "two", "d": "two"}
    assert document(pairs, a=CLEAN, b=DRIFTED, c=CLEAN, d=CLEAN)["converge"] == ["a", "b"]
    assert document(pairs, a=SILENT, b=DRIFTED, c=MISSING, d=CLEAN)["converge"] == ["c", "d"]
    assert document({}, a=DRIFTED, b=SILENT, c=CLEAN)["converge"] == ["a"]
    # A host of a cluster of one may be called like a cluster.
    assert document({"a": "b"}, a=CLEAN, b=DRIFTED)["converge"] == ["b"]


# --- for people


def test_the_table_says_host_role_resource_and_what_differs() -> None:
    lines = table(document({"b": "p", "c": "p"}, a=CLEAN, b=DRIFTED, c=SILENT, d=MISSING)).splitlines()
    assert lines[0] == "4 hosts: 1 clean, 2 drifted, 1 silent"
    cells = [line.split(maxsplit=3) for line in lines[1:5]]
    assert cells[0] == ["b", "driver", "hold:driver-set", "update: to hold: libcuda"]
    assert cells[1][:3] == ["b", "fabric", "nm_profile:gb10-a"]
    assert cells[2] == ["c", "silent", "timeout", "no answer within 60 s; look at it"]
    assert cells[3][0] == "d" and "never set up" in lines[4]
    assert (
        lines[5] == "not in drifted.txt, for a host of the same cluster is silent: b; repair that one, then scan again"
    )
    assert len({line.index(word) for line, word in zip(lines[1:4], ["driver", "fabric", "silent"], strict=True)}) == 1


def test_without_drift_the_table_says_that_there_is_no_limit_file() -> None:
    assert "nothing drifted, so drifted.txt is not written" in table(document(a=CLEAN))
    silent_too = table(document(a=CLEAN, b=SILENT))
    assert "nothing drifted" not in silent_too and "no host that answered drifted" in silent_too
    assert "drifted.txt" not in table(document(a=DRIFTED))


def test_every_line_of_what_is_wrong_has_a_way_out() -> None:
    orphan = judged(orphans=[{"role": "driver", "resource": "file:/etc/old"}])
    lines = table(document(a=MISSING, b=judged(recorded=False), c=orphan)).splitlines()
    assert "gb10 site" in lines[1] and "gb10.fleet.site" in lines[2]
    assert "it may stay (no drift); -e gb10_orphans=remove" in lines[3]


def test_a_host_cannot_steer_the_terminal() -> None:
    evil = {**CHANGE, "detail": "\x1b[2J\r\nspark-b: clean \u202e \ud800 \x00"}
    lines = table(document(a=judged(changes=[evil]))).splitlines()
    assert len(lines) == 3
    assert lines[1].isprintable() and r"\x1b[2J\r\nspark-b" in lines[1] and r"\u202e" in lines[1]


def test_a_table_stays_readable() -> None:
    many = judged(changes=[{**CHANGE, "resource": f"file:/etc/{number}"} for number in range(500)])
    lines = table(document(a=many)).splitlines()
    assert len(lines) < 210
    assert "300 lines more, in drift.json" in lines[-2]


def test_one_host_crowds_no_other_out_of_the_table() -> None:
    many = judged(changes=[{**CHANGE, "resource": f"file:/etc/{number}"} for number in range(10_000)])
    one = judged(changes=[{**CHANGE, "resource": "file:/own"}])
    lines = table(document(a=many, b=one, c=one)).splitlines()
    lost = [host for host in ("b", "c") if not any(line.split()[0] == host for line in lines)]
    tally("a host's own lines crowd those of the others out", 2, len(lost))
    assert not lost and len(lines) < 210


def test_a_table_ends_with_the_command_that_repairs() -> None:
    repair, beside = "to repair it: gb10 site --drifted -i INVENTORY", "what is overridden no run repairs"
    mine, theirs = CHANGE, {**CHANGE, "action": "overridden"}
    for changes, said in (([mine], [repair]), ([theirs], [beside]), ([mine, theirs], [repair, beside])):
        lines = table(document(a=judged(changes=changes))).splitlines()
        assert [line.partition(":")[0] for line in lines[-len(said) :]] == [line.partition(":")[0] for line in said]
        assert (repair in lines) is (mine in changes)


# --- files


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("action", "detail", "named"),
    [
        ("start", "failed -> active", True),
        ("start", "activating -> active", True),  # it has ended, and systemd tries again
        ("start", "inactive -> active", False),
        ("enable", "", False),
    ],
)
def test_of_a_unit_that_has_failed_the_table_names_what_says_why(action: str, detail: str, named: bool) -> None:
    change = {"role": "vllm", "resource": "unit:gb10-vllm.service", "action": action, "detail": detail}
    lines = table(document(a=CLEAN, b=judged(changes=[change]))).splitlines()
    assert ("why a unit failed: gb10 why b -i INVENTORY" in lines) is named


def test_files_for_programs_and_for_limit(tmp_path: Path) -> None:
    found = document({"a": "p", "b": "p"}, a=CLEAN, b=DRIFTED, c=SILENT)
    assert write(found, tmp_path / "new/drift") == tmp_path / "new/drift/drifted.txt"
    written = files(tmp_path / "new/drift")
    assert json.loads(written.pop("drift.json")) == found
    assert written == {"drifted.txt": "a\nb\n", "silent.txt": "c\n"}


def test_no_list_without_hosts(tmp_path: Path) -> None:
    """Ansible takes an empty limit file for all hosts."""
    write(document(a=DRIFTED, b=SILENT), tmp_path)
    assert write(document(a=CLEAN, b=CLEAN), tmp_path) is None
    assert set(files(tmp_path)) == {"drift.json"}


def test_who_reads_while_it_is_written_reads_the_old_file(tmp_path: Path) -> None:
    write(document(a=DRIFTED), tmp_path)
    with (tmp_path / "drifted.txt").open() as reader:
        write(document(b=DRIFTED), tmp_path)
        assert reader.read() == "a\n"


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(document(a=DRIFTED), tmp_path)
    before = files(tmp_path)

    class Full(io.FileIO):
        def write(self, content: Any) -> int:
            super().write(content[:1])
            raise OSError("No space left on device")

    monkeypatch.setattr(output, "created", lambda path, mode: Full(path, "x"))
    with pytest.raises(OSError, match="No space"):
        write(document(b=DRIFTED), tmp_path)
    assert files(tmp_path) == before
