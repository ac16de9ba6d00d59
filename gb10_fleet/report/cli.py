"""`gb10 report`: one page of a rollout.

What it runs on is imported when it runs: templates and Ansible would cost every other command 0.3 s.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import effort

from gb10_fleet.home import resolved
from gb10_fleet.options import Told
from gb10_fleet.rollout.cli import refusals
from gb10_fleet.rollout.journal import Journal, place

app = typer.Typer()


@app.command("report", cls=Told)
def make(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="Its name; else the latest.")] = None,
    inventory: Annotated[
        list[str] | None,
        typer.Option(
            "--inventory", "-i", help="The fleet's inventory: the journal lies beside it.", show_default=False
        ),
    ] = None,
    state: Annotated[Path | None, typer.Option("--state", help="Where the journal lies, if it is elsewhere.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json, and write nothing.")] = False,
) -> None:
    """Write what a rollout did as one HTML page, also while it is at work. Asks no host."""
    from gb10_fleet import report

    with refusals(as_json), effort.files(), Journal(place(inventory or [], state)) as journal:
        name = journal.record(run, resolved(inventory) if inventory else None)["run"]
        if as_json:
            print(json.dumps(report.of(journal, name), indent=2))
        else:
            print(report.put(journal, name))
