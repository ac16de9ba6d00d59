# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts said, as rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import judge
from ansible_collections.gb10.fleet.plugins.module_utils.checks.patient import GIB, Rules, passed_s
from ansible_collections.gb10.fleet.plugins.module_utils.reading.gpu import Gpu
from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import Reading
from ansible_collections.gb10.fleet.plugins.module_utils.reading.serving import Serving
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_names import SHORT
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.looks import Counters, Look, Served


@dataclass(frozen=True)
class ServiceRow:
    """`tokens_per_s` and `ttft_s` of the time between two looks; None where nothing was generated, or begun."""

    name: str
    phase: str | None
    verdict: str | None
    running: float | None
    waiting: float | None
    tokens_per_s: float | None
    ttft_s: float | None
    problem: str | None


@dataclass(frozen=True)
class Row:
    """A host at one moment. `silent`: why there is nothing."""

    host: str
    silent: str | None
    temperature_c: float | None = None
    clock_mhz: float | None = None
    power_w: float | None = None
    utilization_percent: float | None = None
    clock_low: bool | None = None  # under load: one look is no finding yet, and a reason to look closer
    memory_used_gib: float | None = None
    memory_total_gib: float | None = None
    rails_up: int | None = None
    rails: int | None = None
    services: Sequence[ServiceRow] = ()
    findings: Sequence[Finding] = ()
    at_s: float | None = None
    wall_w: float | None = None  # of the whole host, by its plug
    reserved: str | None = None  # for whom and until when, by the inventory

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "findings": [finding.as_dict() for finding in self.findings]}


def row(
    host: str, looks: Sequence[Look], silent: str | None, rules: Rules, more: Mapping[str, Any] | None = None
) -> Row:
    """The last look, with the rates since the one before; `more` has what the controller knows beside it."""
    reserved, wall_w = (more or {}).get("reserved"), (more or {}).get("wall_w")
    if silent or not looks:
        return Row(host, silent or "it has not answered yet", wall_w=wall_w, reserved=reserved)
    last, former = looks[-1], looks[-2] if len(looks) > 1 else None
    sample = last["reading"]["samples"][-1]
    gpu, memory, rails = sample["gpu"], sample["memory"], sample["rails"]
    total = memory["total_bytes"] if memory else None
    free = memory["available_bytes"] if memory else None
    before = {one["name"]: one for one in former["services"]} if former else {}
    return Row(
        host,
        None,
        temperature_c=gpu and gpu["temperature_c"],
        clock_mhz=gpu and gpu["clock_mhz"],
        power_w=gpu and gpu["power_w"],
        utilization_percent=gpu and gpu["utilization_percent"],
        clock_low=_clock_low(gpu, last["reading"], rules),
        memory_used_gib=None if total is None or free is None else (total - free) / GIB,
        memory_total_gib=None if total is None else total / GIB,
        rails_up=None if rails is None else sum(rail["state"] == "ACTIVE" for rail in rails),
        rails=None if rails is None else len(rails),
        services=[service_row(one, before.get(one["name"])) for one in last["services"]],
        findings=judge(host, _joined(looks), rules).findings,
        at_s=last["reading"]["at_s"],
        wall_w=wall_w,
        reserved=reserved,
    )


def _clock_low(gpu: Gpu | None, reading: Reading, rules: Rules) -> bool | None:
    """Return whether it is below what a GB10 has under load, where no role of ours holds it."""
    if not gpu or gpu["clock_mhz"] is None or reading.get("clock_lock_mhz"):
        return None
    busy = (gpu["utilization_percent"] or 0) >= rules.limits["busy_percent"]
    return bool(busy and gpu["clock_mhz"] < rules.limits["clock_min_mhz"])


def _joined(looks: Sequence[Look]) -> Reading:
    """All looks as one reading. An engine that hangs is seen in the counters of its service.

    As in the section health, counters have no name where nothing but the service of vllm_model counts: its unit is the
    one that a way out names then.
    """
    counted = [
        {one["name"]: _serving(one["counters"]) for one in look["services"] if one["counters"]} for look in looks
    ]
    named = any(set(services) - {SHORT} for services in counted)
    samples = [
        {
            **look["reading"]["samples"][-1],
            "serving": None if named else services.get(SHORT),
            **({"servings": services} if named else {}),
        }
        for look, services in zip(looks, counted, strict=True)
    ]
    return cast(Reading, {**looks[-1]["reading"], "samples": samples})


def _serving(counters: Counters) -> dict[str, float | None]:
    return {name: counters[name] for name in Serving.__annotations__}  # type: ignore[literal-required]


def service_row(last: Served, former: Served | None) -> ServiceRow:
    counters = last["counters"]
    return ServiceRow(
        last["name"],
        last["phase"],
        last["verdict"] if last["phase"] not in ("ready", "stopped") else None,
        counters and counters["running"],
        counters and counters["waiting"],
        _rate(last, former),
        _mean(last, former, "ttft_s_sum", "ttft_count"),
        last["problem"],
    )


def _rate(last: Served, former: Served | None) -> float | None:
    grown, seconds = _grown(last, former, "generated_tokens"), passed_s(former, last) if former else 0
    return None if grown is None or seconds <= 0 else grown / seconds


def _mean(last: Served, former: Served | None, total: str, count: str) -> float | None:
    """Of what happened between two looks; of the server's whole life, where nothing did."""
    grown, times = _grown(last, former, total), _grown(last, former, count)
    if grown is not None and times:
        return grown / times
    whole, often = _count(last, total), _count(last, count)
    return whole / often if whole is not None and often else None


def _grown(last: Served, former: Served | None, name: str) -> float | None:
    """None where one of the two is unknown, or the server began anew."""
    after, before = _count(last, name), _count(former, name)
    return None if after is None or before is None or after < before else after - before


def _count(one: Served | None, name: str) -> float | None:
    counters: Mapping[str, Any] = (one and one["counters"]) or {}
    return counters.get(name)
