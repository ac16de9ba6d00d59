# SPDX-License-Identifier: GPL-3.0-or-later
"""Block devices on others: LUKS, LVM, RAID. What the kernel says of them counts where the host's disk is below.

At the desktop a login unlocks an image or a stick of its own, and udev assembles an array that it finds there.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

DISK = r"nvme\w+|dm-\d+|md\d+"  # what a host lives on; a stick that somebody took out is none
_DISK = re.compile(DISK)
_STACKED = re.compile(r"(?:dm-|md)\d")
_DEEPEST = 8


def of_this_host(host: HostReader, events: list[Any]) -> list[Any]:
    """Without the events whose key is a device on no disk of the host."""
    own = {key: _on_own_disk(host, key) for key in {event["key"] for event in events} if _STACKED.match(key)}
    return [event for event in events if own.get(event["key"], True)]


def _on_own_disk(host: HostReader, name: str, deep: int = _DEEPEST) -> bool:
    below = host.names(f"/sys/block/{name}/slaves") if deep else []
    return any(not _STACKED.match(each) or _on_own_disk(host, each, deep - 1) for each in below if _DISK.match(each))
