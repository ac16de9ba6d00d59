"""`gb10`: the collection's playbooks as a command, for people and for scripts.

Exit status: 0 done, 2 failed, 3 a host gave no answer, 4 refused before anything changed, 5 something drifted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from gb10_fleet import __version__, evidence
from gb10_fleet.playbook import Order, Outcome, Report, run

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, rich_markup_mode=None)

Inventory = Annotated[str, typer.Option("--inventory", "-i", help="Inventory file or folder.", show_default=False)]
Limit = Annotated[str | None, typer.Option(help="Only these hosts, as a pattern of Ansible.")]
Check = Annotated[bool, typer.Option("--check", help="Say what would change, change nothing.")]
Diff = Annotated[bool, typer.Option("--diff", help="Show the changes line by line.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of Ansible's output.")]


def _run(order: Order, as_json: bool) -> NoReturn:
    outcome, report = run(order, quiet=as_json)
    _end(order, outcome, report, as_json)


def _end(
    order: Order, outcome: Outcome, report: Report, as_json: bool, drift: Mapping[str, Any] | None = None
) -> NoReturn:
    """Say how it ended, and end. `drift` is the result of a scan that came before."""
    if as_json:
        answer = {
            "playbook": order.playbook,
            "outcome": outcome.name,
            "hosts": report.hosts,
            "findings": report.findings,
            "evidence": report.evidence,
        }
        if drift := drift or report.drift:
            answer["drift"] = {key: drift[key] for key in ("clean", "drifted", "silent", "converge", "hosts")}
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
    inventory: Inventory,
    limit: Limit = None,
    drifted: Annotated[
        bool, typer.Option("--drifted", help="Scan for drift first, then run for drifted hosts only.")
    ] = False,
    check: Check = False,
    diff: Diff = False,
    as_json: Json = False,
) -> None:
    """Doctor, state, validate: from a fresh image to a proven, serving cluster."""
    if drifted:
        _site_of_drifted(inventory, limit, check, diff, as_json)
    _run(Order("gb10.fleet.site", inventory, limit, check, diff), as_json)


def _site_of_drifted(inventory: str, limit: str | None, check: bool, diff: bool, as_json: bool) -> NoReturn:
    scan = Order("gb10.fleet.drift", inventory, limit)
    outcome, report = run(scan, quiet=as_json)
    drift = report.drift
    if not drift.get("limit"):  # clean, or silent, or the scan itself failed
        if not as_json:
            Console(stderr=True).print("no host to converge" if drift else "the scan failed")
        _end(scan, outcome, report, as_json)
    order = Order("gb10.fleet.site", inventory, f"@{drift['limit']}", check, diff)
    outcome, report = run(order, quiet=as_json)
    if outcome is Outcome.done and drift["silent"]:
        outcome = Outcome.unreachable
    _end(order, outcome, report, as_json, drift)


@app.command()
def drift(inventory: Inventory, limit: Limit = None, as_json: Json = False) -> None:
    """Ask all hosts at once what differs from what was applied. Changes nothing."""
    _run(Order("gb10.fleet.drift", inventory, limit), as_json)


@app.command()
def undo(
    inventory: Inventory,
    roles: Annotated[
        list[str] | None, typer.Argument(metavar="ROLE...", help="What to take back.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Take everything back.")] = False,
    limit: Limit = None,
    check: Check = False,
    diff: Diff = False,
    as_json: Json = False,
) -> None:
    """Put back what stood on the hosts before a role, or before all of them."""
    if bool(roles) == everything:
        raise typer.BadParameter("name the roles to take back, or say --all; one of the two")
    named = "all" if everything else ",".join(roles or [])
    _run(Order("gb10.fleet.undo", inventory, limit, check, diff, {"gb10_undo": named}), as_json)


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
