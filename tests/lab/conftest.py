"""The third ring: real machines of the lab, real apt, systemd, NetworkManager, Docker and kernel RDMA."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import yaml

from tests.support.rig import ROOT, Rig


class Pair(Rig):
    """Two fresh virtual Sparks, one cable from p0 to p0."""

    inventory = ROOT / "inventory/lab/pair"
    hosts = ("spark-a", "spark-b")

    def __init__(self) -> None:
        self.before: dict[str, dict[str, str]] = {}  # the state of each host before the first run
        self.offered: dict[str, dict[str, list[str]]] = {}  # what it offers before that run

    def reboot(self) -> None:
        """As an operator would: over SSH. Comes back when every host is up again, with another boot id."""
        ask = "cat /proc/sys/kernel/random/boot_id"
        before = {host: self.ssh(host, ask) for host in self.hosts}
        for host in self.hosts:
            self.lab("ssh", host, "sudo systemctl reboot", check=False)
        for host in self.hosts:
            up = "systemctl is-system-running --wait || { systemctl --failed --no-legend; false; }"
            self.until(host, f"test $({ask}) != {before[host].strip()} && {{ {up}; }}")

    def until(self, host: str, command: str, limit_s: int = 600, every_s: float = 3) -> None:
        """Asks again and again. What was said last is part of the failure: a machine that is up may be degraded."""
        deadline = time.monotonic() + limit_s
        while not (said := self.lab("ssh", host, command, check=False, timeout=limit_s)).endswith("rc=0"):
            assert time.monotonic() < deadline, f"{host}: {command}: not within {limit_s} s; at last: {said}"
            time.sleep(every_s)

    @property
    def variables(self) -> dict[str, Any]:
        """What the lab's inventory says of all hosts."""
        said: dict[str, Any] = yaml.safe_load((self.inventory / "hosts.yml").read_text())["all"]["vars"]
        return said

    def address(self, host: str) -> str:
        """On the management network, where a stranger would knock."""
        (cluster,) = yaml.safe_load((self.inventory / "hosts.yml").read_text())["all"]["children"]["sparks"][
            "children"
        ].values()
        return str(cluster["hosts"][host]["ansible_host"])

    @property
    def image(self) -> str:
        """The simulated vLLM image, by digest, in the lab's registry."""
        return str(self.variables["vllm_image"])

    @property
    def registry(self) -> str:
        return self.image.partition("/")[0]


@pytest.fixture(scope="session")
def pair() -> Any:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root")
    lab = Pair()
    lab.lab("up", "pair")
    yield lab
    lab.lab("down", "pair")
