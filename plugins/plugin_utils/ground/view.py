# SPDX-License-Identifier: GPL-3.0-or-later
"""What planners see: one host with its facts and settings, and the other hosts of its cluster."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings

_Settings = TypeVar("_Settings", bound=RoleSettings)
_Plan = TypeVar("_Plan")


def digest(value: Any) -> str:
    """The SHA-256 of a value in canonical JSON, as the engine computes it."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass
class View:
    """One host of a run, as far as its plans may depend on it.

    `variables` are the host's own, `given` those of the other members of its cluster; both evaluated, defaults left
    out. `touched` collects the keys of the facts that were read: of the host, and for a plan of the cluster of any
    member, because the others read the same of this one.
    """

    host: str
    own_facts: Mapping[str, Any]
    variables: Mapping[str, Any] = field(default_factory=dict)
    members: Sequence[str] = ()  # of the cluster, in order; a host without one is a cluster of its own
    peers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # facts of the other members, where known
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    certain: bool = True  # whether the facts of the peers are of this run
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of the inventory, with their hosts
    inventory: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the variables of each host of it
    touched: set[str] = field(default_factory=set)
    _settings: dict[tuple[type[RoleSettings], str], Any] = field(default_factory=dict)
    _plans: dict[Callable[[View], Any], Any] = field(default_factory=dict)
    _others: dict[str, View] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members = list(self.members) or [self.host]

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts of the host; what is read of them is remembered."""
        return self.cluster_facts[self.host]

    @property
    def rank(self) -> int:
        return self.members.index(self.host)

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def expect(self) -> dict[str, str]:
        """The digests of the facts that were read, for the engine to compare with those of now."""
        return {key: digest(self.own_facts.get(key)) for key in sorted(self.touched)}

    @property
    def unknown(self) -> tuple[str, ...]:
        """The members whose facts are missing or uncertain."""
        others = [member for member in self.members if member != self.host]
        return tuple(member for member in others if not self.certain or member not in self.peers)

    @cached_property
    def cluster_facts(self) -> dict[str, Mapping[str, Any]]:
        """The facts of the members, where they are known."""
        known = {self.host: self.own_facts, **self.peers}
        return {member: _Recorded(known[member], self.touched) for member in self.members if member in known}

    def settings(self, cls: type[_Settings], member: str | None = None) -> _Settings:
        """The settings of a role on this host, or on another member of its cluster."""
        key = (cls, member or self.host)
        if key not in self._settings:
            self._settings[key] = settings.read(cls, self.variables_of(member or self.host))
        made: _Settings = self._settings[key]
        return made

    def variables_of(self, member: str) -> Mapping[str, Any]:
        """Return what a member of the cluster is given by the inventory."""
        return self.variables if member == self.host else self.given.get(member, {})

    def narrowed(self, laid_over: Mapping[str, Mapping[str, Any]], members: Sequence[str]) -> View:
        """The same host with other variables, as one of these members; the facts that it reads count here too."""
        others = [member for member in members if member != self.host]
        return View(
            self.host,
            self.own_facts,
            _Laid(laid_over[self.host], self.variables),
            members,
            {member: facts for member, facts in self.peers.items() if member in others},
            {member: _Laid(laid_over[member], self.variables_of(member)) for member in others},
            certain=self.certain,
            touched=self.touched,
        )

    def of(self, host: str) -> View:
        """Another host of the inventory, by its variables alone: nothing is known of it but what it is given."""
        if host not in self._others:
            given = self.inventory[host]
            cluster = [str(member) for member in self.groups.get(str(given.get("gb10_cluster")), ())]
            members = cluster if host in cluster else []
            told = {member: self.inventory[member] for member in members if member != host}
            self._others[host] = View(
                host, {}, given, members, given=told, groups=self.groups, inventory=self.inventory
            )
        return self._others[host]

    def plan(self, planner: Callable[[View], _Plan]) -> _Plan:
        """The plan of another role for this host, made once."""
        if planner not in self._plans:
            self._plans[planner] = planner(self)
        made: _Plan = self._plans[planner]
        return made


class _Recorded(Mapping[str, Any]):
    """Facts that remember which of their keys somebody read."""

    def __init__(self, facts: Mapping[str, Any], touched: set[str]) -> None:
        self._facts = facts
        self._touched = touched

    def __getitem__(self, key: str) -> Any:
        self._touched.add(key)
        return self._facts[key]

    def __iter__(self) -> Iterator[str]:
        self._touched.update(self._facts)
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


class _Laid(Mapping[str, Any]):
    """Variables with others laid over them; each is evaluated only when it is asked for."""

    def __init__(self, over: Mapping[str, Any], below: Mapping[str, Any]) -> None:
        self._over = over
        self._below = below

    def __getitem__(self, name: str) -> Any:
        return self._over[name] if name in self._over else self._below[name]

    def __contains__(self, name: object) -> bool:
        return name in self._over or name in self._below

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._below), **dict.fromkeys(self._over)})

    def __len__(self) -> int:
        return len({*self._below, *self._over})
