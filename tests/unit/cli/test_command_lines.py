"""What stands on a command line of `gb10` that cannot hold together, and what only lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gb10_fleet import cli, playbook

CLI = CliRunner()


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    file = tmp_path / "hosts.yml"
    hosts = {"spark-a": {"ansible_host": "127.0.0.1", "ansible_port": 1}, "spark-b": {"ansible_connection": "local"}}
    file.write_text(json.dumps({"all": {"children": {"sparks": {"hosts": hosts}}}}))
    return str(file)


@pytest.fixture
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(order: playbook.Order, **_: Any) -> None:
        raise AssertionError(f"{order.playbook} was run")

    monkeypatch.setattr(cli, "run", run)


@pytest.mark.parametrize(
    ("command", "option", "shows"),
    [
        ("drift", "--list-hosts", "      spark-a"),
        ("site", "--list-hosts", "      spark-b"),
        ("site", "--list-tags", "TASK TAGS: [always, doctor]"),
        ("doctor", "--list-tasks", "Look at all hosts at once"),
        ("drift", "--syntax-check", "playbook: "),
    ],
)
def test_what_only_lists_works_as_with_ansible_playbook(command: str, option: str, shows: str, inventory: str) -> None:
    """It asks no host, so there is no result of one: that is no empty inventory."""
    result = CLI.invoke(cli.app, [command, "-i", inventory, "--", option])
    assert result.exit_code == 0 and shows in result.stdout, result.output
    assert "no group" not in result.output


@pytest.mark.usefixtures("no_run")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ps"], "gb10 ps has nothing to show with --list-hosts"),
        (["explain", "spark-a"], "gb10 explain has nothing to show with --list-hosts"),
        (["site", "--json"], "print text of Ansible: leave --json out"),
        (["site", "--drifted"], "--drifted asks the hosts first"),
    ],
)
def test_what_cannot_list_says_so(words: list[str], said: str, inventory: str) -> None:
    result = CLI.invoke(cli.app, [*words, "-i", inventory, "--", "--list-hosts"])
    assert result.exit_code == 2 and said in " ".join(result.output.split()), result.output


@pytest.mark.usefixtures("no_run")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["site", "--limit", "spark-a"], "Write for the hosts of both, --limit 'spark-a:&spark-b' before --"),
        (["drift", "-l", "spark-a"], "--limit spark-a stands before --, and --limit spark-b after it"),
        (["why", "spark-a"], "the host spark-a stands before --, and --limit spark-b after it"),
    ],
)
def test_a_second_limit_is_refused(words: list[str], said: str, inventory: str) -> None:
    result = CLI.invoke(cli.app, [*words, "-i", inventory, "--", "--limit", "spark-b"])
    assert result.exit_code == 2 and said in result.output, result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["site", "-i", "nowhere"], "nowhere is not there; docs/inventory.md says how to write one"),
        (["ps"], "Missing option '--inventory'"),
        (["rollout", "site", "-i", "nowhere"], "nowhere is not there"),
        (["drift", "-i", "a,", "--nosuch"], "No such option: --nosuch"),
        (["undo", "-i", "a,"], "name the roles to take back, or say --all"),
        (["plan"], "name a model, or say --all"),
        (["catalog", "check", "--today", "soon"], "'soon' does not match the format"),
        (["report", "--nosuch"], "No such option: --nosuch"),
    ],
)
def test_a_wrong_command_line_with_json_is_one_object(words: list[str], said: str) -> None:
    result = CLI.invoke(cli.app, [*words, "--json"])
    assert (result.exit_code, result.stderr) == (2, "")
    answer = json.loads(result.stdout)
    assert answer.keys() == {"error"} and said in answer["error"]
    person = CLI.invoke(cli.app, words)
    assert person.exit_code == 2 and person.stdout == "" and "Usage: " in person.stderr
