"""What a person pastes: a value in a command that the controller writes is a word that no shell changes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# What runs on the controller. In an answer of a host a way out is ours only in the forms of hosts/advice.py.
CONTROLLER = ("gb10_fleet", "plugins")
OF_HOSTS = ROOT / "plugins/module_utils"
HERE_TOO = tuple(OF_HOSTS / name for name in ("checks", "system"))
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*\Z")
# Whole commands, made word by word elsewhere.
COMMANDS = {
    ("gb10_fleet/services_cli.py", "self.command('ps')"): "shlex.quote of --limit, and ending.by_name of the inventory",
    ("gb10_fleet/services_cli.py", "fleet.command('ps')"): "the same",
    ("plugins/plugin_utils/plans/firewall.py", "line.add"): "ports, and the interfaces that `_named` lets through",
}


def pasted(source: str) -> Iterator[ast.expr]:
    """The values that stand in backticks of a text, and those that take the place of a `{name}` in a catalog's."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.JoinedStr(values=parts):
                ticks = 0
                for part in parts:
                    if isinstance(part, ast.FormattedValue) and ticks % 2:
                        yield part.value
                    ticks += part.value.count("`") if isinstance(part, ast.Constant) else 0
            case ast.Call(func=ast.Attribute(attr="replace"), args=[ast.Constant(value=str(name)), value, *_]):
                if re.fullmatch(r"\{\w+\}", name):
                    yield value


def is_a_word(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in ("shlex.quote", "shlex.join")
    return isinstance(value, ast.Name) and CONSTANT.match(value.id) is not None


def found() -> Iterator[tuple[str, str, bool]]:
    for path in sorted(path for folder in CONTROLLER for path in (ROOT / folder).rglob("*.py")):
        if OF_HOSTS not in path.parents or any(folder in path.parents for folder in HERE_TOO):
            for value in pasted(path.read_text(encoding="utf-8")):
                yield str(path.relative_to(ROOT)), ast.unparse(value), is_a_word(value)


def test_a_value_in_a_command_is_quoted_for_the_shell() -> None:
    """The name of a time daemon came from a host, and a person pastes what stands behind `Fix:`."""
    said = list(found())
    assert len(said) > 20, "the gate reads the code"
    bare = {(path, value) for path, value, word in said if not word}
    assert bare - COMMANDS.keys() == set(), "shlex.quote() or shlex.join() makes a word of it"
    assert COMMANDS.keys() - bare == set(), "these are quoted by now"


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("f'`journalctl -u {unit}` says why'", ["unit"]),
        ("f'`a` {name} `b {shlex.quote(unit)} {unit!r} {_OWN}`'", ["unit"]),
        ("way_out.replace('{unit}', unit).replace(':', other)", ["unit"]),
        ("f'of {name}: ' f'`x ' f'{\" \".join(words)}`'", ["' '.join(words)"]),
    ],
)
def test_the_gate_sees_what_stands_in_backticks(text: str, bare: list[str]) -> None:
    assert [ast.unparse(value) for value in pasted(text) if not is_a_word(value)] == bare
