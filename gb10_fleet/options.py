"""Options that several commands have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from gb10_fleet import passwords
from gb10_fleet.rollout import words

# ansible-playbook would wait for ever for an answer that nobody can give it.
_PROMPTS = {"ask_pass": "--ask-pass", "become_ask_pass": "--ask-become-pass", "ask_vault_pass": "--ask-vault-pass"}
# As ansible-playbook has them. In this order, for one may be the default of the next.
_ASKS = {
    passwords.CONNECTION: ("-k", "--ask-pass"),
    passwords.BECOME: ("-K", "--ask-become-pass"),
    passwords.VAULT: ("-J", "--ask-vault-pass"),
}
_LETTERS = re.compile(r"-[kKJ]+")


class Asking(TyperCommand):
    """A command that runs playbooks, and asks for passwords itself: nobody can type one for ansible-playbook."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        asks = [word for word in args if _LETTERS.fullmatch(word) or word in {long for _, long in _ASKS.values()}]
        for option, (short, long) in _ASKS.items():
            if long in asks or any(short[1] in word for word in asks if _LETTERS.fullmatch(word)):
                passwords.ask(option)
        return super().parse_args(ctx, [word for word in args if word not in asks])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-kKJ]"]


class Playbook(Asking):
    """What follows `--` is for ansible-playbook, and in `ctx.obj`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.obj = tuple(args[end + 1 :])
        if ctx.obj:
            try:
                options = words.read(ctx.obj)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from None
            for name, word in _PROMPTS.items():
                if getattr(options, name):
                    raise typer.BadParameter(f"{word} asks on the terminal, and gb10 asks itself: say it before --")
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ANSIBLE...]"]


def there(inventories: list[str]) -> list[str]:
    """A list of hosts has a comma; Ansible takes any other name that is no file for a host's, and goes on with none."""
    for name in inventories:
        if "," not in name and not Path(name).exists():
            raise typer.BadParameter(f"{name} is not there; docs/inventory.md says how to write one")
    return inventories


Inventory = Annotated[
    list[str],
    typer.Option(
        "--inventory",
        "-i",
        help="Inventory file or folder; may be given more than once.",
        show_default=False,
        callback=there,
    ),
]
Limit = Annotated[str | None, typer.Option("--limit", "-l", help="Only these hosts, as a pattern of Ansible.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of Ansible's output.")]


def pairs(words: list[str] | None, option: str) -> dict[str, str | None]:
    """`NAME=VALUE` by name; None where there is no value."""
    found: dict[str, str | None] = {}
    for word in words or []:
        name, equals, value = word.partition("=")
        if not name.strip("- "):
            raise typer.BadParameter(f"{option} {word!r}: write NAME=VALUE")
        found[name] = value if equals else None
    return found
