"""A host that boots into another kernel on trial."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.reading.grub import read_grub
from ansible_collections.gb10.fleet.plugins.module_utils.releases import trial_files
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, Completed, System

from lab.vendor.packages import FILES

OLD, NEW = "6.17.0-1014-nvidia", "6.17.0-1032-nvidia"

MOUNT = "29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
STATUS = """Package: dpkg
Status: install ok installed
Architecture: arm64
Version: 1.22

Package: nvidia-driver-580-open
Status: install ok installed
Architecture: arm64
Version: 580.142-0ubuntu0.24.04.1
"""


class Host:
    """A root with two kernels of one driver, of which the older one runs; `boot` is what GRUB and the kernel do."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules = {OLD: "580.142", NEW: "580.142"}
        self.calls: list[list[str]] = []
        self.fails: dict[str, Callable[[], Completed]] = {}
        self.softdog: dict[str, bool] = {}  # of each initramfs that was built: whether it would start one
        for kernel in self.modules:
            self.put(f"/boot/vmlinuz-{kernel}", "x")
            self.put(f"/boot/initrd.img-{kernel}", "x")
            self.put(f"/lib/modules/{kernel}/modules.dep", "kernel/drivers/watchdog/softdog.ko.zst:\n")
        for path, text in {
            "/etc/passwd": "root:x:0:0::/root:/bin/sh\n", "/etc/group": "root:x:0:\n", "/etc/default/grub": "",
            "/var/lib/dpkg/status": STATUS, "/proc/self/mountinfo": MOUNT, "/proc/sys/kernel/osrelease": OLD,
        }.items():  # fmt: skip
            self.put(path, text)
        self.system = System(root, self.run, Clock())
        self.update_grub()

    def put(self, path: str, text: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def run(self, argv: Sequence[str], stdin: str | None, timeout: float) -> Completed:
        self.calls.append([*argv])
        if argv[0] in self.fails:
            return self.fails[argv[0]]()
        if argv[0] == "grub-editenv":
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)
        if argv[0] == "update-grub":
            self.update_grub()
        if argv[0] == "update-initramfs":
            self.update_initramfs(argv[-1])
        if argv[0] == "modinfo":
            version = self.modules.get(argv[argv.index("-k") + 1])
            return Completed(tuple(argv), 0 if version else 1, version or "")
        return Completed(tuple(argv), 0)

    def update_grub(self) -> None:
        text = (FILES / "update-grub").read_text()
        for path in ("/etc/default", "here=/boot", "find /boot", "s|^/boot"):
            text = text.replace(path, path.replace("/", f"{self.root}/", 1))
        subprocess.run(["sh", "-c", text], check=True, capture_output=True)

    def update_initramfs(self, kernel: str) -> None:
        """As the real one: a new file takes the place of the old one."""
        self.put(f"/boot/initrd.img-{kernel}.new", "x")
        (self.root / f"boot/initrd.img-{kernel}.new").rename(self.root / f"boot/initrd.img-{kernel}")
        self.softdog[kernel] = bool({trial_files.HOOK, trial_files.SCRIPT} & self.ours())

    def line(self, kernel: str = NEW) -> list[str]:
        """The kernel's command line, by GRUB's menu."""
        lines = (self.root / "boot/grub/grub.cfg").read_text().splitlines()
        return next(line.split() for line in lines if f"/boot/vmlinuz-{kernel} " in line)

    def kept(self) -> set[str]:
        """What the host knows of a trial."""
        return {path.name for path in (self.root / trial_files.STATE.lstrip("/")).iterdir()} - {"outcome"}

    def boot(self) -> str:
        """As GRUB does: the entry for a single boot is cleared before the kernel starts."""
        chosen = read_grub(self.root).next_kernel
        assert chosen
        subprocess.run(["grub-editenv", str(self.root / "boot/grub/grubenv"), "unset", "next_entry"], check=False)
        self.put("/proc/sys/kernel/osrelease", f"{chosen}\n")
        return chosen

    def way_back(self) -> str:
        """Run the host's own script as its timer would; returns what it asked systemd for."""
        programs = self.root / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "systemctl").write_text(f'#!/bin/sh\necho "$*" >>{self.root}/asked\n')
        (programs / "systemctl").chmod(0o755)
        script = (self.root / trial_files.BACK.lstrip("/")).read_text()
        for path in ("/var/lib", "/boot/grub", "/proc/sys"):
            script = script.replace(path, path.replace("/", f"{self.root}/", 1))
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        subprocess.run(["sh", "-c", script], check=True, capture_output=True, env=environment)
        asked = self.root / "asked"
        return asked.read_text().strip() if asked.exists() else ""

    def environment(self) -> dict[str, str]:
        argv = ["grub-editenv", str(self.root / "boot/grub/grubenv"), "list"]
        lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)

    def ours(self) -> set[str]:
        """What lies on the host while a trial is under way."""
        paths = [*trial_files.files(deadline_s=1, watchdog_s=1, panic_s=1), trial_files.GRUB]
        return {path for path in paths if (self.root / path.lstrip("/")).exists()}
