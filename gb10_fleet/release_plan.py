"""`gb10 release plan`: what a move to a release would do to each host. Pure; docs/releases.md explains the answer."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import columns
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import rehearsal, verdict
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.rehearsal import Known, Rehearsed
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import names

NEWEST = "newest"
SHOWN = 6  # packages that the table names
_COLUMNS = ("host", "state", "packages", "firmware", "download", "time", "reboots", "set")
_INDENT = "    "
# How NVIDIA has named releases so far: by year and month, or with the month in full.
_BY_NUMBERS = re.compile(r"OTA(?P<year>\d\d)\.?(?P<month>0[1-9]|1[0-2])([.]\w+)*\Z")
_BY_MONTH = re.compile(rf"(?P<month>{'|'.join(calendar.month_name[1:])}) 20(?P<year>\d\d)\Z")


def unknown(to: str) -> str:
    """Return why no host needs to be asked for a release of that name; empty where one may have its recipe.

    A host may know one that the catalog has not seen, and NVIDIA names them by year and month.
    """
    rows = catalog.load("releases")["releases"]
    first = min(row["released"] for row in rows)
    if to == NEWEST or rehearsal.row_of(to, rows) or _month_of(to) >= first[2:7]:
        return ""
    shown = [row["name"] for row in rows]
    near = names.nearest(to, [*shown, *(row["external_name"] for row in rows if row["external_name"]), NEWEST], 1)
    meant = f". The nearest is {near[0]}" if near else ""
    return f"no release is called {to}; there are {', '.join(shown)}, and {NEWEST}{meant}"


def _month_of(name: str) -> str:
    """`26-09`, of a name that says so; else what is before all months."""
    if found := _BY_NUMBERS.match(name):
        return f"{found['year']}-{found['month']}"
    if found := _BY_MONTH.match(name):
        return f"{found['year']}-{list(calendar.month_name).index(found['month']):02}"
    return ""


def asked(to: str) -> dict[str, Any]:
    """Return what each host needs to simulate the way there: gb10_release_plan of the playbook."""
    sets = catalog.load("host_sets")
    rows = catalog.load("releases")["releases"]
    return {
        "to": to if (row := rehearsal.row_of(to, rows)) is None else row["name"],
        "branch": sets["driver_branch"]["value"],
        "releases": {row["name"]: row["set"] for row in rows if row["set"]},
        "sets": {
            name: {key: entry[key] for key in ("userland", "kernel", "modules")}
            for name, entry in sets["host_sets"].items()
        },
    }


def known(releases: Mapping[str, Any], accepted: Mapping[str, str]) -> Known:
    return Known(
        releases,
        catalog.load("host_sets")["host_sets"],
        catalog.load("platforms")["minimum_free_disk"],
        catalog.load("security_floors")["floors"],
        accepted,
    )


def planned(answers: Mapping[str, Mapping[str, Any]], to: str, what: Known) -> dict[str, Any]:
    """`answers`: the section release of gb10.fleet.spark_facts, by host."""
    name, said = asked(to)["to"], {host: answer["release"] for host, answer in answers.items()}
    recipes = verdict.shared(said, what.releases)
    release = rehearsal.target(name, recipes, what)
    if release is None and name != NEWEST:  # a release that a person names may be known to one host
        recipes = verdict.union(said)
        release = rehearsal.target(name, recipes, what)
    hosts = {}
    for host, answer in answers.items():
        own = verdict.for_host(answer["release"], recipes)
        to_own = rehearsal.target(release.name if release else name, own, what)
        hosts[host] = rehearsal.rehearsed(answer["release"], answer["rehearsal"], to_own, own, what)
    if release is None and name != NEWEST:
        # Hosts may know newer ones than the catalog: so no name is wrong before they answered.
        names = dict.fromkeys([row["name"] for row in what.releases["releases"]] + [recipe.name for recipe in recipes])
        reason = f"no release is called {to}; there are {', '.join(names)}, and newest"
        hosts = dict.fromkeys(answers, Rehearsed(rehearsal.UNKNOWN, reason))
    return {
        "to": release and {"name": release.name, "shown": release.shown, "date": release.date},
        "hosts": {
            host: {**hosts[host].as_dict(), "lists_age_s": answer["rehearsal"]["lists_age_s"]}
            for host, answer in answers.items()
        },
    }


def table(found: Mapping[str, Any]) -> Iterator[str]:
    """One row for each host; below it what comes, what stays torn, and what is in the way."""
    hosts: Mapping[str, Mapping[str, Any]] = found["hosts"]
    if not hosts:
        return
    if found["to"]:
        yield f"to {found['to']['name']} ({found['to']['date'][:10]}); nothing was changed"
    lines = columns([_COLUMNS, *(_row(host, row) for host, row in hosts.items())])
    yield lines[0]
    for line, row in zip(lines[1:], hosts.values(), strict=True):
        yield line
        yield f"{_INDENT}{row['reason']}"
        yield from (f"{_INDENT}{text}" for text in _details(row))


def _row(host: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        host,
        row["state"],
        str(len(row["packages"])),
        str(len(row["firmware"])),
        f"{row['download_mib']} MiB",
        f"{row['minutes']} min",
        str(row["reboots"]),
        row["set"] or "-",
    )


def _details(row: Mapping[str, Any]) -> Iterator[str]:
    if row["packages"]:
        names = [f"{name} {version}" for name, version in sorted(row["packages"].items())]
        more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        yield f"packages: {', '.join(names[:SHOWN])}{more}"
    if row["removes"]:
        yield f"removed: {', '.join(sorted(row['removes']))}"
    words = {
        "firmware": "firmware", "parameters": "kernel parameter", "held": "known bad", "blocks": "blocked",
        "torn": "stays torn", "below_floors": "stays below a floor", "rollback": "way back",
    }  # fmt: skip
    for key, word in words.items():
        yield from (f"{word}: {text}" for text in row[key])
    if row["lists_age_s"] is not None and row["lists_age_s"] >= 86400:
        yield f"apt's lists are {row['lists_age_s'] // 86400} days old: newer packages are not in them"
