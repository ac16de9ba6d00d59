"""Holds each answer that a test gets with `--json` to the schema that docs/json.md shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import typer.main
import typer.testing
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from gb10_fleet import answers

# To put the commands together is half of what a command line of a test costs. They are the same for all.
typer.testing._get_command = cache(typer.main.get_command)


@cache
def validator(command: str) -> Any:
    schema = answers.schema()
    assert command in schema["$defs"], f"gb10_fleet/answers.py does not say what gb10 {command} --json prints"
    return Draft202012Validator({**schema, "$ref": f"#/$defs/{command}"})


def command_of(words: Sequence[str]) -> str:
    """The command of a line; the tests of `discover` call its own app, which has no other."""
    first, second = (*words, "", "")[:2]
    return next((name for name in (f"{first} {second}", first) if name in answers.COMMANDS), "discover")


def hold(command: str, output: str) -> None:
    """One object, or with `gb10 top` one on each line."""
    try:
        found = [json.loads(output)]
    except ValueError:
        found = [json.loads(line) for line in output.splitlines()]
    assert found, f"gb10 {command} --json prints nothing"
    for one in found:
        wrong = list(validator(command).iter_errors(one))
        nearest = [f"{[*part.path]}: {part.message}" for error in wrong for part in error.context or [error]]
        assert not wrong, f"gb10 {command} --json: {json.dumps(one)[:300]}\n" + "\n".join(nearest)


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import this into a conftest.py, and each call of a command with --json is held to its schema."""
    invoke = CliRunner.invoke

    def held_to_schema(self: CliRunner, app: Any, args: Any = None, **more: Any) -> Any:
        result = invoke(self, app, args, **more)
        ended = result.exception is None or isinstance(result.exception, SystemExit)
        if ended and not isinstance(args, str) and "--json" in (args or ()):
            hold(command_of(args), result.stdout)
        return result

    monkeypatch.setattr(CliRunner, "invoke", held_to_schema)
