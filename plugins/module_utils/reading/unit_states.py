# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of systemd's units, in its own words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

_PROPERTIES = (
    "LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload,InvocationID,Type,Job,CanReload,"
    "StateChangeTimestampMonotonic"
)
DOWN = ("inactive", "failed")


@dataclass(frozen=True)
class Live:
    """What systemd says of a unit, in its own words."""

    load: str
    active: str
    sub: str
    file_state: str
    reload_owed: bool
    invocation: str
    type: str  # of a service
    queued: bool  # whether systemd still has something to do with it
    reloaded: str = ""  # of a unit that can be told to read its files again, when its state last changed, as then

    @property
    def reading(self) -> str:
        """Another one each time that the unit may have read its files."""
        return f"{self.invocation} {self.reloaded}".strip()

    @property
    def restarts(self) -> bool:
        """Whether it has just died, and waits for systemd to start it; from 254 on, queued for that, it says so."""
        return self.sub in ("auto-restart", "auto-restart-queued")

    @property
    def running(self) -> bool:
        """Up or on its way up.

        What is queued for a unit that is down can only be its start, which waits for a unit before it.
        """
        return (
            self.active in ("active", "reloading", "refreshing")
            or (self.active == "activating" and not self.restarts)
            or (self.active in DOWN and self.queued)
        )


def parse_show(names: Sequence[str], text: str) -> dict[str, Live]:
    """`systemctl show` of many units: one block each, in the order asked for."""
    blocks = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in text.strip().split("\n\n")]
    if len(blocks) != len(names):
        raise HostError(f"systemctl show answered for {len(blocks)} units instead of {len(names)}: {', '.join(names)}")
    return {
        name: Live(
            load=block.get("LoadState", ""),
            active=block.get("ActiveState", ""),
            sub=block.get("SubState", ""),
            file_state=block.get("UnitFileState", ""),
            reload_owed=block.get("NeedDaemonReload") == "yes",
            invocation=block.get("InvocationID", ""),
            type=block.get("Type", ""),
            queued=block.get("Job", "0") not in ("", "0"),
            reloaded=block.get("StateChangeTimestampMonotonic", "") if block.get("CanReload") == "yes" else "",
        )
        for name, block in zip(names, blocks)
    }


def read_units(system: System, names: Sequence[str]) -> dict[str, Live]:
    """Return what systemd says of each of these units."""
    return parse_show(names, system.ask(["systemctl", "show", f"--property={_PROPERTIES}", "--", *names]))


def inactive_of(system: System, names: Sequence[str]) -> set[str]:
    """Those of these units that stand still without having failed."""
    return {name for name, live in read_units(system, names).items() if live.active == "inactive" and not live.running}
