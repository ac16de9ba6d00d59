# SPDX-License-Identifier: GPL-3.0-or-later
"""From what a load test measured to verdicts, a table and a JSON document.

`build` decides and does no I/O; `write` puts the document in place in one step. Its shape is described in
schemas/benchmark.schema.json. A speed is judged only by what was measured elsewhere under the same conditions, a GPU by
what it said under load on its own host.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.gpu import THROTTLING
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import output
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.answers import Result
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import draft_figures, speed_beside
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import models, speed
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.models import Expected

SCHEMA_VERSION = 1
DOCUMENT = "benchmark.json"
# From the best to the worst.
VERDICTS = (
    *("as_expected", "no_expectation", "slower_than_before", "odd_one_out", "slow", "third_of_expected"),
    *("throttled", "power_fault", "failed"),
)
GOOD = frozenset({"as_expected", "no_expectation"})
_SECRET_FLAG = re.compile(r"--?[\w-]*(token|key|secret|password)", re.IGNORECASE)
_HIDDEN = "(not shown)"
_NO_WORD = "its first host did not say what it has measured"
_COLUMNS = ("cluster", "at once", "tok/s each", "in sum", "expected", "first token", "prefix cache", "verdict")

Record = dict[str, Any]
Limits = Mapping[str, float]


@dataclass(frozen=True)
class Gpu:
    """A GPU while the load ran: medians of the readings under load; None where there is none."""

    readings: int
    busy: int
    clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    reasons: Sequence[str]
    driver: str | None = None

    @property
    def text(self) -> str:
        if not self.busy:
            return "no reading under load"
        figures = ((self.clock_mhz, "MHz"), (self.power_w, "W"), (self.temperature_c, "C"))
        said = [f"{value:g} {unit}" for value, unit in figures if value is not None]
        return f"{', '.join(said) or 'no figures'}, {', '.join(self.reasons) or 'no reason given'}"


# -- the document ------------------------------------------------------------------------------------------------------


def build(
    hosts: Mapping[str, Mapping[str, Any]],
    meta: Mapping[str, Any],
    request: Mapping[str, Any],
    thresholds: Mapping[str, Any],
    now: datetime,
    earlier: Sequence[Mapping[str, Any]] = (),
    inventory: Collection[str] = (),
) -> Record:
    """The document of one load test. `thresholds` is the content of catalog/thresholds.yml.

    `earlier` documents, the newest first: a speed is compared with those of the same service, then with its siblings,
    which are clusters of the `inventory`.
    One without draft tokens is what a figure with them is shown beside.
    """
    limits = {name: entry["value"] for name, entry in thresholds["benchmark"].items()}
    members: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, host in hosts.items():
        members.setdefault(host["cluster"], {})[name] = host
    clusters = [_cluster(name, found, limits) for name, found in members.items()]
    for cluster in clusters:
        for step in cluster["steps"]:
            if step["drafts"]:
                step["drafts"]["off"] = draft_figures.off(cluster, step["concurrency"], request, earlier)
    _compare(clusters, request, earlier, limits, {*members, *inventory})
    return {
        "schema_version": SCHEMA_VERSION,
        "created": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "verdict": _worst([cluster["verdict"] for cluster in clusters]),
        "meta": dict(meta),
        "request": dict(request),
        "clusters": clusters,
    }


def _compare(
    clusters: list[Record],
    request: Mapping[str, Any],
    earlier: Sequence[Mapping[str, Any]],
    limits: Limits,
    inventory: Collection[str],
) -> None:
    """Set each step beside the same service before, and beside the others that serve the same."""
    known = [{"request": dict(request), "clusters": clusters}, *earlier]
    for cluster in clusters:
        for step in cluster["steps"]:
            asked = (cluster, step["concurrency"], request)
            step["before"] = speed_beside.before(*asked, earlier, limits)
            step["siblings"] = speed_beside.siblings(*asked, known, limits, inventory)
    for cluster in clusters:  # once all are compared: a verdict is one of the things that count
        for step in cluster["steps"]:
            _with_comparison(cluster["name"], step)
        cluster["verdict"] = _worst([step["verdict"] for step in cluster["steps"]])


def _with_comparison(name: str, step: Record) -> None:
    """What was measured here goes before what is published: it is a pass mark where nothing else is."""
    said = speed_beside.told(step)
    was, beside = step["before"], step["siblings"]
    if step["verdict"] not in GOOD or not said:
        step["text"] = "; ".join([step["text"], *said])
        return
    if was and was["sure"] and was["change"] < 0:
        changed = "see what changed since: gb10 why HOST, gb10 report, driver, firmware, other load"
        step.update(verdict="slower_than_before", way_out=changed)
    elif beside and beside["odd"]:
        look = f"compare {name} with them: gb10 why HOST, clock and power under load, driver, firmware, rails"
        step.update(verdict="odd_one_out", way_out=look)
    elif was and was["runs"] >= speed_beside.LEAST:
        step["verdict"] = "as_expected"
    published = [] if step["expected"] is None and step["verdict"] != "no_expectation" else [step["text"]]
    step["text"] = "; ".join([*said, *published])


def _worst(verdicts: Sequence[str]) -> str:
    """Of a whole; where nothing was measured, the test has failed."""
    return max(verdicts, key=VERDICTS.index, default="failed")


def _cluster(name: str, members: Mapping[str, Mapping[str, Any]], limits: Limits) -> Record:
    conditions = next(dict(host["conditions"]) for host in members.values() if host.get("conditions"))
    unit = conditions.pop("unit", "gb10-vllm")
    conditions["hosts"] = len(members)
    conditions["quantization"] = quantization(conditions["model"], conditions["args"])
    conditions["args"] = without_secrets(conditions["args"])
    conditions["version"] = _version(members)
    count = max(len(host["steps"]) for host in members.values())
    steps = []
    for index in range(count):
        of_hosts = {host: said["steps"][index] for host, said in members.items() if index < len(said["steps"])}
        steps.append(_step(of_hosts, conditions, limits, unit))
    return {
        "name": name,
        "hosts": list(members),
        "verdict": _worst([step["verdict"] for step in steps]),
        "conditions": conditions,
        "steps": steps,
    }


def _version(members: Mapping[str, Mapping[str, Any]]) -> str | None:
    loads = (step["load"] for host in members.values() for step in host["steps"] if step.get("load"))
    return next((load["version"] for load in loads if load.get("version")), None)


def _step(
    of_hosts: Mapping[str, Mapping[str, Any]], conditions: Mapping[str, Any], limits: Limits, unit: str
) -> Record:
    of_first = next(iter(of_hosts.values()))
    asked = next((step for step in of_hosts.values() if step.get("load")), of_first)
    concurrency, load = asked["concurrency"], asked.get("load") or {"error": _NO_WORD}
    gpus = {host: gpu(step.get("readings") or [], limits) for host, step in of_hosts.items()}
    result = load.get("result") or {}
    each = 1000 / result["median_tpot_ms"] if result.get("median_tpot_ms") else None
    expected, why = expectation(conditions, concurrency)
    # An expectation of several requests is their sum, an expectation of one its own speed.
    ratio = each * expected.requests / expected.tokens[0] if each and expected else None
    problem = load.get("error") or _unanswered(result)
    verdict, text, way_out = judge(problem, ratio, expected, why, gpus, limits, unit)
    others = load.get("others") or 0
    return {
        "concurrency": concurrency,
        "verdict": verdict,
        "text": f"{text}; {others} requests of others were running when it began" if others else text,
        "way_out": way_out,
        "tokens_per_s": _rounded(each),
        "tokens_per_s_sum": _rounded(result.get("output_throughput")),
        "first_token_ms": _rounded(result.get("median_ttft_ms")),
        "prefix_hit_rate": _hit_rate(load.get("prefix_cache")),
        "drafts": draft_figures.drafts(load.get("drafts")),
        "expected": {**asdict(expected), "tokens": list(expected.tokens)} if expected else None,
        "ratio": _rounded(ratio),
        "gpus": {host: asdict(found) for host, found in gpus.items()},
        "result": {key: result[key] for key in Result.__annotations__ if key in result},
    }


def _unanswered(result: Mapping[str, Any]) -> str | None:
    sent, done = result.get("num_prompts") or 0, result.get("completed") or 0
    if done < sent or not done:
        return f"{done} of {sent} requests were answered"
    return None if result.get("median_tpot_ms") else "the answers have too few tokens to tell a speed"


def _hit_rate(counted: Mapping[str, float] | None) -> float | None:
    """None where nothing was looked up: prefix caching is off, or the server does not tell."""
    return _rounded(counted["hits"] / counted["queries"]) if counted and counted["queries"] else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


# -- decisions ---------------------------------------------------------------------------------------------------------


def quantization(model: str, args: Sequence[str]) -> str | None:
    """The format of the weights: what the server was told to make of them, else the catalog's; None if neither says."""
    for index, word in enumerate(args):
        flag, equals, value = word.partition("=")
        if flag in ("--quantization", "-q"):
            return value if equals else next(iter(args[index + 1 :]), None)
    known = models.find(model)
    checkpoint = known.checkpoint(model) if known else None
    return checkpoint.quantization if checkpoint else None


def without_secrets(args: Sequence[str]) -> list[str]:
    """A server's arguments as others may read them: what follows --hf-token and its like is not shown."""
    shown: list[str] = []
    hide = False
    for word in args:
        flag, equals, __ = word.partition("=")
        secret = bool(_SECRET_FLAG.fullmatch(flag))
        shown.append(f"{flag}={_HIDDEN}" if secret and equals else _HIDDEN if hide else word)
        hide = secret and not equals
    return shown


def expectation(conditions: Mapping[str, Any], concurrency: int) -> tuple[Expected | None, str]:
    """Return what was measured under the same conditions.

    Else why nothing is expected, with what is known of others.
    """
    here = f"{conditions['quantization'] or 'an unknown format'}, hosts: {conditions['hosts']}, at once: {concurrency}"
    model = models.find(conditions["model"])
    if model is None:
        return None, f"{conditions['model']} is not in catalog/models.yml"
    for item in model.expected:
        same = (item.quantization, item.hosts, item.requests, item.version) == (
            *(conditions["quantization"], conditions["hosts"]),
            *(concurrency, conditions.get("version") or None),  # what another version does is no pass mark
        )
        if same and not item.at_most and _possible(conditions, item):
            return item, ""
    known = "; ".join(
        f"{item.text} with {item.quantization or 'a format that is not said'}, hosts: {item.hosts}, "
        f"vLLM {item.version or 'of a version that is not said'}"
        for item in model.expected
    )
    return None, f"no expectation for these conditions ({here}); known is {known or 'nothing'}"


def _possible(conditions: Mapping[str, Any], item: Expected) -> bool:
    """Tell whether the memory allows it without drafts; what it does not was measured with something else."""
    model = models.find(conditions["model"])
    checkpoint = model.checkpoint(conditions["model"]) if model else None
    if model is None or checkpoint is None or item.requests > 1 or draft_figures.with_drafts(conditions):
        return True
    bound = speed.bandwidth_limit(model, checkpoint, item.hosts)
    return not bound or item.tokens[0] <= bound


def gpu(readings: Sequence[Mapping[str, Any] | None], limits: Limits) -> Gpu:
    """Return what a GPU was like under load: readings below the utilization that counts say nothing."""
    busy = [one for one in readings if one and (one["utilization_percent"] or 0) >= limits["busy_percent"]]
    bits = 0
    for one in busy:
        bits |= one["event_reasons"] or 0
    return Gpu(
        readings=sum(1 for one in readings if one),
        busy=len(busy),
        clock_mhz=_median(busy, "clock_mhz"),
        power_w=_median(busy, "power_w"),
        temperature_c=_median(busy, "temperature_c"),
        reasons=[word for bit, word in THROTTLING.items() if bits & bit],
        driver=next((one["driver"] for one in readings if one), None),
    )


def _median(busy: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [one[name] for one in busy if one[name] is not None]
    return statistics.median(values) if values else None


def judge(
    problem: str | None,
    ratio: float | None,
    expected: Expected | None,
    why: str,
    gpus: Mapping[str, Gpu],
    limits: Limits,
    unit: str,
) -> tuple[str, str, str]:
    """Verdict, fact and way out. A GPU that throttles under load is at fault at any speed."""
    if problem:
        return "failed", problem, f"sudo journalctl -u {unit} on the first host says what the server makes of it"
    fast = f"{ratio:.2f} of the expected {expected.text}" if ratio is not None and expected else ""
    beside = f"; {fast}" if fast else ""
    low = {host: found for host, found in gpus.items() if _throttles(found, limits)}
    told = {host: found for host, found in low.items() if found.reasons}
    if silent := {host: found for host, found in low.items() if not found.reasons}:
        return "power_fault", f"{_said(silent)} under load{beside}", _power_off(silent, limits)
    if told:
        hosts = ", ".join(told)
        way_out = f"let {hosts} cool: air around it, dust, fan; hw_power_brake_slowdown is the power supply's word"
        return "throttled", f"{_said(told)} under load{beside}", way_out
    if ratio is None or expected is None:
        return "no_expectation", why, ""
    if ratio <= limits["third"]:
        fact = f"{fast}, as a power supply that throttles makes it; the GPUs do not show it: {_said(gpus)}"
        return "third_of_expected", fact, _look_closer(gpus, limits)
    if ratio < limits["slow"]:
        way_out = f"compare image, flags and version with {expected.conditions}; {_look_closer(gpus, limits)}"
        return "slow", f"{fast}; {_said(gpus)}", way_out
    return "as_expected", fast, ""


def _throttles(found: Gpu, limits: Limits) -> bool:
    enough = found.busy >= limits["busy_readings"]
    return enough and found.clock_mhz is not None and found.clock_mhz < limits["clock_min_mhz"]


def _said(gpus: Mapping[str, Gpu]) -> str:
    return "; ".join(f"{host}: {found.text}" for host, found in gpus.items())


def _power_off(hosts: Iterable[str], limits: Limits) -> str:
    return (
        f"power off {', '.join(hosts)}, pull the power supply out of the wall and out of the Spark for "
        f"{limits['power_off_s']:g} s, then measure again; where it comes back, have power supply or Spark replaced"
    )


def _look_closer(gpus: Mapping[str, Gpu], limits: Limits) -> str:
    unseen = [host for host, found in gpus.items() if found.busy < limits["busy_readings"]]
    if unseen:
        return (
            f"too few readings under load of {', '.join(unseen)}: look at nvidia-smi there while the model answers; "
            f"below {limits['clock_min_mhz']:g} MHz it is the power supply: {_power_off(unseen, limits)}"
        )
    return f"rule the power supply out, whose faults do not all show in the clock: {_power_off(gpus, limits)}"


# -- what people read --------------------------------------------------------------------------------------------------


def table(document: Mapping[str, Any]) -> list[str]:
    """A line for each step, under a headline."""
    rows = [_COLUMNS, *(_row(cluster, step) for cluster in document["clusters"] for step in cluster["steps"])]
    steps = [step for cluster in document["clusters"] for step in cluster["steps"]]
    if any(step.get("before") for step in steps):
        change = ("before", *(f"{was['change']:+.1%}" if (was := step.get("before")) else "-" for step in steps))
        rows = [(*row[:-1], extra, row[-1]) for row, extra in zip(rows, change, strict=True)]
    if any(step.get("drafts") for step in steps):
        more = [draft_figures.COLUMNS, *(draft_figures.cells(step) for step in steps)]
        rows = [(*row[:-1], *extra, row[-1]) for row, extra in zip(rows, more, strict=True)]
    return output.columns(rows)


def findings(document: Mapping[str, Any]) -> list[str]:
    """Return what is not as expected, and its way out; once for all steps that say the same."""
    found: dict[tuple[str, ...], list[str]] = {}
    for cluster in document["clusters"]:
        for step in cluster["steps"]:
            if step["verdict"] != "as_expected":
                said = (cluster["name"], step["verdict"], step["text"], step["way_out"])
                found.setdefault(said, []).append(str(step["concurrency"]))
    lines: list[str] = []
    for (name, verdict, text, way_out), at_once in found.items():
        lines.append(f"{name}, {', '.join(at_once)} at once: {verdict}: {text}")
        lines += [f"    Fix: {way_out}"] if way_out else []
    return lines


def _row(cluster: Mapping[str, Any], step: Mapping[str, Any]) -> tuple[str, ...]:
    def shown(value: float | None, form: str) -> str:
        return "-" if value is None else form.format(value)

    expected = Expected(**step["expected"]).text if step["expected"] else "-"
    return (
        cluster["name"],
        str(step["concurrency"]),
        shown(step["tokens_per_s"], "{:.1f}"),
        shown(step["tokens_per_s_sum"], "{:.1f}"),
        expected,
        shown(step["first_token_ms"], "{:.0f} ms"),
        shown(step["prefix_hit_rate"], "{:.0%}"),
        step["verdict"],
    )


# -- files -------------------------------------------------------------------------------------------------------------


def write(document: Mapping[str, Any], directory: Path) -> Path:
    """Put the document into a folder named by its time, complete or not at all, and point `latest` to that."""
    target = directory / re.sub("[-:]", "", document["created"])
    target.mkdir(parents=True, exist_ok=True)
    output.write(target / DOCUMENT, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    output.point_latest(target)
    return target / DOCUMENT
