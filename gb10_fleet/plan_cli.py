"""`gb10 plan`: how to serve a model."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable

from gb10_fleet.ending import wrong_question
from gb10_fleet.options import Json, Told, pairs
from gb10_fleet.playbook import Outcome

if TYPE_CHECKING:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import serving_plan

app = typer.Typer()

PlannedModel = Annotated[
    str | None, typer.Argument(help="Hugging Face id of a model or checkpoint, or its folder.", show_default=False)
]
MemoryGib = Annotated[
    float | None, typer.Option("--memory-gib", min=1, help="MemTotal of the smallest host; a Spark's if not given.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="FLAG[=VALUE]", help="A flag of vllm serve; more than once.")
]
Accept = Annotated[
    list[str] | None, typer.Option("--accept", metavar="RULE=REASON", help="Why a rule does not hold here.")
]
Facts = Annotated[
    Path | None, typer.Option("--facts", metavar="FILE", help="Facts of the model, as --write-facts prints them.")
]
DraftFacts = Annotated[
    Path | None, typer.Option("--draft-facts", metavar="FILE", help="The same of the second model that drafts tokens.")
]
Recipe = Annotated[
    str, typer.Option("--recipe", metavar="vendor", help="Exactly what the maker of the Spark has measured with it.")
]
AsService = Annotated[
    str, typer.Option("--service", metavar="NAME[=GIB]", help="As an entry of vllm_services; GiB that it may take.")
]
Ask = Annotated[str, typer.Option("--ask", metavar="HOST", help="Ask vLLM itself, in the image of this host.")]
OfAsk = Annotated[list[str] | None, typer.Option("--inventory", "-i", help="With --ask: its inventory.")]
Into = Annotated[
    Path | None,
    typer.Option("--into", metavar="INVENTORY", help="Write the lines for the inventory there; overwrites nothing."),
]


@app.command(cls=Told)
def plan(
    ctx: typer.Context,
    model: PlannedModel = None,
    recipe: Recipe = "",
    hosts: Annotated[int | None, typer.Option("--hosts", min=1, max=64, help="Sparks that serve it together.")] = None,
    memory_gib: MemoryGib = None,
    image: Annotated[str, typer.Option("--image", help="Container image; the role's default if not given.")] = "",
    version: Annotated[str, typer.Option("--image-version", help="vLLM's version in an unknown image.")] = "",
    max_model_len: Annotated[int, typer.Option("--max-model-len", min=0, help="Tokens; 0: as many as fit.")] = 0,
    concurrency: Annotated[int, typer.Option("--concurrency", min=0, help="Requests at once; 0: the usual.")] = 0,
    only: Annotated[str, typer.Option("--only", help="Look at this format or checkpoint alone.")] = "",
    executor: Annotated[str, typer.Option("--executor", help="mp or ray, of several hosts.")] = "mp",
    driver: Annotated[str | None, typer.Option("--driver", help="Version of the hosts' NVIDIA driver.")] = None,
    settings: Settings = None,
    accept: Accept = None,
    revision: Annotated[str, typer.Option("--revision", help="Branch, tag or commit of the model's files.")] = "",
    facts: Facts = None,
    draft_facts: DraftFacts = None,
    write_facts: Annotated[bool, typer.Option("--write-facts", help="Print the facts of the model, and end.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Also how it was decided, and on what evidence.")] = False,
    service: AsService = "",
    into: Into = None,
    group: Annotated[str, typer.Option("--group", help="With --into: the group that serves it.")] = "sparks",
    ask: Ask = "",
    inventory: OfAsk = None,
    everything: Annotated[bool, typer.Option("--all", help="A table of all models on one host and on two.")] = False,
    as_json: Json = False,
) -> None:
    """Say how to serve a model: checkpoint, flags, memory, speed, and known problems. Asks no host unasked."""
    # Here, for no other command needs it: it reads catalogs.
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, recipes, serving_plan

    from gb10_fleet import gguf_plan, model_files, recipe_plan, service_plan

    model = _named(model, everything)
    memory = (memory_gib or serving_plan.usual_memory_gib()) * memory_fit.GIB
    try:
        if everything:
            return _show_all(memory, image, version, as_json)
        if write_facts and not gguf_plan.is_one(str(model)):
            return print(model_files.written(str(model), revision, facts), end="")
        flags, accepted = pairs(settings, "--set"), _reasons(accept)
        if gguf_plan.is_one(str(model)):
            return _show(*gguf_plan.plan(str(model), revision, memory, max_model_len, concurrency, flags), as_json)
        if not recipe:
            known, second = model_files.facts(str(model), revision, facts), model_files.draft(flags, draft_facts)
            given = serving_plan.Given(revision, model_files.file(facts, known), model_files.file(draft_facts, second))
            flags, given = service_plan.asked(service, flags, memory, given)
            made = partial(
                serving_plan.plan, str(model), [memory] * (hosts or 1), image, version, max_model_len, concurrency,
                only, flags, accepted, executor, driver, facts=known, draft=second, given=given, starts=_starts(),
            )  # fmt: skip
        told = ({}, [], recipe_plan.found(ctx, accepted)) if recipe else _asked(made, ask, inventory or [], as_json)
    except (serving_plan.PlanError, recipes.RecipeError, model_files.FactsError) as error:
        wrong_question(str(error), as_json)
    said, more, found = told
    _show([*found.lines(explain), *more], {**found.as_dict(), **said}, as_json)
    if into and not found.refused:
        _put_into(into, group, found, model, hosts=found.hosts, recipe=recipe, service=service)
    raise typer.Exit(Outcome.refused if found.refused else Outcome.done)


def _named(model: str | None, everything: bool) -> str | None:
    from gb10_fleet import model_files

    if (model is not None) == everything:
        raise typer.BadParameter("name a model, or say --all; one of the two")
    return model_files.absolute(model) if model else None


def _show(lines: Sequence[str], document: Mapping[str, Any], as_json: bool) -> None:
    print(json.dumps(document, indent=2) if as_json else "\n".join(map(printable, lines)))


def _show_all(memory: float, image: str, version: str, as_json: bool) -> None:
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import plan_text, serving_plan

    plans = list(serving_plan.pairs(memory, image, version))
    _show(plan_text.overview(plans), {"models": [[each.as_dict() for each in pair] for pair in plans]}, as_json)


_Told = tuple[dict[str, Any], list[str], Any]  # for JSON, for a person, and the plan that counts with it


def _asked(made: Callable[..., serving_plan.Plan], host: str, inventory: Sequence[str], as_json: bool) -> _Told:
    """What vLLM of that host says, and the plan with it; without a host what one has said before, if any did."""
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engine import Asked

    from gb10_fleet import engine

    found = made()
    if host:
        said = engine.asked(found, host, inventory, as_json)
    else:
        said, host = engine.kept(found)
    if not said:
        return {}, [], found
    return {"engine": said}, engine.lines(found, said, host), made(asked=Asked(host, said))


def _starts() -> dict[str, Any]:
    """What hosts have measured, by the facts that this machine remembers of them."""
    from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import last_facts

    return {host: facts["measured"] for host, facts in last_facts.everything() if facts.get("measured")}


class Planned(Protocol):
    """A plan, or a recipe."""

    @property
    def inventory_lines(self) -> Sequence[str]: ...

    @property
    def variables(self) -> Mapping[str, Any]: ...


def _put_into(inventory: Path, group: str, found: Planned, model: str | None, **more: int | str) -> None:
    from gb10_fleet import inventory_lines

    if not inventory.exists():
        raise typer.BadParameter(f"--into {inventory} is not there; docs/inventory.md says how to write one")
    try:
        words = ["gb10", "plan", *([model] if model else [])]
        words += [word for name, value in more.items() if value for word in (f"--{name}", str(value))]
        what = f"Made by `{shlex.join(words)}`."
        file = inventory_lines.write(inventory, group, found.inventory_lines, found.variables, what)
    except inventory_lines.Taken as taken:
        print(printable(f"nothing written: {taken}"), file=sys.stderr)
        raise typer.Exit(Outcome.refused) from None
    print(printable(f"written: {file}"), file=sys.stderr)


def _reasons(words: list[str] | None) -> dict[str, str]:
    """By the id of a rule; empty where none was given, which the rules refuse."""
    return {key: value or "" for key, value in pairs(words, "--accept").items()}
