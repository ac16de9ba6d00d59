"""The plan of the firewall: whose ports are whose, and who comes from where."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import firewall
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.measuring import FIRST_TEST_PORT
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.firewall import FirewallPlan, Peer

from tests.support.proofs import HOSTS, facts

PUBLIC = {"vllm_host": "0.0.0.0", "firewall_clients": ["192.0.2.0/24"]}  # noqa: S104


def planned(topology: str = "none", host: str = "spark-a", peers: bool = True, **variables: Any) -> FirewallPlan:
    members = HOSTS[topology]
    said = {"fabric_topology": topology, "fabric_network": "192.168.96.0/20"} | variables
    others = {name: facts(name) for name in members if name != host}
    known = facts(host) | {"ssh_ports": [22]}
    return firewall.plan(View(host, known, said, members, others if peers else {}, dict.fromkeys(others, said)))


@pytest.mark.parametrize(
    ("given", "ports"),
    [
        ({}, ("22",)),
        ({"firewall_open_ports": ["22", "8080"]}, ("22", "8080")),
        ({"gateway_address": "192.0.2.11"}, ("22", "8443")),
        ({"gateway_port": 9000}, ("22",)),
    ],
)
def test_what_is_open_to_everybody(given: dict[str, Any], ports: tuple[str, ...]) -> None:
    assert planned(**given).open == ports


def test_the_gateway_is_open_on_the_head_alone() -> None:
    assert planned("pair", "spark-b", gateway_address="192.0.2.11").open == ("22",)


@pytest.mark.parametrize(("host", "guarded"), [("127.0.0.1", False), ("127.0.0.2", False), ("192.0.2.11", True)])
def test_an_api_on_loopback_is_nobodys_business(host: str, guarded: bool) -> None:
    made = planned(vllm_host=host, firewall_clients=["192.0.2.0/24"])
    assert (("8000" in made.guarded), bool(made.clients)) == (guarded, guarded)


def test_clients_reach_the_head_alone() -> None:
    assert planned("pair", **PUBLIC).clients == ("192.0.2.0/24",)
    assert planned("pair", "spark-b", **PUBLIC).clients == ()


def test_nothing_is_guarded_and_closed_at_once() -> None:
    made = planned()
    assert made.closed == ("10001",) and not set(made.closed) & set(made.guarded)
    assert {"29501", "29511", "29502", "6379", "6380", "10002-10101", "32768-60999"} <= set(made.guarded)


@pytest.mark.parametrize(("engine", "guarded"), [("sglang", True), ("vllm", False)])
def test_a_port_that_an_engine_chooses_below_those_of_the_kernel_is_guarded(engine: str, guarded: bool) -> None:
    entry = {"engine": engine, "model": "acme/small", "port": 8001, "memory_gib": 20, "image": "acme/x:1"}
    assert ("22000-29999" in planned(vllm_services={"chat": entry}).guarded) == guarded


@pytest.mark.parametrize(("span", "has"), [("cluster", True), ("host", False)])
def test_what_sglang_opens_behind_its_meeting_port_is_the_clusters_own(span: str, has: bool) -> None:
    """With --enable-dp-attention it unpickles what comes there, and a login of the first host could call."""
    entry = {
        "engine": "sglang",
        "model": "acme/small",
        "port": 8001,
        "memory_gib": 20,
        "image": "acme/x:1",
        "span": span,
    }
    made = planned("pair", vllm_services={"chat": {**entry, "master_port": 20000}})
    assert [("20001-20014" in ports) for ports in (made.own, made.guarded)] == [has, has]


def test_where_the_fabric_is_measured_is_the_clusters_own() -> None:
    entry = {"model": "acme/small", "port": 8001, "memory_gib": 20, "image": "acme/x:1", "span": "host"}
    (port,) = [each for each in planned("pair", vllm_services={"chat": entry}).own if each.startswith("185")]
    assert [str(FIRST_TEST_PORT), str(FIRST_TEST_PORT + 1)] == port.split("-")
    assert port not in planned().own


def test_the_recorders_port_is_guarded_wherever_it_is() -> None:
    said = {"flight_recorder_enabled": True, "flight_recorder_port": 20590}
    assert "20590" in planned("pair", **said).guarded
    assert "20590" not in planned("pair", **said | {"flight_recorder_enabled": False}).guarded


def test_all_workers_of_ray_are_the_clusters_own() -> None:
    assert "10002-10101" in planned("pair", vllm_executor="ray").own


def test_peers_come_over_the_rails() -> None:
    assert planned().peers == ()
    assert planned("pair").peers == (
        Peer("spark-b", "enp1s0f0np0", "192.168.96.11"),
        Peer("spark-b", "enP2p1s0f0np0", "192.168.97.11"),
    )


def test_in_a_ring_they_come_over_the_management_network_too() -> None:
    interfaces = [peer.interface for peer in planned("ring").peers]
    assert len(interfaces) == 6 and len(set(interfaces)) == 5


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"firewall_open_ports": ["0"]}, "firewall_open_ports holds 0."),
        ({"firewall_clients": ["lan"]}, "firewall_clients holds lan."),
        ({"vllm_join_port": 0}, "vllm_join_port is '0'."),
        ({"gateway_port": 65536}, "gateway_port is '65536'."),
        ({**PUBLIC, "vllm_port": 10001}, "vllm_port 10001 is closed"),
        ({"vllm_environment": {"VLLM_RPC_PORT": 7000}}, "VLLM_RPC_PORT has vLLM listen on port 7000"),
        ({"vllm_extra_args": ["--data-parallel-rpc-port=7000"]}, "--data-parallel-rpc-port has vLLM listen on port"),
    ],
)
def test_what_is_refused(given: dict[str, Any], says: str) -> None:
    (found,) = planned(**given).refusals
    assert found.startswith(says)


def test_an_api_that_nobody_may_reach_is_refused_with_the_facts_of_the_cluster() -> None:
    (found,) = planned("pair", vllm_host="0.0.0.0").joint_refusals  # noqa: S104
    assert "names nobody who may reach it" in found
    assert planned("pair", "spark-b", vllm_host="0.0.0.0").joint_refusals == ()  # noqa: S104
    assert planned("pair", vllm_host="192.168.96.10").joint_refusals == (), "its own rail"


def test_a_fabric_that_cannot_be_planned_hides_no_other_refusal() -> None:
    made = planned("pair", peers=False, firewall_clients=["lan"])
    assert len(made.refusals) == 1 and "no facts of spark-b" in made.joint_refusals[0]


UFW = {"name": "ufw", "default": "drop", "allowed": []}


def beside(other: dict[str, Any], topology: str = "pair", **said: Any) -> list[dict[str, Any]]:
    host, *members = HOSTS[topology]
    variables = {"fabric_topology": topology, "fabric_network": "192.168.96.0/20"} | said
    known = facts(host) | {"ssh_ports": [22], "host_firewalls": [other]}
    view = View(
        host,
        known,
        variables,
        [host, *members],
        {name: facts(name) for name in members},
        dict.fromkeys(members, variables),
    )
    return [dict(each) for each in firewall.plan(view).findings]


def test_ufw_closes_the_rails_of_a_pair_and_the_gateway() -> None:
    (found,) = beside(UFW, gateway_address="192.0.2.11")
    assert found["id"] == "host_firewall" and "port 8443" in found["fact"] and "enp1s0f0np0" in found["fact"]
    assert "`sudo ufw allow 8443/tcp`; `sudo ufw allow in on enp1s0f0np0`" in found["way_out"]


def test_a_name_of_an_interface_becomes_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines are for a person to run, and the name is the host's word."""
    odd = (Peer("spark-b", "x;reboot;", "192.168.96.2"), Peer("spark-b", "$(reboot)", "192.168.100.2"))
    monkeypatch.setattr(firewall, "_peers", lambda *_: odd)
    for name in ("ufw", "firewalld"):
        assert "reboot" not in str(beside(UFW | {"name": name}, gateway_address="192.0.2.11"))


def test_what_ufw_lets_in_is_not_said() -> None:
    rails = {"ports": "any", "protocol": "any", "interface": "any", "source": "192.168.96.0/20"}
    assert beside(UFW | {"allowed": [rails]}) == []
    gateway = {"ports": "80,8443", "protocol": "tcp", "interface": "any", "source": "any"}
    (found,) = beside(UFW | {"allowed": [gateway]}, gateway_address="192.0.2.11")
    assert "8443" not in found["fact"]
    assert beside(UFW | {"default": "accept"}) == []


def test_lines_for_firewalld() -> None:
    (found,) = beside(UFW | {"name": "firewalld", "default": "reject"})
    assert "`sudo firewall-cmd --permanent --zone=trusted --change-interface=enp1s0f0np0`" in found["way_out"]
    assert "; `sudo firewall-cmd --reload`; or set firewall_allow_host_rules" in found["way_out"]


def test_with_consent_the_role_opens_them_and_keeps_them_open() -> None:
    host, *members = HOSTS["pair"]
    said = {"fabric_topology": "pair", "fabric_network": "192.168.96.0/20", "gateway_address": "192.0.2.11"}
    said |= {"firewall_allow_host_rules": True}

    def made(allowed: list[dict[str, Any]]) -> firewall.FirewallPlan:
        known = facts(host) | {"ssh_ports": [22], "host_firewalls": [UFW | {"allowed": allowed}]}
        others = {name: facts(name) for name in members}
        return firewall.plan(View(host, known, said, [host, *members], others, dict.fromkeys(members, said)))

    first = made([])
    assert first.openings[0] == firewall.Opening("ufw allow 8443/tcp", "ufw --force delete allow 8443/tcp")
    assert any(line.add == "ufw allow in on enp1s0f0np0" for line in first.openings)
    assert [each["severity"] for each in first.findings] == ["info"]
    everything = {"ports": "any", "protocol": "any", "interface": "any", "source": "any"}
    assert made([everything]).openings == first.openings, "else they would go again"
    assert made([everything]).findings == ()
