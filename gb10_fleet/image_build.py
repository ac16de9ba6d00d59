"""`gb10 image build`: the playbook build_image on one host, and what came of it."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable

from gb10_fleet.ending import end, show
from gb10_fleet.options import Inventory, Json, NoLists
from gb10_fleet.playbook import Order, run

MODULE = "gb10.fleet.image_build"
_FOR_PROGRAMS = ("verdict", "image", "digests", "json", "lines")


def register(app: typer.Typer) -> None:
    """Beside `gb10 image inspect`."""
    app.command(cls=NoLists)(build)


def build(
    ctx: typer.Context,
    inventory: Inventory,
    host: Annotated[str, typer.Option("--host", help="The host that builds.", show_default=False)],
    check: Annotated[bool, typer.Option("--check", help="Say what would be built, build nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Build an image for a GB10 and prove it. Says so where there is nothing to build. Changes no service."""
    order = Order("gb10.fleet.build_image", inventory, host, check, words=ctx.obj or (), asks={MODULE: "lines"})
    outcome, report = run(order, quiet=as_json or check)  # with --check it only reads, and takes seconds
    results = report.answers[MODULE]
    if as_json:
        hosts = {name: {key: result[key] for key in _FOR_PROGRAMS if key in result} for name, result in results.items()}
        more = {"messages": report.messages, "errors": report.errors}
        print(json.dumps({"outcome": outcome.name, "hosts": hosts, **more}, indent=2))
        raise typer.Exit(outcome)
    for name, result in results.items():
        for line in result["lines"]:
            print(printable(f"{name}: {line}"))
    if check:
        show(order, report)
    end(order, outcome, report, as_json=False)
