"""The command `gb10 top`."""

from __future__ import annotations

from typing import Annotated

import typer

from gb10_fleet.options import Inventory, Json, Limit, Playbook

app = typer.Typer()


@app.command(cls=Playbook)
def top(
    ctx: typer.Context,
    inventory: Inventory,
    limit: Limit = None,
    every: Annotated[float, typer.Option("--every", min=0.5, help="Seconds between two looks.")] = 2,
    as_json: Json = False,
) -> None:
    """Show the fleet live, until Ctrl-C: temperatures, clocks, power, memory, rails, services. Changes nothing.

    Without a terminal: a line for each look at a host. With --json: an object for each, in one line.
    """
    from gb10_fleet import top as live  # here, for no other command needs it: it reads catalogs

    raise typer.Exit(live.follow(inventory, limit, ctx.obj, every, as_json))
