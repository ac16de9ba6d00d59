# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of the role monitoring, which the firewall reads too: it closes node_exporter's port to strangers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import addresses
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.settings import RoleSettings


@dataclass(frozen=True)
class MonitoringSettings(RoleSettings, role="monitoring"):
    """The public variables of the role monitoring."""

    monitoring_enabled: bool
    monitoring_address: str
    monitoring_port: int
    monitoring_clients: tuple[str, ...]
    monitoring_server: bool
    monitoring_targets: Mapping[Any, Any]
    monitoring_alerting: Mapping[Any, Any]
    monitoring_heartbeat: str
    monitoring_slo: Mapping[Any, Any]
    monitoring_grafana: bool

    @property
    def exposed(self) -> bool:
        """Tell whether others than the host itself could reach node_exporter. Switched off it stays, as an orphan."""
        return not addresses.is_loopback(self.monitoring_address)
