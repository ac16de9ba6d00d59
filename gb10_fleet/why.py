"""What `gb10 why` prints of each host: the likeliest cause, what is wrong now, and what happened."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.checks import patient, timeline
from ansible_collections.gb10.fleet.plugins.plugin_utils.health import own_load, schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.schema import Load
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.why import Answer, answer

EVERY_S = 5  # between two samples of a long watch


class WrongAnswer(ValueError):
    """A host's answer is not what the module gives."""


def variables(watch_s: int, *, load: bool = False, image: str | None = None) -> dict[str, Any]:
    """For the playbook: how often to read, and under which load. Without a watch it decides itself."""
    if load:
        return _loaded(image)
    if not watch_s:
        return {}
    return {"gb10_why_samples": math.ceil(watch_s / EVERY_S) + 1, "gb10_why_every_s": EVERY_S}


def _loaded(image: str | None) -> dict[str, Any]:
    """A sample each second while the load runs; the last one is behind its end, should it start late."""
    wish = own_load.wish(patient.rules(), image)
    return {"gb10_why_samples": wish["seconds"], "gb10_why_load": wish}


def answers(readings: Mapping[str, Any], days: float) -> list[Answer]:
    rules = patient.rules()
    for host, reading in readings.items():
        if wrong := schema.problem(reading):
            raise WrongAnswer(f"{host}: {wrong}; look at what runs on that host, its answer is not ours")
    return [answer(host, reading, rules, days) for host, reading in readings.items()]


def lines(found: Answer) -> Iterator[str]:
    """For people. What could not be read is counted; --json has the reasons."""
    up = "an unknown time" if found.uptime_s is None else _span(found.uptime_s)
    yield f"{found.host}: up for {up}, read at {timeline.utc(found.at_s)} UTC"
    if not found.causes:
        unexplained = "no cause is known for what is found below"
        yield f"  {unexplained if found.judgement.findings else 'nothing wrong was found'}"
    for number, cause in enumerate(found.causes):
        yield f"  {cause.sure}{' as well' if number else ''}: {cause.fact}"
        for sign in cause.signs:
            yield f"      because: {sign}"
        yield f"      way out: {cause.way_out}"
    for finding in found.judgement.findings:
        yield f"  {finding.severity}: {finding.id}: {finding.fact}"
        yield f"      way out: {finding.way_out}"
    for id_, reason in found.judgement.unsure.items():
        yield f"  cannot tell: {id_}: {reason}"
    if found.load:
        yield f"  {_load(found.load)}"
    if found.timeline:
        yield "  what happened (UTC):"
    for entry in found.timeline:
        yield f"    {timeline.utc(entry.at_s)}  {entry.kind:<16}  {entry.text}"
    if found.unknown:
        count = len(found.unknown)
        yield f"  {count} value{'s' if count > 1 else ''} could not be read (--json has the reasons)"


def _load(load: Load) -> str:
    image = f" of {load['image']}" if load["image"] else ""
    if load["state"] in ("refused", "failed"):
        return f"no load of our own{image}: {load['reason']}"
    speed = load["told"].get("teraflops")
    said = [f"read under a load of our own{image}"]
    said += [f"{speed:g} TFLOP/s in bfloat16"] if speed is not None else []
    return ", ".join(said + ([load["reason"]] if load["reason"] else []))


def _span(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86400)
    hours, minutes = divmod(rest // 60, 60)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min"
