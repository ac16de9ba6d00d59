"""Every detector by tables: where it fires, where it stays silent, and where it cannot tell."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.checks.judge import Judgement, judge
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from tests.support import health
from tests.support.health import (
    GIB,
    MEMORY,
    NOW,
    QUIET,
    RULES,
    Record,
    boot,
    event,
    gpu,
    problem,
    rail,
    reading,
    sample,
)

H100 = Path(__file__).parents[2] / "fixtures/health/h100"
BUSY = {"clock": 2418, "power": 86.0, "busy": 96}
FAULT = {"clock": 507, "power": 12.0, "busy": 96}
IDLE_UNSURE = {"power_fault", "engine_hung", "rail_degraded"}


def said(record: Record) -> Judgement:
    assert problem(record) is None
    return judge("spark-a", record, RULES)  # type: ignore[arg-type]


def ids(record: Record) -> list[str]:
    return [finding.id for finding in said(record).findings]


def of_gpus(*gpus: Record, every_s: float = 1, **more: Any) -> Record:
    samples = [sample(NOW + every_s * (place - len(gpus) + 1), gpu=each) for place, each in enumerate(gpus)]
    return reading(samples, **more)


@pytest.mark.parametrize(("step_s", "passed_s", "hung"), [(200, 1, False), (0, 200, True), (-500, 200, True)])
def test_a_clock_that_is_set_makes_no_engine_hang(step_s: float, passed_s: float, hung: bool) -> None:
    still = {"gpu": gpu(2300, 20.0, 96), "serving": health.serving(3, 100)}
    samples = [
        sample(NOW, steady_s=5.0, **still),
        sample(NOW + passed_s + step_s, steady_s=5.0 + passed_s, **still),
    ]
    judgement = said(reading(samples))
    assert ("engine_hung" in [finding.id for finding in judgement.findings]) is hung
    assert hung or "no token came for 1 s" in judgement.unsure["engine_hung"]


def with_memory(**changes: Any) -> Record:
    return reading([sample(), sample(memory={**MEMORY, **changes})])


@pytest.mark.parametrize("most", [None, -2.0])
def test_a_speed_that_is_none_is_no_finding(most: float | None) -> None:
    """A host may say anything."""
    assert ids(reading([sample(rails=[rail(pcie={"gigatransfers": -1.0, "gigatransfers_max": most})])])) == []


def test_a_healthy_idle_host_has_no_finding_and_its_power_supply_is_unknown() -> None:
    judgement = said(reading())
    assert judgement.findings == []
    assert set(judgement.unsure) == IDLE_UNSURE


@pytest.mark.parametrize(
    ("gpus", "found"),
    [
        ([gpu(**BUSY)] * 5, []),
        ([gpu(**FAULT)] * 5, ["power_fault"]),
        ([gpu(**FAULT)] * 5 + [gpu()] * 5, ["power_fault"]),
        ([gpu(**FAULT)] * 4, []),  # too few under load
        ([gpu(208, 4.5, 0)] * 9, []),  # a low clock without a load is health
        ([gpu(**{**FAULT, "power": 60.0})] * 5, ["gpu_clock_low"]),
        ([gpu(**FAULT, reasons=["hw_thermal_slowdown"])] * 5, ["gpu_throttled"]),
        ([gpu(1395, 700, 99, reasons=["sw_power_cap"])] * 5, []),  # as an H100 under load: it says why
        ([gpu(**FAULT, reasons=["sw_power_cap"])] * 5, ["power_fault"]),
        ([gpu(**FAULT, reasons=None)] * 5, []),  # whether a reason is given cannot be told
        ([gpu(507, None, 96)] * 5, []),
        ([gpu(None, 12, 96)] * 5, []),
        ([gpu(507, 12, None)] * 5, []),
        ([gpu(**BUSY, temperature_c=83.0)] * 5, []),
        ([gpu(**BUSY, temperature_c=84.0)] * 5, ["gpu_warm"]),
        ([gpu(**BUSY, temperature_c=90.0)] * 5, ["gpu_hot"]),
        ([gpu(**BUSY, tlimit_c=5.0)] * 5, ["gpu_hot"]),
        ([gpu(**BUSY, temperature_c=None, tlimit_c=3.0)] * 5, ["gpu_hot"]),
        ([gpu(**BUSY, reasons=["hw_slowdown"])] + [gpu(**BUSY)] * 4, []),  # for a moment
        ([gpu(**BUSY, reasons=["hw_power_brake_slowdown"])] * 5, ["gpu_throttled"]),
        ([health.silent("silent")], ["gpu_silent"]),
        ([health.silent("absent")], ["gpu_absent"]),
        ([health.silent("mismatch")], ["gpu_mismatch"]),
        ([health.silent("no_driver")], ["gpu_no_driver"]),
        ([health.silent("no_program")], ["gpu_no_program"]),
        ([health.silent("unreadable")], ["gpu_unreadable"]),
    ],
)
def test_the_gpu(gpus: list[Record], found: list[str]) -> None:
    assert ids(of_gpus(*gpus)) == found


def test_power_and_clock_that_are_unknown_are_said_to_be() -> None:
    record = of_gpus(*[gpu(507, None, 96)] * 5, unknown={"gpu.power_w": "nvidia-smi says [N/A]"})
    assert said(record).unsure["power_fault"] == "the clock is low, and power_w is unknown: nvidia-smi says [N/A]"


def test_everything_not_available_is_no_finding() -> None:
    nothing = {name: None for name in gpu() if name not in ("state", "name", "driver")}
    record = of_gpus(*[gpu(**{k: v for k, v in nothing.items() if k not in ("power_w", "clock_mhz")})] * 5)
    for each in record["samples"]:
        each["gpu"].update(nothing)
    judgement = said(record)
    assert judgement.findings == []
    assert {"power_fault", "gpu_throttled", "gpu_hot"} <= set(judgement.unsure)


@pytest.mark.parametrize(("name", "unsure"), [("idle", True), ("loaded", False)])
def test_what_the_module_read_beside_a_real_driver_gives_no_alarm(name: str, unsure: bool) -> None:
    """Driver 580.159.04 and an H100, whose clock under load is below a GB10's limit: its driver says why."""
    judgement = said(json.loads((H100 / f"reading-{name}.json").read_text()))
    assert judgement.findings == []
    assert ("power_fault" in judgement.unsure) is unsure


@pytest.mark.parametrize(
    ("running", "tokens", "power", "every_s", "found"),
    [
        (3, [100, 100, 100], 20.0, 100, ["engine_hung"]),
        (3, [100, 100, 101], 20.0, 100, []),  # slow is not hung
        (0, [100, 100, 100], 4.5, 100, []),  # nobody asks
        (3, [100, 100, 100], 75.0, 100, []),  # a long prefill
        (3, [100, 100, 100], 20.0, 2, []),  # too short to tell
        (3, [100, 100, 100], None, 100, []),
    ],
)
def test_an_engine_that_hangs(
    running: float, tokens: list[float], power: float | None, every_s: float, found: list[str]
) -> None:
    samples = [
        sample(NOW + every_s * place, gpu=gpu(2300, power, 96), serving=health.serving(running, count))
        for place, count in enumerate(tokens)
    ]
    record = reading(samples, processes=[{"pid": 1, "memory_mib": 90000}])
    assert ids(record) == found
    if every_s == 2 or power is None:
        assert "no token c" in said(record).unsure["engine_hung"]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"free_bytes": 92 * GIB}, ["memory_not_returned"]),
        ({"free_bytes": 96 * GIB}, []),
        ({"free_bytes": 10 * GIB, "available_bytes": 120 * GIB}, []),  # not both can be true
        ({"slab_bytes": None}, []),
        ({"cma_free_bytes": 9 * GIB}, ["kho"]),
        ({"cma_free_bytes": 9 * GIB, "cma_total_bytes": 9 * GIB}, []),
        ({"cma_free_bytes": None}, []),
    ],
)
def test_memory(changes: Record, found: list[str]) -> None:
    assert ids(with_memory(**changes)) == found


def test_figures_that_contradict_each_other_are_no_lost_memory() -> None:
    record = with_memory(free_bytes=10 * GIB, available_bytes=120 * GIB)
    assert "more is available than its other figures allow" in said(record).unsure["memory_not_returned"]
    assert ids(with_memory(free_bytes=10 * GIB, available_bytes=None)) == ["memory_not_returned"]


def test_memory_in_use_by_an_engine_is_not_lost() -> None:
    record = with_memory(free_bytes=10 * GIB, available_bytes=12 * GIB)
    assert ids(record) == ["memory_not_returned"]
    record["processes"] = [{"pid": 1, "memory_mib": None}]
    assert ids(record) == []
    assert "1 processes compute" in said(record).unsure["memory_not_returned"]
    record["processes"] = None
    assert ids(record) == []


@pytest.mark.parametrize(
    ("free", "large", "found", "unsure"),
    [
        (100, 6.25, [], False),
        (96, 6.0, ["memory_fragmented"], False),
        (95, 6.0, [], True),  # a full page cache, for example
        (100, None, [], True),
    ],
)
def test_fragmentation(free: int, large: float | None, found: list[str], unsure: bool) -> None:
    blocks = {"free_bytes": free * GIB, "large_bytes": None if large is None else int(large * GIB)}
    record = reading([sample(blocks=blocks)])
    assert ids(record) == found
    assert ("memory_fragmented" in said(record).unsure) is unsure


@pytest.mark.parametrize(
    ("waited", "cached", "found"),
    [
        (9.9, 60, []),
        (10.0, 60, ["page_cache_pressure"]),
        (10.0, 10, ["memory_pressure"]),
        (10.0, None, ["memory_pressure"]),
    ],
)
def test_pressure(waited: float, cached: int | None, found: list[str]) -> None:
    pressure = copy.deepcopy(QUIET)
    pressure["some"]["avg300"] = waited
    record = with_memory(cached_bytes=None if cached is None else cached * GIB)
    record["processes"] = [{"pid": 1, "memory_mib": None}]
    record["samples"][-1]["pressure"]["memory"] = pressure
    assert ids(record) == found


def test_whoever_pulls_the_fabrics_cable_is_told_to_put_it_back_before_the_power() -> None:
    """An adapter whose cable comes later may come up slow."""
    narrow = reading([sample(NOW - 1, rails=[rail()]), sample(rails=[rail(pcie={"width": 2.0})])])
    known = catalog.load("health")
    ways = [entry["way_out"] for entry in (*known["signs"], *known["causes"])]
    ways += [finding.way_out for finding in said(narrow).findings]
    pulled = [way for way in ways if "QSFP" in way]
    assert len(pulled) == 9
    assert all("put the QSFP cables back in, then the power" in way for way in pulled), pulled


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (rail(), rail(), []),
        (rail(), rail(pcie={"width": 2.0}), ["rail_degraded"]),
        (rail(), rail(pcie={"gigatransfers": 16.0}), ["rail_degraded"]),
        (rail(), rail(pcie={"width": None, "gigatransfers": None}), []),
        (rail(), rail(rate_gbps=100.0), ["rail_slow_link"]),
        (rail(state="DOWN"), rail(state="DOWN", rate_gbps=2.5), []),  # no cable
        (rail(), rail(state="DOWN", rate_gbps=2.5), ["rail_down"]),
        (rail(), rail(counters={"out_of_sequence": 8}), ["rail_errors"]),
        (rail(counters={}), rail(counters={"symbol_error": 1}), ["rail_errors"]),
        (rail(counters={}), rail(counters={"np_cnp_sent": 9}), []),  # congestion is no error
    ],
)
def test_rails(before: Record, after: Record, found: list[str]) -> None:
    assert ids(reading([sample(NOW - 1, rails=[before]), sample(rails=[after])])) == found


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"disks": [health.disk(used_percent=90)]}, ["disk_worn"]),
        ({"disks": [health.disk(critical_warning=4)]}, ["disk_worn"]),
        ({"disks": [health.disk(used_percent=89)]}, []),
        ({"zones": [{"zone": "z", "type": "acpitz", "temperature_c": 96.0, "critical_c": None}]}, []),
        ({"zones": [{"zone": "z", "type": "acpitz", "temperature_c": 99.9, "critical_c": None}]}, ["soc_hot"]),
        ({"zones": [{"zone": "z", "type": "acpitz", "temperature_c": 96.0, "critical_c": 100.0}]}, ["soc_hot"]),
        ({"boots": [boot("a", NOW - 9000, NOW - 4000, clean=False)]}, ["unclean_boot"]),
        ({"boots": [boot("a", NOW - 9e6, NOW - 8e6, clean=False)]}, []),  # long ago
        ({"events": [event("xid", NOW - 60, "119")]}, ["xid_119"]),
        ({"events": [event("xid", NOW - 60, "13")]}, ["xid_13"]),
        ({"events": [event("xid", NOW - 60, "31"), event("xid", NOW - 50, "31")]}, ["xid_31"]),
        ({"events": [event("xid", NOW - 60, "999")]}, ["xid_999"]),
        ({"events": [event("oom_kill", NOW - 60, "python3")]}, ["log_oom_kill"]),
        ({"events": [event("oom_kill", NOW - 8e6, "python3")]}, []),
        ({"events": [event("kernel", NOW - 60, "7.0"), event("driver", NOW - 60, "580.142")]}, []),
    ],
)
def test_the_rest(changes: Record, found: list[str]) -> None:
    assert ids(reading(**changes)) == found


@pytest.mark.parametrize(
    ("changes", "unsure"),
    [
        ({"zones": None}, "soc_hot"),
        ({"disks": None}, "disk_worn"),
        ({"boots": None}, "unclean_boot"),
        ({"events": None}, "log"),
        ({"processes": None}, "memory_fragmented"),
    ],
)
def test_what_could_not_be_read_is_no_clean_bill(changes: Record, unsure: str) -> None:
    judgement = said(reading(**changes))
    assert judgement.findings == []
    assert unsure in judgement.unsure


def test_a_sample_without_anything_gives_no_finding() -> None:
    empty = {**dict.fromkeys(sample()), "at_s": NOW, "pressure": {"cpu": None, "memory": None, "io": None}}
    nothing = dict.fromkeys(("zones", "hwmon", "disks", "boots", "events", "apt", "processes", "service"))
    judgement = said(reading([empty, empty], **nothing))
    assert judgement.findings == []
    assert len(judgement.unsure) >= 12


def test_the_severity_and_meaning_of_an_xid_are_the_catalog_s() -> None:
    found = said(reading(events=[event("xid", NOW - 60, key) for key in ("13", "119", "999")])).findings
    assert [(finding.severity, finding.id) for finding in found] == [
        ("error", "xid_119"), ("warn", "xid_999"), ("info", "xid_13"),
    ]  # fmt: skip
    assert "system processor" in found[0].fact


@pytest.mark.parametrize(
    ("rooms", "severity"),
    [
        ([health.room("/", 300), health.room("/var/lib/docker", 300)], None),
        ([health.room("/", 15), health.room("/var/lib/docker", 15)], "warn"),
        ([health.room("/", 0.4), health.room("/var/lib/docker", 0.4)], "error"),
        # A small disk is no full one: the doctor asks for room for the next image.
        ([health.room("/", 5, size_gib=20), health.room("/var/lib/docker", 5, size_gib=20)], None),
        ([health.room("/srv/models", 60, "/srv/models", 3700)], None),
        ([health.room("/srv/models", 0.0, "/srv/models", 3700)], "error"),
    ],
)
def test_a_file_system_is_full_where_it_has_less_than_is_needed_and_almost_nothing_of_itself(
    rooms: list[Record], severity: str | None
) -> None:
    found = [one for one in judge("a", reading(rooms=rooms), RULES).findings if one.id == "disk_full"]  # type: ignore[arg-type]
    assert [one.severity for one in found] == ([severity] if severity else []), "once for a file system"
    assert all("GiB free, needed are" in one.fact and "du -xh" in one.way_out for one in found)


def test_room_that_could_not_be_read_is_no_room() -> None:
    unsure = judge("a", reading(rooms=None, unknown={"rooms": "no such file"}), RULES).unsure  # type: ignore[arg-type]
    assert unsure["disk_full"] == "no such file"
