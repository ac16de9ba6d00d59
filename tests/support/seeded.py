"""The owner of two Sparks in their cartons: what is typed on the laptop, from the seeds to the proof."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.support.blank import CAME_UP, WIZARD
from tests.support.rig import ROOT

CONNECTION = ("ansible_user", "ansible_ssh_private_key_file", "ansible_ssh_common_args")
LOOK = f"""
cat /etc/hostname /etc/timezone
id -u alice
ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub | cut -d" " -f2
systemctl show -p Result --value {WIZARD}
test -e {CAME_UP} && echo wizard
id spark
ls /etc/ssh | grep -c '^ssh_host_.*_key$'
true
"""


class Place(Protocol):
    """Two hosts of the lab."""

    inventory: Path

    @property
    def hosts(self) -> Sequence[str]: ...

    def address(self, host: str) -> str: ...


class Owner:
    """Of two Sparks in their cartons, with an inventory of names, addresses and a cable."""

    def __init__(self, rig: Place, folder: Path) -> None:
        self.rig, self.folder = rig, folder
        self.key, self.inventory, self.seeds = folder / "key", folder / "inventory", folder / "seeds"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)

    def write_inventory(self, macs: dict[str, str], **more: Any) -> None:
        """Of the lab's variables, without the lab's user. `macs`: of hosts whose seed names one; `more`: variables."""
        known = yaml.safe_load((self.rig.inventory / "hosts.yml").read_text())["all"]["vars"]
        public = self.key.with_suffix(".pub").read_text().strip()
        said = {name: value for name, value in known.items() if name not in CONNECTION} | {
            "ansible_user": "nvidia",
            "ansible_ssh_private_key_file": str(self.key),
            "gb10_seed_keys": [public],
            "gb10_seed_network": {"prefix": 24},
            "gb10_seed_system": {"timezone": "Europe/Berlin", "telemetry": "off"},
            "gb10_evidence_directory": str(self.folder / "evidence"),
            "accounts_users": [{"name": "alice", "uid": 5001, "keys": [public]}],
            "gb10_cluster": "pair1", "fabric_topology": "pair", "fabric_allow_activation": True, **more,
        }  # fmt: skip
        hosts = {
            host: {"ansible_host": self.rig.address(host), **({"gb10_seed_mac": macs[host]} if host in macs else {})}
            for host in self.rig.hosts
        }
        sparks = {"children": {"pair1": {"hosts": hosts, "vars": said}}}
        self.inventory.mkdir()
        (self.inventory / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"sparks": sparks}}}))

    def gb10(self, *words: str | Path) -> subprocess.Popen[str]:
        argv = [str(Path(sys.executable).with_name("gb10")), *map(str, words), "-i", str(self.inventory)]
        return subprocess.Popen(
            argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def look(self, host: str) -> list[str]:
        """Afterwards: what the host says of itself, to the user of its seed."""
        options = (
            f"-oUserKnownHostsFile={self.inventory}/known_hosts.txt", "-oStrictHostKeyChecking=yes", "-oBatchMode=yes",
        )  # fmt: skip
        argv = ["ssh", "-i", str(self.key), *options, f"nvidia@{self.rig.address(host)}", LOOK]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


def ended(process: subprocess.Popen[str], status: int, consoles: Iterable[Path], limit_s: int = 600) -> str:
    """What it said; where it ended otherwise, the consoles say what the hosts did meanwhile."""
    said, _ = process.communicate(timeout=limit_s)
    print(said[-12000:])
    assert process.returncode == status, "\n".join([said, *(one.read_text(errors="replace") for one in consoles)])
    return said
