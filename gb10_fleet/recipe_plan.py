"""`gb10 plan --recipe vendor`: what the maker of the Spark has measured, as it stands in the catalog."""

from __future__ import annotations

from collections.abc import Mapping

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import recipes

# What can be asked of a recipe; anything else of `gb10 plan` would make another configuration of it.
_ASKED = {"model", "recipe", "hosts", "accept", "driver", "explain", "into", "group", "as_json"}


def found(ctx: typer.Context, accepted: Mapping[str, str]) -> recipes.Recipe:
    """The recipe that these options ask for, with what the rules say of it."""
    said, named = ctx.params, {each.name: each for each in ctx.command.params}
    if said["recipe"] != recipes.VENDOR:
        raise typer.BadParameter(f"--recipe is {said['recipe']!r}; there is {recipes.VENDOR}")
    more = [named[name].opts[0] for name in said if name not in _ASKED and _is_said(ctx, name)]
    if more:
        raise typer.BadParameter(f"--recipe says all of it; leave {', '.join(more)} out, or plan without --recipe")
    return recipes.judged(recipes.find(said["model"], said["hosts"] or 0), accepted, said["driver"])


def _is_said(ctx: typer.Context, name: str) -> bool:
    """Tell whether it was said on the command line, and is not the default."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
