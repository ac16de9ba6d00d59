# SPDX-License-Identifier: GPL-3.0-or-later
"""How the facts read a host: through the engine's `System`, and by calls that a test replaces."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System


@dataclass(frozen=True)
class HostReader:
    """Everything of the outside world that the facts need; a test replaces all of it."""

    system: System = field(default_factory=System)
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs
    machine: str = field(default_factory=lambda: os.uname().machine)
    time_of_day: Callable[[], float] = time.time

    def path(self, absolute: str) -> Path:
        return self.system.path(absolute)

    def read(self, absolute: str) -> str | None:
        """A small text file, stripped; None when it is absent, unreadable (EINVAL of sysfs) or empty."""
        return (self.system.text(absolute) or "").strip("\0\n\t ") or None

    def number(self, absolute: str) -> int | None:
        text = self.read(absolute)
        return int(text) if text and re.match(r"-?\d+\Z", text) else None

    def names(self, absolute: str) -> list[str]:
        return self.system.names(absolute)
