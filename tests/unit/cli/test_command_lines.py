"""What stands on a command line of `gb10` that cannot hold together, and what only lists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperOption
from typer.testing import CliRunner

from gb10_fleet import answers, cli, playbook
from gb10_fleet.playbook import Outcome
from tests.support.held import hold

CLI = CliRunner()
DOCS = Path(__file__).parents[3] / "docs"


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
        (["ps"], "name an inventory with -i INVENTORY (docs/inventory.md), or let `gb10 up` write one"),
        (["rollout", "site", "-i", "nowhere"], "nowhere is not there"),
        (["drift", "-i", "a,", "--nosuch"], "No such option: --nosuch"),
        (["undo", "-i", "a,"], "name the roles to take back, or say --all"),
        (["plan"], "name a model, or say --all"),
        (["catalog", "check", "--today", "soon"], "'soon' does not match the format"),
        (["report", "--nosuch"], "No such option: --nosuch"),
    ],
)
def test_a_wrong_command_line_with_json_is_one_object(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # where no inventory of `gb10 up` is
    result = CLI.invoke(cli.app, [*words, "--json"])
    assert (result.exit_code, result.stderr) == (2, "")
    answer = json.loads(result.stdout)
    assert answer.keys() == {"error"} and said in answer["error"]
    person = CLI.invoke(cli.app, words)
    assert person.exit_code == 2 and person.stdout == "" and "Usage: " in person.stderr


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["drift", "--limit", "nosuch"], Outcome.failed),
        (["explain", "nosuch"], Outcome.failed),
        (["ps", "--limit", "nosuch"], Outcome.failed),
        (["doctor", "--", "-e", "gb10_hosts=nosuch"], Outcome.failed),
        (["rollout", "site", "--plan", "--limit", "nosuch"], Outcome.refused),
    ],
)
def test_a_target_that_is_not_there_has_the_status_of_the_docs(words: list[str], status: int, inventory: str) -> None:
    result = CLI.invoke(cli.app, [words[0], "-i", inventory, *words[1:]])
    assert result.exit_code == status and "nosuch" in result.output, result.output
    text = (DOCS / "drift.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| 2 |"))
    assert "a host, a group or a `--limit` that does not exist (of a rollout the last three are 4)" in row


def test_help_says_of_which_rollouts_status_ends_with_7() -> None:
    """One that stopped at a bad wave is at its end."""
    for words in (["-h"], ["status", "-h"]):
        text = " ".join(CLI.invoke(cli.app, words).stdout.split())
        assert "killed or interrupted, and nobody goes on with it" in text and "waits for somebody" not in text


def _commands(group: Any, before: str = "") -> dict[str, Any]:
    found = {}
    for name, command in group.commands.items():
        found |= _commands(command, f"{name} ") if hasattr(command, "commands") else {before + name: command}
    return found


def test_docs_index_names_each_command_and_no_other() -> None:
    section = (DOCS / "index.md").read_text().partition("## All commands\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].partition(":")[0] for line in section.splitlines() if line.startswith("| `")]
    named = {word for row in rows for word in re.findall(r"`([^`]+)`", row)} - {"rollout --plan"}
    commands = set(_commands(typer.main.get_command(cli.app)))
    assert (commands - named, named - commands) == (set(), set()), "docs/index.md, All commands: lacks, has too much"


def test_each_option_is_on_a_page() -> None:
    """Of a pair, as of --site and --no-site, the one that changes something is enough."""
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "README.md", *DOCS.parent.glob("roles/*/README.md")]
    said = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", "\n".join(page.read_text() for page in pages)))
    commands = _commands(typer.main.get_command(cli.app))
    params = [(name, each) for name, command in commands.items() for each in command.params]
    shown = [
        (name, {*it.opts, *it.secondary_opts}) for name, it in params if isinstance(it, TyperOption) and not it.hidden
    ]
    assert not [f"{name} {min(names)}" for name, names in shown if not names & said], "only --help names these"


def test_docs_drift_names_commands_with_json() -> None:
    section = (DOCS / "drift.md").read_text().partition("### JSON\n")[2].partition("\n## ")[0]
    table = section.rpartition("|\n")[0]
    named = {word for row in table.splitlines()[4:] for word in re.findall(r"`([^`]+)`", row.split("|")[1])}
    commands = _commands(typer.main.get_command(cli.app))
    has = {name for name, command in commands.items() if any("--json" in option.opts for option in command.params)}
    assert named - {"status --hosts"} <= has, "docs/drift.md, JSON: the table names a command without --json"


def test_each_command_with_json_has_a_schema() -> None:
    commands = _commands(typer.main.get_command(cli.app))
    has = {name for name, command in commands.items() if any("--json" in option.opts for option in command.params)}
    assert has == {*answers.COMMANDS}, "gb10_fleet/answers.py: ANSWERS and the commands with --json"


def test_an_answer_with_another_key_is_none() -> None:
    """Else a schema would hold nothing."""
    with pytest.raises(AssertionError, match="'colour' was unexpected"):
        hold("doctor", json.dumps({"error": "x", "colour": "red"}))
