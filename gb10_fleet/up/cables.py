"""Which Sparks are joined by which cables, and what cluster that makes. Pure: who heard whom goes in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import counted

End = tuple[str, str]  # host and port
PORTS = ("p0", "p1")


class WrongCables(ValueError):
    """Cables of which no cluster can be made; the text says which end to move."""


@dataclass(frozen=True)
class Cluster:
    """Hosts that serve one model together, in the order of the inventory."""

    hosts: tuple[str, ...]
    topology: str = "none"
    ports: tuple[str, ...] = ()
    cables: tuple[str, ...] = ()  # in words

    @property
    def words(self) -> str:
        names = ", ".join(self.hosts)
        if self.topology == "none":
            return f"{names}: serves alone"
        what = {"pair": "a pair", "ring": "a ring", "switch": "on a switch"}[self.topology]
        return f"{names}: {what}, {'; '.join(self.cables)}"


def clusters(hosts: Sequence[str], heard: Mapping[str, Sequence[Mapping[str, str]]]) -> list[Cluster]:
    """`heard` by host: what came in at each port, as gb10.fleet.rail_neighbours says it."""
    behind = _behind(hosts, heard)
    found, seen = [], set[str]()
    for host in hosts:
        if host not in seen:
            members = _joined(host, behind)
            seen |= members
            found.append(_cluster([name for name in hosts if name in members], behind))
    return found


def _behind(hosts: Sequence[str], heard: Mapping[str, Sequence[Mapping[str, str]]]) -> dict[End, set[End]]:
    """Whom each port leads to. One end alone may have made it up, or has heard who calls himself by another's name."""
    said = {
        ((host, call["port"]), (call["host"], call["there_port"]))
        for host, calls in heard.items()
        for call in calls
        if call["host"] in hosts
    }
    behind: dict[End, set[End]] = {}
    for here, there in sorted(said):
        if (there, here) not in said:
            raise WrongCables(
                f"only {here[0]} says that its {here[1]} leads to {_end(there)}, and a cable has two ends: see that "
                "both sit in their ports, and run `gb10 up` again; or leave one of the two out"
            )
        if here != there:
            behind.setdefault(here, set()).add(there)
    return behind


def _joined(host: str, behind: Mapping[End, set[End]]) -> set[str]:
    members, new = set[str](), {host}
    while new:
        members |= new
        new = {there[0] for end, ends in behind.items() if end[0] in members for there in ends} - members
    return members


def _cluster(hosts: Sequence[str], behind: Mapping[End, set[End]]) -> Cluster:
    if len(hosts) == 1:
        return Cluster(tuple(hosts))
    mine = {end: ends for end, ends in behind.items() if end[0] in hosts}
    if any(len(ends) > 1 for ends in mine.values()):
        ports = tuple(sorted({port for _, port in mine}))
        return Cluster(tuple(hosts), "switch", ports, tuple(f"{host} {'+'.join(ports)}" for host in hosts))
    cables = sorted({tuple(sorted((end, next(iter(ends))))) for end, ends in mine.items()})
    if len(hosts) == 2:
        return _pair(hosts, cables)
    return _ring(hosts, mine, cables)


def _pair(hosts: Sequence[str], cables: Sequence[tuple[End, ...]]) -> Cluster:
    for one, other in cables:
        if one[1] != other[1]:
            raise WrongCables(
                f"the cable of {_end(one)} leads to {_end(other)}: in a pair it joins the same port of both. "
                f"At {other[0]}, move it from {other[1]} to {one[1]}, then run `gb10 up` again"
            )
    return Cluster(tuple(hosts), "pair", tuple(sorted({one[1] for one, _ in cables})), _words(cables))


def _ring(hosts: Sequence[str], mine: Mapping[End, set[End]], cables: Sequence[tuple[End, ...]]) -> Cluster:
    order = [hosts[0]]
    while len(order) <= len(hosts):
        behind = mine.get((order[-1], PORTS[1]), set())
        following = next((there[0] for there in behind if there[1] == PORTS[0]), None)
        if following is None or following in order:
            break
        order.append(following)
    closed = any(there == (order[0], PORTS[0]) for there in mine.get((order[-1], PORTS[1]), set()))
    if len(order) != len(hosts) or not closed:
        raise WrongCables(
            f"{', '.join(hosts)} have {counted(len(cables), 'cable')} ({'; '.join(_words(cables))}), and that is no "
            "ring: join p1 of each to p0 of the next, and p1 of the last to p0 of the first; or put all of them on a "
            "switch; or name fewer hosts"
        )
    return Cluster(tuple(order), "ring", PORTS, _words(cables))


def _words(cables: Sequence[tuple[End, ...]]) -> tuple[str, ...]:
    return tuple(f"{_end(one)} to {_end(other)}" for one, other in cables)


def _end(end: End) -> str:
    return f"{end[0]} {end[1]}"
