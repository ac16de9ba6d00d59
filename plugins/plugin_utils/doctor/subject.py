# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that the doctor judges, with all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.finding import Finding
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.table import severities
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import settings
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.catalog import Declared

PORTS = ("p0", "p1")
# What of other hosts' variables a host is judged by, see Subject.fleet.
FLEET_VARIABLES = ("gb10_cluster", "fabric_topology", "fabric_ports", "fabric_network")
Names = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Subject:
    """All that is known when one host is judged. `variables` are evaluated; `groups` are the inventory's."""

    host: str
    facts: Mapping[str, Any]
    variables: Mapping[str, Any]
    groups: Names
    catalog: Mapping[str, Mapping[str, Any]]  # the files that the action doctor names, by name
    declared: Declared
    run: Sequence[str] | None = None  # the hosts of this run; None: all of the inventory
    fleet: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # FLEET_VARIABLES of all hosts
    call: tuple[float, float] | None = None  # its begin and end, by the controller's clock
    heard: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # facts of the hosts asked with it

    def setting(self, name: str) -> Any:
        """A variable as the role will see it."""
        option = self.declared.variables.get(name, {})
        return settings.value(name, option, self.variables[name]) if name in self.variables else option.get("default")

    def mapping(self, name: str) -> Mapping[Any, Any]:
        """A variable that is a mapping; of another type `inventory` says so."""
        value = self.setting(name)
        return value if isinstance(value, Mapping) else {}

    @property
    def topology(self) -> str:
        return str(self.setting("fabric_topology") or "none")

    @property
    def roles(self) -> Sequence[str]:
        """The roles that this host gets; none, where gb10_roles is no list: `inventory` says so."""
        value = self.setting("gb10_roles")
        return value if isinstance(value, (list, tuple)) else ()

    @property
    def members(self) -> Sequence[str]:
        return self.groups.get(str(self.setting("gb10_cluster")), ())

    @property
    def ports(self) -> tuple[str, ...]:
        """The ports that the topology needs cables in."""
        if self.topology == "none":
            return ()
        ports = self.setting("fabric_ports")
        if self.topology == "ring":
            return PORTS
        return tuple(ports) if isinstance(ports, (list, tuple)) else ()  # `inventory` says so

    def say(self, id_: str, fact: str, way_out: str, severity: str | None = None) -> Finding:
        """Return a finding about this host, of its usual severity if none is given."""
        return Finding(id_, severity or severities()[id_][0], self.host, fact, way_out)
