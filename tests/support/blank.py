"""A machine that nobody has set up: an image of the lab with Debian's cloud-init, in namespaces, without a systemd.

What a boot does of cloud-init is done by its own programs, in their order. There is no systemd and no DHCP, so nothing
of the network is set up, and no unit started.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from lab import image
from lab.architecture import ARCHITECTURES
from lab.shell import CACHE
from lab.vendor import debian

NATIVE = ARCHITECTURES["amd64"]
HERE, THERE = "10.231.7.1", "10.231.7.2"
SPACE, OUTER, MAC = "gb10-blank", "gb10-blank", "02:00:00:00:07:02"
SEED, NO_NETWORK = "var/lib/cloud/seed/nocloud", "etc/cloud/cloud.cfg.d/90-no-systemd.cfg"
# As the units of cloud-init do it, which ds-identify switches off without a seed. Where cloud-init brings a key it
# starts sshd itself.
BOOT = """
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero random urandom tty; do cp -a /dev/$node dev/; done
ln -s /proc/self/fd dev/fd
mkdir dev/pts run/sshd
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
hostname factory
exec chroot . sh -c '
tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id
ssh-keygen -qA
if test -e /var/lib/cloud/seed/nocloud; then
	/usr/lib/cloud-init/ds-identify
	cloud-init init --local
	cloud-init init
	cloud-init modules --mode=config
	cloud-init modules --mode=final
fi
/usr/sbin/sshd
echo up
exec sleep infinity'
"""


def layers() -> list[Path]:
    """Of a host of the lab, with cloud-init on top, made once."""
    below = image.build(image.vendor_tree(NATIVE), "container").layers
    top = CACHE / f"cloud-init-{debian.key([str(layer) for layer in below])}"
    if not top.is_dir():
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            debs, upper = Path(folder, "debs"), Path(folder, "layer")
            debs.mkdir()
            fetch = "apt-get clean && apt-get install -y --no-install-recommends --download-only cloud-init"
            words = (
                f"--customize-hook=chroot \"$1\" sh -c '{fetch}'",
                "--customize-hook=sync-out /var/cache/apt/archives",
            )
            start = [*debian.mmdebstrap(NATIVE.debian), "--variant=minbase", "--format=null"]
            debian.run([*start, words[0], f"{words[1]} {debs}", debian.RELEASE, "-"])
            inside = "dpkg -i --skip-same-version /run/debs/*.deb && rm -f /etc/ssh/ssh_host_*"
            install = (
                f'mkdir -p "$root/run/debs" && mount --bind {debs} "$root/run/debs" && mount -t proc proc "$root/proc"'
                f" && DEBIAN_FRONTEND=noninteractive chroot \"$root\" sh -c '{inside}'"
            )
            debian.run(image.overlay(below, upper, install))
            upper.rename(top)
    return [top, *below]


class Blank:
    """One machine at THERE, always the same board. `boot` gives it a new disk."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.layers = folder, layers()
        self.process: subprocess.Popen[bytes] | None = None
        words = [
            f"netns add {SPACE}",
            f"link add {OUTER} type veth peer name eth0 address {MAC} netns {SPACE}",
            f"address add {HERE}/30 dev {OUTER}",
            f"link set {OUTER} up",
            *(
                f"-n {SPACE} {rest}"
                for rest in (f"address add {THERE}/30 dev eth0", "link set eth0 up", "link set lo up")
            ),
        ]
        for line in words:
            subprocess.run(["ip", *line.split()], check=True)

    def boot(self, seed: Path | None, name: str = "") -> str:
        """A new installation, with the folder of a seed in its image or without; what it said until it was up."""
        self.off()
        upper = Path(tempfile.mkdtemp(dir=self.folder)) / "layer"
        (upper / NO_NETWORK).parent.mkdir(parents=True)
        (upper / NO_NETWORK).write_text("network: {config: disabled}\n")
        if seed:
            shutil.copytree(seed, upper / SEED)
        script = BOOT.replace("hostname factory", f"hostname {name}") if name else BOOT
        inside = self.folder / "boot.sh"
        inside.write_text(f'set -eu\ncd "$1"\n{script}')
        apart = f'unshare --uts --ipc --pid --fork --kill-child nsenter --net=/run/netns/{SPACE} sh {inside} "$root"'
        log = self.folder / "console.log"
        with log.open("wb") as console:
            self.process = subprocess.Popen(
                image.overlay(self.layers, upper, f"exec {apart}"),
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
            )  # fmt: skip
        while not (said := log.read_text(errors="replace")).endswith("up\n"):
            assert self.process.poll() is None, said
            subprocess.run(["sleep", "0.5"], check=True)
        return said

    def off(self) -> None:
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def end(self) -> None:
        self.off()
        subprocess.run(["ip", "netns", "del", SPACE], check=True)
