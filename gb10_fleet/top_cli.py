"""The command `gb10 top`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gb10_fleet.options import Inventory, Json, Limit, NoLists

app = typer.Typer()
PACE_S = 2.0


@app.command(cls=NoLists)
def top(
    ctx: typer.Context,
    inventory: Inventory,
    limit: Limit = None,
    every: Annotated[
        float | None, typer.Option("--every", min=0.5, help="Seconds between two looks; else 2.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the fleet live, until Ctrl-C: temperatures, clocks, power, memory, rails, services. Changes nothing.

    Without a terminal it looks once and ends, as gb10 status --hosts does. With --every it goes on there: a line for
    each look at a host, or with --json an object in one line.
    """
    from gb10_fleet import top as live  # here, for no other command needs it: it reads catalogs

    if every is None and not sys.stdout.isatty():  # whoever reads it waits for the end
        raise typer.Exit(live.once(inventory, limit, ctx.obj, as_json))
    raise typer.Exit(live.follow(inventory, limit, ctx.obj, every or PACE_S, as_json))
