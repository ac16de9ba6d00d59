"""What `gb10 release` says: of each host its release, what is next, what blocks it; of clusters mixed firmware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import columns
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases import boards, score, verdict
from ansible_collections.gb10.fleet.plugins.plugin_utils.releases.rehearsal import Known

from gb10_fleet import known_bad, release_plan
from gb10_fleet.rollout.journal import place

MODULE = "gb10.fleet.spark_facts"
_COLUMNS = ("host", "release", "state", "next", "set")
_INDENT = "    "


class WrongQuestion(Exception):
    """Says why something cannot be asked."""


@dataclass(frozen=True)
class Question:
    """To which release, and what is known of it."""

    to: str
    known: Known

    @property
    def variables(self) -> dict[str, Any]:
        return {"gb10_release_plan": release_plan.asked(self.to)}


def wanted(to: str) -> str:
    """The release to ask the hosts for. Refused where no host can have its recipe."""
    if problem := release_plan.unknown(to):
        raise WrongQuestion(f"--to: {problem}")
    return to


def question(to: str, inventory: Sequence[str], accepted: Mapping[str, str | None]) -> Question:
    """Also of the fleet's own list of troubles, where it is signed."""
    try:
        releases = known_bad.added(catalog.load("releases"), place(inventory))
    except known_bad.NotTrusted as error:
        raise WrongQuestion(str(error)) from None
    reasons = {id_: (reason or "").strip() for id_, reason in accepted.items()}
    if problem := known_bad.unknown(reasons, releases["known_bad"]):
        raise WrongQuestion(problem)
    if bare := [id_ for id_, reason in reasons.items() if not reason]:
        raise WrongQuestion(f"--accept {bare[0]}: write ID=REASON")
    return Question(to, release_plan.known(releases, reasons))


def answered(
    answers: Mapping[str, Mapping[str, Any]], question: Question | None
) -> tuple[dict[str, Any], Iterator[str]]:
    """The document and the lines of a question; without one, of what the hosts have now."""
    if question is None:
        found = judged(answers)
        return found, table(found)
    found = release_plan.planned(answers, question.to, question.known)
    return found, release_plan.table(found)


def judged(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """`answers`: the section release of gb10.fleet.spark_facts, by host."""
    hosts = {host: answer["release"] for host, answer in answers.items()}
    known, floors = catalog.load("releases"), catalog.load("security_floors")["floors"]
    minimums = catalog.load("platforms")["minimum_free_disk"]
    recipes = verdict.shared(hosts, known)
    newest = score.newest(recipes)
    clusters: dict[str, dict[str, Mapping[str, Any]]] = {}
    for host, answer in answers.items():
        if cluster := answer["cluster"]:
            clusters.setdefault(cluster, {})[host] = answer["release"]
    return {
        "newest": newest and {"name": newest.name, "shown": newest.shown, "date": newest.date},
        "newer": newest and _newer(newest.date[:10], known),
        "hosts": {
            host: {
                **verdict.judge(facts, recipes, known, minimums).as_dict(),
                "below_floors": verdict.below_floors(facts, newest, known, floors),
                "board": boards.told(facts["board_vendor"]),
                "broken_recipes": facts["broken_recipes"],
                "recipes": {each["content"]["metadata"]["name"]: each["sha256"] for each in facts["recipes"]},
            }
            for host, facts in hosts.items()
        },
        "mixed_firmware": {name: mixed for name, of in clusters.items() if (mixed := verdict.mixed_firmware(of))},
    }


def _newer(date: str, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the catalog has seen since: a host knows no more than its own checker does."""
    row = max(known["releases"], key=lambda each: str(each["released"]))
    if row["released"] <= date:
        return None
    bad = [each["id"] for each in known["known_bad"] if each["release"] == row["name"]]
    return {"name": row["name"], "date": row["released"], "known_bad": bad}


def table(found: Mapping[str, Any]) -> Iterator[str]:
    """One row for each host; below it why, and what is in the way."""
    hosts: Mapping[str, Mapping[str, Any]] = found["hosts"]
    lines = columns([_COLUMNS, *(_row(host, row) for host, row in hosts.items())])
    yield from lines[:1] if hosts else ()
    for line, row in zip(lines[1:], hosts.values(), strict=True):
        yield line
        yield f"{_INDENT}{row['reason']}"
        yield from (f"{_INDENT}blocked: {text}" for text in row["blocks"])
        yield from (f"{_INDENT}below a floor: {text}" for text in row["below_floors"])
        if row["recipes"] and (doubt := boards.doubt(row["board"])):
            yield f"{_INDENT}{doubt}"
        yield from (f"{_INDENT}recipe that cannot be read: {name}" for name in row["broken_recipes"])
    for cluster, differences in found["mixed_firmware"].items():
        yield f"{cluster}: mixed firmware, so its members serve one model on two levels"
        yield from (f"{_INDENT}{text}" for text in differences)
    if found["newest"]:
        yield f"newest release that these hosts know: {found['newest']['name']} ({found['newest']['date'][:10]})"
        if newer := found["newer"]:
            bad = f", known bad: {', '.join(newer['known_bad'])}" if newer["known_bad"] else ""
            yield f"the catalog knows a newer one: {newer['name']} ({newer['date']}){bad}"
        if any(row["next"] for row in hosts.values()):
            yield "what a move to it takes: gb10 release plan; what each state means: docs/releases.md"


def _row(host: str, row: Mapping[str, Any]) -> Sequence[str]:
    release = row["release"] or "-"
    if row["shown"] not in (None, release):
        release = f"{release} ({row['shown']})"
    torn = f" ({', '.join(row['torn'])})" if row["torn"] else ""
    return host, release, row["state"] + torn, row["next"] or "-", (row["next"] and row["set"]) or "-"
