"""One page for a run: no script, no server, nothing fetched, and readable with 300 hosts on it.

It wears the style sheet of the evidence page and takes its macros, which lie beside that page's template, and adds what
waves need.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import changes, evidence_page

from gb10_fleet.rollout import models
from gb10_fleet.rollout.journal import NOT_KEPT, changes_of
from gb10_fleet.rollout.written import BAD, GOOD, moment_of

Record = dict[str, Any]

NOBODY_LOOKED = "\N{EN DASH}"
TEMPLATES = Path(__file__).parent / "templates"
_STYLE_OF = evidence_page.TEMPLATES / "evidence.html.j2"
_PAGES = evidence_page.pages(TEMPLATES, evidence_page.TEMPLATES)
_TONES = {"done": "ok", "running": "warn", "planned": "plain", "skipped": "warn", "stopped": "bad"}
_OUTCOMES = {"done": "ok", None: "warn", "drift": "warn", "refused": "warn"}
_VERDICTS = {"healthy": "ok", "incomplete": "warn", "unhealthy": "bad"}
_SEVERITIES = {"ok": "ok", "warn": "warn", "error": "bad"}
# Of a host that is `skipped` nothing is known to be wrong: it waits for one that is.
_SICK = frozenset(BAD) - {"skipped"}
TROUBLES_AT_ONCE = 10  # more, and nobody sees the waves below
_RESUME = "then go on with `gb10 resume {run}`"
_BACK = ", or take the run back with `gb10 rollback {run}`"
_WAYS_OUT = {
    "failed": f"repair what it names; {_RESUME}",
    "unreachable": f"check power, network and ssh to the host; {_RESUME}",
    "rescued": f"the playbook hid a failure: look at the host before you believe it; {_RESUME}",
    "ignored": f"the playbook ignored a failure: look at the host before you believe it; {_RESUME}",
    "absent": f"no task was done there: check its hosts, tags and conditions of the playbook; {_RESUME}",
    "unhealthy": f"the change is in, and the proof fails: look at the wave's evidence; {_RESUME}",
    "timed_out": f"look what it still does; {_RESUME}, with a longer --timeout if it needs one",
}


def render(document: Mapping[str, Any], folder: Path | None = None) -> str:
    """The page. `folder` is where it will lie, for links to the evidence. The template engine escapes every text."""
    return _PAGES.get_template("report.html.j2").render(**page_model(document, folder), style=style())


def style() -> str:
    """The style sheet of the evidence page; trusted, it is ours."""
    return _STYLE_OF.read_text(encoding="utf-8").partition("<style>")[2].partition("</style>")[0]


def page_model(document: Mapping[str, Any], folder: Path | None = None) -> Record:
    """Return what the template shows, in words and numbers ready to print."""
    waves = document["waves"]
    # Our playbooks say what they change; of another one it is not known.
    plays = [play["import_playbook"] for step in document["order"].get("steps", ()) for play in step["plays"]]
    ours = all(play.startswith("gb10.fleet.") for play in plays)
    rows = [_row(wave, host, document["hosts"][host["host"]], ours) for wave in waves for host in wave["hosts"]]
    outcome = document["outcome"]
    events: dict[Any, list[Record]] = {}
    for event in document["events"]:
        events.setdefault(event["wave"], []).append(event)
    return {
        "tone": _OUTCOMES.get(outcome, "bad"),
        "outcome": outcome or "not ended",
        "headline": _headline(document),
        "reason": document["reason"],
        "down": models.words(document),
        "run": document["run"],
        "times": _times(document),
        "troubles": _troubles(rows, document),
        "troubles_at_once": TROUBLES_AT_ONCE,
        "counts": [
            {"state": state.replace("_", " "), "tone": _tone(state), "count": document["counts"][state]}
            for state in (*BAD, *reversed(GOOD))
            if document["counts"].get(state)
        ],
        "waves": [_wave(wave, document, events.get(wave["wave"], ()), folder) for wave in waves],
        "ticks": _ticks(document),
        "rows": sorted(rows, key=lambda row: row["rank"]),
        "clusters": list(_clusters(document)),
        "drift": _drift(document["drift"]),
        "changes": changes.of_fleet(changes_of(document)),
        "not_kept": _not_kept(document["events"]),
        "floors": _floors(document["hosts"]),
        "events": [_event(event) for event in document["events"]],
        "meta": _meta(document),
    }


def _tone(state: str) -> str:
    return _TONES.get(state, "bad")


def _headline(document: Mapping[str, Any]) -> str:
    waves, total = document["waves"], len(document["hosts"])
    done = sum(wave["state"] == "done" for wave in waves)
    word = "Rollback" if document["kind"] == "rollback" else "Rollout"
    sparks = f"{total} Spark{'s' if total != 1 else ''}"
    if document["outcome"] == "done":
        return f"{word} done: {sparks} in {_count(len(waves), 'wave')}"
    stopped = next((wave["wave"] for wave in waves if wave["state"] == "stopped"), None)
    if stopped is not None:
        return f"{word} stopped after wave {stopped} of {len(waves)}"
    if not waves:
        return f"{word} refused: nothing was touched"
    return f"{word} of {sparks}: {done} of {_count(len(waves), 'wave')} done"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _shown(text: str | None) -> str:
    return text.replace("T", " ").replace("Z", " UTC") if text else NOBODY_LOOKED


def _times(document: Mapping[str, Any]) -> str:
    begin, end = document["created"], document["ended"]
    if not begin:
        return _shown(document["generated"])
    if not end:
        return f"since {_shown(begin)}, looked at {_shown(document['generated'])}"
    return f"{_shown(begin)}, {_duration(moment_of(end) - moment_of(begin))}"


def _duration(span: timedelta) -> str:
    minutes, seconds = divmod(round(span.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


# -- what to do --------------------------------------------------------------------------------------------------------


def _troubles(rows: Sequence[Record], document: Mapping[str, Any]) -> list[Record]:
    """The same trouble on many hosts is said once, with all their names."""
    back = "" if document["outcome"] == "refused" else _BACK
    run = shlex.join([document["run"], *(word for name in document["order"]["inventories"] for word in ("-i", name))])
    groups: dict[tuple[str, str], Record] = {}
    for row in rows:
        if row["bad"]:
            group = groups.setdefault((row["state"], row["reason"]), {**row, "names": []})
            group["names"].append(row["name"])
    return [{**group, "way_out": (_WAYS_OUT[group["key"]] + back).format(run=run)} for group in groups.values()]


# -- the timeline ------------------------------------------------------------------------------------------------------


def _span(document: Mapping[str, Any]) -> tuple[datetime, float]:
    """Return where the timeline begins, and how many seconds it has."""
    begin = moment_of(document["created"] or document["generated"])
    end = moment_of(document["ended"] or document["generated"])
    return begin, max(1.0, (end - begin).total_seconds())


def _bar(document: Mapping[str, Any], started: str, ended: str | None) -> Record:
    """Left edge and width in percent of the timeline."""
    begin, seconds = _span(document)
    first = (moment_of(started) - begin).total_seconds()
    last = (moment_of(ended) - begin).total_seconds() if ended else seconds
    left = min(max(first / seconds * 100, 0), 100)
    return {"left": f"{left:.3f}", "width": f"{min(max((last - first) / seconds * 100, 0.2), 100 - left):.3f}"}


def _ticks(document: Mapping[str, Any]) -> list[str]:
    begin, seconds = _span(document)
    return [f"{begin + timedelta(seconds=seconds * part / 4):%H:%M:%S}" for part in range(5)]


def _wave(
    wave: Mapping[str, Any], document: Mapping[str, Any], events: Sequence[Record], folder: Path | None
) -> Record:
    """`events`: those of this wave."""
    hosts = wave["hosts"]
    bad = sum(host["state"] in _SICK for host in hosts)
    done = sum(host["state"] == "done" for host in hosts)
    took = None
    if wave["started"] and wave["ended"]:
        took = _duration(moment_of(wave["ended"]) - moment_of(wave["started"]))
    return {
        "number": wave["wave"],
        "state": wave["state"],
        "tone": "bad" if bad and wave["state"] != "planned" else _tone(wave["state"]),
        "bar": _bar(document, wave["started"], wave["ended"]) if wave["started"] else None,
        "steps": list(_steps(wave, document, events)) if wave["started"] else [],
        "hosts": [
            {"name": host["host"], "tone": _tone(host["state"]), "state": host["state"].replace("_", " ")}
            for host in hosts
        ],
        "summary": f"{done} of {_count(len(hosts), 'host')} done" + (f", {bad} bad" if bad else ""),
        "took": took,
        "evidence": _link(document["order"].get("directory", "."), wave["evidence"], folder),
    }


def _steps(
    wave: Mapping[str, Any], document: Mapping[str, Any], events: Iterable[Mapping[str, Any]]
) -> Iterator[Record]:
    """Yield what the events say that was done in the wave's last attempt, one after the other."""
    begun: tuple[str, str] | None = None
    for event in events:
        if event["at"] < wave["started"]:
            continue
        ends = event["kind"] in ("step_begun", "step_ended", "gate", "wave_begun")
        if ends and begun:
            yield {"name": begun[0], **_bar(document, begun[1], event["at"])}
            begun = None
        if event["kind"] == "step_begun":
            begun = str(event["data"]["name"]), event["at"]
    if begun:
        yield {"name": begun[0], **_bar(document, begun[1], wave["ended"])}


def _link(directory: str, proof: str | None, folder: Path | None) -> str | None:
    """From where the page lies to the page of a proof, as long as that one is there."""
    page = Path(directory, proof, "index.html") if proof else None
    if page is None or folder is None or not page.is_file():
        return None
    return quote(os.path.relpath(page.resolve(), folder.resolve()))


# -- hosts -------------------------------------------------------------------------------------------------------------


def _row(wave: Mapping[str, Any], host: Mapping[str, Any], found: Mapping[str, Any], ours: bool) -> Record:
    bad = host["state"] in _SICK
    took = NOBODY_LOOKED
    if host["started"] and host["ended"]:
        took = _duration(moment_of(host["ended"]) - moment_of(host["started"]))
    remarks = found["floors"] or (found["drift"] and found["drift"]["state"] != "clean")
    return {
        "name": host["host"],
        "cluster": host["cluster"] or "",
        "wave": wave["wave"],
        "key": host["state"],
        "state": host["state"].replace("_", " "),
        "tone": _tone(host["state"]),
        "bad": bad,
        "remarked": bool(bad or remarks or found["verdict"] not in (None, "healthy")),
        "rank": 0 if bad else 1 if host["state"] == "skipped" else 2,
        "reason": host["reason"] or "",
        "took": took,
        "changes": len(host["changes"]) or ("0" if ours else NOBODY_LOOKED),
        "verdict": found["verdict"],
        "verdict_tone": _VERDICTS.get(found["verdict"] or "", "plain"),
        "link": _weakest(found["link"]),
        "tokens": _number(found["tokens_per_s"]),
        "floors": found["floors"],
        "drift": found["drift"],
    }


def _weakest(link: Mapping[str, Any] | None) -> Record | None:
    if link is None:
        return None
    words = f"to {link['peer']}: {link['verdict'].replace('_', ' ')}"
    return {"gbps": _number(link["gbps"]) or "none", "tone": _SEVERITIES[link["severity"]], "words": words}


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _clusters(document: Mapping[str, Any]) -> Iterator[Record]:
    """Of each cluster that was proven: its weakest link and its speed."""
    members: dict[str, list[str]] = {}
    for wave in document["waves"]:
        for host in wave["hosts"]:
            if host["cluster"]:
                members.setdefault(host["cluster"], []).append(host["host"])
    for name, hosts in members.items():
        found = [document["hosts"][host] for host in hosts]
        links = [one["link"] for one in found if one["link"]]
        verdict = next((one["verdict"] for one in found if one["verdict"]), None)
        if verdict is None:
            continue
        weakest = max(
            links,
            key=lambda link: (("ok", "warn", "error").index(link["severity"]), -(link["gbps"] or 0)),
            default=None,
        )
        yield {
            "name": name,
            "hosts": len(hosts),
            "verdict": verdict,
            "tone": _VERDICTS[verdict],
            "link": _weakest(weakest),
            "tokens": _number(next((one["tokens_per_s"] for one in found if one["tokens_per_s"]), None)),
        }


def _drift(drift: Mapping[str, Any] | None) -> str | None:
    if drift is None:
        return None
    drifted, silent = len(drift["drifted"]), len(drift["silent"])
    return f"{drift['clean']} clean, {drifted} drifted, {silent} silent; scanned {_shown(drift['created'])}"


def _not_kept(events: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many changes of a host the journal left out: what one says may fill no page."""
    left: Counter[str] = Counter()
    for data in (event["data"] for event in events if event["kind"] == NOT_KEPT):
        left[str(data.get("host"))] += count if isinstance(count := data.get("changes"), int) else 0
    return dict(left)


def _floors(hosts: Mapping[str, Mapping[str, Any]]) -> list[Record]:
    """Return what is below its security floor, and where; the same on many hosts is one line."""
    where: dict[str, list[str]] = {}
    for name, found in hosts.items():
        for fact in found["floors"] or ():
            where.setdefault(fact, []).append(name)
    return [{"fact": fact, "names": names} for fact, names in where.items()]


def _event(event: Mapping[str, Any]) -> Record:
    data = {key: value for key, value in event["data"].items() if value not in (None, [], {})}
    text = "; ".join(f"{key} {_brief(value)}" for key, value in data.items())
    kind = event["kind"].replace("_", " ")
    return {"at": _shown(event["at"]), "wave": event["wave"] or "", "kind": kind, "text": text}


def _brief(value: Any) -> str:
    """Lists of hosts by their length: who they are stands in the table above."""
    if isinstance(value, (list, dict)) and len(value) > 3:
        return _count(len(value), "host") if isinstance(value, list) else f"of {_count(len(value), 'host')}"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_brief(item)}" for key, item in value.items())
    return ", ".join(map(_brief, value)) if isinstance(value, list) else str(value)


def _meta(document: Mapping[str, Any]) -> Record:
    order = document["order"]
    ordered = {
        "playbook": order.get("playbook"),
        "to": [f"{name}={value}" for name, value in order.get("to", {}).items()],
        "takes back": document["of"],
        "attempt": document["attempt"] if document["attempt"] > 1 else None,
        "gb10-fleet": document["version"],
    }
    policy = {
        key.removesuffix("_s"): f"{value} s" if key.endswith("_s") else value
        for key, value in document["policy"].items()
    }
    return {
        key: ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        for key, value in {**ordered, **policy}.items()
        if value not in (None, [], (), "")
    }
