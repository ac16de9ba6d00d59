# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers: systemd-nspawn over the machines' root image, with a systemd, NetworkManager and SSH of their own.

They share this machine's kernel, so they have no RDMA, no rails and no kernel settings to themselves.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from lab import identity, process
from lab.image import Image, overlay
from lab.network import container_namespace
from lab.topology import Host

# Each systemd takes some dozens; the defaults do for a handful of containers.
INOTIFY = {"max_user_instances": 8192, "max_user_watches": 524288}
KNOBS = Path("/proc/sys/fs/inotify")


def raise_limits(record: Path) -> None:
    """Raises this machine's inotify limits where they are too low; `record` keeps what they were."""
    low = {name: int((KNOBS / name).read_text()) for name in INOTIFY}
    low = {name: value for name, value in low.items() if value < INOTIFY[name]}
    if low:
        record.write_text(json.dumps({**low, **_recorded(record)}))
    for name in low:
        (KNOBS / name).write_text(str(INOTIFY[name]))


def restore_limits(record: Path) -> None:
    """Puts back what `raise_limits` raised, unless somebody has changed it since."""
    for name, value in _recorded(record).items():
        if int((KNOBS / name).read_text()) == INOTIFY[name]:
            (KNOBS / name).write_text(str(value))
    record.unlink(missing_ok=True)


def _recorded(record: Path) -> dict[str, int]:
    return dict(json.loads(record.read_text())) if record.exists() else {}


class Container:
    def __init__(self, host: Host, folder: Path) -> None:
        self.host, self.folder, self.image = host, folder, Image.load(folder / "image.json")
        self.record = folder / "pid.json"

    def load(self) -> None:
        identity.write(self.folder / "layer", self.host)
        self.power_on()

    def power_on(self) -> None:
        options = [
            *("--quiet", "--register=no", "--keep-unit", "--boot", f"--machine={self.host.name}", "--link-journal=no"),
            *("--resolv-conf=off", "--timezone=off"),
            # nspawn gives these of itself to a namespace that it made, but not to one that it was handed
            f"--network-namespace-path=/run/netns/{container_namespace(self.host)}",
            "--capability=CAP_NET_ADMIN",
        ]
        environment = "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network"
        nspawn = f'exec env {environment} systemd-nspawn --directory="$root" {shlex.join(options)}'
        argv = overlay(self.image.layers, self.folder / "layer", nspawn)
        process.start(argv, self.record, self.folder / "console.log")

    def power_off(self) -> None:
        """nspawn passes a SIGTERM on to the container's systemd as a request to halt."""
        process.stop(self.record)
