"""What `--help` shows beside the options: commands in groups, types in words, two examples of each command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable
from typer.core import TyperGroup

GROUPS: dict[str, Sequence[str]] = {
    "Start": ("up", "seed", "enrol", "discover", "doctor", "plan", "site", "validate"),
    "Look": (
        *("ps", "status", "top", "explain", "why", "drift", "release"),
        *("evidence", "report", "bundle", "catalog", "benchmark"),
    ),
    "Serve": ("ask", "logs", "share", "stop", "start", "swap", "layout", "fetch", "image"),
    "Change a fleet": ("rollout", "resume", "rollback", "undo", "power", "replace", "retire", "switch"),
}
_MINE = "-i inventory/mine"
# Behind `gb10 COMMAND`: first as after `gb10 up`, whose inventory needs no name, then with one of your own.
EXAMPLES: dict[str, tuple[str, str]] = {
    "ask": ("'Why is the sky blue?'", f"'Write a haiku' chat {_MINE} --limit spark-a"),
    "benchmark": ("", f"{_MINE} --limit spark-a"),
    "bundle": (f"spark-a --out trouble.tar.gz {_MINE}", f"spark-a spark-b --out trouble.tar.gz {_MINE}"),
    "catalog check": ("", "--all"),
    "discover": ("", "192.0.2.11 192.0.2.12 -u nvidia --output inventory/mine/hosts.yml"),
    "doctor": ("", f"{_MINE} --limit spark-a"),
    "drift": ("", f"{_MINE} --json"),
    "enrol": (f"~/seeds {_MINE}", f"~/seeds spark-a {_MINE} --minutes 20 --no-site"),
    "evidence": ("", "evidence/latest/evidence.json"),
    "explain": ("spark-a", f"spark-a vllm {_MINE} --defaults"),
    "fetch": ("vllm", f"vllm {_MINE} --limit spark-a"),
    "image build": (f"--host spark-a {_MINE} --check", f"--host spark-a {_MINE}"),
    "image inspect": (f"vllm/vllm-openai:latest {_MINE}", f"vllm/vllm-openai:latest {_MINE} --json"),
    "layout": ("", f"night {_MINE} --at 'Mon..Fri 22:00'"),
    "logs": ("vllm", f"vllm {_MINE} --lines 200 --no-follow"),
    "plan": ("Qwen/Qwen3-8B", "--all"),
    "power": ("state", f"spark-a cycle {_MINE} --check"),
    "ps": ("", f"{_MINE} --use"),
    "release": ("", f"plan {_MINE} --to newest"),
    "replace": ("spark-a 192.0.2.21", f"spark-a 192.0.2.21 {_MINE} --yes"),
    "report": ("", _MINE),
    "resume": ("", f"{_MINE} --json"),
    "retire": ("spark-a", f"spark-a {_MINE} --models --check"),
    "rollback": ("RUN", f"RUN {_MINE} --json"),
    "rollout": ("site --plan", f"site {_MINE}"),
    "seed": (f"--out ~/seeds {_MINE}", f"spark-a --out ~/seeds --way autoinstall {_MINE}"),
    "share": ("laptop", "--revoke laptop"),
    "site": ("", f"{_MINE} --check --diff"),
    "start": ("vllm", f"vllm {_MINE} --prove"),
    "status": ("", f"{_MINE} --hosts"),
    "stop": ("vllm", f"vllm {_MINE} --until 07:00"),
    "switch apply": ("", f"{_MINE} --yes"),
    "switch check": ("", f"{_MINE} --load"),
    "switch plan": ("", f"{_MINE} --json"),
    "swap": ("chat big", f"chat big {_MINE} --yes"),
    "top": ("", f"{_MINE} --every 5 --json"),
    "undo": ("gateway", f"--all {_MINE} --check"),
    "up": ("", "192.0.2.11 192.0.2.12 --model Qwen/Qwen3-8B"),
    "validate": ("", f"{_MINE} --limit spark-a"),
    "why": ("spark-a", f"spark-a {_MINE} --load"),
}
# What Python calls a type, anywhere in its name, and the word for it; choices are shown as they are.
_WORDS = (("int", "NUMBER"), ("float", "NUMBER"), ("path", "PATH"), ("str", "TEXT"))


def name_types(params: Sequence[Any]) -> None:
    """Name the value of each option and argument in a word; Python's own names tell an operator nothing."""
    for param in params:
        if param.param_type_name == "argument":
            param.display_type = lambda ctx: ""  # its name says what it is
        elif param.metavar is None and not param.is_flag:
            # In older versions of typer the type itself, with a name like it.
            kind = getattr(getattr(param, "type_descriptor", None), "annotation", None) or param.type
            param.metavar = next((word for name, word in _WORDS if name in str(kind).lower()), None)


def examples(name: str) -> list[str]:
    """Return the examples of a command, as in `image build`, ready to be typed."""
    return [f"gb10 {name} {words}".rstrip() for words in EXAMPLES.get(name, ())]


class Listed(TyperGroup):
    """Commands of which nothing is left out: a long line is wrapped."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        self.section(formatter, "Commands", self.list_commands(ctx))

    def section(self, formatter: Any, title: str, names: Sequence[str]) -> None:
        mine = [(name, command) for name in names if (command := self.commands.get(name)) and not command.hidden]
        if mine:
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str(1000)) for name, command in mine])


class Grouped(Listed):
    """The commands by what they are for. A command of no group comes last.

    What is wrong with a question may quote a file of a stranger: a model's header, an evidence.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = printable(error.message.removeprefix("Value error, "), "\n")  # as typer 0.29 begins some
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        known = {name for names in GROUPS.values() for name in names}
        rest = [name for name in self.list_commands(ctx) if name not in known]
        for title, names in {**GROUPS, "More": rest}.items():
            self.section(formatter, title, names)
