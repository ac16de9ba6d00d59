"""`gb10 catalog check`: how old the catalog is, and what of it a newer measurement contradicts. Asks no host."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any

import typer
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog_age
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.catalog_age import Entry
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import printable

from gb10_fleet.helping import Listed
from gb10_fleet.options import Json, Told
from gb10_fleet.playbook import Outcome

app = typer.Typer()
catalog = typer.Typer(
    cls=Listed, name="catalog", no_args_is_help=True, help="What the collection knows, and how old that is."
)
app.add_typer(catalog)


Today = Annotated[datetime | None, typer.Option("--today", formats=["%Y-%m-%d"], help="Count from this day.")]


@catalog.callback()
def _group() -> None:
    """A command of its own for each question."""


@catalog.command(cls=Told)
def check(
    today: Today = None,
    everything: Annotated[bool, typer.Option("--all", help="Name each entry past its date.")] = False,
    as_json: Json = False,
) -> None:
    """Count entries past their date, and list claims that a newer measurement contradicts.

    Exit status 5 if there are any.
    """
    # Here, for no other command needs it: it reads all catalogs.
    from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import comparison

    day = today.date() if today else datetime.now(UTC).date()
    entries, against = catalog_age.entries(), list(comparison.contradictions())
    old = catalog_age.past(entries, day)
    if as_json:
        answer = {
            "today": day.isoformat(),
            "entries": len(entries),
            "oldest": entries[0].date.isoformat(),
            "newest": entries[-1].date.isoformat(),
            "past": [_as_dict(entry, day) for entry in old],
            "contradicted": [vars(each) for each in against],
        }
        print(json.dumps(answer, indent=2))
    else:
        past = _each(old, day) if everything else _by_file(old)
        for line in _lines(entries, past, [each.text for each in against], day):
            print(printable(line))
        more = "; --all names each" if old and not everything else ""
        print(f"{len(old)} past their date, {len(against)} contradicted{more}")
    raise typer.Exit(Outcome.drift if old or against else Outcome.done)


def _lines(entries: Sequence[Entry], past: Iterable[str], against: Sequence[str], day: date) -> Iterator[str]:
    newest, oldest = entries[-1], entries[0]
    yield (
        f"catalog: {len(entries)} entries; the newest is {newest.age(day)} days old ({newest.date}), the oldest "
        f"{oldest.age(day)} ({oldest.date})"
    )
    yield from past
    for text in against:
        yield f"contradicted: {text}"


def _each(old: Sequence[Entry], day: date) -> Iterator[str]:
    for entry in old:
        limit = catalog_age.days(entry.file)
        age = f"{entry.date}, {entry.age(day)} days ago ({limit} at most)"
        yield f"past its date: {entry.file}.yml {entry.where}: {age}"


def _by_file(old: Sequence[Entry]) -> Iterator[str]:
    """Yield how many of each file, and of which day its oldest is."""
    for file in sorted({entry.file for entry in old}):
        dates = [entry.date for entry in old if entry.file == file]
        limit = catalog_age.days(file)
        yield f"past their date: {len(dates)} of {file}.yml, the oldest of {min(dates)} (believed for {limit} days)"


def _as_dict(entry: Entry, day: date) -> dict[str, Any]:
    return {
        "file": f"{entry.file}.yml",
        "where": entry.where,
        "date": entry.date.isoformat(),
        "days": entry.age(day),
        "at_most": catalog_age.days(entry.file),
    }
