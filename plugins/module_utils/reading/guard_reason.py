# SPDX-License-Identifier: GPL-3.0-or-later
"""What the host guard (programs/host_guard.py) wrote onto the disk before the boot that it saw standing still ended."""

from __future__ import annotations

import json
from typing import Any, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading.journal import SHORT_BOOT
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import LATEST_S, Unknown

FOLDER = "/var/lib/gb10-host-guard"
LAST = "last.json"


class GuardReason(TypedDict):
    at_s: float
    boot: str
    full_percent: float
    reboots: bool


def read_guard_reason(host: HostReader) -> dict[str, Any] | None:
    """Of the last boot that ended while all tasks waited for memory; `reboots`: whether the guard ended it."""
    path = f"{FOLDER}/{LAST}"
    text = host.read(path)
    if text is None:
        return None
    try:
        kept = json.loads(text)
        found: dict[str, Any] = {
            "at_s": float(kept["at_s"]),
            "boot": str(kept["boot"]).replace("-", "")[:SHORT_BOOT],
            "full_percent": float(kept["full_percent"]),
            "reboots": kept["reboots"] is True,
        }
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise Unknown(f"{path} is damaged") from None
    if not 0 <= found["at_s"] < LATEST_S or not 0 <= found["full_percent"] <= 100:
        raise Unknown(f"{path} has an impossible figure")
    return found
