"""Machines: QEMU with a kernel of its own, started from a snapshot of itself that was taken just after its boot.

A machine's folder under .lab holds its disk, its QMP socket and its logs; QEMU runs in that folder. The snapshot is
taken with every rail's link down, so it serves every topology; the links are set over QMP before the machine runs on.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab import identity, process
from lab.image import Image, cache, digest, keep_newest, overlay
from lab.network import inside
from lab.shell import CACHE, LabError, boot_id, run, step
from lab.topology import Host

DISK_SIZE = "8G"  # sparse; about 0.6 GB of it are used on a fresh host
SNAPSHOT = "booted"
# TCG: one CPU per machine, because more of them only contend for the few of this machine. Sizes in MiB.
ACCELERATION = {
    "kvm": ("-accel", "kvm", "-cpu", "host", "-smp", "2", "-m", "4096"),
    "tcg": ("-accel", "tcg,thread=multi,tb-size=512", "-cpu", "{cpu}", "-smp", "1", "-m", "2560"),
}
KERNEL_OPTIONS = "root=/dev/vda rw console={console} quiet mitigations=off nowatchdog panic=-1"


def command(host: Host, accelerator: str, image: Image) -> list[str]:
    """QEMU's argv; paths of the machine's own files are relative to its folder. Starts paused (-S)."""
    its = image.architecture
    nics = []
    for nic in host.nics:
        netdev = f"tap,id={nic.name},ifname={nic.outer},script=no,downscript=no"
        # romfile empty: nothing boots from the network, so nothing has to be loaded for that
        device = f"virtio-net-pci,netdev={nic.name},mac={nic.mac},host_mtu={nic.mtu},romfile="
        nics += ["-netdev", netdev, "-device", device]
    return [
        *(its.qemu, "-name", host.name, "-nodefaults", "-no-user-config", "-display", "none", "-S"),
        *its.board,
        *(word.format(cpu=its.cpu) for word in ACCELERATION[accelerator]),
        *("-smbios", "type=1,manufacturer=NVIDIA,product=NVIDIA_DGX_Spark"),
        *("-drive", "file=disk.qcow2,if=virtio,format=qcow2,cache=unsafe"),
        *("-device", "virtio-rng-pci"),
        *nics,
        *("-chardev", "file,id=console,path=console.log,append=on", "-serial", "chardev:console"),
        *("-qmp", "unix:qmp.sock,server=on,wait=off"),
        *("-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append"),
        KERNEL_OPTIONS.format(console=its.console),
    ]


def accelerator(image: Image) -> str:
    """kvm if the lab's kernel truly reaches its userspace under it, else tcg; asked once per boot of this machine.

    That /dev/kvm opens proves little: nested KVM can refuse a CPU model's registers, or die in early boot.
    """
    if image.architecture.foreign:
        return "tcg"
    memory = CACHE / "accelerator.json"
    question = {"boot": boot_id(), "qemu": _version(image), "kernel": str(image.kernel)}
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        known = json.loads(memory.read_text())
        if known["question"] == question:
            return str(known["answer"])
    answer = "tcg"
    if os.access("/dev/kvm", os.R_OK | os.W_OK):
        with step("Trying whether KVM boots a kernel here (up to 15 s)"):
            answer = "kvm" if _boots_under_kvm(image) else "tcg"
    memory.write_text(json.dumps({"question": question, "answer": answer}))
    return answer


def _boots_under_kvm(image: Image) -> bool:
    its = image.architecture
    argv = [
        *(its.qemu, "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", *its.board),
        *(*ACCELERATION["kvm"], "-m", "512"),
        *("-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", f"console={its.console} panic=-1"),
    ]
    with (
        tempfile.TemporaryFile() as console,
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.DEVNULL) as trial,
    ):
        until, booted = time.monotonic() + 15, False
        while not booted and trial.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
            booted = b"Run /init as init process" in os.pread(console.fileno(), 1 << 20, 0)
        trial.kill()
    return booted


def _version(image: Image) -> str:
    return run([image.architecture.qemu, "--version"]).splitlines()[0]


class Machine:
    def __init__(self, host: Host, folder: Path) -> None:
        self.host, self.folder = host, folder
        self.image = Image.load(folder / "image.json")
        self.accelerator = accelerator(self.image)
        self.record, self.disk = folder / "pid.json", folder / "disk.qcow2"
        key = digest([self.image.digest, _version(self.image), *command(host, self.accelerator, self.image)])
        self.cache = cache(self.image.architecture) / f"booted-{host.name}-{key}"

    @property
    def snapshot(self) -> Path:
        return self.cache / "booted.qcow2"

    def first_boot(self) -> None:
        """Starts on a new disk, so that the snapshot can be taken once the machine has booted."""
        base = self.cache / "base.raw"
        if not base.exists():
            self._make_disk(base)
        self.disk.unlink(missing_ok=True)
        run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "raw", self.disk])
        self._start()
        self.resume(ports_up=())

    def save(self) -> None:
        """Takes the snapshot and ends the machine; the disk moves into the cache."""
        with qmp(self.folder) as monitor:
            problem = monitor("human-monitor-command", **{"command-line": f"savevm {SNAPSHOT}"})
        if problem:
            raise LabError(f"{self.host.name}: QEMU could not save the snapshot: {problem}")
        self.power_off()
        self.disk.rename(self.folder / "saved.qcow2")
        partial = self.snapshot.with_suffix(".new")
        shutil.move(self.folder / "saved.qcow2", partial)
        partial.rename(self.snapshot)
        keep_newest(self.cache)

    def load(self) -> None:
        """Starts, paused, from a copy of the snapshot: whatever the host was before, it is fresh now."""
        self.cache.touch()
        shutil.copy(self.snapshot, self.disk)
        self._start("-loadvm", SNAPSHOT)

    def power_on(self, *more: str) -> None:
        """Boots, paused, from the disk as it is. `more`: words for QEMU, such as a stick that is in."""
        self._start(*more)

    def resume(self, ports_up: tuple[str, ...]) -> None:
        """Sets every port's link and lets the machine run."""
        set_links(self.host, self.folder, ports_up)
        with qmp(self.folder) as monitor:
            monitor("cont")

    def power_off(self) -> None:
        """As pulling the plug: nothing inside is asked."""
        process.stop(self.record)

    def _start(self, *more: str) -> None:
        (self.folder / "qmp.sock").unlink(missing_ok=True)
        log = self.folder / "qemu.log"
        argv = inside([*command(self.host, self.accelerator, self.image), *more])
        process.start(argv, self.record, log, cwd=self.folder)
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), qmp(self.folder):
                return
            if process.pid(self.record) is None or time.monotonic() > until:
                process.stop(self.record)
                tail = log.read_text(errors="replace").strip().splitlines()[-3:]
                raise LabError(f"{self.host.name}: QEMU does not start ({log}): {' / '.join(tail)}")
            time.sleep(0.1)

    def _make_disk(self, target: Path) -> None:
        self.cache.mkdir(parents=True, exist_ok=True)
        layer = self.folder / "layer"
        identity.write(layer, self.host)
        partial = target.with_suffix(".new")
        partial.unlink(missing_ok=True)
        format_it = f'mkfs.ext4 -q -F -L {self.host.name} -d "$root" {shlex.quote(str(partial))} {DISK_SIZE}'
        run(overlay(self.image.layers, layer, format_it))
        partial.rename(target)
        shutil.rmtree(layer)


def set_links(host: Host, folder: Path, ports_up: tuple[str, ...]) -> None:
    """Plugs in or pulls, for a machine that runs: both functions behind a port see the same cable."""
    with qmp(folder) as monitor:
        for nic in host.nics:
            if nic.port:
                monitor("set_link", name=nic.name, up=nic.port in ports_up)


class Monitor:
    """A QMP connection: `monitor("set_link", name="p0", up=False)` runs one command and returns its result."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        stream.readline()  # greeting
        self("qmp_capabilities")

    def __call__(self, execute: str, **arguments: Any) -> Any:
        self.stream.write(json.dumps({"execute": execute, "arguments": arguments}) + "\n")
        self.stream.flush()
        for line in self.stream:
            answer = json.loads(line)
            if "error" in answer:
                raise LabError(f"QEMU refuses {execute} {arguments}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]  # anything else is an event
        raise LabError(f"QEMU ended while it was asked to {execute}")


@contextlib.contextmanager
def qmp(folder: Path) -> Iterator[Monitor]:
    directory = os.open(folder, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(120)
            # by way of /proc: a socket's path must fit into 107 bytes, and a checkout's may not
            connection.connect(f"/proc/self/fd/{directory}/qmp.sock")
            with connection.makefile("rw") as stream:
                yield Monitor(stream)
    finally:
        os.close(directory)
