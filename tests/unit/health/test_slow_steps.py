"""The hidden slow state over generated series, and a certificate that is near its end."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import judge
from ansible_collections.gb10.fleet.plugins.module_utils.reading import counters
from ansible_collections.gb10.fleet.plugins.module_utils.reading import serving as served
from ansible_collections.gb10.fleet.plugins.module_utils.reading.certificates import read_certificates
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, System
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown

from tests.support.health import NOW, RULES, gpu, problem, reading, sample, serving

REAL = Path(__file__).parents[2] / "fixtures/health/vllm-0.32.0-metrics.txt"
DAY_S = 86400


def alarm(
    dice: random.Random, own_ms: float, now_ms: float, *, running: float = 1, steps: int = 2000, new: int = 0
) -> bool:
    """Whether a server with so long a mean step is called slow, while steps take so long."""
    total_s, count = own_ms * steps / 1000, float(steps)
    samples = []
    for place in range(8):
        counters = {**serving(running, count), "step_s_sum": total_s, "step_count": count}
        samples.append(sample(NOW - 7 + place, gpu=gpu(2300, 22, 92), serving=counters))
        grown = new or dice.randint(20, 60)
        total_s, count = total_s + grown * now_ms * dice.uniform(0.93, 1.07) / 1000, count + grown
    record: Any = reading(samples, processes=[{"pid": 1, "memory_mib": 90000}])
    assert problem(record) is None
    found = {finding.id for finding in judge("a", record, RULES).findings}
    assert found <= {"slow_steps"}
    return bool(found)


def test_no_false_alarm_in_100_healthy_series_and_none_missed_in_100_slow_ones() -> None:
    dice = random.Random("steps")  # noqa: S311 - the same series each time
    own = [dice.uniform(10, 120) for _ in range(100)]
    assert sum(alarm(dice, ms, ms * dice.uniform(0.8, 1.25)) for ms in own) == 0
    assert sum(alarm(dice, ms, ms * dice.uniform(1.49, 3)) for ms in own) == 100


@pytest.mark.parametrize("more", [{"running": 4}, {"steps": 50}, {"new": 5}, {"running": 0}])
def test_what_cannot_be_compared_is_no_alarm(more: dict[str, Any]) -> None:
    dice = random.Random("few")  # noqa: S311
    assert alarm(dice, 60, 95) and not alarm(dice, 60, 95, **more)


def test_steps_of_a_real_vllm() -> None:
    counted = served.read_serving(lambda: counters.parse(REAL.read_text()))
    assert (counted["step_s_sum"], counted["step_count"]) == (0.032355533999975705, 14.0)
    none = served.read_serving(lambda: counters.parse("vllm:num_requests_running 0\nvllm:generation_tokens_total 0\n"))
    assert "step_count" not in none


@pytest.mark.parametrize(
    ("days", "severity"), [(-1, "error"), (0, "error"), (1, "warn"), (20.9, "warn"), (21, None), (90, None)]
)
def test_a_certificate_near_its_end(days: float, severity: str | None) -> None:
    record: Any = reading(certificates=[{"file": "/etc/x.pem", "ends_s": NOW + days * DAY_S}])
    assert problem(record) is None
    found = [finding.severity for finding in judge("a", record, RULES).findings if finding.id == "certificate"]
    assert found == ([severity] if severity else [])


def certified(root: Path, said: str, rc: int = 0) -> HostReader:
    (root / "etc/gb10-fleet").mkdir(parents=True)
    conf = "  ssl_certificate /etc/a.pem;\n  ssl_certificate_key /etc/a.key;\n  ssl_certificate /etc/a.pem;\n"
    (root / "etc/gb10-fleet/gateway.conf").write_text(conf)
    return HostReader(System(root=root, runner=lambda argv, stdin, timeout: Completed(tuple(argv), rc, said)))


def test_when_a_certificate_ends(tmp_path: Path) -> None:
    assert read_certificates(HostReader(System(root=tmp_path))) == []
    host = certified(tmp_path, "notAfter=Dec  1 00:00:00 2026 GMT\n")
    assert read_certificates(host) == [{"file": "/etc/a.pem", "ends_s": 1796083200.0}]


@pytest.mark.parametrize("said", ["", "unable to load", "notAfter=Xyz 99 00:00:00 2026 GMT\n", "x" * 10_000_000])
def test_what_is_no_end_is_unknown(tmp_path: Path, said: str) -> None:
    with pytest.raises(Unknown):
        read_certificates(certified(tmp_path, said, 1))
