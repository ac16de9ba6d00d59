"""Two containers of the lab as a cluster with rails, Docker's engine and containers in it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.fleet.fleet import HERE, Fleet
from tests.support.rig import ROOT, Play

INGREDIENTS = HERE / "images"
RAILS = ("enp1s0f0np0", "enP2p1s0f0np0")
ROLES = ["docker", "container_toolkit", "page_cache", "memory_protection", "fabric", "vllm"]
OF_COLLECTION = ("plugins", "roles", "playbooks", "catalog", "meta")


class Two:
    """Two containers of the lab as a cluster, and our collection with the architecture of this machine."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet, self.folder = fleet, folder
        self.first, self.second = fleet.hosts
        self.collection = folder / "ansible_collections/gb10/fleet"
        self.inventory = folder / "inventory"

    def begin(self) -> None:
        for netdev in RAILS:
            ends = [f"netns gb10-{host}" for host in self.fleet.hosts]
            words = f"link add {netdev} mtu 9000 {ends[0]} type veth peer name {netdev} mtu 9000 {ends[1]}"
            subprocess.run(["ip", *words.split()], check=True)
        for number, host in enumerate(self.fleet.hosts):
            for netdev in RAILS:
                self.fleet.shell(host, f"ip link set {netdev} up")
            self.fleet.root(host, "python3", "-", str(number), program=(INGREDIENTS / "rails.py").read_bytes())
            self.fleet.shell(host, (INGREDIENTS / "begin.sh").read_text())
        self._write_inventory()
        self.bring_collection()

    def bring_collection(self) -> None:
        for name in OF_COLLECTION:
            shutil.copytree(ROOT / name, self.collection / name)
        shutil.copy(ROOT / "galaxy.yml", self.collection)
        rules = self.collection / "catalog/image_rules.yml"
        text = rules.read_text()
        assert "linux/arm64" in text
        rules.write_text(text.replace("linux/arm64", "linux/amd64"))

    def end(self) -> None:
        for host in self.fleet.hosts:
            said = self.fleet.engine(host, "undo")
            self.fleet.shell(host, (INGREDIENTS / "end.sh").read_text())
            assert said["error"] is None, f"{host}: undo: {said['error']}"

    def _write_inventory(self) -> None:
        known = yaml.safe_load((self.fleet.inventory / "hosts.yml").read_text())
        hosts = known["all"]["children"]["sparks"]["hosts"]
        mine = {"hosts": {host: hosts[host] for host in self.fleet.hosts}}
        mine["vars"] = {"gb10_cluster": "pair1", "fabric_topology": "pair", "fabric_allow_activation": True}
        known["all"]["children"] = {"sparks": {"children": {"pair1": mine}}}
        self.simulated = known["all"]["vars"]["vllm_image"]
        self.inventory.mkdir()
        (self.inventory / "hosts.yml").write_text(yaml.safe_dump(known))

    def play(self, playbook: str, *args: str, roles: list[str] = ROLES, **variables: Any) -> Play:
        said = {"gb10_roles": roles, "gb10_evidence_directory": str(self.folder / "evidence"), **variables}
        own = {
            "ANSIBLE_COLLECTIONS_PATH": str(self.folder),
            # Another lab may have hosts of these addresses.
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.fleet.sockets),
        }
        words = ("-i", str(self.inventory), "-e", json.dumps(said), *args)
        run = self.fleet.play(*words, playbook=f"gb10.fleet.{playbook}", environment=own)
        assert run.rc == 0, f"{playbook} failed"
        return run

    def served(self) -> dict[str, tuple[str, str]]:
        """By host the id of the image whose container serves, and since when its unit runs."""
        ask = "docker inspect --format '{{.Image}}' gb10-vllm; systemctl show -p InvocationID --value gb10-vllm"
        found = {}
        for host in self.fleet.hosts:
            image, life = self.fleet.shell(host, ask).split()
            status = json.loads(self.fleet.shell(host, "cat /run/gb10-vllm/status.json"))
            assert status["phase"] == "ready", (host, status)
            found[host] = image, life
        return found
