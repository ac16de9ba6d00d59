"""Put NVIDIA DGX Sparks to work: find them, set them up, serve models, and keep it so."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from ansible_collections.gb10.fleet.plugins.module_utils.system.folders import planted_above
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import bytes_of
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import effort
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable, some
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import changes

from gb10_fleet import __version__, home, image, image_build
from gb10_fleet.discover import cli as discover_cli
from gb10_fleet.ending import (
    answer,
    by_name,
    end,
    how_to_use,
    show,
    show_errors,
    show_failures,
    silent,
    told,
    wrong_question,
)
from gb10_fleet.enrol import cli as enrol_cli
from gb10_fleet.explain import explained, lines
from gb10_fleet.helping import Grouped
from gb10_fleet.options import Check, Inventory, Json, Limit, NoLists, Playbook, Told, Yes, pairs
from gb10_fleet.playbook import Order, Outcome, Report, run
from gb10_fleet.report import cli as report_cli
from gb10_fleet.rollout import cli as rollout_cli
from gb10_fleet.rollout import locks
from gb10_fleet.rollout.journal import place
from gb10_fleet.seed import cli as seed_cli
from gb10_fleet.switch import cli as switch_cli
from gb10_fleet.up import cli as up_cli
from gb10_fleet.up.people import consent, shortly

_ENDS = """
Exit status: 0 done, 2 failed, or a wrong option, inventory, host or group, 3 a host gave no answer, 4 refused before
anything changed, 5 something drifted, 6 partial: of a rollout some hosts are done, and it stopped before the rest, 7 of
status: a rollout was killed or interrupted, and nobody goes on with it, or it has left a model stopped, 130
interrupted by Ctrl-C or another signal; of a rollout 128 and the number of the signal.

What follows `--` goes to ansible-playbook as it is. Before it, as for ansible-playbook, -k asks for the SSH password,
-K for that of sudo, -J for that of the vault; -kK asks once, for one that opens both. Or they come from files:
`-- --vault-password-file FILE --become-password-file FILE`, or ANSIBLE_VAULT_PASSWORD_FILE and
ANSIBLE_BECOME_PASSWORD_FILE in the environment.

Examples and options of each command: gb10 COMMAND --help
"""

app = typer.Typer(
    cls=Grouped,
    no_args_is_help=True,
    add_completion=False,
    help=__doc__,
    epilog=_ENDS,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_OURS = [import_module(f"gb10_fleet.{file.stem}") for file in sorted(Path(__file__).parent.glob("*_cli.py"))]
for part in (*_OURS, discover_cli, enrol_cli, report_cli, rollout_cli, seed_cli, up_cli):
    app.add_typer(part.app)
app.add_typer(image.app, name="image")
app.add_typer(switch_cli.app, name="switch")
image_build.register(image.app)

Diff = Annotated[bool, typer.Option("--diff", help="Show the changes line by line.")]


def _run(order: Order, as_json: bool) -> NoReturn:
    outcome, report = run(order, quiet=as_json)
    end(order, outcome, report, as_json)


def _alone(order: Order, as_json: bool) -> None:
    """Refuse a change beside a rollout: the lock of a host is free between two of its steps, its model stopped."""
    try:
        if not (order.only_checks or order.lists):
            locks.refuse(place(order.inventories))
    except locks.Busy as busy:
        text = f"{busy}. Nothing was changed"
        if not as_json:
            print(printable(text), file=sys.stderr)
        end(order, Outcome.refused, Report(errors=[text]), as_json)


def _run_quietly(order: Order, as_json: bool) -> NoReturn:
    """A command that only reads shows its result and nothing else."""
    outcome, report = run(order, quiet=not order.lists)
    if not as_json:
        show(order, report)
    end(order, outcome, report, as_json)


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
    """Set up the hosts, start the model and check that it answers."""
    order = Order("gb10.fleet.site", inventory, limit, check, diff, words=ctx.obj)
    _alone(order, as_json)
    if drifted:
        _site_of_drifted(order, as_json)
    outcome, report = run(order, quiet=as_json)
    if not as_json and report.evidence:
        for line in how_to_use(order, Path(report.evidence)):
            print(line)
    _end_of_site(order, outcome, report, as_json)


def _end_of_site(
    order: Order, outcome: Outcome, report: Report, as_json: bool, drift: Mapping[str, Any] | None = None
) -> NoReturn:
    """Say once more, behind Ansible's own lines, what failed where, and the way out."""
    if not as_json and outcome is not Outcome.done:
        show_failures(order, report, refused=report.refused)
    end(order, outcome, report, as_json, drift)


def _site_of_drifted(order: Order, as_json: bool) -> NoReturn:
    scan = Order("gb10.fleet.drift", order.inventories, order.limit, words=order.words)
    outcome, report = run(scan, quiet=True)
    if not as_json:
        show(scan, report)
    drift = report.drift
    if report.cut or not drift.get("limit"):  # clean, or silent, or the scan itself failed
        if not as_json and not report.cut:
            print("no host to converge" if drift else "the scan failed", file=sys.stderr)
        end(scan, outcome, report, as_json)
    order = replace(order, limit=f"@{drift['limit']}")
    outcome, report = run(order, quiet=as_json)
    if outcome is Outcome.done and drift["silent"]:
        outcome = Outcome.unreachable
    _end_of_site(order, outcome, report, as_json, drift)


@app.command(cls=NoLists)
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
    """Say what was decided for a host, and where each setting comes from. Changes nothing."""
    chosen = {"gb10_explain": roles} if roles else {}
    module = "gb10.fleet.explain"
    order = Order("gb10.fleet.explain", inventory, host, variables=chosen, words=ctx.obj, asks={module: "roles"})
    outcome, report = run(order, quiet=True)
    found = explained(report.answers[module])
    answer(order, outcome, report, found, lines(found, defaults=defaults), as_json)


@app.command(cls=NoLists)
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
    if image and image.startswith("-"):
        raise typer.BadParameter(f"--image '{image}' begins with a dash, so Docker would read it as an option")
    asked = reasons.variables(watch, load=load, image=image)
    order = Order("gb10.fleet.why", inventory, host, variables=asked, words=ctx.obj, asks=reasons.ASKS)
    outcome, report = run(order, quiet=True)
    found = reasons.answers(report.answers, days, report.messages)
    if outcome is Outcome.done and report.messages:
        outcome = Outcome.failed
    run_end = {"outcome": outcome.name, "messages": report.messages, "errors": report.errors}
    # Of a host without an answer its findings, which are no part of `hosts`, say why.
    document = {"hosts": [each.as_dict() for each in found], "findings": silent(order, report), **run_end}
    answer(order, outcome, report, document, (line for each in found for line in reasons.lines(each)), as_json)


@app.command(cls=NoLists)
def bundle(
    ctx: typer.Context,
    inventory: Inventory,
    hosts: Annotated[list[str], typer.Argument(help="Hosts, as the inventory names them.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="The file to write, such as trouble.tar.gz.")],
) -> None:
    """Pack what somebody who helps needs, without names, addresses, serials, keys and prompts. Changes nothing."""
    from gb10_fleet import bundle as bundles  # here, for no other command needs it: it reads catalogs

    if out.exists():
        raise typer.BadParameter(f"{out} is there already: name another file with --out, or remove it")
    order = Order(
        "gb10.fleet.bundle", inventory, ",".join(hosts), words=ctx.obj, asks=bundles.ASKS, timeout_s=bundles.LONGEST_S
    )
    outcome, report = run(order, quiet=True)
    if not report.answers and not report.messages:
        end(order, outcome, report, as_json=False)
    disguise = bundles.names_of(report.answers, hosts, bundles.of_this_machine(inventory))
    missing = bundles.holes(report.answers, hosts, report.messages, cut=report.cut)
    try:
        listed = bundles.pack(
            disguise, bundles.parts(report.answers, Path("evidence/latest/evidence.json")), missing, out
        )
    except OSError as error:
        raise typer.BadParameter(f"{out} cannot be written: {error.strerror}; name another file with --out") from None
    for line in bundles.said(out, listed, disguise):
        print(printable(line))
    end(order, outcome, report, as_json=False)


@app.command(cls=NoLists)
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
        wanted = releases.wanted(to or "newest") if plan else ""
        question = releases.question(wanted, inventory, pairs(accept, "--accept")) if plan else None
    except releases.WrongQuestion as error:
        wrong_question(str(error), as_json)
    variables = question.variables if question else {}
    asks = {releases.MODULE: "release"}
    order = Order("gb10.fleet.release", inventory, limit, variables=variables, words=ctx.obj, asks=asks)
    outcome, report = run(order, quiet=True)
    answers = report.answers[releases.MODULE]
    found, lines = releases.answered(answers, question)
    document = found | {"outcome": outcome.name, "messages": report.messages} if answers else {}
    answer(order, outcome, report, document, lines, as_json)


@app.command(cls=Playbook)
def drift(ctx: typer.Context, inventory: Inventory, limit: Limit = None, as_json: Json = False) -> None:
    """Ask all hosts at once what differs from what was applied. Changes nothing."""
    _run_quietly(Order("gb10.fleet.drift", inventory, limit, words=ctx.obj), as_json)


_UNDO = "gb10.fleet.undo"  # the playbook, and its module
# How its tasks begin, and what they are to the person who waits.
_UNDO_STEPS = {
    "Refuse what cannot be taken back": "looking at what can be taken back",
    "Put back what stood before": "putting back what stood before",
}
_UNDONE = (
    "Models stop. Docker restarts with every container where we set it up, if docker_allow_restart allows that. "
    "What was downloaded stays."
)


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
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Put back what stood on the hosts before a role, or before all of them. Asks before it takes back everything."""
    if bool(roles) == everything:
        raise typer.BadParameter("name the roles to take back, or say --all; one of the two")
    if "all" in (roles or []):
        raise typer.BadParameter("all is no role: to take everything back, say --all")
    named = "all" if everything else ",".join(roles or [])
    order = Order(_UNDO, inventory, limit, check, diff, {"gb10_undo": named}, ctx.obj, asks={_UNDO: "remains"})
    _alone(order, as_json)
    if everything and not (order.only_checks or order.lists):
        where = limit or f"every host of {', '.join(inventory)}"
        consent(f"Take back everything on {where}? {_UNDONE}", yes, as_json)
    how = shortly(order, _UNDO_STEPS, as_json)
    outcome, report = run(order, **how)
    if how and not as_json:
        for line in _undone(outcome, report, everything):
            print(printable(by_name(order, line)))
        show_errors(report)
    end(order, outcome, report, as_json)


def _undone(outcome: Outcome, report: Report, everything: bool) -> Iterator[str]:
    """Yield what an undo put back and what stays, one line for all hosts where it is the same, and what failed."""
    rows = changes.of_fleet(report.changes)
    yield from changes.columns([(some(row["hosts"]), row["role"], row["resource"], row["what"]) for row in rows])
    stays: dict[str, list[str]] = {}
    for host, said in report.answers[_UNDO].items():
        for text in said["remains"] if host in report.changes else ():  # else nothing went further than the look
            stays.setdefault(text, []).append(host)
    yield from (f"{some(names)}  stays: {text}" for text, names in stays.items())
    yield from told(report)
    if outcome is Outcome.done:
        but = ", but for what `stays` names above" if stays else ""
        whole = f": these hosts are as before{but}" if everything else ""
        yield f"Taken back{whole}." if rows else "There was nothing to take back."


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


@app.command("evidence", cls=Told)
def show_evidence(
    path: Annotated[Path, typer.Argument(help="Folder or evidence.json of one proof.")] = Path("evidence/latest"),
) -> None:
    """Show what the last check found. The page beside it, index.html, shows more."""
    ours = home.evidence() / "latest"  # of `gb10 up`
    if path == Path("evidence/latest") and (planted_above(path) if path.exists() else ours.exists()):
        path = ours
    file = path / "evidence.json" if path.is_dir() else path
    try:
        with effort.files():
            _show_evidence(file)
    except effort.TooMuch as error:
        raise typer.BadParameter(f"{file}: {error}") from None


def _show_evidence(file: Path) -> None:
    try:
        data = json.loads(bytes_of(file))
    except FileNotFoundError:
        raise typer.BadParameter(f"{file} is not there; `gb10 validate -i INVENTORY` writes one") from None
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{file} is not JSON: {error}") from None
    try:
        from rich.console import Console  # both here, for no other command needs them: the second reads catalogs

        from gb10_fleet import evidence_table

        evidence_table.show(data, Console(), page=file.with_name("index.html"))
    except (LookupError, ValueError, TypeError, AttributeError, OverflowError):
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
