"""Options that several commands have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from ansible_collections.gb10.fleet.plugins.module_utils.system.folders import Planted, planted
from typer.core import TyperCommand

from gb10_fleet import helping, home, passwords
from gb10_fleet.rollout import words

# ansible-playbook would wait for ever for an answer that nobody can give it.
_PROMPTS = {"ask_pass": "--ask-pass", "become_ask_pass": "--ask-become-pass", "ask_vault_pass": "--ask-vault-pass"}
# As ansible-playbook has them. In this order, for one may be the default of the next.
_ASKS = {
    passwords.CONNECTION: ("-k", "--ask-pass"),
    passwords.BECOME: ("-K", "--ask-become-pass"),
    passwords.VAULT: ("-J", "--ask-vault-pass"),
}
_LISTS = "--list-hosts, --list-tasks, --list-tags and --syntax-check"
_BESIDE = ("group_vars", "host_vars", home.KNOWN_HOSTS)  # what is read there beside an inventory
_LETTERS = re.compile(r"-[kKJ]+")
# What click has for every mistake on a command line: a name of its own in each version of typer.
_USAGE: Any = typer.BadParameter.__mro__[1]


@contextmanager
def _one_object(as_json: bool) -> Iterator[None]:
    """A program gets one object, whatever happens; a person gets the usage as well."""
    try:
        yield
    except _USAGE as error:
        if not as_json:
            raise
        print(json.dumps({"error": error.format_message()}, indent=2))
        raise typer.Exit(2) from None


class Told(TyperCommand):
    """A command whose wrong options are JSON, too, where --json is among them."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        helping.name_types(self.params)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        super().format_epilog(ctx, formatter)
        if lines := helping.examples(ctx.command_path.partition(" ")[2]):
            with formatter.section("Examples"):
                for line in lines:
                    formatter.write(f"{' ' * formatter.current_indent}{line}\n")

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        mine = args[: args.index("--")] if "--" in args else args
        with _one_object("--json" in mine):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _one_object(bool(ctx.params.get("as_json"))):
            return super().invoke(ctx)


class Asking(Told):
    """A command that runs playbooks, and asks for passwords itself: nobody can type one for ansible-playbook."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        longs = {long for _, long in _ASKS.values()}
        ctx.meta[__name__] = asks = [word for word in args if _LETTERS.fullmatch(word) or word in longs]
        return super().parse_args(ctx, [word for word in args if word not in asks])

    def invoke(self, ctx: Any) -> Any:
        """What is wrong with the other words is said before anybody types."""
        asks = ctx.meta[__name__]
        letters = [set(word[1:]) for word in asks if _LETTERS.fullmatch(word)]
        wanted = [
            option for option, (short, long) in _ASKS.items()
            if long in asks or any(short[1] in word for word in letters)
        ]  # fmt: skip
        both = (passwords.CONNECTION, passwords.BECOME)
        if any({"k", "K"} <= word for word in letters):  # said in one breath, it is one password
            passwords.ask(*both)
            wanted = [option for option in wanted if option not in both]
        for option in wanted:
            passwords.ask(option)
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-kKJ]"]


class Playbook(Asking):
    """Hands on what follows `--` to ansible-playbook, in `ctx.obj`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.obj = tuple(args[end + 1 :])
        options = _of_ansible(ctx.obj) if ctx.obj else None
        rest = super().parse_args(ctx, args[:end])
        if options is not None:
            _refuse_second_limit(ctx.params, options.subset)
            if words.lists(options):
                self.refuse_lists(ctx.params)
        return rest

    def refuse_lists(self, params: dict[str, Any]) -> None:
        """Words with which Ansible only lists: it prints text, and asks no host."""
        if params.get("as_json"):
            raise typer.BadParameter(f"{_LISTS} print text of Ansible: leave --json out")
        if params.get("drifted"):
            raise typer.BadParameter(f"--drifted asks the hosts first, and {_LISTS} ask none: leave one of them out")

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ANSIBLE...]"]


class NoLists(Playbook):
    """A command that makes something of what the hosts say; where Ansible only lists, they say nothing."""

    def refuse_lists(self, params: dict[str, Any]) -> None:
        raise typer.BadParameter(
            f"gb10 {self.name} has nothing to show with {_LISTS}, for these ask no host. They go with doctor, site,"
            " drift, undo, validate and benchmark"
        )


class Waves(Playbook):
    """A command of rollouts: what it refuses has the keys of a run."""

    def refuse_lists(self, params: dict[str, Any]) -> None:
        pass


def _of_ansible(said: Sequence[str]) -> Any:
    try:
        options = words.read(said)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    for name, word in _PROMPTS.items():
        if getattr(options, name):
            raise typer.BadParameter(f"{word} asks on the terminal, and gb10 asks itself: say it before --")
    return options


def _refuse_second_limit(params: dict[str, Any], second: str | None) -> None:
    """Of two limits Ansible takes one and says nothing of the other."""
    for name, word in (("limit", "--limit "), ("host", "the host ")):
        if second and (first := params.get(name)):
            both = f"for the hosts of both, --limit '{first}:&{second}' before --"
            way_out = both if name == "limit" else "no --limit"
            raise typer.BadParameter(
                f"{word}{first} stands before --, and --limit {second} after it. Only one of them would count. "
                f"Write {way_out}"
            )


def there(inventories: list[str]) -> list[str]:
    """A list of hosts has a comma; Ansible takes any other name that is no file for a host's, and goes on with none."""
    inventories = [*inventories] or home.default()
    if not inventories:
        raise typer.BadParameter("name an inventory with -i INVENTORY (docs/inventory.md), or let `gb10 up` write one")
    for name in inventories:
        if "," not in name and not home.is_there(name):
            raise typer.BadParameter(f"{name} is not there; docs/inventory.md says how to write one")
        taken = [Path(name)] if "," in name else map(home.folder_of(name).joinpath, _BESIDE)
        if theirs := next(filter(planted, taken), None):  # what an inventory says may be a program
            raise typer.BadParameter(f"{Planted(theirs)}; work in a folder of your own")
    return inventories


Inventory = Annotated[
    list[str],
    typer.Option(
        "--inventory",
        "-i",
        metavar="PATH",
        help="Inventory file or folder, more than one if need be. Else that of the project, or of gb10 up.",
        show_default=False,
        default_factory=list,
        callback=there,
    ),
]
Limit = Annotated[
    str | None, typer.Option("--limit", "-l", metavar="HOSTS", help="Only these hosts, as a pattern of Ansible.")
]
Check = Annotated[bool, typer.Option("--check", help="Say what would change, change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
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
