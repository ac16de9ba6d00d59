"""What another host has kept: the last seconds of each boot that ended without a shutdown, in `gb10 why`."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import last_words as record
from ansible_collections.gb10.fleet.plugins.plugin_utils.health import why

from tests.support.health import FORMER, NOW, RULES, boot, problem, reading

OFF = NOW - 3700
BOOTS = [
    boot("a", NOW - 99_000, NOW - 90_100, clean=True),
    boot(FORMER, NOW - 90_000, OFF - 20, clean=False),
    boot("b", NOW - 3600, NOW),
]


def kept() -> list[dict[str, Any]]:
    """Up to the last second, and again after the boot."""
    before = [{"at_s": OFF - age, "power_w": 90.0 - age, "clock_mhz": 2400.0} for age in range(300, -1, -1)]
    return [*before, {"at_s": OFF, "text": "NVRM: a word"}, {"at_s": NOW - 3000, "power_w": 5.0}]


def test_the_last_second_and_nothing_of_the_next_boot() -> None:
    spans = record.ends(BOOTS)
    assert spans == [(NOW - 90_000, NOW - 3600)]
    found = record.last_seconds(kept(), spans, 10)
    assert [line["at_s"] for line in found] == [*(OFF - age for age in range(10, -1, -1)), OFF]
    assert found[-2]["text"] == "2400 MHz, 90 W" and found[-1]["text"] == "kernel: NVRM: a word"
    assert record.last_seconds([], spans, 10) == record.last_seconds(kept(), [], 10) == []


def test_ten_of_ten_power_offs_at_any_moment() -> None:
    for number in range(10):
        lines = [line for line in kept() if line["at_s"] <= OFF - number / 10 or line["at_s"] > OFF]
        found = record.last_seconds(lines, record.ends(BOOTS), 10)
        assert max(line["at_s"] for line in found) == max(line["at_s"] for line in lines if line["at_s"] <= OFF)


@pytest.mark.parametrize("first_s", [5.0, OFF - 30])
def test_a_boot_with_a_dead_clock_hides_no_last_second(first_s: float) -> None:
    """It began in 1970, or in the time before, and has the right time since."""
    boots = [*BOOTS[:2], boot("b", first_s, NOW)]
    found = record.last_seconds(kept(), record.ends(boots), 10)
    assert [line["at_s"] for line in found] == [*(OFF - age for age in range(10, -1, -1)), OFF]
    dead = {**BOOTS[1], "first_s": 5.0}
    assert record.last_seconds(kept(), record.ends([BOOTS[0], dead, BOOTS[2]]), 10) == found


@pytest.mark.parametrize("set_s", [-3e7, -3600, 3600, 3e7])
def test_a_clock_that_is_set_within_the_boot_hides_no_last_words(set_s: float) -> None:
    """What is last is told by the order in which it came."""
    lines: list[dict[str, Any]] = [{"at_s": 1.8e9 + second + (second >= 500) * set_s} for second in range(1000)]
    lines.append({"at_s": lines[-1]["at_s"], "text": "NVRM: Xid (PCI:000f:01:00): 79"})
    last_s = lines[-1]["at_s"]
    boots = [
        {"first_s": 1.8e9, "last_s": last_s - 10, "clean": False},
        {"first_s": last_s + 60, "last_s": last_s + 600, "clean": None},
    ]
    found = record.last_seconds(lines, record.ends(boots), 10)
    assert len(found) == 12 and "Xid" in found[-1]["text"]


def test_why_shows_what_the_journal_has_lost() -> None:
    told: Any = reading(boots=BOOTS, recorded=record.last_seconds(kept(), record.ends(BOOTS), 10))
    assert problem(told) is None
    entries = why.answer("spark-a", told, RULES, 14).timeline
    recorded = [entry for entry in entries if entry.kind == "recorded"]
    (unclean,) = (entry for entry in entries if entry.kind == "unclean_end")
    assert recorded[-1].at_s == OFF > unclean.at_s, "later than the journal's last line"


def test_words() -> None:
    line = {
        "at_s": 1,
        "temperature_c": 68,
        "utilization_percent": 96.0,
        "available_kib": 2**21,
        "pressure_percent": 1.5,
    }
    assert record.words(line) == "68 °C, 96 % busy, 2.0 GiB available, waits for memory 2 %"
    assert record.words({"at_s": 1, "power_w": "x"}) == "a sample without values"
    assert "\x1b" not in record.words({"at_s": 1, "text": "\x1b[2J"})


@pytest.mark.parametrize("name", ["clock_mhz", "power_w", "available_kib", "pressure_percent"])
@pytest.mark.parametrize(
    "value", [pytest.param(10**400, id="of 400 digits"), float("nan"), float("inf"), -1e308, True, "x", None]
)
def test_a_number_that_is_none_is_left_out(name: str, value: Any) -> None:
    assert record.words({"at_s": 1.0, name: value, "temperature_c": 60}) == "60 °C"


def test_a_host_that_tells_of_endless_boots_has_its_keeper_look_for_few() -> None:
    """Each was looked for in all lines: hours, as root of the next host."""
    bad, sound = {"clean": False, "first_s": 0, "last_s": 0}, {"clean": True, "first_s": 1e9, "last_s": 1e9}
    assert len(record.ends([bad, sound] * 10_000)) <= 30
