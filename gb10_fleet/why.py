"""What `gb10 why` prints of each host: the likeliest cause, what is wrong now, and what happened."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks import timeline
from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import Load
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, effort, limits
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import counted
from ansible_collections.gb10.fleet.plugins.plugin_utils.health import own_load
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.why import Answer, answer

EVERY_S = 5  # between two samples of a long watch
_READ, _KEPT = "gb10.fleet.spark_facts", "kept"  # of the host itself, and of the next one
_INVENTORY = "inventory"
ASKS = {_READ: "health", _KEPT: "recorded", _INVENTORY: "msg"}


def variables(watch_s: int, *, load: bool = False, image: str | None = None) -> dict[str, Any]:
    """For the playbook: how often to read, and under which load. Without a watch it decides itself."""
    if load:
        wish = own_load.wish(limits.rules(), image)
        # A sample each second while it runs; the last one is behind its end, should it start late.
        return {"gb10_why_samples": wish["seconds"], "gb10_why_load": wish}
    if not watch_s:
        return {}
    return {"gb10_why_samples": math.ceil(watch_s / EVERY_S) + 1, "gb10_why_every_s": EVERY_S}


def answers(results: Mapping[str, Mapping[str, Any]], days: float, lost: dict[str, list[str]]) -> list[Answer]:
    """`results`: by module or step, and host. `lost` gets the hosts of which nothing can be told, and why."""
    rules = limits.rules()
    readings = {host: result["health"] for host, result in results[_READ].items()}
    given = {host: json.loads(result["msg"]) for host, result in results.get(_INVENTORY, {}).items()}
    for host, result in results[_KEPT].items():
        readings[host] = {**readings.get(host, {}), "recorded": result["recorded"]}
    found: list[Answer] = []
    for host, reading in readings.items():
        try:
            with effort.work():
                own = limits.of_host(rules, given.get(host, {}).get("minimum_free_gib"))
                found.append(answer(host, reading, own, days))
        except effort.TooMuch as error:
            lost.setdefault(host, []).append(f"{host}: {error}")
    return [replace(one, cold_power=cold_power(one, given.get(one.host))) for one in found]


def cold_power(found: Answer, given: Mapping[str, Any] | None) -> str:
    """Return how a cold start comes about, where one may cure what was found; of a rail's fault for the whole cluster.

    `given`: the `members` of the cluster, and its `plugs`: those with one.
    """
    known = catalog.load("plugs")["cold_power"]["value"]
    ids = {cause.id for cause in found.causes} | {one.id for one in found.judgement.findings if one.severity != "info"}
    if not ids & {*known["host"], *known["cluster"]}:
        return ""
    said = given or {"members": [found.host], "plugs": []}
    wanted = [*said["members"]] if ids & {*known["cluster"]} else [found.host]
    bare = [name for name in wanted if name not in said["plugs"]]
    if not bare:
        cables = "; pull the QSFP cables meanwhile, which no plug does" if ids & {*known["cluster"]} else ""
        return f"a cold start may help: gb10 power {' '.join(wanted)} cycle -i INVENTORY{cables}"
    return f"a cold start may help: no gb10_power_plug of {', '.join(bare)}, so a hand has to pull it (docs/power.md)"


def lines(found: Answer) -> Iterator[str]:
    """For people, the answer first. What could not be read is counted; --json has the reasons."""
    loud = [finding for finding in found.judgement.findings if finding.severity != "info"]
    if not found.causes:
        nothing = f"nothing found{', and its log is unknown' if 'log' in found.judgement.unsure else ''}"
        yield f"{found.host}: {f'no cause is known: {loud[0].fact}' if loud else nothing}"
    for number, cause in enumerate(found.causes):
        yield f"  {cause.sure} as well: {cause.fact}" if number else f"{found.host}: {cause.sure}: {cause.fact}"
        for sign in cause.signs:
            yield f"      because: {sign}"
        yield f"      Fix: {cause.way_out}"
    if found.cold_power:
        yield f"  {found.cold_power}"
    for finding in found.judgement.findings:
        yield f"  {finding.severity}: {finding.id}: {finding.fact}"
        yield f"      Fix: {finding.way_out}"
    if found.judgement.unsure:
        yield from _unsure(found.judgement.unsure)
    up = "an unknown time" if found.uptime_s is None else _span(found.uptime_s)
    yield f"  up for {up}, read at {timeline.utc(found.at_s)} UTC"
    if found.load:
        yield f"  {_load(found.load)}"
    if found.timeline:
        yield "  what happened (UTC):"
    for entry in found.timeline:
        yield f"    {timeline.utc(entry.at_s)}  {entry.kind:<16}  {entry.text}"
    if found.unknown:
        count = len(found.unknown)
        yield f"  {count} value{'s' if count > 1 else ''} could not be read (--json has the reasons)"


def _unsure(reasons: Mapping[str, str]) -> Iterator[str]:
    """What could not be told: where something helps, that; the log with its reason; the rest is a number."""
    seen = [text for id_, reason in reasons.items() if (text := _seen_by(id_, reason)) != id_]
    rest = len(reasons) - len(seen)
    parts = [", ".join(seen)] if seen else []
    parts += [f"{rest} more" if seen else counted(rest, "thing")] if rest else []
    yield f"  cannot tell: {' and '.join(parts)}; --json has the reasons"


def _seen_by(id_: str, reason: str) -> str:
    """What could not be told, with the way to see it where there is one."""
    ways = {
        "power_fault": "--load, or while it works",
        "engine_hung": f"--watch {limits.rules().limits['hang_s'] + 4 * EVERY_S}",
        "rail_degraded": "gb10 validate",
        "rail_errors": f"--watch {EVERY_S}",
        "log": reason,
    }
    return f"{id_} ({ways[id_]})" if id_ in ways else id_


def _load(load: Load) -> str:
    image = f" of {load['image']}" if load["image"] else ""
    if load["state"] in ("refused", "failed"):
        return f"no load of our own{image}: {load['reason']}"
    speed = load["told"].get("teraflops")
    parts = [f"read under a load of our own{image}"]
    parts += [f"{speed:g} TFLOP/s in bfloat16"] if speed is not None else []
    return ", ".join(parts + ([load["reason"]] if load["reason"] else []))


def _span(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86400)
    hours, minutes = divmod(rest // 60, 60)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min"
