"""The address plan and the measuring rounds."""

from __future__ import annotations

import ipaddress
import itertools
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.filter import fabric
from ansible_collections.gb10.fleet.plugins.modules import ib_write_bw
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import PlanError, shown
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import addressing
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.measuring import pings, rounds
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.planner import in_words
from hypothesis import given
from hypothesis import strategies as st

from tests.support.addressing import NAMES, cluster, make, make_facts


def plan(topology: str, hosts: list[str], facts: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The plan as the facts of a host carry it."""
    return shown(addressing.plan(topology, hosts, facts, **options))


def test_pair_with_the_defaults() -> None:
    facts = {"spark-a": make_facts(0), "spark-b": make_facts(1)}
    result = plan("pair", ["spark-a", "spark-b"], facts)
    assert result["subnets"] == ["192.168.100.0/24", "192.168.101.0/24"]
    first, second = result["hosts"]["spark-a"]["profiles"]
    assert first == {
        "name": "gb10-enp1s0f0np0",
        "uuid": first["uuid"],
        "netdev": "enp1s0f0np0",
        "hca": "rocep1s0f0",
        "hca_port": 1,
        "port": "p0",
        "twin_index": 0,
        "link": "spark-a:p0--spark-b:p0",
        "address": "192.168.100.10",
        "prefix": 24,
        "cidr": "192.168.100.10/24",
        "gid": "0000:0000:0000:0000:0000:ffff:c0a8:640a",
        "mtu": 9000,
        "peers": [
            {"host": "spark-b", "port": "p0", "netdev": "enp1s0f0np0", "hca": "rocep1s0f0", "address": "192.168.100.11"}
        ],
        "answering": ["192.168.100.11"],
    }
    assert (second["netdev"], second["address"]) == ("enP2p1s0f0np0", "192.168.101.10")
    assert result["hosts"]["spark-b"]["environment"] == {
        "NCCL_IB_HCA": "=rocep1s0f0:1,roceP2p1s0f0:1",
        "NCCL_IB_ADDR_RANGE": "192.168.100.0/23",
        "NCCL_SOCKET_IFNAME": "=enp1s0f0np0",
        "GLOO_SOCKET_IFNAME": "enp1s0f0np0",
        "UCX_NET_DEVICES": "enp1s0f0np0",
    }
    assert result["hosts"]["spark-b"]["control"] == {"interface": "enp1s0f0np0", "address": "192.168.100.11"}


def test_uuids_never_change() -> None:
    # NetworkManager knows a profile by its UUID: a new value would make a second profile on every host out there.
    profile = plan("pair", ["a", "b"], {"a": make_facts(0), "b": make_facts(1)})["hosts"]["a"]["profiles"][0]
    assert profile["uuid"] == "9eaac294-5289-5c0d-a38f-2ee88226a986"


def test_ring_cables_p1_to_the_next_p0() -> None:
    result = make("ring", 3)
    cables = {(p["port"], p["peers"][0]["host"], p["peers"][0]["port"]) for p in result["hosts"]["spark-1"]["profiles"]}
    assert cables == {("p1", "spark-2", "p0"), ("p0", "spark-0", "p1")}
    assert result["hosts"]["spark-1"]["control"] == {"interface": "enP7s7", "address": "192.0.2.2"}
    environment = result["hosts"]["spark-1"]["environment"]
    assert environment["NCCL_IB_MERGE_NICS"] == "0" and environment["NCCL_IB_SUBNET_AWARE_ROUTING"] == "1"
    assert environment["NCCL_IB_ADDR_RANGE"] == "10.32.0.0/21", "six subnets need a /21"
    # The line of a rail that is given up has the level INFO; a pair and a switch keep WARN, which the role vllm says.
    assert (environment["NCCL_DEBUG"], environment["NCCL_DEBUG_SUBSYS"]) == ("INFO", "NET")
    assert "NCCL_DEBUG" not in make("switch", 3)["hosts"]["spark-1"]["environment"]


def test_switch_joins_all_hosts_in_one_subnet_per_rail() -> None:
    result = make("switch", 8, ports=["p0"])
    assert len(result["subnets"]) == 2
    assert [peer["host"] for peer in result["hosts"]["spark-0"]["profiles"][1]["peers"]] == [
        f"spark-{number}" for number in range(1, 8)
    ]


def test_none_plans_nothing_and_needs_no_facts() -> None:
    assert plan("none", ["alone"], {})["hosts"] == {
        "alone": {"profiles": [], "environment": {}, "control": None, "waiting": [], "owners": []}
    }


topologies = st.one_of(
    st.tuples(st.just("pair"), st.just(2), st.sampled_from([["p0"], ["p1"], ["p0", "p1"]])),
    st.tuples(st.just("ring"), st.integers(3, 16), st.just(["p0"])),
    st.tuples(st.just("switch"), st.integers(2, 16), st.sampled_from([["p0"], ["p0", "p1"]])),
)


@given(topologies)
def test_addresses_and_subnets(case: tuple[str, int, list[str]]) -> None:
    topology, count, ports = case
    result = make(topology, count, ports=ports)
    profiles = [(host, profile) for host, entry in result["hosts"].items() for profile in entry["profiles"]]
    addresses = [profile["address"] for _host, profile in profiles]
    assert len(set(addresses)) == len(addresses)
    assert len({profile["uuid"] for _host, profile in profiles}) == len(profiles)
    rails_of_subnet: dict[str, set[tuple[str, int]]] = {}
    for host, profile in profiles:
        subnet = str(ipaddress.ip_interface(profile["cidr"]).network)
        rails_of_subnet.setdefault(subnet, set()).add((profile["link"], profile["twin_index"]))
        assert ipaddress.ip_address(profile["address"]) in ipaddress.ip_network(
            result["hosts"][host]["environment"]["NCCL_IB_ADDR_RANGE"]
        )
        for peer in profile["peers"]:
            assert ipaddress.ip_address(peer["address"]) in ipaddress.ip_network(subnet)
            (back,) = (
                entry for entry in result["hosts"][peer["host"]]["profiles"] if entry["address"] == peer["address"]
            )
            assert host in [entry["host"] for entry in back["peers"]]
    assert all(len(rails) == 1 for rails in rails_of_subnet.values()), "a subnet is exactly one rail of one link"
    assert sorted(rails_of_subnet) == sorted(result["subnets"])
    for host, entry in result["hosts"].items():
        assert Counter(profile["netdev"] for profile in entry["profiles"]).most_common(1)[0][1] == 1, host
    json.dumps(result)


@given(topologies)
def test_rounds_measure_every_pairing_once(case: tuple[str, int, list[str]]) -> None:
    topology, count, ports = case
    schedule = rounds(cluster(topology, count, ports=ports))
    seen: Counter[str] = Counter()
    for tests in schedule:
        for host, ends in tests.items():
            assert len({end["peer"].rpartition(".")[2] for end in ends}) == 1, "one partner in a round"
            assert [end["port"] for end in ends] == [18515, 18516], "both rails at once"
            seen.update(end["name"] for end in ends if end["end"] == "server")
            for end in ends:
                (other,) = (o for name in tests if name != host for o in tests[name] if o["name"] == end["name"])
                assert (other["address"], other["peer"]) == (end["peer"], end["address"])
                assert {other["end"], end["end"]} == {"client", "server"}
                assert {key: other[key] for key in ("port", "qps", "message_bytes", "duration_s")} == {
                    key: end[key] for key in ("port", "qps", "message_bytes", "duration_s")
                }
    links = {"pair": len(ports), "ring": count, "switch": count * (count - 1) // 2 * len(ports)}[topology]
    assert len(seen) == 2 * links and set(seen.values()) == {1}
    fewest = {
        "pair": len(ports),
        "ring": 2 + count % 2,
        "switch": (count - 1 + count % 2) * len(ports),
    }[topology]
    assert len(schedule) == fewest


def test_the_first_host_is_the_server() -> None:
    for tests in rounds(cluster("switch", 5)):
        for host, other in itertools.combinations(sorted(tests), 2):
            for end in tests[host]:
                if end["name"].startswith(f"{host}:") and f"--{other}:" in end["name"]:
                    assert end["end"] == "server"


def test_no_message_is_larger_than_what_every_healthy_gb10_has_passed() -> None:
    # The claim large_messages_fail of catalog/thresholds.yml; by hand the module takes the same size.
    [tests] = rounds(cluster("pair", 2))
    planned = {test["message_bytes"] for ends in tests.values() for test in ends}
    assert planned == {ib_write_bw.TEST["message_bytes"]["default"]} == {65536}


def test_pings_fill_the_mtu() -> None:
    assert pings(cluster("pair", 2, mtu=1500).hosts["spark-0"], 2) == [
        {
            "name": f"{netdev} to spark-1 {netdev}",
            "interface": netdev,
            "source": f"10.32.{twin}.10",
            "peer": f"10.32.{twin}.11",
            "size_bytes": 1472,
            "count": 2,
        }
        for twin, (netdev, _hca) in enumerate(NAMES["p0"])
    ]


@pytest.mark.parametrize(
    ("topology", "count", "options", "text"),
    [
        ("mesh", 2, {}, "not one of none, pair, ring, switch"),
        ("pair", 3, {}, "pair needs exactly 2 hosts, the cluster has 3 (spark-0, spark-1, spark-2)"),
        ("pair", 1, {}, "the cluster has 1"),
        ("ring", 2, {}, "ring needs 3 to"),
        ("switch", 300, {}, "switch needs 2 to 245"),
        ("ring", 3, {"network": "192.168.100.0/22"}, "holds 4 subnets of /24, this fabric needs 6"),
        ("ring", 3, {"network": "192.168.100.0/22"}, "set fabric_network to 192.168.96.0/21"),
        ("pair", 2, {"network": "192.168.100.0/25"}, "smaller than one /24"),
        ("pair", 2, {"network": "192.168.100.1/22"}, "has host bits set: did you mean 192.168.100.0/22?"),
        ("pair", 2, {"network": "224.0.0.0/22"}, "which is for multicast"),
        ("pair", 2, {"network": "0.0.0.0/0"}, "which is for the host itself"),
        ("pair", 2, {"network": "fd00::/48"}, "is not an IPv4 network"),
        (
            "pair",
            2,
            {"network": "127.0.0.0/22"},
            "fabric_network 127.0.0.0/22 overlaps 127.0.0.0/8, which is for loopback",
        ),
        ("pair", 2, {"network": "169.254.0.0/22"}, "169.254.0.0/16, which is for link-local"),
        ("pair", 2, {"network": "224.0.0.0/22"}, "which is for multicast"),
        ("pair", 2, {"network": "255.255.252.0/22"}, "240.0.0.0/4, which is for nobody"),
        ("pair", 2, {"network": "0.0.0.0/22"}, "0.0.0.0/8, which is for the host itself"),
        ("pair", 2, {"network": "0.0.0.0/0"}, "choose a private network such as 192.168.100.0/22"),
        ("pair", 2, {"mtu": 65000}, "between 1500 and 9216"),
        ("pair", 2, {"ports": []}, "fabric_ports"),
        ("pair", 2, {"ports": ["p0", "p0"]}, "each cabled port once"),
        ("pair", 2, {"ports": ["p7"]}, "spark-0 has no rail on port p7 (it has p0, p1)"),
        ("pair", 2, {"network": "192.0.2.0/24", "ports": ["p0"]}, "needs 2"),
        ("pair", 2, {"network": "192.0.0.0/22"}, "192.0.2.1/24 of enP7s7"),
    ],
)
def test_refusals(topology: str, count: int, options: dict[str, Any], text: str) -> None:
    with pytest.raises(PlanError) as error:
        if text.startswith("192.0.2.1"):
            options = {**options, "ports": ["p0", "p1"]}
        make(topology, count, **options)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rails": []}, "b has no rail on port p0 (it has no port at all): the ConnectX-7 is not on the bus"),
        ({"ssh": {"interface": "enp1s0f0np0"}}, "enp1s0f0np0 carries this very SSH session"),
        ({"default_route_interfaces": ["enP2p1s0f0np0"]}, "enP2p1s0f0np0 carries the default route"),
        (
            {"interfaces": [{"name": "docker0", "addresses": ["192.168.0.1/16"]}]},
            "b: the planned subnet 192.168.100.0/24 of enp1s0f0np0 overlaps 192.168.0.1/16 of docker0",
        ),
        (
            {"ssh": {"interface": "enP7s7", "peer_address": "192.168.101.5"}},
            "b: the planned subnet 192.168.101.0/24 of enP2p1s0f0np0 overlaps 192.168.101.5, from where this very SSH",
        ),
        (
            {"routes": [{"interface": "enP7s7", "cidr": "192.168.100.0/23"}]},
            "b: the planned subnet 192.168.100.0/24 of enp1s0f0np0 overlaps the route to 192.168.100.0/23 through",
        ),
        (
            {"routes": [{"interface": None, "cidr": "192.168.0.0/16"}]},
            "overlaps the route to 192.168.0.0/16 that discards packets (`ip route`): choose another fabric_network",
        ),
        (
            {"ssh": {"interface": "vlan7"}, "interfaces": [{"name": "vlan7", "lower": ["enp1s0f0np0"]}]},
            "enp1s0f0np0 carries this very SSH session (below vlan7)",
        ),
    ],
)
def test_what_a_host_cannot_take(change: dict[str, Any], text: str) -> None:
    with pytest.raises(PlanError) as error:
        plan("pair", ["a", "b"], {"a": make_facts(0), "b": {**make_facts(1), **change}})
    assert text in str(error.value)


def test_the_port_of_a_bridge_is_no_rail() -> None:
    facts = make_facts(1)
    facts["rails"][1]["master"] = "br0"
    with pytest.raises(PlanError, match=r"b: enP2p1s0f0np0 is a port of br0, .* take it out of br0"):
        plan("pair", ["a", "b"], {"a": make_facts(0), "b": facts})
    assert plan("pair", ["a", "b"], {"a": make_facts(0), "b": facts}, ports=["p1"])["subnets"]


def test_a_missing_twin_is_named() -> None:
    facts = make_facts(1)
    facts["rails"] = [rail for rail in facts["rails"] if rail["netdev"] != "enP2p1s0f0np0"]
    with pytest.raises(PlanError, match=r"a has 2 rail\(s\) on this link .*, b has 1 \(enp1s0f0np0\)"):
        plan("pair", ["a", "b"], {"a": make_facts(0), "b": facts})


def test_a_port_without_its_twin_on_both_hosts_is_refused() -> None:
    facts = {"a": make_facts(0), "b": make_facts(1)}
    for own in facts.values():
        own["rails"] = [rail for rail in own["rails"] if rail["netdev"] != "enP2p1s0f0np0"]
    with pytest.raises(PlanError, match=r"a and b have 1 rail each on this link \(enp1s0f0np0\), and a port has 2"):
        plan("pair", ["a", "b"], facts)


@pytest.mark.parametrize("count", range(3, 9))
def test_the_network_that_a_refusal_names_will_do(count: int) -> None:
    with pytest.raises(PlanError, match=f"this fabric needs {2 * count} ") as error:
        make("ring", count, network="192.168.100.0/22")
    assert len(make("ring", count, network=str(error.value).rpartition(" ")[2])["subnets"]) == 2 * count


@pytest.mark.parametrize("count", range(3, 9))
def test_all_pairs_of_three_to_eight_hosts_take_as_many_rounds_as_a_host_has_partners(count: int) -> None:
    schedule = rounds(cluster("switch", count))
    assert len(schedule) == count - 1 + count % 2, "with a bye for one host in each round of an odd number"
    assert {len(tests) for tests in schedule} == {count - count % 2}


def test_a_port_that_a_ring_lacks_is_no_matter_of_fabric_ports() -> None:
    facts = {name: make_facts(number) for number, name in enumerate("abc")}
    facts["b"]["rails"] = facts["b"]["rails"][:2]
    with pytest.raises(PlanError, match=r"b has no rail on port p1 .* or choose another fabric_topology$"):
        plan("ring", ["a", "b", "c"], facts, network="10.0.0.0/16")


def test_addresses_of_the_rails_themselves_are_no_collision() -> None:
    facts = {"a": make_facts(0), "b": make_facts(1)}
    facts["a"]["interfaces"].append({"name": "enp1s0f0np0", "addresses": ["192.168.100.10/24"]})
    assert plan("pair", ["a", "b"], facts)["hosts"]["a"]["profiles"][0]["address"] == "192.168.100.10"


def test_routes_of_the_rails_and_those_as_general_as_the_default_are_no_collision() -> None:
    facts = {"a": make_facts(0), "b": make_facts(1)}
    facts["a"]["routes"] = [
        {"interface": "enp1s0f0np0", "cidr": "192.168.100.0/24"},
        {"interface": "tun0", "cidr": "128.0.0.0/1"},
        {"interface": "enP7s7", "cidr": "192.0.2.0/24"},
    ]
    facts["a"]["ssh"]["peer_address"] = "2001:db8::1"
    assert plan("pair", ["a", "b"], facts)["subnets"]


def test_a_rail_waits_until_it_is_as_planned() -> None:
    facts = {"a": make_facts(0), "b": make_facts(1)}
    for rail, address in zip(facts["a"]["rails"], ("192.168.100.10/24", "192.168.101.10/24"), strict=False):
        rail.update(mtu=9000, addresses=[address, "fe80::1/64"])
    hosts = plan("pair", ["a", "b"], facts)["hosts"]
    assert hosts["a"]["waiting"] == [] and len(hosts["b"]["waiting"]) == 2
    facts["a"]["rails"][0]["mtu"] = 1500
    facts["a"]["rails"][1]["addresses"].append("192.0.2.9/24")
    assert plan("pair", ["a", "b"], facts)["hosts"]["a"]["waiting"] == ["enp1s0f0np0", "enP2p1s0f0np0"]


def test_a_rail_that_is_as_planned_may_carry_the_session_that_proves_it() -> None:
    facts = {"a": make_facts(0), "b": make_facts(1)}
    for rail, address in zip(facts["a"]["rails"], ("192.168.100.10/24", "192.168.101.10/24"), strict=False):
        rail.update(mtu=9000, addresses=[address])
    facts["a"]["ssh"] = {"interface": "enp1s0f0np0", "way_back": "enp1s0f0np0", "peer_address": "192.168.100.11"}
    assert plan("pair", ["a", "b"], facts)["hosts"]["a"]["waiting"] == []
    facts["a"]["rails"][0]["mtu"] = 1500
    with pytest.raises(PlanError, match="a: enp1s0f0np0 carries this very SSH session and shall become a rail"):
        plan("pair", ["a", "b"], facts)


def test_a_session_of_no_network_collides_with_nothing() -> None:
    facts = {"a": make_facts(0), "b": make_facts(1)}
    facts["a"]["ssh"] = {"interface": None, "local_address": "UNKNOWN", "peer_address": "UNKNOWN"}
    assert plan("pair", ["a", "b"], facts)["subnets"]


def test_hosts_that_disagree_are_named_with_what_they_say() -> None:
    facts = {"a": make_facts(0), "b": make_facts(1)}
    with pytest.raises(PlanError, match=r"must agree on fabric_mtu, and it is 9000 \(a\), 1500 \(b\)"):
        plan("pair", ["a", "b"], facts, settings={"fabric_ports": [["p0"], ["p0"]], "fabric_mtu": [9000, 1500]})


def test_facts_of_all_hosts_are_needed() -> None:
    with pytest.raises(PlanError, match=r"no facts of b: .* run without --limit"):
        plan("pair", ["a", "b"], {"a": make_facts()})


def test_ring_needs_a_management_address() -> None:
    hosts = ["a", "b", "c"]
    facts = {host: make_facts(number) for number, host in enumerate(hosts)}
    facts["b"]["interfaces"] = []
    with pytest.raises(PlanError, match="b has no management interface"):
        plan("ring", hosts, facts, network="10.0.0.0/16")


def test_the_filter_names_the_cables_to_move() -> None:
    heard = {"spark-0": [{"port": "p0", "host": "spark-1", "there_port": "p1"}]}
    (wrong,) = fabric.FilterModule().filters()["fabric_wrong_cables"](heard, make("pair", 2)["hosts"])
    assert wrong.startswith("spark-0 p0: the cable leads to spark-1 p1")


def test_a_peer_without_a_cable_need_not_answer() -> None:
    facts = {name: make_facts(number) for number, name in enumerate("abc")}
    for rail in facts["c"]["rails"]:
        rail["carrier"] = False
    profiles = plan("switch", ["a", "b", "c"], facts)["hosts"]["a"]["profiles"]
    assert [profile["answering"] for profile in profiles] == [["192.168.100.11"], ["192.168.101.11"]]


def owner(**more: Any) -> dict[str, Any]:
    known = {"interface": "enp1s0f0np0", "file": "/etc/x", "name": None, "uuid": None, "renderer": "NetworkManager"}
    return {**known, **more}


def test_the_files_of_others_that_claim_a_rail_are_named() -> None:
    ours = "9eaac294-5289-5c0d-a38f-2ee88226a986"
    claims = [
        owner(file="/etc/netplan/40-cx7.yaml", renderer="networkd"),
        owner(file="/etc/NetworkManager/system-connections/dhcp", name="dhcp", renderer=None),
        owner(file="/etc/netplan/90-NM.yaml", uuid=ours),
        owner(interface="enp1s0f1np1"),  # no rail of this plan
    ]
    result = plan("pair", ["a", "b"], {"a": {**make_facts(0), "port_owners": claims}, "b": make_facts(1)})
    assert [(item["text"], item["lasting"]) for item in result["hosts"]["a"]["owners"]] == [
        ("enp1s0f0np0 belongs to /etc/netplan/40-cx7.yaml already (netplan, for networkd)", True),
        ("enp1s0f0np0 belongs to /etc/NetworkManager/system-connections/dhcp already (the profile 'dhcp')", False),
    ]
    assert result["hosts"]["b"]["owners"] == []


def test_the_plan_in_words() -> None:
    mine = addressing.plan("pair", ["a", "b"], {"a": make_facts(0), "b": make_facts(1)}).hosts["a"]
    words = "enp1s0f0np0 (p0): 192.168.100.10/24, MTU 9000, to b p0 192.168.100.11"
    assert in_words(mine)[0] == words
    assert in_words(replace(mine, waiting=()))[0] == f"{words} (as it is)"


def declared_plan(rails: dict[str, list[str]], unknown: bool = False) -> list[tuple[str, int]]:
    facts = {"a": make_facts(0), "b": make_facts(1)}
    for rail in facts["a"]["rails"] if unknown else []:
        rail.update(port=None, twin_index=None)
    result = plan("pair", ["a", "b"], facts, declared={"a": rails, "b": {}})
    return [(profile["netdev"], profile["twin_index"]) for profile in result["hosts"]["a"]["profiles"]]


def test_a_rail_that_does_not_say_which_twin_it_is_is_none_of_its_port() -> None:
    facts = {"a": make_facts(0), "b": make_facts(1)}
    facts["a"]["rails"].append({**facts["a"]["rails"][0], "netdev": "x", "twin_index": None})
    assert plan("pair", ["a", "b"], facts) == plan("pair", ["a", "b"], {"a": make_facts(0), "b": make_facts(1)})


def test_declared_rails_are_taken_where_the_machine_does_not_tell() -> None:
    own = ["enp1s0f0np0", "enP2p1s0f0np0"]
    assert declared_plan({"p0": own}, unknown=True) == [(own[0], 0), (own[1], 1)]
    assert declared_plan({"p0": own}) == [(own[0], 0), (own[1], 1)]
    with pytest.raises(PlanError, match="a has no rail on port p0"):
        declared_plan({}, unknown=True)


def test_ports_of_two_nics_with_one_name_are_refused_until_one_is_declared() -> None:
    facts = {"a": make_facts(0), "b": make_facts(1)}
    for rail in facts["a"]["rails"]:
        rail["phys_switch_id"] = "10"
    other = {"netdev": "ens9np0", "hca": "mlx5_9", "hca_port": 1, "port": "p0", "twin_index": 2, "phys_switch_id": "20"}
    facts["a"]["rails"].append(other)
    with pytest.raises(
        PlanError, match=r"a has rails of more than one NIC on port p0 \(.*, ens9np0, by phys_switch_id\)"
    ):
        plan("pair", ["a", "b"], facts)
    own = ["enp1s0f0np0", "enP2p1s0f0np0"]
    result = plan("pair", ["a", "b"], facts, declared={"a": {"p0": own}})
    assert [profile["netdev"] for profile in result["hosts"]["a"]["profiles"]] == own


@pytest.mark.parametrize(
    ("rails", "says"),
    [
        (
            {"p0": ["enp9s0", "enp1s0f0np0"]},
            "a: fabric_rails names enp9s0, which is no RDMA rail; the host has enp1s0f0np0,",
        ),
        ({"p0": ["enp1s0f0np0", "enp1s0f1np1"]}, "a: fabric_rails puts enp1s0f1np1 on p0, and the machine says p1"),
        ({"p0": ["enp1s0f0np0"]}, "a: fabric_rails leaves out enP2p1s0f0np0, which the machine says is on p0"),
    ],
)
def test_declared_rails_that_contradict_the_machine_are_refused(rails: dict[str, list[str]], says: str) -> None:
    with pytest.raises(PlanError) as error:
        declared_plan(rails)
    assert str(error.value).startswith(says)
