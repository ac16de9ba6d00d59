"""What the tests on a pair of the lab's machines have in common."""

from __future__ import annotations

import json
import time
from typing import Any

import yaml

from tests.support.rig import ROOT, Rig

TRACES = "/etc/gb10-fleet /etc/systemd/system/gb10-vllm.service /etc/apt/preferences.d/10-gb10-nvidia"
LEFT_BEHIND = {
    *("file /etc/group", "file /etc/gshadow"),
    *("link docker0", "profile docker0", "file /etc/cni", "file /etc/cni/net.d"),
}
RAIL, PROFILE = "enp1s0f0np0", "nm_profile:gb10-enp1s0f0np0"


def rails_that_drifted() -> dict[str, list[str]]:
    """Of the last scan, what the role fabric would repair, by host.

    The role vllm may be named as well: a rail without its address takes the model's server down, on both hosts.
    """
    hosts = json.loads((ROOT / "evidence/drift/drift.json").read_text())["hosts"]
    found = {host: [row["resource"] for row in said["changes"].get("fabric", [])] for host, said in hosts.items()}
    return {host: rows for host, rows in found.items() if rows}


# With its ARP settings, which a Spark has from DGX OS: twins share a wire, and each is to answer for itself alone.
ONLY_FABRIC = ("-e", '{"gb10_roles": ["kernel_parameters", "fabric"]}')

NM = "org.freedesktop.NetworkManager"
# No perftest, nothing of its folders, no timer, no saved profiles, and no checkpoint that is still open.
NOTHING_RUNS = f"""sudo sh -c '
    ! pgrep -ax ib_write_bw && ! ls -d /tmp/gb10-perftest-* /run/gb10-fleet/guard 2>/dev/null | grep . &&
    ! systemctl list-units --no-legend "gb10-guard-*" | grep . &&
    busctl get-property {NM} /{NM.replace(".", "/")} {NM} Checkpoints | grep -x "ao 0"'"""


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
