"""`gb10 bundle`: what it packs, what it says is missing, and that it tells of nobody."""

from __future__ import annotations

import json
import stat
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gb10_fleet import bundle, cli, playbook
from gb10_fleet.callback import gb10_events
from tests.support.attacker import tally
from tests.support.health import reading

CLI = CliRunner()
PLAYBOOK = Path(__file__).parents[3] / "playbooks/bundle.yml"
FACTS = json.loads((Path(__file__).parents[2] / "fixtures/facts/spark.json").read_text())
NAMES = {
    "host": ["spark-a", "spark-b"],
    "cluster": ["acme"],
    "client": ["laptop-of-joe"],
    "reach": ["192.0.2.11", "b.corp.example"],
    "user": ["jane"],
}
LOG = (
    "spark-a gb10-vllm: peer 192.0.2.12 of spark-b is silent, prompt: 'my illness'\n"
    '198.51.100.7 "laptop-of-joe" "http://registry.corp.example/x" 200 12 B\n'
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The next run has spark-a answer, and spark-b not; returns the call."""
    monkeypatch.chdir(tmp_path)
    seen: dict[str, Any] = {"log": LOG}

    def runner(**call: Any) -> SimpleNamespace:
        seen.update(call)

        def said(kind: str, host: str, result: dict[str, Any], **data: Any) -> None:
            call["event_handler"]({"event": kind, "event_data": {"host": host, "res": result, **data}})

        said("runner_on_ok", "spark-a", {"msg": json.dumps(NAMES)}, step="names")
        health = reading(unknown={"zones": "it cannot be read"})
        read = {"health": health, "services": [], "coherence": {}, "ansible_facts": {"gb10_spark": FACTS}}
        said("runner_on_ok", "spark-a", read, resolved_action="gb10.fleet.spark_facts")
        said(
            "runner_on_unreachable",
            "spark-b",
            {"msg": "Failed to connect to the host via ssh: no route", "unreachable": True},
        )
        roles = {"vllm": {"settings": [{"name": "vllm_api_key", "value": "x"}]}}
        said("runner_on_ok", "spark-a", {"roles": roles}, step="explained")
        said("runner_on_ok", "spark-a", {"stdout": seen["log"], "rc": 0}, step="units")
        said("runner_on_ok", "spark-a", {"stdout": "", "stderr": "no journal", "rc": 1}, step="kernel")
        counts = {"ok": {"spark-a": 4}, "dark": {"spark-b": 1}}
        call["event_handler"]({"event": "playbook_on_stats", "event_data": counts})
        return SimpleNamespace(rc=4)

    monkeypatch.setattr(cli, "run", lambda order, quiet=False: playbook.run(order, quiet=quiet, runner=runner))
    return seen


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {entry.name: archive.extractfile(entry).read().decode() for entry in archive}  # type: ignore[union-attr]


def test_what_is_in_it_and_what_is_not(asked: dict[str, Any], tmp_path: Path) -> None:
    result = CLI.invoke(cli.app, ["bundle", "spark-a", "spark-b", "--out", "x.tar.gz", "-i", "a,"])
    assert result.exit_code == 3, result.output
    assert (asked["playbook"], asked["limit"]) == ("gb10.fleet.bundle", "spark-a,spark-b")
    files = unpacked(tmp_path / "x.tar.gz")
    assert set(files) == {
        bundle.CONTENTS,
        *(f"host-1/{name}" for name in ("why.txt", "why.json", "facts.json", "health.json", "services.json")),
        *(f"host-1/{name}" for name in ("coherence.json", "explained.json", "units.log", "kernel.log")),
    }
    contents = files[bundle.CONTENTS]
    assert "host-1/facts.json: versions, disks, rails, packages" in contents
    missing = contents.partition("Not in it:\n")[2]
    assert "host-2: nothing: " in missing and "host-1: zones: it cannot be read" in missing
    assert "host-1: kernel: no journal" in missing
    assert contents in result.output, "its owner reads the list"
    assert "host-1 is spark-a, host-2 is spark-b" in result.output and "Read it before" in result.output
    assert stat.S_IMODE((tmp_path / "x.tar.gz").stat().st_mode) == 0o600


def test_it_tells_of_nobody(asked: dict[str, Any], tmp_path: Path) -> None:
    CLI.invoke(cli.app, ["bundle", "spark-a", "--out", "x.tar.gz", "-i", "a,"])
    files = unpacked(tmp_path / "x.tar.gz")
    whole = "\n".join([*files, *files.values()])
    macs = [each["mac"] for each in FACTS["interfaces"]]
    for name in ("spark-a", "spark-b", "acme", "jane", "joe", "corp", "192.0.2.", FACTS["boot_id"], "illness", *macs):
        assert name not in whole, name
    assert files["host-1/units.log"].startswith("host-1 gb10-vllm: peer network-1.12 of host-2 is silent")
    assert '"vllm_api_key"' in files["host-1/explained.json"]


def test_it_is_bounded(asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MOST", 1000)
    asked["log"] = "x" * 5000
    CLI.invoke(cli.app, ["bundle", "spark-a", "--out", "x.tar.gz", "-i", "a,"])
    files = unpacked(tmp_path / "x.tar.gz")
    assert len(files["host-1/units.log"]) == 1000
    assert "host-1/units.log: the end, beyond 1000 bytes" in files[bundle.CONTENTS]
    monkeypatch.setattr(bundle, "MOST_OF_ALL", 1500)
    CLI.invoke(cli.app, ["bundle", "spark-a", "--out", "y.tar.gz", "-i", "a,"])
    assert sum(len(text) for name, text in unpacked(tmp_path / "y.tar.gz").items() if name != bundle.CONTENTS) <= 1500


# What lower() and a pattern without case make of these letters differs; half of a pair of UTF-16 is no text to write.
@pytest.mark.parametrize("log", ["peer \u017fpark-a is silent", "half \ud800 a pair"])
def test_letters_of_a_hostile_host_end_no_bundle(asked: dict[str, Any], tmp_path: Path, log: str) -> None:
    asked["log"] = f"{log}, spark-b too"
    result = CLI.invoke(cli.app, ["bundle", "spark-a", "--out", "x.tar.gz", "-i", "a,"])
    lost = result.exit_code != 3 or "host-2 too" not in unpacked(tmp_path / "x.tar.gz")["host-1/units.log"]
    tally("a log of a host stops its bundle", 1, int(lost))
    assert not lost, result.exception


@pytest.mark.parametrize("kind", ["deep", "words"])
def test_a_log_of_a_hostile_host_costs_what_another_costs(asked: dict[str, Any], tmp_path: Path, kind: str) -> None:
    log: Any = ["z" * 2**20]
    for _ in range(400):
        log = [log]
    asked["log"] = log if kind == "deep" else "z" * 2**20  # once 2 min for 100 KiB
    began = time.process_time()
    result = CLI.invoke(cli.app, ["bundle", "spark-a", "--out", "x.tar.gz", "-i", "a,"])
    lost = result.exit_code != 3 or time.process_time() - began > 20
    tally("a log of a host stops its bundle", 1, int(lost))
    assert not lost and "host-1/units.log" in unpacked(tmp_path / "x.tar.gz"), result.output


def test_a_file_that_is_there_is_not_replaced(asked: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    result = CLI.invoke(cli.app, ["bundle", "spark-a", "--out", "x", "-i", "a,"])
    assert (result.exit_code, (tmp_path / "x").read_text()) == (2, "mine")
    assert "is there already" in result.output and "playbook" not in asked
    result = CLI.invoke(cli.app, ["bundle", "spark-a", "--out", "no/x", "-i", "a,"])
    assert result.exit_code == 2 and "cannot be written" in result.output


@pytest.mark.parametrize(("more", "heard"), [({"__gb10_step": "units"}, True), ({}, False)])
def test_gb10_hears_what_a_command_of_ours_printed(more: dict[str, str], heard: bool) -> None:
    sent: list[dict[str, Any]] = []
    listener = gb10_events.CallbackModule.__new__(gb10_events.CallbackModule)
    listener._play, listener._step = "", None
    listener._send = lambda event, **data: sent.append(data)  # type: ignore[method-assign]
    task = SimpleNamespace(resolved_action="ansible.builtin.command", action="command", name="x", vars=more)
    result = SimpleNamespace(task=task, host=SimpleNamespace(get_name=lambda: "a"), result={"stdout": "x"})
    listener._send_result("runner_on_ok", result, heard=False)
    assert ("res" in sent[0]) is heard


def test_the_playbook_has_the_steps_that_are_asked_for() -> None:
    (play,) = yaml.safe_load(PLAYBOOK.read_text())
    steps = {task.get("vars", {}).get("__gb10_step", "gb10.fleet.spark_facts") for task in play["tasks"]}
    assert steps == set(bundle.ASKS)
