"""The report of a rollout: valid in every state, and a page on which a host's text stays text."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from gb10_fleet import report
from gb10_fleet.cli import app
from gb10_fleet.report import page
from gb10_fleet.rollout.journal import refusal
from tests.support import stories
from tests.support.plays import ROOT

HOSTILE = "<script>alert(1)</script>\x1b[2J{{ 7 * 7 }}"


@cache
def validator() -> Any:
    schema = json.loads((ROOT / "gb10_fleet/report/report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return stories.documents(tmp_path_factory.mktemp("journals"))


@pytest.mark.parametrize("name", ["done", "stopped", "killed", "rollback", "large"])
def test_a_report_is_valid_however_the_run_stands(documents: dict[str, dict[str, Any]], name: str) -> None:
    validator().validate(documents[name])
    shown = page.render(documents[name])
    for host in documents[name]["hosts"]:
        assert f'id="host-{host}"' in shown
    assert "<script" not in shown


@pytest.mark.parametrize(
    ("outcome", "state"),
    [("failed", "failed"), ("unreachable", "unreachable"), ("refused", "failed"), ("failed", "timed_out")],
)
def test_a_report_is_valid_however_the_canary_failed(tmp_path: Path, outcome: str, state: str) -> None:
    document = stories.canary(tmp_path, outcome, state).document()
    validator().validate(document)
    assert outcome in page.render(document) and "spark-000" in page.render(document)


@pytest.mark.parametrize("kind", ["rollout", "rollback"])
def test_what_was_refused_before_it_began_is_valid_too(kind: str) -> None:
    validator().validate(refusal(kind, "no playbook"))


def test_the_schema_refuses_what_nobody_says(documents: dict[str, dict[str, Any]]) -> None:
    for key, value in (("outcome", "fine"), ("surprise", 1), ("schema_version", 2), ("counts", {"odd": 1})):
        with pytest.raises(jsonschema.ValidationError):
            validator().validate({**documents["done"], key: value})


def test_what_was_changed_says_what_of_it_was_not_kept(documents: dict[str, dict[str, Any]]) -> None:
    document = documents["done"]
    said = page.render(document).count("did not keep")
    steps = [{"host": f"spark{HOSTILE}", "changes": count} for count in (700, 50)]
    steps += [{"host": "spark-b", "changes": 1}, {"host": "spark-b", "changes": "odd"}]
    left = [{"at": "2026-11-21T01:02:03Z", "wave": 1, "kind": "not_kept", "data": data} for data in steps]
    shown = page.render({**document, "events": [*document["events"], *left]})
    assert said == 0 and "<script" not in shown
    assert "7 * 7 }}: 750 changes more, which the journal did not keep" in shown
    assert "spark-b: 1 change more, which" in shown


def test_troubles_are_said_once_with_all_names(documents: dict[str, dict[str, Any]]) -> None:
    troubles = page.page_model(documents["large"])["troubles"]
    assert [(item["state"], len(item["names"])) for item in troubles] == [
        ("unreachable", 20),
        ("unhealthy", 1),
        ("rescued", 1),
    ]
    named = f"{documents['large']['run']} -i inventory/mine`"
    assert all(
        f"gb10 resume {named}" in item["way_out"] and f"rollback {named}" in item["way_out"] for item in troubles
    )


def test_of_what_was_refused_there_is_nothing_to_take_back(documents: dict[str, dict[str, Any]]) -> None:
    troubles = page.page_model({**documents["large"], "outcome": "refused"})["troubles"]
    assert troubles and not any("rollback" in item["way_out"] for item in troubles)


def test_changes_that_nobody_has_counted_are_a_dash(documents: dict[str, dict[str, Any]]) -> None:
    document = documents["large"]
    own = [{"name": "work", "plays": [{"import_playbook": "/srv/own.yml"}]}]
    assert "0" in {row["changes"] for row in page.page_model(document)["rows"]}
    theirs = page.page_model({**document, "order": {**document["order"], "steps": own}})["rows"]
    assert page.NOBODY_LOOKED in {row["changes"] for row in theirs} and "0" not in {row["changes"] for row in theirs}


def test_the_page_names_what_was_changed_and_where(documents: dict[str, dict[str, Any]]) -> None:
    change = {"role": "driver", "resource": "package:nvidia-driver", "action": "update", "detail": "580.95 -> 580.142"}
    document = json.loads(json.dumps(documents["done"]))
    for wave in document["waves"]:
        for host in wave["hosts"]:
            host["changes"] = [change]
    everyone = [host["host"] for wave in document["waves"] for host in wave["hosts"]]
    (row,) = page.page_model(document)["changes"]
    assert row == {"hosts": everyone, "role": "driver", "resource": change["resource"], "what": row["what"]}
    shown = page.render(document)
    assert "What was changed" in shown and "update: 580.95 -&gt; 580.142" in shown
    change["detail"] = HOSTILE
    document["waves"][0]["hosts"][0]["changes"] = [change]
    assert "<script" not in page.render(document)


def test_what_proof_and_drift_scan_say_is_beside_each_host(documents: dict[str, dict[str, Any]]) -> None:
    hosts = documents["large"]["hosts"]
    assert hosts["spark-005"]["verdict"] == "unhealthy"
    assert hosts["spark-005"]["link"]["gbps"] == 26.4, "Gb/s of the port: two rails of 13.2"
    assert hosts["spark-008"]["floors"] and hosts["spark-009"]["floors"] == []
    assert hosts["spark-007"]["drift"]["state"] == "drift" and hosts["spark-006"]["drift"]["state"] == "clean"
    assert hosts["spark-200"]["verdict"] is None


def test_what_a_host_says_stays_text(tmp_path: Path) -> None:
    shown = page.render(stories.stopped(tmp_path, {"spark-002": ("failed", HOSTILE)}).document())
    assert "<script" not in shown and "&lt;script&gt;" in shown and "{{ 7 * 7 }}" in shown
    assert "default-src 'none'" in shown


def test_a_page_of_three_hundred_hosts_is_small(documents: dict[str, dict[str, Any]]) -> None:
    assert len(documents["large"]["hosts"]) == 300
    assert len(page.render(documents["large"])) < 400_000, "bytes; a browser shows more, a mail does not take it"


def test_the_command_writes_both_files_and_says_where(tmp_path: Path) -> None:
    story = stories.done(tmp_path)
    done = CliRunner().invoke(app, ["report", "--state", str(tmp_path)])
    assert done.exit_code == 0 and Path(done.output.strip()) == tmp_path / "reports" / story.run / report.PAGE
    document = json.loads((tmp_path / "reports" / story.run / report.DOCUMENT).read_text())
    validator().validate(document)
    said = CliRunner().invoke(app, ["report", story.run, "--state", str(tmp_path), "--json"])
    assert {**json.loads(said.output), "generated": None} == {**document, "generated": None}


@pytest.mark.parametrize(
    ("words", "because"),
    [(["--state", "nowhere"], "no rollout of this fleet has begun"), (["nonsense"], "no run is called nonsense")],
)
def test_the_command_says_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], because: str
) -> None:
    monkeypatch.chdir(tmp_path)
    stories.done(tmp_path / ".gb10")
    done = CliRunner().invoke(app, ["report", *words])
    assert done.exit_code == 4 and because in done.output
