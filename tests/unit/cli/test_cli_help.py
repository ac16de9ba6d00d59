"""What `--help` shows: groups, words for types, two examples of each command that can be typed, nothing cut."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models
from typer.testing import CliRunner

from gb10_fleet import cli, helping

CLI = CliRunner()


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, command


ALL = dict(commands(typer.main.get_command(cli.app)))


def test_each_command_is_in_one_group() -> None:
    grouped = [name for names in helping.GROUPS.values() for name in names]
    names = {name.split()[0] for name in ALL}
    lacks, too_much = names - set(grouped), set(grouped) - names
    assert (lacks, too_much) == (set(), set()), "gb10_fleet/helping.py, GROUPS: lacks, has too much"
    assert len(grouped) == len(names), "gb10_fleet/helping.py, GROUPS: a command is in two groups"


def test_nothing_is_cut_and_the_exit_statuses_come_last() -> None:
    for group in ([], ["catalog"], ["image"], ["switch"]):
        shown = CLI.invoke(cli.app, [*group, "--help"]).stdout
        assert "..." not in shown.replace("[ARGS]...", "") and max(map(len, shown.splitlines())) <= 80, shown
    text = CLI.invoke(cli.app, ["--help"]).stdout
    assert text.index("Change a fleet:") < text.index("Exit status:")


@pytest.mark.parametrize("name", sorted(ALL))
def test_each_command_has_two_examples_that_can_be_typed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("inventory/mine", "gb10-fleet/inventory"):
        Path(tmp_path, folder).mkdir(parents=True)
    Path(tmp_path, "gb10-fleet/inventory/hosts.yml").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    text = CLI.invoke(cli.app, [*name.split(), "--help"]).stdout
    lines = helping.examples(name)
    assert len(lines) == 2, f"gb10_fleet/helping.py, EXAMPLES: {name} needs two examples"
    assert all(f"  {line}\n" in text for line in lines)
    for line in lines:
        words = shlex.split(line)[1 + len(name.split()) :]
        ALL[name].make_context(name, words)
    assert not re.search(r"<(str|int|float|list|path)", text)


def test_the_models_of_the_examples_are_in_the_catalog() -> None:
    """Any other is looked for on the hub: the first command that somebody copies would fail without it."""
    named = {word for line in helping.EXAMPLES["plan"] + helping.EXAMPLES["up"] for word in line.split() if "/" in word}
    assert named and all(models.find(name) for name in named)


def test_a_command_starts_without_ansible() -> None:
    """Half of the time of `gb10 --version` once was a name in an `except`, whose module asks hosts."""
    code = "import sys, gb10_fleet.cli; print(*(name for name in sys.modules if name.partition('.')[0] == 'ansible'))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []
