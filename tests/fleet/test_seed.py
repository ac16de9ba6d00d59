"""From blank images with seeds to the proof, hands off: Debian's cloud-init, `gb10 seed` and `gb10 enrol`.

Nobody logs in to a host between its first start and the proof. Real: the first start by systemd, cloud-init, SSH, the
roles. A wire between the two is their cable, and no RDMA flows: ib_write_bw is a stand-in. So is the wizard.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.fleet.fleet import Fleet
from tests.support.blank import CAME_UP, WIZARD, Blanks
from tests.support.rig import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.long]

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


class Owner:
    """Of two Sparks in their cartons, with an inventory of names, addresses and a cable."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet, self.folder = fleet, folder
        self.key, self.inventory, self.seeds = folder / "key", folder / "inventory", folder / "seeds"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)

    def write_inventory(self, macs: dict[str, str]) -> None:
        known = yaml.safe_load((self.fleet.inventory / "hosts.yml").read_text())["all"]["vars"]
        public = self.key.with_suffix(".pub").read_text().strip()
        said = {name: value for name, value in known.items() if name not in CONNECTION} | {
            "ansible_user": "nvidia",
            "ansible_ssh_private_key_file": str(self.key),
            "gb10_seed_keys": [public],
            "gb10_seed_network": {"prefix": 24},
            "gb10_seed_system": {"timezone": "Europe/Berlin", "telemetry": "off"},
            "gb10_evidence_directory": str(self.folder / "evidence"),
            "accounts_users": [{"name": "alice", "uid": 5001, "keys": [public]}],
            "gb10_cluster": "pair1", "fabric_topology": "pair", "fabric_allow_activation": True,
        }  # fmt: skip
        hosts = {
            host: {"ansible_host": self.fleet.address(host), **({"gb10_seed_mac": macs[host]} if host in macs else {})}
            for host in self.fleet.hosts
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
        argv = ["ssh", "-i", str(self.key), *options, f"nvidia@{self.fleet.address(host)}", LOOK]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture
def blanks(fleet: Fleet) -> Iterator[Blanks]:
    found = Blanks(fleet.hosts)
    found.cable()
    yield found
    found.end()
    fleet.lab("up", "fleet", "--hosts", str(found.fleet))
    for host in fleet.hosts:
        fleet.prepare(host)


def ended(process: subprocess.Popen[str], status: int, blanks: Blanks) -> str:
    """What it said; where it ended otherwise, the consoles say what the hosts did meanwhile."""
    said, _ = process.communicate(timeout=600)
    print(said[-12000:])
    assert process.returncode == status, "\n".join([said, *map(blanks.console, blanks.containers)])
    return said


def test_from_cartons_to_the_proof(fleet: Fleet, blanks: Blanks, tmp_path: Path) -> None:
    """Strangers with the right names are refused, the seeded ones set up and proven, a new installation is noticed."""
    owner = Owner(fleet, tmp_path)
    first, second = fleet.hosts
    owner.write_inventory({first: blanks.hosts[0].nics[0].mac})  # the other one by the name of its socket
    said = ended(owner.gb10("seed", "--out", owner.seeds), 0, blanks)
    prints = dict(re.findall(r"^(\S+)  \S+  (SHA256:\S+)$", said, re.M))
    enrol = ("enrol", owner.seeds)

    said = ended(owner.gb10(*enrol, "--minutes", "0.1"), 4, blanks)  # the lab's own hosts answer
    for host in fleet.hosts:
        assert re.search(f"^{host}: refused: .*: a stranger, or", said, re.M), said
    assert not (owner.inventory / "host_vars").exists()

    for host in fleet.hosts:
        blanks.off(host)
    waiting = owner.gb10(*enrol, "--minutes", "9")
    for host in fleet.hosts:
        blanks.boot(host, owner.seeds / host)
    said = ended(waiting, 0, blanks)
    assert f"{first}, {second}: gb10 site: done" in said and "its first start had an error" not in said
    assert json.loads((tmp_path / "evidence/latest/evidence.json").read_text())["verdict"] == "healthy"
    for host in fleet.hosts:
        assert owner.look(host) == [host, "Europe/Berlin", "5001", prints[host], "exec-condition", "1"]

    blanks.off(second)
    blanks.boot(second, owner.seeds / second)
    said = ended(owner.gb10(*enrol, "--no-site", "--minutes", "3"), 0, blanks)
    assert re.search(f"^{second}: there: .*; set up anew since", said, re.M), said
    assert not re.search(f"^{first}: .*set up anew since", said, re.M), said
