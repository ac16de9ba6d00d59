"""The third ring: real machines of the lab, real apt, systemd, NetworkManager, Docker and kernel RDMA."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest
import yaml

from tests.rig import ROOT, Rig


class Pair(Rig):
    """Two fresh virtual Sparks, one cable from p0 to p0."""

    inventory = ROOT / "inventory/lab/pair"
    hosts = ("spark-a", "spark-b")

    def __init__(self) -> None:
        self.before: dict[str, dict[str, str]] = {}  # the state of each host before the first run

    def reboot(self) -> None:
        """As an operator would: over SSH. Comes back when every host is up again, with another boot id."""
        ask = "cat /proc/sys/kernel/random/boot_id"
        before = {host: self.ssh(host, ask) for host in self.hosts}
        for host in self.hosts:
            self.lab("ssh", host, "sudo systemctl reboot", check=False)
        for host in self.hosts:
            self._until(host, f"test $({ask}) != {before[host].strip()} && systemctl is-system-running --wait")

    def _until(self, host: str, command: str, limit_s: int = 900) -> None:
        deadline = time.monotonic() + limit_s
        while self.lab("ssh", host, command, check=False, timeout=limit_s).rpartition("\n")[2] != "rc=0":
            assert time.monotonic() < deadline, f"{host}: {command}: not within {limit_s} s"
            time.sleep(3)

    @property
    def image(self) -> str:
        """The simulated vLLM image, by digest, in the lab's registry."""
        said = yaml.safe_load((self.inventory / "hosts.yml").read_text())
        return str(said["all"]["vars"]["vllm_image"])

    @property
    def registry(self) -> str:
        return self.image.partition("/")[0]

    def evidence(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((ROOT / "evidence/latest/evidence.json").read_text())
        return data


@pytest.fixture(scope="session")
def pair() -> Any:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    lab = Pair()
    lab.lab("up", "pair")
    yield lab
    lab.lab("down")
