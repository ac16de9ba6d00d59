# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this host has kept of another one (role flight_recorder): its last seconds before each boot that ended badly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.health.texts import quoted

Line = dict[str, Any]  # {at_s, text}

MOST = 120  # lines of one end
_FIGURES = (
    ("clock_mhz", "{:.0f} MHz"),
    ("power_w", "{:.0f} W"),
    ("temperature_c", "{:.0f} °C"),
    ("utilization_percent", "{:.0f} % busy"),
)


def ends(boots: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Of each boot that ended without a shutdown: when it began, and when the next one did."""
    rows = sorted(boots, key=lambda boot: float(boot["first_s"]))
    return [
        (float(boot["first_s"]), float(after["first_s"]))
        for boot, after in zip(rows, rows[1:])
        if boot["clean"] is False
    ]


def last_seconds(
    lines: Sequence[Mapping[str, Any]], spans: Iterable[tuple[float, float]], shown_s: float
) -> list[Line]:
    """What was kept in the last `shown_s` that anything was kept in each span."""
    found: list[Line] = []
    for begin_s, end_s in spans:
        inside = [line for line in lines if begin_s <= line["at_s"] < end_s]
        if inside:
            last_s = max(line["at_s"] for line in inside)
            near = [line for line in inside if last_s - line["at_s"] <= shown_s]
            found += [{"at_s": float(line["at_s"]), "text": words(line)} for line in near[-MOST:]]
    return found


def words(line: Mapping[str, Any]) -> str:
    """A line of the kernel, or a sample."""
    if "text" in line:
        return f"kernel: {quoted(str(line['text']))}"
    said = [form.format(line[name]) for name, form in _FIGURES if isinstance(line.get(name), (int, float))]
    if isinstance(line.get("available_kib"), int):
        said.append(f"{line['available_kib'] / 2**20:.1f} GiB available")
    if isinstance(line.get("pressure_percent"), (int, float)):
        said.append(f"waits for memory {line['pressure_percent']:.0f} %")
    return ", ".join(said) or "a sample without values"
