"""Machines that nobody has set up: containers of the lab with Debian's cloud-init, and of a fleet nothing at all.

There is no user, no key that opens it, no host key, and no address. What a factory has in a Spark is there from the
first moment, and no test has a hand in it: the board's RDMA devices, a stand-in of the wizard, and the packages.

The seed lies in the image, as NVIDIA's repack scripts put it there: in a container cloud-init asks no block device.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab import image, lifecycle, network
from lab.container import Container
from lab.identity import USER
from lab.shell import CACHE, STATE
from lab.topology import MANAGEMENT, Host
from lab.vendor import debian
from tests.support.rig import ROOT

RAILS = ("enp1s0f0np0", "enP2p1s0f0np0")
SEED = "var/lib/cloud/seed/nocloud"
WIZARD, CAME_UP = "gb10-lab-wizard.service", "/var/lib/gb10-lab-wizard"
BOARD = "usr/lib/gb10-lab-board"
WANTS = "etc/systemd/system/multi-user.target.wants"
UNITS = {
    # cloud-init makes the users in its third step of four
    WIZARD: f"""[Unit]
After=cloud-init-network.service
Before=ssh.service

[Service]
Type=oneshot
ExecCondition=sh -c '! grep -q "^[^:]*:[$$]" /etc/shadow'
ExecStart=touch {CAME_UP}
""",
    "gb10-lab-board.service": f"""[Unit]
Before=NetworkManager.service ssh.service docker.service

[Service]
Type=oneshot
ExecStart=sh -eu /{BOARD}/begin
""",
}
INSTALL = f"dpkg -i --skip-same-version /run/debs/*.deb && userdel -r {USER} && rm /etc/sudoers.d/{USER}"


def image_of(below: image.Image) -> image.Image:
    """A host of the lab with cloud-init and without the lab's user; made once."""
    top = CACHE / f"cloud-init-{debian.key([*map(str, below.layers), INSTALL])}"
    if not top.is_dir():
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            debs, upper = Path(folder, "debs"), Path(folder, "layer")
            debs.mkdir()
            fetch = "apt-get clean && apt-get install -y --no-install-recommends --download-only cloud-init"
            debian.run([
                *debian.mmdebstrap(below.architecture.debian), "--variant=minbase", "--format=null",
                f"--customize-hook=chroot \"$1\" sh -c '{fetch}'",
                f"--customize-hook=sync-out /var/cache/apt/archives {debs}", debian.RELEASE, "-",
            ])  # fmt: skip
            install = (
                f'mkdir -p "$root/run/debs" && mount --bind {debs} "$root/run/debs" && mount -t proc proc "$root/proc"'
                f" && DEBIAN_FRONTEND=noninteractive chroot \"$root\" sh -c '{INSTALL}'"
            )
            debian.run(image.overlay(below.layers, upper, install))
            upper.rename(top)
    return image.Image(top.name, (top, *below.layers), below.architecture)


class Blanks:
    """Places of hosts in the lab where others stand now: of the same name, at the same address."""

    def __init__(self, names: Sequence[str]) -> None:
        with lifecycle.state() as lab:
            self.hosts = [lab.find(name)[1] for name in names]
            self.fleet = len(lab.find(names[0])[0].hosts)
        self.containers = {host.name: Container(host, STATE / "hosts" / host.name) for host in self.hosts}
        self.image = image_of(next(iter(self.containers.values())).image)

    def cable(self) -> None:
        """A wire between the first two hosts, for each rail."""
        one, other = (f"netns {network.container_namespace(host)}" for host in self.hosts)
        for netdev in RAILS:
            words = f"link add {netdev} mtu 9000 {one} type veth peer name {netdev} mtu 9000 {other}"
            subprocess.run(["ip", *words.split()], check=True)

    def off(self, name: str) -> None:
        """Without power an interface has no address."""
        container = self.containers[name]
        container.power_off()
        space = ["ip", "-n", network.container_namespace(container.host)]
        links = subprocess.run([*space, "-j", "link"], capture_output=True, check=True).stdout
        for link in [one["ifname"] for one in json.loads(links)]:
            if link in (MANAGEMENT, *RAILS):
                subprocess.run([*space, "address", "flush", "dev", link], check=True)
                subprocess.run([*space, "link", "set", link, "down"], check=True)
            elif link != "lo":
                subprocess.run([*space, "link", "delete", link], check=False)  # one end takes the other with it

    def boot(self, name: str, seed: Path) -> None:
        """The first start of a new installation, with a seed in its image. Nobody waits for it."""
        container = self.containers[name]
        layer = container.folder / "layer"
        shutil.rmtree(layer)
        shutil.rmtree(layer.with_name("layer.work"))
        shutil.copytree(seed, layer / SEED)
        self._of_factory(layer, container.host)
        self.image.save(container.folder / "image.json")
        Container(container.host, container.folder).power_on()

    def _of_factory(self, layer: Path, host: Host) -> None:
        images = ROOT / "tests/fleet/images"
        begin = [f"ip link set {netdev} up" for netdev in RAILS]
        begin += [f"python3 /{BOARD}/rails.py {self.hosts.index(host)}", (images / "begin.sh").read_text()]
        files = {
            "etc/hostname": "factory\n",
            "etc/machine-id": "",  # systemd makes one; without the file it would ask for a root password, too
            f"{BOARD}/rails.py": (images / "rails.py").read_text(),
            f"{BOARD}/begin": "\n".join(begin),
            "usr/local/bin/ib_write_bw": (ROOT / "tests/fleet/up/ib_write_bw").read_text(),
            **{f"etc/systemd/system/{name}": text for name, text in UNITS.items()},
        }
        for place, text in files.items():
            (layer / place).parent.mkdir(parents=True, exist_ok=True)
            (layer / place).write_text(text)
        (layer / "usr/local/bin/ib_write_bw").chmod(0o755)
        (layer / WANTS).mkdir(parents=True)
        for name in UNITS:
            (layer / WANTS / name).symlink_to(f"/etc/systemd/system/{name}")

    @property
    def consoles(self) -> list[Path]:
        return [container.folder / "console.log" for container in self.containers.values()]

    def end(self) -> None:
        """The lab's hosts, fresh, in their places again."""
        for container in self.containers.values():
            container.power_off()
            shutil.rmtree(container.folder)
