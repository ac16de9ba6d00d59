# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose health is judged: one reading, and the limits of the catalog."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading import unit_names as units
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.health.schema import Gpu, Reading, Sample, Serving

GIB, DAY_S = 2**30, 86400


@dataclass(frozen=True)
class Rules:
    """What the catalog says: figures by name, and the tables of catalog/health.yml."""

    limits: Mapping[str, Any]
    rail_errors: frozenset[str]
    xids: Mapping[str, Mapping[str, str]]
    events: Mapping[str, Mapping[str, str]]
    causes: Sequence[Mapping[str, Any]]
    sure: Sequence[Mapping[str, Any]]
    step: float


def rules() -> Rules:
    """Those of the catalog. The figures of a load test, of a rail and of fragmentation hold here as well."""
    thresholds, health = catalog.load("thresholds"), catalog.load("health")
    fragmentation = catalog.load("memory")["fragmentation"]
    figures = {**thresholds["benchmark"], **thresholds["thresholds"], **fragmentation, **health["limits"]}
    return Rules(
        limits={name: entry["value"] for name, entry in figures.items()},
        rail_errors=frozenset([*thresholds["error_counters"]["value"], *health["link_errors"]["value"]]),
        xids=health["xids"]["value"],
        events={entry["value"]: entry for entry in health["events"]},
        causes=health["causes"],
        sure=health["sure"]["value"],
        step=health["step"]["value"],
    )


@dataclass(frozen=True)
class Unsure:
    """A detector that cannot tell, and why. It is no finding, and no clean bill either."""

    id: str
    reason: str


Said = Finding | Unsure


@dataclass(frozen=True)
class Server:
    """What the server of a service counted; `path`: where the reading has the reason for what is missing."""

    name: str
    path: str
    counted: Sequence[Serving | None]

    @property
    def unit(self) -> str:
        return units.long_name(self.name or units.SHORT)

    def says(self, text: str) -> str:
        return f"{self.name}: {text}" if self.name else text


@dataclass(frozen=True)
class Patient:
    """All that a detector sees."""

    host: str
    reading: Reading
    rules: Rules

    def limit(self, name: str) -> Any:
        return self.rules.limits[name]

    @property
    def samples(self) -> Sequence[Sample]:
        return self.reading["samples"]

    @property
    def last(self) -> Sample:
        return self.samples[-1]

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The GPU in each sample in which it answered."""
        return [gpu for sample in self.samples if (gpu := sample["gpu"]) and gpu["state"] == "ok"]

    @cached_property
    def busy(self) -> list[Gpu]:
        """Those under load."""
        least = self.limit("busy_percent")
        return [gpu for gpu in self.gpus if (gpu["utilization_percent"] or 0) >= least]

    @cached_property
    def servers(self) -> list[Server]:
        """Each service with its counters in all samples; the only one of a host has no name."""
        names = list(self.last.get("servings", ()))
        several = [
            Server(name, f"servings.{name}", [sample.get("servings", {}).get(name) for sample in self.samples])
            for name in names
        ]
        return several or [Server("", "serving", [sample["serving"] for sample in self.samples])]

    def why(self, path: str) -> str:
        """Why a value is missing."""
        return self.reading["unknown"].get(path, "it was not read")

    def recent(self, at_s: float) -> bool:
        return self.reading["at_s"] - at_s <= float(self.limit("recent_days")) * DAY_S

    def error(self, id_: str, fact: str, way_out: str) -> Finding:
        return Finding(id_, "error", self.host, fact, way_out)

    def warn(self, id_: str, fact: str, way_out: str) -> Finding:
        return Finding(id_, "warn", self.host, fact, way_out)

    def info(self, id_: str, fact: str, way_out: str) -> Finding:
        return Finding(id_, "info", self.host, fact, way_out)


def passed_s(first: Mapping[str, Any], last: Mapping[str, Any]) -> float:
    """Between two samples, by the clock that nobody sets: what a host was set by is no time that passed."""
    name = "steady_s" if "steady_s" in first and "steady_s" in last else "at_s"
    return float(last[name] - first[name])


def median(values: Sequence[float | None]) -> float | None:
    """Of the known ones; None where there is none."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
