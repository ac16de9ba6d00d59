"""`gb10`: the collection's playbooks as a command, for people and for scripts.

Exit status: 0 done, 2 failed, 3 a host was unreachable, 4 the doctor refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gb10_fleet import __version__, evidence
from gb10_fleet.playbook import Order, Outcome, run

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, rich_markup_mode=None)

Inventory = Annotated[str, typer.Option("--inventory", "-i", help="Inventory file or folder.", show_default=False)]
Limit = Annotated[str | None, typer.Option(help="Only these hosts, as a pattern of Ansible.")]
Check = Annotated[bool, typer.Option("--check", help="Say what would change, change nothing.")]
Diff = Annotated[bool, typer.Option("--diff", help="Show the changes line by line.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of Ansible's output.")]


def _run(order: Order, as_json: bool) -> None:
    outcome, report = run(order, quiet=as_json)
    if as_json:
        answer = {
            "playbook": order.playbook,
            "outcome": outcome.name,
            "hosts": report.hosts,
            "findings": report.findings,
            "evidence": report.evidence,
        }
        print(json.dumps(answer, indent=2))
    elif outcome is not Outcome.done:
        Console(stderr=True).print(f"{order.playbook}: {outcome.name}")
    raise typer.Exit(outcome)


@app.command()
def doctor(inventory: Inventory, limit: Limit = None, as_json: Json = False) -> None:
    """Look at every host, and refuse what would not work. Changes nothing."""
    _run(Order("gb10.fleet.doctor", inventory, limit), as_json)


@app.command()
def site(
    inventory: Inventory, limit: Limit = None, check: Check = False, diff: Diff = False, as_json: Json = False
) -> None:
    """Doctor, host, fabric, serving, validate: from a fresh image to a proven, serving cluster."""
    _run(Order("gb10.fleet.site", inventory, limit, check, diff), as_json)


@app.command()
def validate(inventory: Inventory, limit: Limit = None, as_json: Json = False) -> None:
    """Measure the fabric, ask the model, write the evidence. Changes nothing on the hosts."""
    _run(Order("gb10.fleet.validate", inventory, limit), as_json)


@app.command("evidence")
def show_evidence(
    path: Annotated[Path, typer.Argument(help="Folder or evidence.json of one proof.")] = Path("evidence/latest"),
) -> None:
    """Show what a proof found. The page beside it, index.html, shows more."""
    file = path / "evidence.json" if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise typer.BadParameter(f"{file} is not there; `gb10 validate -i INVENTORY` writes one") from None
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"{file} is not JSON: {error}") from None
    evidence.show(data, Console(), page=file.with_name("index.html"))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"gb10-fleet {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


def main() -> None:
    app()
