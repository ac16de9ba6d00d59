# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the vendor's own updates can still act on this host: units that are enabled and not masked.

By files, as systemd reads them: `systemctl` would cost a process, and `is-ota-available` of the vendor's checker
updates itself and apt's lists.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader

UPGRADE_ONCE, DASHBOARD = "nvidia-spark-run-apt-upgrade-once", "dgx-dashboard-admin"
# The one upgrades all packages at a boot and leaves this mark; the other serves the button of the DGX dashboard.
_DONE = {UPGRADE_ONCE: f"/var/lib/{UPGRADE_ONCE}/done"}
_OWN = "/etc/systemd/system"
_FOLDERS = (_OWN, "/usr/lib/systemd/system")


def read_vendor_updates(host: HostReader) -> list[str]:
    wants = [f"{folder}/{target}" for folder in _FOLDERS for target in host.names(folder) if target.endswith(".wants")]
    return [name for name in (UPGRADE_ONCE, DASHBOARD) if _is_enabled(host, name, wants) and not _is_done(host, name)]


def _is_enabled(host: HostReader, name: str, wants: Sequence[str]) -> bool:
    unit = f"{name}.service"
    masked = host.path(f"{_OWN}/{unit}")
    if masked.is_symlink() and str(masked.readlink()) == "/dev/null":
        return False
    return any(os.path.islink(host.system.place(f"{folder}/{unit}")) for folder in wants)  # noqa: PTH114


def _is_done(host: HostReader, name: str) -> bool:
    return name in _DONE and host.path(_DONE[name]).exists()
