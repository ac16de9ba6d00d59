"""`gb10`: the collection's playbooks as a command, for people and for scripts.

Exit status: 0 done, 2 failed, 3 a host gave no answer, 4 refused before anything changed, 5 something drifted,
6 partial: of a rollout some hosts are done, and it stopped before the rest, 7 of status: a rollout waits for somebody
to go on, or has left a model stopped, 128 and more: a signal ended a rollout.

What follows `--` goes to ansible-playbook as it is. Before it, as for ansible-playbook, -k asks for the SSH password,
-K for that of sudo, -J for that of the vault. Or they come from files: `-- --vault-password-file FILE
--become-password-file FILE`, or ANSIBLE_VAULT_PASSWORD_FILE and ANSIBLE_BECOME_PASSWORD_FILE in the environment.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn, Protocol

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.output import host_count, printable, some
from rich.console import Console

from gb10_fleet import __version__, catalog_cli, image, image_build, services_cli, top_cli
from gb10_fleet.discover import cli as discover_cli
from gb10_fleet.explain import lines
from gb10_fleet.options import Inventory, Json, Limit, Playbook
from gb10_fleet.playbook import Order, Outcome, Report, ours, run
from gb10_fleet.report import cli as report_cli
from gb10_fleet.rollout import cli as rollout_cli

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help=__doc__,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in (catalog_cli, discover_cli, report_cli, rollout_cli, services_cli, top_cli):
    app.add_typer(part.app)
app.add_typer(image.app, name="image")
image_build.register(image.app)
# What a program reads of a scan: all of drift.json.
_DRIFT = ("schema_version", "created", "seconds", "clean", "drifted", "silent", "converge", "hosts")


Check = Annotated[bool, typer.Option("--check", help="Say what would change, change nothing.")]
Diff = Annotated[bool, typer.Option("--diff", help="Show the changes line by line.")]


def _run(order: Order, as_json: bool) -> NoReturn:
    outcome, report = run(order, quiet=as_json)
    _end(order, outcome, report, as_json)


def _run_quietly(order: Order, as_json: bool) -> NoReturn:
    """A command that only reads shows its result and nothing else."""
    outcome, report = run(order, quiet=True)
    if not as_json:
        _show(order, report)
    _end(order, outcome, report, as_json)


def _answer(
    order: Order, outcome: Outcome, report: Report, document: Mapping[str, Any], said: Iterable[str], as_json: bool
) -> NoReturn:
    """End a command that answers a question: with the document or with lines, and with what Ansible had to say."""
    if as_json and document:
        print(json.dumps(document, indent=2))
        raise typer.Exit(outcome)
    if not as_json:
        for line in said:
            print(printable(line))
        _show(order, report)
    _end(order, outcome, report, as_json)


def _show(order: Order, report: Report) -> None:
    """What a scan or the doctor found; of a host without it, why."""
    lines = str(report.drift.get("msg", "")).splitlines() + (
        list(_findings(report)) if order.playbook == "gb10.fleet.doctor" else []
    )
    judged = {finding["host"] for finding in report.findings}
    for host, messages in report.messages.items():
        lines += [] if host in judged else [f"{host}: {line}" for text in messages for line in text.splitlines()]
    for line in lines:  # what a host says must not steer the terminal
        print(printable(line))
    for line in report.errors:
        if line not in ours(report):
            print(line, file=sys.stderr)


def _findings(report: Report) -> Iterator[str]:
    counts = dict.fromkeys(("error", "warn", "accepted"), 0)
    hosts_of: dict[tuple[str, str], list[str]] = {}  # what several hosts have in common is said once
    for finding in report.findings:
        word = "accepted" if finding["accepted"] else finding["severity"]
        counts[word] = counts.get(word, 0) + 1
        advice = f"way out: {finding['way_out']}" if word != "accepted" else f"because: {finding['accepted']}"
        hosts_of.setdefault((f"{word}: {finding['id']}: {finding['fact']}", advice), []).append(finding["host"])
    for (said, advice), names in hosts_of.items():
        yield f"{some(names)}: {said}"
        yield f"    {advice}"
    if report.hosts and (report.findings or not report.messages):
        found = f"{counts['error']} errors, {counts['warn']} warnings, {counts['accepted']} accepted"
        yield f"{host_count(len(report.hosts))}: {found}"


def _end(
    order: Order, outcome: Outcome, report: Report, as_json: bool, drift: Mapping[str, Any] | None = None
) -> NoReturn:
    """Say how it ended, and end. `drift` is the result of a scan that came before."""
    if as_json:
        answer: dict[str, Any] = {
            "playbook": order.playbook,
            "outcome": outcome.name,
            "hosts": report.hosts,
            "findings": report.findings,
            "messages": report.messages,
            "errors": report.errors,
            "evidence": report.evidence,
        }
        if order.playbook in ("gb10.fleet.site", "gb10.fleet.undo"):
            answer |= {"changes": report.changes, "pending": report.pending, "orphans": report.orphans}
        if drift := drift or report.drift:
            answer["drift"] = {key: drift[key] for key in _DRIFT}
        print(json.dumps(answer, indent=2))
    elif outcome is not Outcome.done:
        print("; ".join([f"{order.playbook}: {outcome.name}", *ours(report)[:1]]), file=sys.stderr)
    raise typer.Exit(outcome)


@app.command(cls=Playbook)
def doctor(ctx: typer.Context, inventory: Inventory, limit: Limit = None, as_json: Json = False) -> None:
    """Look at every host, and refuse what would not work. Changes nothing."""
    _run_quietly(Order("gb10.fleet.doctor", inventory, limit, words=ctx.obj), as_json)


@app.command(cls=Playbook)
def site(
    ctx: typer.Context,
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
    order = Order("gb10.fleet.site", inventory, limit, check, diff, words=ctx.obj)
    if drifted:
        _site_of_drifted(order, as_json)
    _run(order, as_json)


def _site_of_drifted(order: Order, as_json: bool) -> NoReturn:
    scan = Order("gb10.fleet.drift", order.inventories, order.limit, words=order.words)
    outcome, report = run(scan, quiet=True)
    if not as_json:
        _show(scan, report)
    drift = report.drift
    if not drift.get("limit"):  # clean, or silent, or the scan itself failed
        if not as_json:
            print("no host to converge" if drift else "the scan failed", file=sys.stderr)
        _end(scan, outcome, report, as_json)
    order = replace(order, limit=f"@{drift['limit']}")
    outcome, report = run(order, quiet=as_json)
    if outcome is Outcome.done and drift["silent"]:
        outcome = Outcome.unreachable
    _end(order, outcome, report, as_json, drift)


@app.command(cls=Playbook)
def explain(
    ctx: typer.Context,
    inventory: Inventory,
    host: Annotated[str, typer.Argument(help="The host, as the inventory names it.", show_default=False)],
    roles: Annotated[
        list[str] | None, typer.Argument(metavar="[ROLE]...", help="Only these roles.", show_default=False)
    ] = None,
    defaults: Annotated[bool, typer.Option("--defaults", help="Also show settings that nobody set.")] = False,
    as_json: Json = False,
) -> None:
    """Say what was decided for a host, and why: settings with their origin, plan and resources. Changes nothing."""
    chosen = {"gb10_explain": roles} if roles else {}
    order = Order("gb10.fleet.explain", inventory, host, variables=chosen, words=ctx.obj)
    outcome, report = run(order, quiet=True)
    _answer(order, outcome, report, report.explained, lines(report.explained, defaults=defaults), as_json)


@app.command(cls=Playbook)
def why(
    ctx: typer.Context,
    inventory: Inventory,
    host: Annotated[str, typer.Argument(help="The host, as the inventory names it.", show_default=False)],
    watch: Annotated[int, typer.Option("--watch", min=0, help="Read for so many seconds; a hang takes 180.")] = 0,
    days: Annotated[int, typer.Option("--days", min=1, help="How far back the timeline goes.")] = 14,
    load: Annotated[bool, typer.Option("--load", help="Keep an idle GPU busy for 10 s meanwhile.")] = False,
    image: Annotated[str | None, typer.Option("--image", help="With --load: an image with torch.")] = None,
    as_json: Json = False,
) -> None:
    """Say what happened to a host, with the likeliest cause and how sure that is. Changes nothing."""
    from gb10_fleet import why as reasons  # here, for no other command needs it: it reads catalogs

    if (watch and load) or (image and not load):
        raise typer.BadParameter("--load goes without --watch, and --image goes with --load")
    asked = reasons.variables(watch, load=load, image=image)
    order = Order("gb10.fleet.why", inventory, host, variables=asked, words=ctx.obj)
    outcome, report = run(order, quiet=True)
    try:
        found = reasons.answers(report.health, days)
    except reasons.WrongAnswer as error:
        _wrong_answer(str(error), as_json)
    document = {"hosts": [each.as_dict() for each in found]} if found else {}
    _answer(order, outcome, report, document, (line for each in found for line in reasons.lines(each)), as_json)


@app.command(cls=Playbook)
def release(
    ctx: typer.Context,
    inventory: Inventory,
    plan: Annotated[str | None, typer.Argument(metavar="[plan]", help="Rehearse the next one.")] = None,
    to: Annotated[str | None, typer.Option("--to", help="With plan: a release, or newest.")] = None,
    accept: Annotated[
        list[str] | None, typer.Option("--accept", metavar="ID=REASON", help="A known trouble to go through with.")
    ] = None,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Say which of NVIDIA's releases each host has, what is next, and what blocks it. Changes nothing."""
    from gb10_fleet import release as releases  # here, for no other command needs it: it reads catalogs

    if plan not in (None, "plan") or (plan is None and (to or accept)):
        raise typer.BadParameter("say gb10 release, or gb10 release plan --to RELEASE")
    try:
        question = releases.question(to or "newest", inventory, _pairs(accept, "--accept")) if plan else None
    except releases.WrongQuestion as error:
        _wrong_question(str(error), as_json)
    order = Order(
        "gb10.fleet.release", inventory, limit, variables=question.variables if question else {}, words=ctx.obj
    )
    outcome, report = run(order, quiet=True)
    found, lines = releases.answered(report.releases, question)
    document = found | {"outcome": outcome.name, "messages": report.messages} if report.releases else {}
    _answer(order, outcome, report, document, lines, as_json)


@app.command(cls=Playbook)
def drift(ctx: typer.Context, inventory: Inventory, limit: Limit = None, as_json: Json = False) -> None:
    """Ask all hosts at once what differs from what was applied. Changes nothing."""
    _run_quietly(Order("gb10.fleet.drift", inventory, limit, words=ctx.obj), as_json)


@app.command(cls=Playbook)
def undo(
    ctx: typer.Context,
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
    if "all" in (roles or []):
        raise typer.BadParameter("all is no role: to take everything back, say --all")
    named = "all" if everything else ",".join(roles or [])
    _run(Order("gb10.fleet.undo", inventory, limit, check, diff, {"gb10_undo": named}, ctx.obj), as_json)


@app.command(cls=Playbook)
def validate(ctx: typer.Context, inventory: Inventory, limit: Limit = None, as_json: Json = False) -> None:
    """Measure the fabric, ask the model, write the evidence. Changes nothing on the hosts."""
    _run(Order("gb10.fleet.validate", inventory, limit, words=ctx.obj), as_json)


@app.command(cls=Playbook)
def benchmark(
    ctx: typer.Context, inventory: Inventory, limit: Limit = None, check: Check = False, as_json: Json = False
) -> None:
    """Measure how fast the models are, and say whether that is as fast as it should be. Loads them for minutes."""
    _run(Order("gb10.fleet.benchmark", inventory, limit, check, words=ctx.obj), as_json)


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
Into = Annotated[
    Path | None,
    typer.Option("--into", metavar="INVENTORY", help="Write the lines for the inventory there; overwrites nothing."),
]


@app.command()
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
    everything: Annotated[bool, typer.Option("--all", help="A table of all models on one host and on two.")] = False,
    as_json: Json = False,
) -> None:
    """Say how to serve a model: checkpoint, flags, memory, speed, and what speaks against it. Asks no host."""
    # Here, for no other command needs it: it reads catalogs.
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import memory_fit, recipes, serving_plan

    from gb10_fleet import model_files, recipe_plan, service_plan

    if (model is not None) == everything:
        raise typer.BadParameter("name a model, or say --all; one of the two")
    model = model_files.absolute(model) if model else None
    memory = (memory_gib or serving_plan.usual_memory_gib()) * memory_fit.GIB
    found: serving_plan.Plan | recipes.Recipe
    try:
        if everything:
            rows = serving_plan.table(memory, image, version)
            print(json.dumps({"table": rows}, indent=2) if as_json else "\n".join(rows))
            return
        if write_facts:
            print(model_files.written(str(model), revision, facts), end="")
            return
        flags, accepted = _pairs(settings, "--set"), _reasons(accept)
        if not recipe:
            known, second = model_files.facts(str(model), revision, facts), model_files.draft(flags, draft_facts)
            given = serving_plan.Given(revision, model_files.file(facts, known), model_files.file(draft_facts, second))
            flags, given = service_plan.asked(service, flags, memory, given)
        found = recipe_plan.found(ctx, accepted) if recipe else serving_plan.plan(
            str(model), [memory] * (hosts or 1), image, version, max_model_len, concurrency, only, flags, accepted,
            executor, driver, None, known, second, given,
        )  # fmt: skip
    except (serving_plan.PlanError, recipes.RecipeError, model_files.FactsError) as error:
        _wrong_question(str(error), as_json)
    print(json.dumps(found.as_dict(), indent=2) if as_json else "\n".join(map(printable, found.lines(explain))))
    if into and not found.refused:
        _put_into(into, group, found, f"gb10 plan {model} --hosts {found.hosts}", recipe=recipe, service=service)
    raise typer.Exit(Outcome.refused if found.refused else Outcome.done)


def _wrong_question(text: str, as_json: bool) -> NoReturn:
    if as_json:  # a program gets one object, whatever happens
        print(json.dumps({"error": text}, indent=2))
        raise typer.Exit(2) from None
    raise typer.BadParameter(text) from None


def _wrong_answer(text: str, as_json: bool) -> NoReturn:
    print(json.dumps({"error": text}, indent=2) if as_json else printable(text), file=None if as_json else sys.stderr)
    raise typer.Exit(Outcome.failed)


class Planned(Protocol):
    """A plan, or a recipe."""

    @property
    def inventory_lines(self) -> Sequence[str]: ...

    @property
    def variables(self) -> Mapping[str, Any]: ...


def _put_into(inventory: Path, group: str, found: Planned, command: str, **more: str) -> None:
    from gb10_fleet import inventory_lines

    if not inventory.exists():
        raise typer.BadParameter(f"--into {inventory} is not there; docs/inventory.md says how to write one")
    try:
        command += "".join(f" --{name} {value}" for name, value in more.items() if value)
        what = f"Made by `{command}`."
        file = inventory_lines.write(inventory, group, found.inventory_lines, found.variables, what)
    except inventory_lines.Taken as taken:
        print(printable(f"nothing written: {taken}"), file=sys.stderr)
        raise typer.Exit(Outcome.refused) from None
    print(printable(f"written: {file}"), file=sys.stderr)


def _reasons(words: list[str] | None) -> dict[str, str]:
    """By the id of a rule; empty where none was given, which the rules refuse."""
    return {key: value or "" for key, value in _pairs(words, "--accept").items()}


def _pairs(words: list[str] | None, option: str) -> dict[str, str | None]:
    """`NAME=VALUE` by name; None where there is no value."""
    found: dict[str, str | None] = {}
    for word in words or []:
        name, equals, value = word.partition("=")
        if not name.strip("- "):
            raise typer.BadParameter(f"{option} {word!r}: write NAME=VALUE")
        found[name] = value if equals else None
    return found


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
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise typer.BadParameter(f"{file} is not JSON: {error}") from None
    try:
        from gb10_fleet import evidence_table  # here, for no other command needs it: it reads catalogs

        evidence_table.show(data, Console(), page=file.with_name("index.html"))
    except (KeyError, TypeError, AttributeError):
        raise typer.BadParameter(f"{file} is no evidence of a proof; `gb10 validate` writes one") from None


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
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal's encoding does not have ends nothing
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
