"""A login takes the free ports of a cluster, and root of a peer calls: it must speak to nobody. Takes root.

Two hosts of a pair in network namespaces, with the rules as the role firewall writes them, and real packets.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.measuring import FIRST_TEST_PORT
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import settings as vllm_settings

from tests.support.attacker import NOBODY, tally
from tests.support.netns import Net
from tests.support.proofs import HOSTS, facts

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nft")
WON = "a login at a free port of the cluster: peers that talk to it"
STRANGER = "a stranger of the LAN: ports of the cluster, and loopback by route_localnet"
HEAD, OTHER, RAIL, OF_THE_LAN = "192.168.96.10", "192.168.96.11", "enp1s0f0np0", "203.0.113.10"
RECORDER, API, EXPORTER, USERS_OWN, WEB = 20590, 8000, 9100, 40000, 8080
GIVEN = {
    "fabric_topology": "pair",
    "fabric_network": "192.168.96.0/20",
    "vllm_executor": "ray",
    "vllm_host": "0.0.0.0",  # noqa: S104 - as a user may say it
    "firewall_clients": ["192.0.2.0/24"],
    "firewall_open_ports": [USERS_OWN],
    "flight_recorder_enabled": True,
    "flight_recorder_key": "x" * 32,
    "flight_recorder_port": RECORDER,
    "monitoring_enabled": True,
    "monitoring_address": HEAD,
    "monitoring_clients": ["192.0.2.0/24"],
}
# Join, transfer, Ray's, those of perftest: where the hosts of this cluster meet. Then master, recorder, and a port that
# nobody chooses.
MEASURED = (FIRST_TEST_PORT, FIRST_TEST_PORT + 1)
OWN = (29511, 29502, 6379, *vllm_settings.ports_of_ray().values(), 10050, *MEASURED)
CLUSTER = (*OWN, 29501, RECORDER, 33333)


def rules(host: str) -> str:
    members = HOSTS["pair"]
    known: dict[str, Any] = {name: {**facts(name), "ssh_ports": [22]} for name in members}
    others = {name: known[name] for name in members if name != host}
    made = render("firewall", View(host, known[host], GIVEN, members, peers=others, given=dict.fromkeys(others, GIVEN)))
    assert not made.refusals
    (text,) = (each["content"] for each in made.resources if each.get("file") == "/etc/gb10-fleet/firewall.nft")
    return str(text)


@pytest.fixture
def pair() -> Iterator[Net]:
    net = Net(f"gb10fp{os.getpid()}-")
    try:
        for name in ("hub", *HOSTS["pair"]):
            net.add(name)
        net.bridge("rail", {"spark-a": (RAIL, [f"{HEAD}/24"]), "spark-b": (RAIL, [f"{OTHER}/24"])})
        net.add("stranger")
        net.bridge("lan", {"spark-a": ("enP7s7", [f"{OF_THE_LAN}/24"]), "stranger": ("eth0", ["203.0.113.66/24"])})
        for name in HOSTS["pair"]:
            net.run(name, "nft", "-f", "-", stdin=rules(name))
        yield net
    finally:
        net.close()


# With no room to wait, the kernel answers by a cookie, and the packet says no more whose it is.
@pytest.mark.parametrize("backlog", [64, 0], ids=["a queue", "none"])
@pytest.mark.parametrize(("space", "target"), [("spark-b", HEAD), ("spark-a", HEAD), ("spark-a", "127.0.0.1")])
def test_no_peer_talks_to_a_login(pair: Net, space: str, target: str, backlog: int) -> None:
    guarded = CLUSTER if space == "spark-b" else OWN
    pair.listen("spark-a", *guarded, uid=NOBODY, backlog=backlog)
    reached = pair.reached(space, target, *guarded)
    tally(WON, len(guarded), len(reached))
    assert reached == set()


def test_peers_talk_to_root_and_to_what_is_the_users_own(pair: Net) -> None:
    pair.listen("spark-a", *CLUSTER)
    assert pair.reached("spark-b", HEAD, *CLUSTER) == {*CLUSTER}
    pair.listen("spark-a", API, EXPORTER, USERS_OWN, WEB, uid=NOBODY)
    assert pair.reached("spark-b", HEAD, API, EXPORTER, USERS_OWN, WEB) == {API, EXPORTER, USERS_OWN, WEB}
    assert pair.reached("spark-a", HEAD, API, EXPORTER, USERS_OWN, WEB, uid=NOBODY) == {API, EXPORTER, USERS_OWN, WEB}


# The caller's own addresses of loopback give way, so that it sends.
TO_LOOPBACK = """
sysctl -qw net.ipv4.conf.eth0.route_localnet=1
ip address del 127.0.0.1/8 dev lo
ip route add 127.0.0.1 via 203.0.113.10 src 203.0.113.66
ip rule add pref 10 lookup local
ip rule del pref 0 lookup local
ip rule add pref 0 to 127.0.0.1 lookup main
"""


def test_a_stranger_reaches_none_of_them(pair: Net) -> None:
    """Of root's own listeners: perftest takes the first who calls."""
    pair.listen("spark-a", *CLUSTER, WEB)
    reached = pair.reached("stranger", OF_THE_LAN, *CLUSTER, WEB)
    tally(STRANGER, len(CLUSTER), len(reached - {WEB}))
    assert reached == {WEB}


def test_a_stranger_does_not_reach_loopback(pair: Net) -> None:
    """Other software lets it in: kube-proxy at all interfaces, Docker without its proxy at its own."""
    pair.run("spark-a", "sysctl", "-qw", "net.ipv4.conf.enP7s7.route_localnet=1")
    pair.run("stranger", "sh", "-euc", TO_LOOPBACK)
    pair.listen("spark-a", API, WEB)
    reached = pair.reached("stranger", "127.0.0.1", API, WEB, source="203.0.113.66")
    tally(STRANGER, 2, len(reached))
    assert reached == set()
    assert pair.reached("spark-a", "127.0.0.1", API, WEB) == {API, WEB}
