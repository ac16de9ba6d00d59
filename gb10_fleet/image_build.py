"""`gb10 image build`: the playbook build_image on one host, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable

from gb10_fleet.ending import end, show
from gb10_fleet.options import Inventory, Json, NoLists
from gb10_fleet.playbook import Order, run

MODULE = "gb10.fleet.image_build"
_SAID = ("verdict", "image", "digests", "json", "lines")


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
    found: dict[str, dict[str, Any]] = {}

    def watch(event: Mapping[str, Any]) -> None:
        data = event.get("event_data", {})
        if data.get("resolved_action") == MODULE and "lines" in data.get("res", {}):
            found[data["host"]] = {key: data["res"][key] for key in _SAID if key in data["res"]}

    order = Order("gb10.fleet.build_image", inventory, host, check, words=ctx.obj or ())
    outcome, report = run(order, quiet=as_json or check, watch=watch)  # with --check it only reads, and takes seconds
    if as_json:
        said = {"messages": report.messages, "errors": report.errors}
        print(json.dumps({"outcome": outcome.name, "hosts": found, **said}, indent=2))
        raise typer.Exit(outcome)
    for name, result in found.items():
        for line in result["lines"]:
            print(printable(f"{name}: {line}"))
    if check:
        show(order, report)
    end(order, outcome, report, as_json=False)
