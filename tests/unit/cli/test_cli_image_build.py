"""`gb10 image build`: what came of it, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gb10_fleet import cli, image_build
from gb10_fleet.playbook import Order, Outcome, Report

CLI = CliRunner()
SAID = {"verdict": "nothing", "image": "", "digests": [], "json": "", "lines": ["no gap: nothing \x1b[31mto build"]}
UNKNOWN = "spark-z is no host or group there; `ansible-inventory -i inventory/mine --graph` lists them"


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """The orders that were given; each run says the same."""
    given: list[Order] = []

    def run(order: Order, *, quiet: bool) -> tuple[Outcome, Report]:
        given.append(order)
        errors = ["[ERROR]: no hosts", UNKNOWN] if order.limit == "spark-z" else []
        report = Report(asks=order.asks, errors=errors)
        for host, action in (("spark-a", image_build.MODULE), ("spark-b", "ansible.builtin.debug")):
            built = {"resolved_action": action, "host": host, "res": {**SAID, "changed": False}}
            report.take({"event": "runner_on_ok", "event_data": built})
        return Outcome.failed if errors else Outcome.done, report

    monkeypatch.setattr(image_build, "run", run)
    return given


def test_lines_are_told_with_their_host(orders: list[Order], tmp_path: Any) -> None:
    result = CLI.invoke(cli.app, ["image", "build", "-i", str(tmp_path), "--host", "spark-a", "--check"])
    assert (result.exit_code, result.stdout) == (0, "spark-a: no gap: nothing \\x1b[31mto build\n")
    assert (orders[0].playbook, orders[0].limit, orders[0].check) == ("gb10.fleet.build_image", "spark-a", True)


def test_check_says_what_is_missing_and_shows_nothing_of_ansible(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[bool] = []

    def run(order: Order, *, quiet: bool) -> tuple[Outcome, Report]:
        said.append(quiet)
        return Outcome.failed, Report(messages={"spark-a": ["spark-a: vllm_image_base is empty\nspark-a: and more"]})

    monkeypatch.setattr(image_build, "run", run)
    command = ["image", "build", "-i", str(tmp_path), "--host", "spark-a"]
    result = CLI.invoke(cli.app, [*command, "--check"])
    assert result.stdout == "spark-a: vllm_image_base is empty\nspark-a: and more\n"
    assert (result.exit_code, result.stderr) == (2, "gb10.fleet.build_image: failed\n")
    CLI.invoke(cli.app, command)
    assert said == [True, False]  # a build takes hours, and says every ten seconds how far it is


def test_json_is_one_object(orders: list[Order], tmp_path: Any) -> None:
    result = CLI.invoke(cli.app, ["image", "build", "-i", str(tmp_path), "--host", "spark-a", "--json"])
    assert json.loads(result.stdout) == {"outcome": "done", "hosts": {"spark-a": SAID}, "messages": {}, "errors": []}
    assert orders[0].check is False


def test_a_host_that_is_not_there_is_named(orders: list[Order], tmp_path: Any) -> None:
    result = CLI.invoke(cli.app, ["image", "build", "-i", str(tmp_path), "--host", "spark-z"])
    assert result.exit_code == Outcome.failed and result.stderr.splitlines()[-1].endswith(f"failed; {UNKNOWN}")


def test_a_benchmark_of_a_host_that_is_not_there_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    report = Report(errors=["[ERROR]: no hosts", UNKNOWN])
    monkeypatch.setattr(cli, "run", lambda order, quiet: (Outcome.failed, report))
    result = CLI.invoke(cli.app, ["benchmark", "-i", str(tmp_path), "-l", "spark-z"])
    assert result.stderr == f"gb10.fleet.benchmark: failed; {UNKNOWN}\n"
    read = CLI.invoke(cli.app, ["drift", "-i", str(tmp_path), "-l", "spark-z"])
    assert read.stderr.count(UNKNOWN) == 1


def test_the_group_says_that_it_builds() -> None:
    assert "build one for a GB10" in CLI.invoke(cli.app, ["image", "--help"]).stdout
