# SPDX-License-Identifier: GPL-3.0-or-later
"""What this host has kept of another one (role flight_recorder): its last seconds before each boot that ended badly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading import kernel_log
from ansible_collections.gb10.fleet.plugins.module_utils.reading.boots import MOST_BOOTS
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import quoted

Line = dict[str, Any]  # {at_s, text}

MOST_SAMPLES = 40  # of one end
MOST_LINES = 20  # of each topic, and of what tells none
_READ = 2000  # of those that came last: more than a host may send in that time
LOST_S = 60.0  # of a boot may be missing in its journal: 6 to 29 s were, and the next boot takes longer to send a line
_FIGURES = (
    ("clock_mhz", "{:.0f} MHz", 1.0),
    ("power_w", "{:.0f} W", 1.0),
    ("temperature_c", "{:.0f} °C", 1.0),
    ("utilization_percent", "{:.0f} % busy", 1.0),
    ("available_kib", "{:.1f} GiB available", 1 / 2**20),
    ("pressure_percent", "waits for memory {:.0f} %", 1.0),
)
_LARGEST = 1e12


def ends(boots: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Of each boot that ended without a shutdown, in the order of `boots`: when it began, and when the next one did."""
    rows = list(boots)[-MOST_BOOTS:]  # the other host says them, and each is looked for in all lines
    return [
        (_begun(float(boot["first_s"]), last_s := float(boot["last_s"])), _next(last_s, float(after["first_s"])))
        for boot, after in zip(rows, rows[1:])
        if boot["clean"] is False
    ]


def _begun(first_s: float, last_s: float) -> float:
    """When a boot began; where its clock was set back meanwhile, a time that is near enough to its end."""
    return first_s if first_s <= last_s else last_s - LOST_S


def _next(last_s: float, began_s: float) -> float:
    """When the next boot began; where its clock was dead or slow then, a time by which this boot was over."""
    return began_s if began_s > last_s else last_s + LOST_S


def last_seconds(
    lines: Sequence[Mapping[str, Any]], spans: Iterable[tuple[float, float]], shown_s: float
) -> list[Line]:
    """What was kept in the last `shown_s` that anything was kept in each span.

    `lines` are in the order in which they came, and that says which is the last: the clock may have been set meanwhile.
    """
    found: list[Line] = []
    for begin_s, end_s in spans:
        inside = [line for line in lines if begin_s <= line["at_s"] < end_s]
        if inside:
            last_s = inside[-1]["at_s"]
            near = [line for line in inside[-_READ:] if abs(last_s - line["at_s"]) <= shown_s]
            told = kernel_log.newest(near, _topic, MOST_LINES, samples=MOST_SAMPLES)  # none takes another one's room
            found += [{"at_s": float(line["at_s"]), "text": words(line)} for line in told]
    return found


def _topic(line: Mapping[str, Any]) -> Any:
    return (kernel_log.topic(str(line["text"])) or "other lines") if "text" in line else "samples"


def words(line: Mapping[str, Any]) -> str:
    """A line of the kernel, or a sample."""
    if "text" in line:
        return f"kernel: {quoted(str(line['text']))}"
    read = ((form, factor, _figure(line, name)) for name, form, factor in _FIGURES)
    said = [form.format(value * factor) for form, factor, value in read if value is not None]
    return ", ".join(said) or "a sample without values"


def _figure(line: Mapping[str, Any], name: str) -> float | None:
    """A number that can be one of a host; the line is another host's word."""
    value = line.get(name)
    sound = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _LARGEST
    return float(value) if sound else None  # type: ignore[arg-type]
