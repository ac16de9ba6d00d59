# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hardware counters of an RDMA port. They count from the start of the driver, so two readings say more than one."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.gb10.fleet.plugins.module_utils.fabric.gids import Sysfs

SETTINGS = frozenset({"lifespan"})  # how long a reading is kept, in ms: no counter


def read_counters(sysfs: Sysfs, device: str, port: int) -> dict[str, int]:
    """All that the driver counts, by its own names."""
    folder = f"class/infiniband/{device}/ports/{port}/hw_counters"
    texts = {name: sysfs.read(f"{folder}/{name}") or "" for name in sysfs.names(folder) if name not in SETTINGS}
    return {name: int(text) for name, text in sorted(texts.items()) if text.isdecimal()}


def compared(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, list[int]]:
    """Both readings of every counter that is not 0."""
    return {name: [before.get(name, 0), last] for name, last in after.items() if last}
