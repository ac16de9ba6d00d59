"""The detectors of GPU and engine over 400 generated series: how often they are wrong, and on what.

docs/health.md states these counts. `HARD` are cases that the readings of a host cannot tell apart: they are wrong by
construction, and counted here so that nobody believes otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import judge

from tests.support.health import NOW, RULES, Record, gpu, reading, sample, serving

EACH = 20
LONG_S, SHORT_S = 200, 10
Make = Callable[[random.Random], list[Record]]


def series(
    dice: random.Random,
    one: Callable[[int], Record],
    *,
    running: float = 0,
    moving: bool = False,
    span_s: float = SHORT_S,
) -> list[Record]:
    count = dice.randint(5, 12)
    tokens, samples = float(dice.randint(0, 10**6)), []
    for place in range(count):
        tokens += dice.randint(1, 400) if moving else 0
        at_s = NOW - span_s + span_s * place / (count - 1)
        samples.append(sample(at_s, gpu=one(place), serving=serving(running, tokens)))
    return samples


def busy(dice: random.Random, clock: tuple[int, int], power: tuple[float, float], **more: Any) -> Record:
    heat = more.pop("heat", (60, 82))
    return gpu(
        dice.randint(*clock), round(dice.uniform(*power), 1), dice.randint(88, 100),
        temperature_c=float(dice.randint(*heat)), **more,
    )  # fmt: skip


def idle(dice: random.Random) -> Record:
    reasons = ["gpu_idle", *(["sw_power_cap"] if dice.random() < 0.46 else [])]
    heat = float(dice.randint(33, 55))
    return gpu(dice.choice([208, 345, 600]), round(dice.uniform(3.5, 7), 1), dice.choice([0, 0, 0, 3]), reasons=reasons,
               temperature_c=heat)  # fmt: skip


FULL, POWER = (2150, 2500), (60.0, 92.0)
FALLEN, LITTLE = (481, 858), (5.8, 18.0)
HEALTHY: dict[str, Make] = {
    "idle": lambda d: series(d, lambda _: idle(d)),
    "idle for long, the service up": lambda d: series(d, lambda _: idle(d), span_s=LONG_S),
    "sustained load": lambda d: series(d, lambda _: busy(d, FULL, POWER), running=8, moving=True, span_s=LONG_S),
    "decoding for one": lambda d: series(d, lambda _: busy(d, FULL, (18, 40)), running=1, moving=True, span_s=LONG_S),
    "a long prefill": lambda d: series(d, lambda _: busy(d, FULL, POWER), running=1, span_s=LONG_S),
    "load that comes and goes": lambda d: series(
        d, lambda _: d.choice([idle(d), busy(d, FULL, POWER)]), running=2, moving=True
    ),
    "clocks locked at 2,000 MHz": lambda d: series(
        d, lambda _: busy(d, (1980, 2010), (45, 70), reasons=["applications_clocks_setting"]), running=4, moving=True
    ),
    "capped for a moment": lambda d: series(
        d, lambda place: busy(d, FULL, POWER, reasons=["hw_slowdown"] if place == 1 else []), running=4, moving=True
    ),
    "warm, and well": lambda d: series(d, lambda _: busy(d, FULL, POWER, heat=(78, 83)), running=8, moving=True),
    "power unknown": lambda d: series(d, lambda _: {**busy(d, FULL, POWER), "power_w": None}, running=8, moving=True),
}
FAULTY: dict[str, tuple[str, Make]] = {
    "power supply fallen back": ("power_fault", lambda d: series(d, lambda _: busy(d, FALLEN, LITTLE, heat=(45, 60)))),
    "fallen back while it serves": (
        "power_fault",
        lambda d: series(d, lambda _: busy(d, FALLEN, LITTLE), running=2, moving=True, span_s=LONG_S),
    ),
    "held at 29 W": ("power_fault", lambda d: series(d, lambda _: busy(d, (900, 1390), (20, 29)))),
    "spinning engine": (
        "engine_hung",
        lambda d: series(d, lambda _: busy(d, FULL, (16, 27)), running=3, span_s=LONG_S),
    ),
    "dead engine": ("engine_hung", lambda d: series(d, lambda _: idle(d), running=1, span_s=LONG_S)),
    "too hot": ("gpu_hot", lambda d: series(d, lambda _: busy(d, FULL, POWER, heat=(91, 97)))),
    "slowed by heat": (
        "gpu_throttled",
        lambda d: series(d, lambda _: busy(d, (900, 1900), (30, 60), reasons=["sw_thermal_slowdown"])),
    ),
}
# What no reading of the GPU shows: (is it a fault, what is said of it, how it looks).
HARD: dict[str, tuple[bool, str | None, Make]] = {
    "slow at a healthy clock, 14 to 16 W": (
        True, None, lambda d: series(d, lambda _: busy(d, FULL, (14, 16)), running=1, moving=True, span_s=LONG_S),
    ),
    "an engine that spins at more than 30 W": (
        True, None, lambda d: series(d, lambda _: busy(d, FULL, (33, 45)), running=3, span_s=LONG_S),
    ),
    "somebody locked the clocks at 900 MHz": (
        False, "power_fault", lambda d: series(d, lambda _: busy(d, (880, 905), (18, 28)), running=1, moving=True),
    ),
}  # fmt: skip


def alarms(samples: list[Record]) -> set[str]:
    """Errors and warnings; information is no alarm."""
    record = reading(samples, processes=[{"pid": 1, "memory_mib": 90000}])
    return {one.id for one in judge("spark-a", record, RULES).findings if one.severity != "info"}  # type: ignore[arg-type]


def made(make: Make, name: str) -> list[set[str]]:
    dice = random.Random(name)  # noqa: S311 - the same series each time
    return [alarms(make(dice)) for _ in range(EACH)]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_host_gives_no_alarm(name: str) -> None:
    assert made(HEALTHY[name], name) == [set()] * EACH


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_gives_its_verdict_and_no_other(name: str) -> None:
    verdict, make = FAULTY[name]
    assert made(make, name) == [{verdict}] * EACH


@pytest.mark.parametrize("name", HARD)
def test_what_cannot_be_told_apart_is_stated(name: str) -> None:
    _fault, verdict, make = HARD[name]
    assert made(make, name) == [{verdict} if verdict else set()] * EACH


def test_the_counts_that_the_page_states() -> None:
    total = EACH * (len(HEALTHY) + len(FAULTY) + len(HARD))
    missed = EACH * sum(fault and verdict is None for fault, verdict, _make in HARD.values())
    wrong = EACH * sum(not fault and verdict is not None for fault, verdict, _make in HARD.values())
    assert (total, missed, wrong) == (400, 40, 20)
