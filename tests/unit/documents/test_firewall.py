"""The role firewall: what it writes, what the kernel makes of it with real packets, and what its program says.

The packets run between network namespaces, which takes root; the rest does not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import (
    Rendered,
    removes_orphans,
    render,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import addresses, catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

from scripts.gates import ROOT
from tests.support.netns import Net
from tests.support.proofs import HOSTS, facts

RULES = "/etc/gb10-fleet/firewall.nft"
PROGRAM = "/usr/local/sbin/gb10-firewall"
needs_nft = pytest.mark.skipif(not shutil.which("nft"), reason="nft is not installed: no ruleset is checked")
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nft: no packet meets the ruleset"
)


def document(topology: str = "none", host: str = "spark-a", **variables: Any) -> Rendered:
    """`elsewhere`: what is said of the other hosts alone."""
    spark = {"ssh_ports": variables.pop("ssh_ports", [22]), "host_firewalls": variables.pop("host_firewalls", [])}
    members = HOSTS[topology]
    elsewhere = variables.pop("elsewhere", {})
    said = {"fabric_topology": topology, "fabric_network": "192.168.96.0/20"} | variables
    known = {name: _facts(name, number) for number, name in enumerate(members)}
    others = {name: known[name] for name in members if name != host}
    given = dict.fromkeys(others, said | elsewhere)
    view = View(
        host, {**known[host], **spark}, said, members, peers=others, given=given, inventory={**given, host: said}
    )
    return render("firewall", view)


def _facts(host: str, number: int) -> dict[str, Any]:
    """Each with a management address of its own."""
    known = facts(host)
    for interface in known["interfaces"]:
        if interface["name"] == "enP7s7":
            interface["addresses"] = [f"192.0.2.{11 + number}/24"]
    return known


def content(made: Rendered, path: str) -> str:
    assert not made.refusals
    (found,) = (resource["content"] for resource in made.resources if resource.get("file") == path)
    return str(found)


def rules(*arguments: Any, **variables: Any) -> str:
    return content(document(*arguments, **variables), RULES)


def opened(text: str) -> list[str]:
    return re.findall(r"tcp dport (\S+) accept", text)


# -- what is written ---------------------------------------------------------------------------------------------------


def test_a_spark_by_itself_has_no_peers() -> None:
    text = rules()
    assert "saddr" not in text
    assert "29501" in text and "32768-60999" in text and "8000" not in text


def test_peers_are_known_by_address_and_rail() -> None:
    assert [line.strip() for line in rules("pair").splitlines() if "saddr" in line] == [
        'iifname "enp1s0f0np0" ip saddr 192.168.96.11 accept comment "spark-b"',
        'iifname "enP2p1s0f0np0" ip saddr 192.168.97.11 accept comment "spark-b"',
    ]


def test_hosts_of_a_ring_meet_on_the_management_network_too() -> None:
    added = [line.strip() for line in rules("ring").splitlines() if "saddr" in line]
    assert [line for line in added if "enP7s7" in line] == [
        'iifname "enP7s7" ip saddr 192.0.2.12 accept comment "spark-b"',
        'iifname "enP7s7" ip saddr 192.0.2.13 accept comment "spark-c"',
    ]
    assert len(added) == 6, "and each neighbour on both of its rails"


def test_the_api_is_open_to_clients_on_the_head_alone() -> None:
    given = {"vllm_host": "0.0.0.0", "vllm_port": 8080, "firewall_clients": ["192.0.2.0/24", "2001:db8::/64"]}  # noqa: S104
    head, rank = rules("pair", **given), rules("pair", "spark-b", **given)
    assert "tcp dport 8080 ip saddr 192.0.2.0/24 accept" in head
    assert "tcp dport 8080 ip6 saddr 2001:db8::/64 accept" in head
    assert "192.0.2.0/24" not in rank and "tcp dport 8080 counter name refused drop" in rank, "open to peers only"


def test_an_api_on_a_rail_needs_no_clients() -> None:
    peer = re.search(r"saddr (\S+)", rules("pair", "spark-b"))
    assert peer is not None
    assert document("pair", vllm_host=peer[1]).refusals == []


def test_ssh_is_open_wherever_it_listens() -> None:
    assert opened(rules(ssh_ports=[22, 50022], firewall_open_ports=["40000-40010"])) == ["22", "50022", "40000-40010"]


def test_the_gateway_is_open_on_any_port() -> None:
    given = {"gateway_address": "192.0.2.11", "gateway_port": 40443}
    assert opened(rules("pair", **given)) == ["22", "40443"]
    assert "40443" not in rules("pair", "spark-b", **given), "there is none beside the other ranks"
    assert "40443" not in rules("pair", gateway_port=40443)


def test_a_service_that_is_declared_no_longer_leaves_no_drop_in() -> None:
    chat = {"chat": {"model": "openai/gpt-oss-20b", "port": 8000, "memory_gib": 20}}
    embed = {"embed": {"model": "Qwen/Qwen3-Embedding-0.6B", "port": 8002, "memory_gib": 8, "max_model_len": 11264}}

    def drop_ins(services: dict[str, Any]) -> set[str]:
        made = document(vllm_services=services).resources
        return {path for each in made if ".service.d/" in (path := str(each.get("file")))}

    gone = drop_ins(chat | embed) - drop_ins(chat)
    assert gone == {"/etc/systemd/system/gb10-vllm-embed.service.d/50-gb10-firewall.conf"}
    assert removes_orphans("firewall")


def test_no_port_depends_on_a_set() -> None:
    """While a transaction ends the kernel misses what a new interval set holds: 65 of 6 million connections came in."""
    given = {"vllm_host": "::", "firewall_clients": ["192.0.2.0/24", "2001:db8::/64"]}
    lines = rules("ring", **given, firewall_open_ports=[8081, 8082]).splitlines()
    text = "\n".join(line for line in lines if not re.match(r"\s*#|.*(login|bridge)_", line))
    assert not re.search(r"\bset\b|\bmap\b|@|\{.*\S.*\}", text)
    assert "delete" not in text, "a new chain is empty for a moment, as the old one is"


GATEWAY = {"gateway_address": "192.0.2.11", "gateway_port": 40443}


@pytest.mark.parametrize(
    ("address", "sources"),
    [
        ("192.0.2.11", [("", "ip saddr ")]),
        (
            "2001:db8::11",
            [("ip6 saddr 2001:db8::/64 ", "ip6 saddr "), ("ip6 saddr != 2001:db8::/64 ", "ip6 saddr and ffff:")],
        ),
    ],
)
def test_only_limits_look_into_sets(address: str, sources: list[tuple[str, str]]) -> None:
    """Such a set is filled by the rule that looks into it, and an empty one closes nothing and opens nothing."""
    looking = [line for line in rules(**GATEWAY | {"gateway_address": address}).splitlines() if "@" in line]
    gateway, here, logins, bridges = (
        [line for line in looking if f" @{whose}" in line]
        for whose in ("gateway_connections", "gateway_host", "login_", "bridge_")
    )
    gateway += [line for line in looking if " @gateway_starts" in line]
    counts = [len(gateway), len(here), len(logins), len(bridges)]
    assert counts == [2 * len(sources), 1, 4, 3] and sum(counts) == len(looking)
    assert all(line.endswith(" counter name refused drop") for line in looking)
    for sender, source in sources:
        begins = f"{sender}tcp dport 40443 "
        assert sum(line.strip().startswith(begins) and f"{{ {source}" in line for line in gateway) == 2
    assert all("{ meta skuid" in line for line in logins)
    assert all("{ iifname " in line for line in bridges) and all("{ oifname " in line for line in here)


def test_a_router_asks_with_one_address_and_each_request_anew() -> None:
    rate = re.compile(r"@gateway_starts .* rate over (\S+) burst 200 ")
    found = [rate.findall(rules(**GATEWAY, **more)) for more in ({}, {"gateway_fleet_key": "k" * 32})]
    assert found == [["100/second"], ["1000/second"]]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"firewall_open_ports": [0]}, "firewall_open_ports holds 0."),
        ({"firewall_open_ports": [True]}, "firewall_open_ports holds True."),
        ({"firewall_open_ports": ["9000-8000", 22]}, "firewall_open_ports holds 9000-8000."),
        ({"firewall_open_ports": ["8000 }; flush ruleset"]}, "firewall_open_ports holds 8000 }; flush"),
        ({"firewall_clients": ["192.0.2.1/24"]}, "firewall_clients holds 192.0.2.1/24."),
        ({"firewall_clients": ["everybody"]}, "firewall_clients holds everybody."),
        ({"firewall_clients": [3221225985]}, "firewall_clients holds 3221225985."),
        ({"firewall_clients": ["10.0.0.0/255.0.0.0"]}, "firewall_clients holds 10.0.0.0/255.0.0.0."),
        ({"firewall_clients": ["::ffff:192.0.2.1"]}, "firewall_clients holds ::ffff:192.0.2.1."),
        (
            {"vllm_master_port": "29501; flush ruleset"},
            "vllm_master_port is the text '29501; flush ruleset'",
        ),
        ({"gateway_port": ""}, "gateway_port is the text '', and must be a whole number"),
        ({"vllm_host": "0.0.0.0", "vllm_port": 10001, "firewall_clients": ["::/0"]}, "vllm_port 10001 is closed"),  # noqa: S104
        ({"vllm_environment": {"VLLM_PORT": "12000"}}, "VLLM_PORT has vLLM listen on port 12000"),
        ({"vllm_extra_args": ["--grpc-port", 12000]}, "--grpc-port has vLLM listen on port 12000"),
        ({"vllm_extra_args": ["--data_parallel_rpc_port=1"]}, "--data_parallel_rpc_port has vLLM listen on port 1,"),
        *(({"vllm_host": host}, "firewall_clients names nobody") for host in ("::", "192.0.2.11", "spark-a.lan")),
    ],
)
def test_wrong_inputs_are_refused_by_field(given: dict[str, Any], says: str) -> None:
    made = document(**given)
    (found,) = made.refusals
    assert says in found and made.resources == []


def test_ports_that_vllm_is_told_may_be_guarded_ones() -> None:
    given = {"VLLM_PORT": "40000", "VLLM_DP_MASTER_PORT": 29555, "SOME_PORT": "12000"}
    args = ["--data-parallel-rpc-port", "29550", "--data-parallel-multi-port-external-lb"]
    assert document("pair", vllm_environment=given, vllm_extra_args=args).refusals == []


@pytest.mark.parametrize("value", [8000, "8010", "8003-8005", "8000-8010"])
def test_within(value: Any) -> None:
    assert addresses.is_within(value, [22, "8000-8010", "nonsense"])


@pytest.mark.parametrize("value", [7999, "8000-8011", "22-8000", "", None, "8005-8004"])
def test_not_within(value: Any) -> None:
    assert not addresses.is_within(value, [22, "8000-8010", "nonsense"])


@pytest.mark.parametrize("value", [1, 65535, "8000", "1-65535"])
def test_ports(value: Any) -> None:
    assert addresses.is_ports(value)


@pytest.mark.parametrize("value", [65536, -1, "", "8000\n", "80-80", "70-69999", "08", "1-2-3", None, 1.5])
def test_no_ports(value: Any) -> None:
    assert not addresses.is_ports(value)


@pytest.mark.parametrize("value", ["0.0.0.0/0", "192.0.2.7", "2001:db8::/64", "::1"])
def test_networks(value: str) -> None:
    assert addresses.is_network(value)


@pytest.mark.parametrize(
    "value", ["", "192.0.2.0/33", "fe80::1%eth0", "192.0.2.0/24\n", "::1.2.3.4", "10.0.0.0/0.0.0.255", 4, None]
)
def test_no_networks(value: Any) -> None:
    assert not addresses.is_network(value)


def test_every_variable_with_a_port_of_a_cluster_is_guarded() -> None:
    """A port variable that the role vllm gets one day is either the API's or guarded."""
    ports = {name for name in catalog.declared_variables().roles["vllm"] if name.endswith("_port")} - {"vllm_port"}
    given = {name: 20000 + number for number, name in enumerate(sorted(ports))}
    text = rules("pair", **given)
    assert not [name for name, port in given.items() if str(port) not in text]


def test_what_ray_is_started_with_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = {"node-manager-port": 6380, "min-worker-port": 10002, "max-worker-port": 10101}
    monkeypatch.setitem(catalog.load("units")["ray"], "ports", {"value": ports})
    guarded = re.findall(r"tcp dport (\S+) counter name refused drop", rules("pair"))
    assert guarded[-3:] == ["29502", "6380", "10002-10101"] and "6379" in guarded


def test_every_port_of_a_cluster_stands_in_the_docs_with_its_proof() -> None:
    text = (ROOT / "docs/security-places.md").read_text(encoding="utf-8")
    table = text[text.index("## Ports of a cluster") :]
    known = catalog.load("firewall")
    variables = catalog.declared_variables().roles
    names = {name for role in ("vllm", "flight_recorder") for name in variables[role] if name.endswith("_port")}
    numbers = {str(each["value"]) for each in (*known["guarded"], known["random"])}
    names |= numbers | set(catalog.load("units")["ray"]["ports"]["value"])
    assert [name for name in sorted(names - {"vllm_port"}) if f"`{name}`" not in table] == []


def test_every_port_of_ours_stands_in_the_docs_with_who_may_speak_there() -> None:
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    table = text[text.index("\n## Ports\n") : text.index("\n## A port that is free")]
    roles = catalog.declared_variables().roles.values()
    names = {name for variables in roles for name in variables if name.endswith("_port")}
    listening = [row["name"].split()[1].rpartition(":")[2] for row in catalog.load("baseline")["listening"]]
    names |= {port.strip("{}<>") for port in listening}
    assert {"gateway_port", "9093"} <= names
    assert [name for name in sorted(names) if f"`{name}`" not in table] == []


@needs_nft
@pytest.mark.parametrize("topology", HOSTS)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {
            "vllm_host": "::",
            "firewall_clients": ["0.0.0.0/0", "192.0.2.0/24", "::/0"],
            "firewall_open_ports": [1, "1-9"],
        },
        {"vllm_host": "192.0.2.11", "firewall_clients": ["2001:db8::1"], "vllm_port": 29501},
        {"gateway_address": "192.0.2.11"},
        {"gateway_address": "2001:db8::11"},
    ],
)
def test_nft_takes_the_ruleset(topology: str, given: dict[str, Any], tmp_path: Path) -> None:
    host = HOSTS[topology][0]
    file = tmp_path / "firewall.nft"
    file.write_text(rules(topology, host, **given))
    done = subprocess.run(["nft", "-c", "-f", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "Operation not permitted" in done.stderr, done.stderr


# -- what the kernel makes of it ---------------------------------------------------------------------------------------

CHECKSUM = """
import struct
def checksum(data):
    data += b"\\0" * (len(data) % 2); total = sum(struct.unpack(f"!{len(data)//2}H", data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
"""
FORGER = (
    CHECKSUM
    + """
# Makes conntrack of the target see both ways of a connection that never was, then connects from the same port.
import socket, sys
source, target, port, own, mac = sys.argv[1:]
port, own, six = int(port), int(own), ":" in target
family = socket.AF_INET6 if six else socket.AF_INET
def frame(one, other, one_port, other_port, seq, ack, options=b""):
    one, other = socket.inet_pton(family, one), socket.inet_pton(family, other)
    words = 5 + len(options) // 4
    tcp = struct.pack("!HHIIBBHHH", one_port, other_port, seq, ack, words << 4, 0x10, 60000, 0, 0) + options
    pseudo = one + other + (struct.pack("!I3xB", len(tcp), 6) if six else struct.pack("!BBH", 0, 6, len(tcp)))
    tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp)) + tcp[18:]
    if six: head = struct.pack("!IHBB", 6 << 28, len(tcp), 6, 64) + one + other
    else:
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 77, 0, 64, 6, 0, one, other)
        head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    kind = b"\\x86\\xdd" if six else b"\\x08\\0"
    wire.send(bytes.fromhex(mac.replace(":", "")) + wire.getsockname()[4] + kind + head + tcp)
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); wire.bind(("eth0", 0))
# A signature that nobody asked for: the listener says nothing, but conntrack takes up what it thinks it has missed.
frame(source, target, own, port, 1000, 5000, b"\\x13\\x12" + b"x" * 16 + b"\\1\\1")
frame(target, source, port, own, 5000, 1000)
s = socket.socket(family); s.settimeout(1); s.bind((source, own))
try: s.connect((target, port)); print("connected")
except OSError: print("refused")
"""
)
KNOCKER = """
# Opens two hundred connections at a time until its input ends; says how many there were, and how many came in.
import select, socket, sys
print("up", flush=True)
knocks = came_in = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    tries = [socket.socket() for _ in range(200)]
    for s in tries:
        s.setblocking(False)
        try: s.connect(("192.0.2.11", int(sys.argv[1])))
        except BlockingIOError: pass
    answered = select.select([], tries, [], 0)[1]
    came_in += sum(not s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for s in answered)
    for s in tries: s.close()
    knocks += len(tries)
print(knocks, came_in)
"""
SPEAKER = """
import socket, sys
server = socket.create_server(("", 33334))
print("up", flush=True)
connection = server.accept()[0]
sys.stdin.readline()
connection.send(b"late")
sys.stdin.read()
"""
HEARER = """
import socket
connection = socket.create_connection(("192.0.2.200", 33334), timeout=2)
print("up", flush=True)
print(connection.recv(9).decode(), flush=True)
"""


LAN, RAIL, LAN6 = "192.0.2.11", "192.168.96.10", "2001:db8::11"
PORTS = (22, 80, 8000, 6379, 29501, 33333, 40000)
RAY_CLIENTS = 10001
OPEN = {22, 80, 40000}


@pytest.fixture  # not for the module: ansible-test runs each test in a fork, which does not take that down
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    net = Net(f"gb10fw{os.getpid()}-")
    try:
        for name in ("hub", "host", "client", "stranger", "peer", "rogue"):
            net.add(name)
        net.bridge(
            "lan",
            {
                "host": ("enP7s7", [f"{LAN}/24", f"{LAN6}/64"]),
                "client": ("eth0", ["192.0.2.100/24", "2001:db8::100/64"]),
                "stranger": ("eth0", ["192.0.2.200/24", "2001:db8::200/64"]),
            },
        )
        net.bridge(
            "rail",
            {
                "host": ("enp1s0f0np0", [f"{RAIL}/24"]),
                "peer": ("eth0", ["192.168.96.11/24"]),
                "rogue": ("eth0", ["192.168.96.99/24"]),
            },
        )
        net.run("stranger", "ip", "route", "add", f"{RAIL}/32", "via", LAN)
        net.run("stranger", "ip", "address", "add", "192.168.96.11/32", "dev", "lo")  # a peer's, to come as that peer
        net.listen("host", *PORTS, RAY_CLIENTS)
        net.listen("stranger", 33333)
        net.listen("rogue", 33333)
        text = rules(
            "pair",
            vllm_host="0.0.0.0",  # noqa: S104
            firewall_clients=["192.0.2.100", "2001:db8::100"],
            firewall_open_ports=[40000, "40001-40002"],
        )
        net.run("host", "nft", "-f", "-", stdin=text)
        yield net
    finally:
        net.close()


@needs_root
@pytest.mark.parametrize(
    ("space", "target", "expected"),
    [
        ("peer", RAIL, {*PORTS}),
        ("peer", LAN, set()),  # there is no way
        ("rogue", RAIL, OPEN),
        ("client", LAN, OPEN | {8000}),
        ("client", LAN6, OPEN | {8000}),
        ("stranger", LAN, OPEN),
        ("stranger", LAN6, OPEN),
        ("stranger", RAIL, OPEN),  # the host answers for the addresses of all its interfaces
        ("host", LAN, {*PORTS}),
        ("host", "127.0.0.1", {*PORTS}),
    ],
)
def test_who_reaches_what(net: Net, space: str, target: str, expected: set[int]) -> None:
    assert net.reached(space, target, *PORTS) == expected


@needs_root
def test_a_peers_address_counts_on_its_rail_only(net: Net) -> None:
    """From the LAN with the address of a peer: the answer goes elsewhere, so it is counted what was refused."""
    net.run("host", "nft", "reset counter inet gb10_fleet refused")
    net.run("host", "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.enP7s7.rp_filter=0")
    assert net.reached("stranger", LAN, 29501, source="192.168.96.11") == set()
    assert "packets 1 " in net.run("host", "nft", "list counter inet gb10_fleet refused")


@needs_root
def test_a_published_port_is_judged_by_what_the_client_asked_for(net: Net) -> None:
    """As Docker publishes them: two ports of the host lead to one that listens on 80."""
    hook = "type nat hook prerouting priority dstnat"
    dnat = f"table ip foreign {{ chain pre {{ {hook}; tcp dport {{ 40001, 39999 }} redirect to :80; }}; }}"
    net.run("host", "nft", "-f", "-", stdin=dnat)
    assert net.reached("stranger", LAN, 40001, 39999) == {40001}
    net.run("host", "nft", "delete table ip foreign")


@needs_root
def test_a_port_for_nobody_is_closed_to_peers_too(net: Net) -> None:
    assert net.reached("peer", RAIL, RAY_CLIENTS) == set()
    assert net.reached("host", RAIL, RAY_CLIENTS) == {RAY_CLIENTS}


@needs_root
def test_what_the_host_forwards_is_not_judged(net: Net) -> None:
    net.run("host", "sysctl", "-qw", "net.ipv4.ip_forward=1")
    net.run("rogue", "ip", "route", "add", "192.0.2.0/24", "via", RAIL)
    net.run("stranger", "ip", "route", "add", "192.168.96.99/32", "via", LAN)
    assert net.reached("stranger", "192.168.96.99", 33333) == {33333}
    net.run("host", "sysctl", "-qw", "net.ipv4.ip_forward=0")


NOBODY = 65534


@needs_root
def test_a_user_of_a_member_does_not_speak_to_its_peers(net: Net) -> None:
    """The peer believes the address. A try ends at once, for it is refused here."""
    peer, rogue = "192.168.96.11", "192.168.96.99"
    ports = [*PORTS, RAY_CLIENTS, 29502]
    net.listen("peer", *ports)
    assert net.reached("host", peer, *ports) == {*ports}
    assert net.reached("host", peer, *ports, uid=NOBODY) == OPEN | {8000}
    assert net.reached("host", rogue, 33333, uid=NOBODY) == {33333}, "others are not meant"


@needs_root
@pytest.mark.parametrize("target", [RAIL, "127.0.0.1"])
def test_a_user_of_a_member_does_not_speak_to_its_own_host_where_the_cluster_meets(net: Net, target: str) -> None:
    net.listen("host", 29502, 29511)
    assert net.reached("host", target, 29501, 29502, 29511, 33333, 8000, uid=NOBODY) == {33333, 8000}
    assert net.reached("host", target, 29501, 29502, 29511) == {29501, 29502, 29511}


@needs_root
def test_a_container_does_not_speak_to_peers_in_the_hosts_name(net: Net) -> None:
    net.listen("peer", 29501, 80)
    net.run("host", "sysctl", "-qw", "net.ipv4.ip_forward=1")
    net.run("stranger", "ip", "address", "delete", "192.168.96.11/32", "dev", "lo")
    net.run("stranger", "ip", "route", "add", "192.168.96.0/24", "via", LAN)
    masquerade = 'oifname "enp1s0f0np0" masquerade'
    net.run(
        "host", "nft", f"table ip foreign {{ chain post {{ type nat hook postrouting priority 100; {masquerade}; }}; }}"
    )
    assert net.reached("stranger", "192.168.96.11", 29501, 80) == {80}


def test_a_host_by_itself_has_no_port_of_its_own() -> None:
    assert "fib daddr type local tcp" not in rules()
    assert re.findall(r"type local tcp dport (\S+)", rules("pair")) == ["29511", "29502", "29501", "18515-18516"]


@needs_root
def test_what_was_open_before_the_rules_stays_open(net: Net) -> None:
    """The other side speaks first, and nothing has followed the connection so far."""
    text = net.run("host", "nft", "list table inet gb10_fleet")
    net.run("host", "nft", "delete table inet gb10_fleet")
    speaker = net.start("stranger", SPEAKER)
    hearer = net.start("host", HEARER)
    net.run("host", "nft", "-f", "-", stdin=text)
    assert speaker.stdin is not None and hearer.stdout is not None
    speaker.stdin.write("\n")
    speaker.stdin.flush()
    assert hearer.stdout.readline() == "late\n"


@needs_root
def test_fragments_do_not_hide_a_connection(net: Net) -> None:
    """The first eight bytes of TCP in one fragment, with the ports, and the flags in the next one."""
    send = (
        CHECKSUM
        + """
import socket, sys
source, target = map(socket.inet_aton, ("192.0.2.200", "192.0.2.11"))
tcp = struct.pack("!HHIIBBHHH", 45678, int(sys.argv[1]), 7, 0, 6 << 4, 2, 1024, 0, 0) + b"\\2\\4\\5\\xb4"
pseudo = source + target + struct.pack("!BBH", 0, 6, len(tcp))
tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp)) + tcp[18:]
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
for offset, more, part in ((0, 0x2000, tcp[:8]), (1, 0, tcp[8:])):
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(part), 4242, more | offset, 64, 6, 0, source, target)
    raw.sendto(header + part, ("192.0.2.11", 0))
"""
    )
    receive = """
import socket, subprocess, sys
answers = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP); answers.settimeout(0.6)
subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]], check=True)
try:
    while True:
        packet = answers.recv(2048)
        if packet[20:22] == int(sys.argv[1]).to_bytes(2, "big") and packet[33] & 0x12 == 0x12: print("answered"); break
except TimeoutError: pass
"""
    assert net.run("stranger", sys.executable, "-c", receive, "80", send) == "answered\n", "the test can see an answer"
    assert net.run("stranger", sys.executable, "-c", receive, "29501", send) == ""


@needs_root
@pytest.mark.parametrize("target", [LAN, LAN6])
def test_what_conntrack_believes_opens_nothing(net: Net, target: str) -> None:
    """Two forged packets, and it calls a connection established that nobody accepted. The SYN that follows is its."""
    (link,) = json.loads(net.run("host", "ip", "-j", "link", "show", "enP7s7"))
    source = "2001:db8::200" if ":" in target else "192.0.2.200"
    for number, port in enumerate((29501, 80)):
        said = net.run(
            "stranger", sys.executable, "-c", FORGER, source, target, str(port), str(20000 + number), link["address"]
        )
        assert said == ("refused\n" if port == 29501 else "connected\n")


@needs_root
def test_loading_again_is_one_step_and_leaves_other_tables(net: Net) -> None:
    text = rules("pair", vllm_host="0.0.0.0", firewall_clients=["192.0.2.100"])  # noqa: S104
    net.run("host", "nft", "add table ip foreign")
    net.run("host", "nft", "-f", "-", stdin=text)
    knockers = [net.start("stranger", KNOCKER, "29501") for _ in range(2)]
    for _ in range(50):
        net.run("host", "nft", "-f", "-", stdin=text)
    for knocker in knockers:
        knocks, came_in = map(int, knocker.communicate(timeout=30)[0].split())
        assert knocks and came_in == 0
    assert "foreign" in net.run("host", "nft", "list tables")


# -- the program on the host -------------------------------------------------------------------------------------------


class Program:
    """gb10-firewall, with its files in a folder of the test."""

    def __init__(self, net: Net, folder: Path, **variables: Any) -> None:
        self.net, self.file = net, folder / "gb10-firewall"
        self.rules = folder / "firewall.nft"
        self.write(**variables)
        text = content(document("pair"), PROGRAM).replace(RULES, str(folder / "firewall.nft"))
        self.file.write_text(text.replace("/run/gb10-firewall/loaded", str(folder / "loaded")))

    def write(self, **variables: Any) -> None:
        self.rules.write_text(rules("pair", **variables))

    def load(self) -> None:
        self.net.run("host", "sh", str(self.file), "load")

    def holds(self) -> bool:
        argv = self.net.inside("host", "sh", str(self.file), "holds")
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "is not as gb10-firewall.service loaded it" in done.stderr
        return done.returncode == 0


AGAIN = "delete table inet gb10_fleet; add table inet gb10_fleet; "
HARMS = (
    "flush ruleset",
    "delete table inet gb10_fleet",
    "flush chain inet gb10_fleet arriving",
    "insert rule inet gb10_fleet judge accept",
    "flush chain inet gb10_fleet judge",
    "add chain inet gb10_fleet arriving { policy drop; }",
    "add set inet gb10_fleet peers { type inet_service; }",
    "add chain inet gb10_fleet other { type filter hook input priority 0; policy drop; }",
    AGAIN + "add chain inet gb10_fleet arriving { type filter hook prerouting priority -100; }",
    AGAIN + "add chain inet gb10_fleet arriving",
    AGAIN + "add chain inet gb10_fleet judge { type filter hook prerouting priority 0; policy drop; }",
)


@needs_root
def test_the_program_sees_and_mends_each_change_of_the_live_table(net: Net, tmp_path: Path) -> None:
    program = Program(net, tmp_path)
    assert not program.holds(), "nobody has loaded anything"
    for harm in HARMS:
        program.load()
        assert program.holds()
        net.run("host", "nft", harm)
        assert not program.holds(), harm
    program.load()
    assert program.holds()
    assert net.reached("stranger", LAN, 22, 29501) == {22}
    assert sorted(os.listdir(tmp_path)) == ["firewall.nft", "gb10-firewall", "loaded"]  # noqa: PTH208 - names are wanted


@needs_root
def test_a_port_stays_closed_until_its_service_has_ended(net: Net, tmp_path: Path) -> None:
    """The API moved to another port, or to loopback: the rules forgot it minutes before its container ended."""
    public: dict[str, Any] = {"vllm_host": "0.0.0.0", "firewall_clients": ["192.0.2.100"], "vllm_port": 8077}  # noqa: S104
    program = Program(net, tmp_path, **public)
    net.listen("host", 8077)
    service = net.children[-1]
    won = []
    for moved in (public, {**public, "vllm_port": 8078}, {**public, "vllm_host": "127.0.0.1"}, {}):
        program.write(**moved)
        for _ in range(2):
            program.load()
            won += net.reached("stranger", LAN, 8077)
            assert program.holds()
    assert not won and net.reached("host", LAN, 8077) == {8077}
    program.write(firewall_open_ports=[8077])
    program.load()
    assert net.reached("stranger", LAN, 8077) == {8077}, "whoever opens it has the last word"
    program.write(**public)
    program.load()
    net.run("host", "nft", "insert rule inet gb10_fleet judge tcp dport 80 counter name refused drop")
    service.kill()
    service.wait()
    program.write()
    program.load()
    net.listen("host", 8077)
    assert net.reached("stranger", LAN, 80, 8077) == {80, 8077}, (
        "it has ended, and what somebody put there was not ours"
    )
    assert sorted(os.listdir(tmp_path)) == ["firewall.nft", "gb10-firewall", "loaded"]  # noqa: PTH208 - names are wanted


@needs_root
def test_a_range_stays_closed_until_nothing_listens_in_it(net: Net, tmp_path: Path) -> None:
    """SGLang has one for torch's store; vLLM has its place, and its container has not ended."""
    service = {"model": "acme/small", "port": 8001, "memory_gib": 20, "image": "acme/x:1"}
    program = Program(net, tmp_path, vllm_services={"chat": {**service, "engine": "sglang"}})
    program.load()
    net.listen("host", 22345)
    store = net.children[-1]
    crowd = [*range(22400, 22500)]  # of a login: each had a rule, and each rule a few programs, at every load
    net.listen("host", *crowd, uid=1000)
    program.write(vllm_services={"chat": {**service, "engine": "vllm"}})
    for _ in range(2):
        program.load()
        assert net.reached("stranger", LAN, 22345, *crowd) == set() and program.holds()
        assert re.findall(r"dport 22\S+", (tmp_path / "loaded").read_text()) == ["dport 22000-29999"]
    net.children[-1].kill()
    net.children[-1].wait()
    for _ in range(2):
        program.load()
        assert net.reached("stranger", LAN, 22345) == set() and program.holds()
    store.kill()
    store.wait()
    program.load()
    net.listen("host", 22345)
    assert net.reached("stranger", LAN, 22345) == {22345}


HOLDER = """
import socket, sys
held = []
for _ in range(int(sys.argv[2])):
    s = socket.socket(); s.settimeout(0.2)
    try: s.connect(("192.0.2.11", int(sys.argv[1]))); held.append(s)
    except OSError: break
print("up", flush=True)
print(len(held), flush=True)
sys.stdin.read()
# The listener accepts nobody, so it must hear of the end.
for s in held: s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\\1\\0\\0\\0\\0\\0\\0\\0")
"""


def holding(net: Net, space: str, text: str, port: int) -> tuple[subprocess.Popen[str], int]:
    """Who tries to hold nine connections, and how many they are."""
    holder = net.start(space, text, str(port), "9")
    assert holder.stdout is not None
    return holder, int(holder.stdout.readline())


@needs_root
def test_nobody_holds_more_than_a_share_of_the_gateway(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading anew forgets nobody, and the table that has counted something still holds."""
    monkeypatch.setitem(catalog.load("gateway"), "source_connections", {"value": 5})
    program = Program(net, tmp_path, gateway_address=LAN, gateway_port=40000)
    program.load()
    holder, held = holding(net, "stranger", HOLDER, 40000)
    assert held == 5
    assert program.holds()
    program.load()
    assert program.holds() and net.reached("stranger", LAN, 40000) == set()
    assert net.reached("client", LAN, 40000) == {40000}, "others are not meant"
    holder.communicate()
    assert net.reached("stranger", LAN, 40000) == {40000}, "who lets go may come again"
    for at in "12":  # a login of the host has 127.0.0.0/8
        net.start(
            "host", HOLDER.replace("socket.socket();", f"socket.socket(); s.bind(('127.0.0.{at}', 0));"), "40000", "4"
        )
    assert net.reached("host", LAN, 40000) == set(), "the host is one as well"


@needs_root
def test_a_stranger_of_an_ipv6_lan_holds_the_share_of_nobody_else(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a LAN have one /64, and one of them kept the others out. Elsewhere a machine has all of its own."""
    monkeypatch.setitem(catalog.load("gateway"), "source_connections", {"value": 5})
    Program(net, tmp_path, gateway_address=LAN6, gateway_port=40000).load()
    text = HOLDER.replace("socket.socket()", "socket.socket(socket.AF_INET6)").replace(LAN, LAN6)
    assert holding(net, "stranger", text, 40000)[1] == 5
    assert net.reached("stranger", LAN6, 40000) == set() and net.reached("client", LAN6, 40000) == {40000}
    net.run("host", "ip", "route", "add", "2001:db8:0:a::/64", "via", "2001:db8::200")
    for number in (1, 2):
        net.run("stranger", "ip", "address", "add", f"2001:db8:0:a::{number}", "dev", "lo", "nodad")
    elsewhere = text.replace("socket.socket(socket.AF_INET6);", "socket.socket(socket.AF_INET6); s.bind((SOURCE, 0));")
    assert holding(net, "stranger", f"SOURCE = '2001:db8:0:a::1'\n{elsewhere}", 40000)[1] == 5
    assert net.reached("stranger", LAN6, 40000, source="2001:db8:0:a::2") == set()


ACCEPTS = """
import socket
server = socket.create_server(("", 40003), backlog=4096)
print("up", flush=True)
while True: server.accept()[0].close()
"""


@needs_root
def test_the_host_may_come_again_after_a_login_has_called_without_end(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that was dropped counted, too, and nothing forgot it: two minutes later the host was still shut out."""
    monkeypatch.setitem(catalog.load("gateway"), "source_connections", {"value": 5})
    Program(net, tmp_path, gateway_address=LAN, gateway_port=40003).load()
    net.start("host", ACCEPTS)
    knocker = net.start("host", KNOCKER, "40003")
    assert knocker.stdout is not None and knocker.stdin is not None
    time.sleep(1)
    tried, came_in = map(int, knocker.communicate("\n")[0].split())
    assert tried > came_in > 0
    until = time.monotonic() + 20
    while net.reached("host", LAN, 40003) != {40003}:
        assert time.monotonic() < until, f"{tried} calls are not forgotten"


@needs_root
@pytest.mark.parametrize(("name", "value"), [("source_connections", 10), ("source_burst", 10)])
def test_logins_leave_the_router_its_share_of_another_gateway(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    """They have the router's address: with all of its share they took it every replica."""
    for limit in (name, "source_rate"):
        monkeypatch.setitem(catalog.load("gateway"), limit, {"value": value if limit == name else 2})
    router = {"gateway_address": LAN, "gateway_fleet": ["spark-b"], "gateway_fleet_key": "k" * 32}
    program = Program(net, tmp_path, **router, elsewhere={"gateway_port": 33333})
    program.load()

    def held(uid: int) -> int:
        text = f"import os; os.setuid({uid})\n" + HOLDER.replace(LAN, "192.0.2.200")
        return holding(net, "host", text, 33333)[1]

    login = held(1000)
    assert 4 <= login <= 6
    assert held(1001) <= 1, "all of them together"
    assert held(0) == held(112) == 9, "root and the services of the system are not meant"
    assert program.holds()


FLOOD = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
print("up", flush=True)
s, sent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0
for number in range(int(sys.argv[2])):
    try: s.sendto(b"x", (f"127.1.{number // 256}.{number % 256}", 9)); sent += 1
    except ConnectionRefusedError: sent += 1
    except PermissionError: pass
print(sent, flush=True)
sys.stdin.read()
"""


@needs_root
@pytest.mark.parametrize(("limit", "rows"), [("connections", {"connections": 50}), ("rate", {"rate": 1, "burst": 50})])
def test_no_login_fills_the_kernels_table_of_connections(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, rows: dict[str, int]
) -> None:
    """Where that is full no new connection comes in, by SSH neither. 127.0.0.0/8 has addresses enough."""
    for name, value in rows.items():
        monkeypatch.setitem(catalog.load("firewall")["share"], name, {"value": value})
    program = Program(net, tmp_path)
    program.load()

    def sent(uid: int, count: int) -> int:
        child = net.start("host", FLOOD, str(uid), str(count))
        assert child.stdout is not None
        return int(child.stdout.readline())

    assert 50 <= sent(1000, 300) <= 55, limit
    assert sent(1000, 20) <= 2, "each process of that login has the same share"
    assert 50 <= sent(1001, 300) <= 55, "others have one of their own"
    assert 50 <= sum(sent(uid, 100) for uid in (131072, 131073, 196607)) <= 55, "a login has a whole range of ids"
    assert 50 <= sent(196608, 100) <= 55, "the next range has a share of its own"
    assert sent(0, 300) == sent(33, 300) == 300, "root and the services of the system are not meant"
    assert program.holds()
    assert net.reached("stranger", LAN, 22) == {22}


CONTAINER = """
import socket, struct, sys
# Each packet has another source address of its segment, as root of a container can write it.
target = socket.inet_aton(sys.argv[2])
wire = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
print("up", flush=True)
for number in range(int(sys.argv[1])):
    source = socket.inet_aton(f"172.31.{1 + number // 250}.{number % 250}")
    udp = struct.pack("!HHHH", 40000, 9, 8, 0)
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28, 0, 0, 64, 17, 0, source, target)
    wire.sendto(head + udp, (sys.argv[2], 0))
print("sent", flush=True)
"""


@needs_root
@pytest.mark.parametrize("rows", [{"connections": 50}, {"rate": 1, "burst": 50}], ids=["connections", "rate"])
@pytest.mark.parametrize("target", ["192.0.2.200", LAN], ids=["through the host", "to the host"])
def test_no_container_fills_the_kernels_table_of_connections(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: dict[str, int], target: str
) -> None:
    """One in a network of its own has no login."""
    for name, value in rows.items():
        monkeypatch.setitem(catalog.load("firewall")["share"], name, {"value": value})
    net.run("host", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0")
    net.add("container")
    net.run("host", "ip", "link", "add", "docker0", "type", "bridge")
    net.run(
        "host", "ip", "link", "add", "veth1", "type", "veth", "peer", "name", "eth0", "netns", f"{net.prefix}container"
    )
    net.run("host", "ip", "link", "set", "veth1", "master", "docker0", "up")
    net.run("host", "ip", "address", "add", "172.31.0.1/16", "dev", "docker0")
    net.run("host", "ip", "link", "set", "docker0", "up")
    net.run("container", "ip", "address", "add", "172.31.0.2/16", "dev", "eth0")
    net.run("container", "ip", "link", "set", "eth0", "up")
    net.run("container", "ip", "route", "add", "default", "via", "172.31.0.1")

    program = Program(net, tmp_path)

    def held() -> int:
        program.load()
        before = int(net.run("host", "cat", "/proc/sys/net/netfilter/nf_conntrack_count"))
        child = net.start("container", CONTAINER, "300", target)
        assert child.stdout is not None and child.stdout.readline() == "sent\n"
        assert program.holds()
        return int(net.run("host", "cat", "/proc/sys/net/netfilter/nf_conntrack_count")) - before

    assert 45 <= held() <= 60
    assert net.reached("stranger", LAN, 22) == {22}
    assert net.reached("container", LAN, 22) == {22}, "it may be the LAN's, and new"
    for seen in ("bridge", "lower_eth0/device"):  # no interface of a test has a device
        (tmp_path / "net/docker0" / seen).mkdir(parents=True)
    program.file.write_text(program.file.read_text().replace("/sys/class/net", str(tmp_path / "net")))
    assert held() >= 200, "as a bridge that the LAN comes by"


@needs_root
def test_rules_that_nft_does_not_take_change_nothing(net: Net, tmp_path: Path) -> None:
    program = Program(net, tmp_path)
    program.load()
    with (tmp_path / "firewall.nft").open("a") as file:
        file.write("add rule inet gb10_fleet judge nonsense\n")
    with pytest.raises(AssertionError, match="nonsense"):
        program.load()
    assert program.holds()
    assert sorted(os.listdir(tmp_path)) == ["firewall.nft", "gb10-firewall", "loaded"]  # noqa: PTH208 - names are wanted


UFW = """#!/bin/sh
# As ufw 0.36 answers.
echo "$*" >> "$0.log"
case $* in *delete*) echo "Rule deleted";; "allow 22/tcp"|"allow 8443/tcp") echo "Skipping adding existing rule";;
*) echo "Rule added";; esac
"""


def test_lines_in_the_host_s_firewall_come_with_consent_and_only_ours_go_again(tmp_path: Path) -> None:
    said: dict[str, Any] = {
        "gateway_address": "192.0.2.11",
        "host_firewalls": [{"name": "ufw", "default": "drop", "allowed": []}],
    }
    assert "/usr/local/sbin/gb10-host-firewall" not in str(document("pair", **said).resources)
    made = document("pair", **said, firewall_allow_host_rules=True)
    (tmp_path / "run").write_text(content(made, "/usr/local/sbin/gb10-host-firewall"))
    for name, text in {"ufw": UFW, "systemctl": "#!/bin/sh\necho running\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GB10_HOST_FIREWALL": str(tmp_path / "added")}
    for word in ("open", "open", "close", "close"):
        subprocess.run(["sh", tmp_path / "run", word], env=env, check=True)
    asked = (tmp_path / "ufw.log").read_text().splitlines()
    assert asked.count("allow 8443/tcp") == 2 and "--force delete allow 8443/tcp" not in asked, "that was theirs"
    assert asked.count("--force delete allow in on enp1s0f0np0") == 1


def test_a_line_that_could_not_be_taken_back_stays_noted(tmp_path: Path) -> None:
    """And a program that reads what is not its own does not eat the rest of the list."""
    said = {"gateway_address": "192.0.2.11", "host_firewalls": [{"name": "ufw", "default": "drop", "allowed": []}]}
    made = document("pair", **said, firewall_allow_host_rules=True)
    (tmp_path / "run").write_text(content(made, "/usr/local/sbin/gb10-host-firewall"))
    ufw = '#!/bin/sh\ncat > /dev/null\ncase "$*" in *"delete allow $FAILS/"*) exit 1;; esac\n'
    for name, text in {"ufw": ufw, "systemctl": "#!/bin/sh\necho running\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GB10_HOST_FIREWALL": str(tmp_path / "added")}
    for word, fails, left in (("open", "no", 3), ("close", "8443", 1), ("close", "no", 0)):
        subprocess.run(["sh", tmp_path / "run", word], env={**env, "FAILS": fails}, check=True)
        noted = (tmp_path / "added").read_text().splitlines() if (tmp_path / "added").exists() else []
        assert len(noted) == left, (word, noted)


def test_what_cannot_be_noted_is_not_opened(tmp_path: Path) -> None:
    """A full disk: an opening without a note stood for good, also after undo."""
    said = {"gateway_address": "192.0.2.11", "host_firewalls": [{"name": "ufw", "default": "drop", "allowed": []}]}
    made = document("pair", **said, firewall_allow_host_rules=True)
    (tmp_path / "run").write_text(content(made, "/usr/local/sbin/gb10-host-firewall"))
    (tmp_path / "ufw").write_text(UFW)
    (tmp_path / "ufw").chmod(0o755)
    (tmp_path / "added").mkdir()
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GB10_HOST_FIREWALL": str(tmp_path / "added")}
    done = subprocess.run(["sh", tmp_path / "run", "open"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode and "directory" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["added", "run", "ufw"], "ufw was asked for nothing"
