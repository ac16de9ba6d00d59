"""The gateway under siege: connections without a key, as many as a few machines can hold. A real NGINX, real packets.

Both sides stand in network namespaces of their own, with the firewall's rules and the gateway's configuration as the
roles write them. Takes root.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

from tests.support.attacker import tally
from tests.support.netns import Net
from tests.support.proofs import facts

HERE = Path(__file__).parent
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not NGINX or not shutil.which("nft"), reason="needs root, nginx and nft: no siege is laid"
)
ADDRESS, PORT, KEY = "192.0.2.11", 8443, "a-key-of-the-lab-and-of-nothing-else"
SOURCES = [f"192.0.2.{number}" for number in range(100, 120)]
HELD = "connections that are held: requests with a key that fail"
READY = 60  # seconds for something to come up, on a busy machine


def content(role: str, path: str, variables: dict[str, Any]) -> str:
    spark = {**facts("spark-a"), "ssh_ports": [22], "packages": {}, "installed_by_us": []}
    made = render(
        role, View("spark-a", spark, {"fabric_topology": "none", **variables}, ("spark-a",), peers={}, given={})
    )
    assert not made.refusals
    (found,) = (resource["content"] for resource in made.resources if resource.get("file") == path)
    return str(found)


class Fortress:
    """A host with a gateway, and a LAN with a client and with whoever else is there."""

    def __init__(self, net: Net, folder: Path) -> None:
        self.net, self.folder = net, folder
        for name in ("hub", "host", "client", "siege"):
            net.add(name)
        ends = {"host": ("eth0", [f"{ADDRESS}/24"]), "client": ("eth0", ["192.0.2.99/24"])}
        net.bridge("lan", {**ends, "siege": ("eth0", [f"{source}/24" for source in SOURCES])})
        self.given = {
            "gateway_address": ADDRESS,
            "gateway_keys": {"laptop": KEY},
            "gateway_certificate": str(folder / "cert.pem"),
            "gateway_certificate_key": str(folder / "key.pem"),
        }
        net.run("host", "nft", "-f", "-", stdin=content("firewall", "/etc/gb10-fleet/firewall.nft", self.given))
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", "/CN=gateway", "-out", folder / "cert.pem", "-keyout", folder / "key.pem"],
            check=True, capture_output=True,
        )  # fmt: skip
        net.start("host", (HERE / "token_server.py").read_text())
        self._start_nginx()

    def _start_nginx(self) -> None:
        keys, config = self.folder / "keys.conf", self.folder / "gateway.conf"
        keys.write_text(content("gateway", "/etc/gb10-fleet/gateway-keys.conf", self.given))
        text = content("gateway", "/etc/gb10-fleet/gateway.conf", self.given)
        for old, new in (
            ("/etc/gb10-fleet/gateway-keys.conf", str(keys)),
            ("unix:/dev/log", f"unix:{self.folder}/log"),
            ("user www-data;", "user root;"),
            ("/var/lib/gb10-fleet/", f"{self.folder}/"),
            ("/run/gb10-vllm/", f"{self.folder}/"),
        ):
            text = text.replace(old, new)
        config.write_text(text)
        (self.folder / "serving").touch()
        unit = content("gateway", "/etc/systemd/system/gb10-gateway.service", self.given)
        (limit,) = (line.partition("=")[2] for line in unit.splitlines() if line.startswith("LimitNOFILE="))
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # in a sandbox root itself may not raise it
        argv = self.net.inside(
            "host", "prlimit", f"--nofile={min(int(limit), most)}", str(NGINX), "-e", "stderr", "-c", str(config),
            "-g", f"daemon off; pid {self.folder}/pid;",
        )  # fmt: skip
        self.stderr = (self.folder / "stderr").open("wb")
        self.nginx = subprocess.Popen(argv, stderr=self.stderr)
        self._await()

    def _await(self) -> None:
        until = time.monotonic() + READY
        while not self.net.reached("client", ADDRESS, PORT):
            assert time.monotonic() < until, (self.folder / "stderr").read_text()

    def ask(self, times: int) -> list[float | None]:
        """Seconds to the first token, for each of many requests with a key."""
        said = self.net.run("client", sys.executable, str(HERE / "ask_often.py"), ADDRESS, str(PORT), KEY, str(times))
        return list(json.loads(said))

    def besiege(self, idle: int, slow: int, sources: list[str], until: int) -> subprocess.Popen[str]:
        """A siege that has held `until` connections; the limits let go of some again."""
        siege = self.net.start(
            "siege", (HERE / "besiege.py").read_text(), ADDRESS, str(PORT), str(idle), str(slow), *sources
        )
        assert siege.stdout is not None
        most, deadline = 0, time.monotonic() + READY
        while most < until:
            most = max(most, int(siege.stdout.readline()))
            assert time.monotonic() < deadline, f"the siege holds {most} connections at most"
        return siege

    def close(self) -> None:
        """The master takes its workers along, if it is asked."""
        self.nginx.terminate()
        self.nginx.wait(READY)

    def log(self) -> str:
        return (self.folder / "stderr").read_text()


@pytest.fixture
def fortress(tmp_path: Path) -> Iterator[Fortress]:
    net = Net(f"gb10gw{os.getpid()}-")
    try:
        made = Fortress(net, tmp_path)
        try:
            yield made
        finally:
            made.close()
    finally:
        net.close()


def test_one_address_cannot_shut_the_gateway(fortress: Fortress) -> None:
    """2,300 slow connections of one address shut the gateway of before, and each further one wrote a line."""
    fortress.besiege(0, 2300, SOURCES[:1], until=400)
    said = fortress.ask(100)
    tally(HELD, 100, 100 - len(said) + said.count(None))
    assert None not in said
    assert "worker_connections are not enough" not in fortress.log()


@pytest.mark.long
def test_twenty_addresses_cannot_shut_the_gateway(fortress: Fortress) -> None:
    """10,000 idle and 1,000 slow ones: each of 1,000 requests has its first token within a second of the usual."""
    usual = [seconds for seconds in fortress.ask(100) if seconds is not None]
    fortress.besiege(10_000, 1_000, SOURCES, until=5_000)
    under_siege = fortress.ask(1000)
    tally(HELD, 1000, 1000 - len(under_siege) + under_siege.count(None))
    assert None not in under_siege
    worst = max(seconds for seconds in under_siege if seconds is not None)
    print(f"usual {statistics.median(usual):.3f} s, under siege at most {worst:.3f} s")
    assert worst < statistics.median(usual) + 1
    assert "worker_connections are not enough" not in fortress.log()
