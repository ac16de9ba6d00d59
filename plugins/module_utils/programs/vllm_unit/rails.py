# SPDX-License-Identifier: GPL-3.0-or-later
"""The rails that a service needs: up, with their addresses, and at the GID index that somebody may have pinned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.system.service_failures import Failure

from .config import WatchedRail

PINNED_GID = "NCCL_IB_GID_INDEX="


class Rails:
    """Rails of this host, looked at again and again; where an address stood is remembered."""

    def __init__(self, watched: Sequence[WatchedRail], root: Path) -> None:
        self.watched, self.root = watched, root
        self.slots: dict[str, Path] = {}

    def fault(self) -> str:
        """Name the first rail that is not up with its address; empty where all are."""
        for rail in self.watched:
            if read(self.root / f"sys/class/net/{rail.netdev}/carrier") != "1":
                return f"{rail.netdev} has no carrier"
            slot = self.slots.get(rail.netdev)
            if slot is None or read(slot) != rail.gid:
                slot = self._slot_of(rail)
                if slot is None:
                    return f"{rail.netdev} does not have its address {rail.address}"
                self.slots[rail.netdev] = slot
        return ""

    def check_gid_by_hand(self, argv: Sequence[str]) -> None:
        """Refuse an index pinned for NCCL that is not that of each rail: it takes one for all, and below 0 chooses."""
        pinned = next((word.partition("=")[2] for word in argv if word.startswith(PINNED_GID)), "")
        for rail in self.watched if pinned and not pinned.startswith("-") else ():
            slot = self._slot_of(rail)
            if slot and slot.name != pinned:
                text = f"{PINNED_GID}{pinned} by hand, and {rail.netdev} has its address at index {slot.name}"
                raise Failure("gid_not_as_planned", text)

    def _slot_of(self, rail: WatchedRail) -> Path | None:
        """Find where in the GID table of its port the rail's address stands. A table of a ConnectX-7 has 255 slots."""
        table = self.root / f"sys/class/infiniband/{rail.hca}/ports/{rail.hca_port}/gids"
        return next((slot for slot in _slots(table) if read(slot) == rail.gid), None)


def _slots(table: Path) -> list[Path]:
    try:
        return list(table.iterdir())
    except OSError:
        return []


def read(path: Path) -> str:
    """Return a file of the kernel; empty where it has no value."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
