# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports of the RDMA devices of a host, as sysfs lists them: for the facts, for health and for the engine."""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System

FOLDER = "/sys/class/infiniband"


class Port(NamedTuple):
    hca: str
    number: str
    hardware: bool  # Soft-RoCE has none

    @property
    def device(self) -> str:
        return f"{FOLDER}/{self.hca}"

    @property
    def folder(self) -> str:
        return f"{self.device}/ports/{self.number}"


def ports(system: System) -> list[Port]:
    """Return all ports, sorted by device."""
    found = []
    for hca in system.names(FOLDER):
        hardware = "device" in system.names(f"{FOLDER}/{hca}")
        found += [Port(hca, number, hardware) for number in system.names(f"{FOLDER}/{hca}/ports")]
    return found


def state(system: System, port: Port) -> str | None:
    """Return the state of a port, ACTIVE for example."""
    return (system.text(f"{port.folder}/state") or "").rpartition(":")[2].strip() or None  # "4: ACTIVE"
