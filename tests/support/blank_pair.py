"""The pair of machines as from the carton: Debian's cloud-init, no user, no key that opens them, no address.

The stick of the seed is a second disk, and cloud-init finds it by its label. What a factory has in a Spark is there:
names of the interfaces, RDMA devices, the packages, and a stand-in of the wizard.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from lab import identity, lifecycle
from lab.image import Image, overlay
from lab.machine import DISK_SIZE, Machine
from lab.shell import STATE, run
from lab.topology import Host
from tests.support.blank import UNITS, WANTS, WIZARD, image_of


class BlankPair:
    """In the places of the lab's two machines: of the same name, at the same address, on the same cable."""

    def __init__(self) -> None:
        with lifecycle.state() as lab:
            self.hosts = [host for plan in lab.plans for host in plan.hosts if host.kind == "machine"]
        self.folders = {host.name: STATE / "hosts" / host.name for host in self.hosts}
        self.image = image_of(Image.load(self.folders[self.hosts[0].name] / "image.json"))

    def off(self) -> None:
        for host in self.hosts:
            Machine(host, self.folders[host.name]).power_off()

    def boot(self, sticks: Path) -> None:
        """The first start of both, each with its stick. Nobody waits for it."""
        for host in self.hosts:
            self._make_disk(host)
            self.image.save(self.folders[host.name] / "image.json")
        for host in self.hosts:
            stick = f"file={sticks / host.name}.iso,if=virtio,format=raw,readonly=on"
            Machine(host, self.folders[host.name]).power_on("-drive", stick)
        for host in self.hosts:
            Machine(host, self.folders[host.name]).resume(("p0",))

    @property
    def consoles(self) -> list[Path]:
        return [folder / "console.log" for folder in self.folders.values()]

    def _make_disk(self, host: Host) -> None:
        folder = self.folders[host.name]
        layer, blank, disk = folder / "blank", folder / "blank.raw", folder / "disk.qcow2"
        known = identity.files(host, "", "", "")
        links = {place: file.content for place, file in known.items() if place.endswith(".link")}
        files = links | {
            "etc/hostname": "factory\n",
            "etc/hosts": "127.0.0.1 localhost\n",
            "etc/machine-id": "",  # systemd makes one
            "etc/cloud/cloud.cfg.d/90-lab.cfg": "resize_rootfs: false\n",  # no e2fsprogs in the lab's image
            f"etc/systemd/system/{WIZARD}": UNITS[WIZARD],
        }
        for place, text in files.items():
            (layer / place).parent.mkdir(parents=True, exist_ok=True)
            (layer / place).write_text(text)
        (layer / WANTS).mkdir(parents=True)
        (layer / WANTS / WIZARD).symlink_to(f"/etc/systemd/system/{WIZARD}")
        run(overlay(self.image.layers, layer, f'mkfs.ext4 -q -F -d "$root" {shlex.quote(str(blank))} {DISK_SIZE}'))
        shutil.rmtree(layer)
        disk.unlink()
        run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", blank, "-F", "raw", disk])
