"""Which hosts a rollout takes together, and in which order: canaries, then more and more of the fleet.

Pure, and the same for the same hosts: the order is that of a hash of their names. So an alphabet of racks does not
become an order of risk. A cluster serves one model together and is down together, so it is never split, even where a
wave is larger than its size says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from gb10_fleet.rollout import window

_PERCENT = re.compile(r"(100|[1-9]?\d)%")
_COUNT = re.compile(r"\d{1,6}")
LONGEST_S = 30 * 24 * 3600  # nobody means more: a month


class Refused(Exception):
    """Says why what was asked for is not done; nothing has been touched."""


@dataclass(frozen=True)
class FleetHost:
    """One host of the inventory. `serves`: a model runs there, which is stopped before its wave.

    `reserved`: for whom and until when; such a host has no part in a rollout.
    """

    name: str
    cluster: str | None = None
    serves: bool = False
    reserved: str = ""


@dataclass(frozen=True)
class Policy:
    """The growth of a rollout from wave to wave, and when it stops.

    Sizes are hosts, or a percentage of all hosts ("10%"). `canary` may be the name of a host or cluster instead.
    `threshold` counts the hosts that may be bad without a stop, percentages of the wave; s are seconds.
    """

    canary: int | str
    growth: Sequence[int | str]
    threshold: int | str
    soak_s: int
    timeout_s: int
    window: Sequence[str] = ()

    def __post_init__(self) -> None:
        for size in self.growth:
            if _read(size) in (None, 0):
                raise Refused(f"growth: {size!r} is no size: a number of hosts from 1, or a percentage like 10%")
        if not self.growth:
            raise Refused("growth: say at least one size, as in 100%")
        if _read(self.canary) == 0 or not str(self.canary):
            raise Refused(f"canary: {self.canary!r} is no size: at least one host comes first")
        if _read(self.threshold) is None:
            raise Refused(f"threshold: {self.threshold!r} is neither a number of hosts nor a percentage like 5%")
        if not 0 <= self.soak_s <= LONGEST_S or not 1 <= self.timeout_s <= LONGEST_S:
            raise Refused(f"soak_s is at least 0 and timeout_s at least 1, both at most {LONGEST_S}: seconds")
        for text in self.window:
            try:
                window.parse(text)
            except ValueError as error:
                raise Refused(f"window: {error}") from None

    def tolerated(self, hosts: int) -> int:
        """Return how many bad hosts do not stop a rollout at a wave of that many hosts."""
        return _size(self.threshold, hosts)


@dataclass(frozen=True)
class Wave:
    """Hosts that are changed together. `number` counts from 1."""

    number: int
    hosts: tuple[str, ...]
    clusters: tuple[str, ...]


def policy(**said: Any) -> Policy:
    """The defaults of catalog/rollout.yml, and over them what was said; None says nothing."""
    known: dict[str, Any] = {key: entry["value"] for key, entry in catalog.load("rollout")["defaults"].items()}
    return Policy(**{**known, **_spoken(said)})


def refuse_regrouped(now: Sequence[FleetHost], then: Sequence[FleetHost], way_out: str) -> None:
    """Refuse to work on half of what is a cluster by now: its model would be stopped, and nobody would start it.

    `then`: the hosts that are to be worked on, as the run has planned them.
    """
    planned = {host.name: host.cluster for host in then}
    for host in now:
        moved = host.name in planned and planned[host.name] != host.cluster
        joined = host.name not in planned and host.cluster is not None and host.cluster in planned.values()
        if moved or joined:
            where = f"in cluster {host.cluster}" if host.cluster else "in no cluster"
            raise Refused(f"{host.name} is {where} now, and was not when the run was planned: {way_out}")


def changed(policy: Policy, **said: Any) -> Policy:
    """The same, but for what was said; None says nothing."""
    return replace(policy, **_spoken(said))


def _spoken(said: dict[str, Any]) -> dict[str, Any]:
    """Of the window, `always` is none at all."""
    found = {key: value for key, value in said.items() if value not in (None, (), [])}
    return {key: () if key == "window" and [*value] == ["always"] else value for key, value in found.items()}


def size_of(text: str | None) -> int | str | None:
    """A size from the command line: 3 is a number of hosts, anything else stays what it is."""
    return int(text) if text and _COUNT.fullmatch(text) else text


def plan(hosts: Sequence[FleetHost], policy: Policy) -> list[Wave]:
    """All hosts in waves; the last size of `growth` is that of every wave that is still needed."""
    units = sorted(_units(hosts), key=lambda unit: hashlib.sha256(unit[0].encode()).digest())
    if not units:
        return []
    waves = [_canary(units, policy, len(hosts))]
    rest = [unit for unit in units if unit not in waves[0]]
    while rest:
        size = _size(policy.growth[min(len(waves), len(policy.growth)) - 1], len(hosts), least=1)
        taken = _take(rest, size)
        waves.append(taken)
        rest = rest[len(taken) :]
    return [
        Wave(
            number,
            hosts=tuple(host.name for _, members in wave for host in members),
            clusters=tuple(dict.fromkeys(host.cluster for _, members in wave for host in members if host.cluster)),
        )
        for number, wave in enumerate(waves, start=1)
    ]


def free(hosts: Sequence[FleetHost]) -> tuple[list[FleetHost], list[str]]:
    """Return the hosts that a rollout may take, and a line for each that it leaves out.

    A cluster is down together, so it waits as a whole.
    """
    units = _units(hosts)
    taken = {name: member for name, members in units for member in members if member.reserved}
    ours = [host for name, members in units if name not in taken for host in members]
    if taken and not ours:
        first = next(iter(taken.values()))
        raise Refused(f"all hosts are reserved: {first.name} for {first.reserved}; wait, or remove gb10_reserved")
    return ours, [f"left out: {name}: {one.name} is reserved for {one.reserved}" for name, one in taken.items()]


def widened(planned: Sequence[Wave], policy: Policy) -> str | None:
    """Return why the canary has more hosts than was asked for; None where it has not."""
    if not planned or not planned[0].clusters:
        return None
    first, total = planned[0], sum(len(wave.hosts) for wave in planned)
    number = _read(policy.canary)
    wanted = _size(policy.canary, total, least=1) if number is not None else int(policy.canary not in first.clusters)
    if not 0 < wanted < len(first.hosts):
        return None
    return (
        f"the canary has {len(first.hosts)} hosts and not {wanted}: cluster {', '.join(first.clusters)} serves one"
        " model and is not split"
    )


_Unit = tuple[str, tuple[FleetHost, ...]]


def _units(hosts: Iterable[FleetHost]) -> list[_Unit]:
    """Return what is down together, by a name that a host and a cluster cannot share.

    Hosts keep the inventory's order.
    """
    units: dict[str, list[FleetHost]] = {}
    for host in hosts:
        units.setdefault(f"cluster {host.cluster}" if host.cluster else f"host {host.name}", []).append(host)
    return [(name, tuple(members)) for name, members in units.items()]


def _canary(units: list[_Unit], policy: Policy, count: int) -> list[_Unit]:
    if _read(policy.canary) is not None:
        return _take(units, _size(policy.canary, count, least=1))
    named = [unit for unit in units if policy.canary in {unit[0].partition(" ")[2], *(host.name for host in unit[1])}]
    if not named:
        raise Refused(f"canary: {policy.canary} is neither a host nor a cluster of this rollout, nor a size")
    return named[:1]


def _take(units: list[_Unit], size: int) -> list[_Unit]:
    """Units from the front that fit into the size, and the first one also where it alone is larger."""
    taken: list[_Unit] = []
    room = size
    for unit in units:
        room -= len(unit[1])
        if taken and room < 0:
            break
        taken.append(unit)
    return taken


def _read(size: int | str) -> int | None:
    """The number of a size; None for what is none."""
    if isinstance(size, int):
        return size if size >= 0 and not isinstance(size, bool) else None
    return int(size[:-1]) if _PERCENT.fullmatch(size) else None


def _size(size: int | str, hosts: int, *, least: int = 0) -> int:
    """A size in hosts; of a percentage what is whole, as Ansible's serial has it."""
    number = _read(size) or 0
    return max(least, number if isinstance(size, int) else hosts * number // 100)
