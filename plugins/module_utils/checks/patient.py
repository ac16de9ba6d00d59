# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose health is judged: one reading, and the limits of the catalog."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Union

from ansible_collections.gb10.fleet.plugins.module_utils.checks.order import placed, shutdowns
from ansible_collections.gb10.fleet.plugins.module_utils.reading import unit_names as units
from ansible_collections.gb10.fleet.plugins.module_utils.reading.gpu import THROTTLING
from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding

if TYPE_CHECKING:  # for types alone, which no program needs
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.gpu import Gpu
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import Reading, Sample
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.kernel_log import Event
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.serving import Serving
    from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_status import UnitStatus

GIB, DAY_S = 2**30, 86400
SLOWED = frozenset(THROTTLING.values())


@dataclass(frozen=True)
class Rules:
    """What the catalog says: figures by name, and the tables of catalog/health.yml."""

    limits: Mapping[str, Any]
    rail_errors: frozenset[str]
    losses: frozenset[str]
    xids: Mapping[str, Mapping[str, Any]]
    displays: Sequence[str]
    places: Mapping[str, str]
    signs: Mapping[str, Mapping[str, Any]]
    causes: Sequence[Mapping[str, Any]]
    sure: Sequence[Mapping[str, Any]]
    step: float


@dataclass(frozen=True)
class Unsure:
    """A detector that cannot tell, and why. It is no finding, and no clean bill either."""

    id: str
    reason: str


Said = Union[Finding, Unsure]


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
        return [gpu for gpu in self.late if self.is_busy(gpu)]

    @cached_property
    def late(self) -> list[Gpu]:
        """Those of the last minutes, in which a load may come and go."""
        within_s = self.limit("burst_s")
        near = [sample for sample in self.samples if passed_s(sample, self.last) <= within_s]
        return [gpu for sample in near if (gpu := sample["gpu"]) and gpu["state"] == "ok"]

    def is_busy(self, gpu: Gpu) -> bool:
        return bool((gpu["utilization_percent"] or 0) >= self.limit("busy_percent"))

    @cached_property
    def slowed(self) -> frozenset[str]:
        """Reasons for a low clock that the driver gives in most samples, and a healthy host does not have."""
        told = [set(gpu["reasons"]) & SLOWED for gpu in self.gpus if gpu["reasons"] is not None]
        most = 2 * sum(map(bool, told)) > len(told)
        return frozenset().union(*told) if most else frozenset()

    @cached_property
    def events(self) -> list[Event]:
        """What the journal tells of the last days, each at its place in its boot."""
        return [event for event in placed(self.reading) if self.recent(event["last_s"])]

    @cached_property
    def shutdowns(self) -> Mapping[str, float]:
        """When each boot ended that ended in good order."""
        return shutdowns(self.reading)

    @cached_property
    def servers(self) -> list[Server]:
        """Each service with its counters in all samples; the only one of a host has no name."""
        names = list(self.last.get("servings", ()))
        several = [
            Server(name, f"servings.{name}", [sample.get("servings", {}).get(name) for sample in self.samples])
            for name in names
        ]
        return several or [Server("", "serving", [sample["serving"] for sample in self.samples])]

    @property
    def linked(self) -> bool:
        """Whether all rails have their link now: what went down is up again."""
        rails = self.last["rails"]
        return bool(rails) and all(rail["state"] == "ACTIVE" for rail in rails or ())

    def why(self, path: str) -> str:
        """Return why a value is missing."""
        return self.reading["unknown"].get(path, "it was not read")

    def recent(self, at_s: float) -> bool:
        return self.reading["at_s"] - at_s <= float(self.limit("recent_days")) * DAY_S

    @cached_property
    def kinds(self) -> set[str]:
        """What the lines of this boot tell."""
        return {event["kind"] for event in self.events if self.of_this_boot(event)}

    def of_this_boot(self, event: Event) -> bool:
        return self.reading["boot"] in (None, event["boot"]) or event["boot"] == "this boot"

    @property
    def services(self) -> list[UnitStatus | None]:
        return list((self.reading.get("services") or {"": self.reading["service"]}).values())

    def say(self, id_: str, fact: str, severity: str = "", way_out: str = "", **words: str) -> Finding:
        """A finding of the table of signs, with its severity and way out where nothing else is said."""
        sign = self.rules.signs[id_]
        quoted = {name: shlex.quote(word) for name, word in words.items()}
        advice = (way_out or sign["way_out"]).format_map({**self.rules.limits, **quoted})
        return Finding(id_, severity or sign["severity"], self.host, fact, advice)


def passed_s(first: Mapping[str, Any], last: Mapping[str, Any]) -> float:
    """Between two samples, by the clock that nobody sets: what a host was set by is no time that passed."""
    name = "steady_s" if "steady_s" in first and "steady_s" in last else "at_s"
    return float(last[name] - first[name])


def median(values: Sequence[float | None]) -> float | None:
    """Of the known ones; None where there is none."""
    known = sorted(value for value in values if value is not None)
    half = len(known) // 2  # `statistics` costs a host 10 ms to import
    return (known[half] + known[~half]) / 2 if known else None
