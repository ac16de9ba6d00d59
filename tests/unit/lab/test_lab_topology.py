"""The lab's wiring: who is plugged into whom, what link that gives, and the commands that lay the wires."""

from __future__ import annotations

import pytest

from lab import network
from lab.topology import GATEWAY, RAILS, Topology, carrier, topology

ALL = {"spark-a", "spark-b", "spark-c"}
EVERY = [("single", 0), ("pair", 0), ("ring3", 0), ("switch", 26), ("fleet", 150)]


def links(plan: Topology, running: set[str], cut: set[tuple[str, str]]) -> set[tuple[str, str]]:
    ports = [(host.name, port) for host in plan.hosts for port in ("p0", "p1")]
    return {(host, port) for host, port in ports if carrier(plan, host, port, running, cut)}


def test_a_pair_is_cabled_at_p0_only() -> None:
    assert links(topology("pair"), ALL, set()) == {("spark-a", "p0"), ("spark-b", "p0")}


def test_each_cable_of_a_ring_joins_a_p1_to_the_next_p0() -> None:
    plan = topology("ring3")
    assert [segment.ends for segment in plan.segments] == [
        (("spark-a", "p1"), ("spark-b", "p0")),
        (("spark-b", "p1"), ("spark-c", "p0")),
        (("spark-c", "p1"), ("spark-a", "p0")),
    ]
    assert len(links(plan, ALL, set())) == 6


@pytest.mark.parametrize("end", [("spark-a", "p1"), ("spark-b", "p0")])
def test_a_cut_takes_the_link_of_both_ends_and_of_no_other_port(end: tuple[str, str]) -> None:
    plan = topology("ring3")
    assert links(plan, ALL, set()) - links(plan, ALL, {end}) == {("spark-a", "p1"), ("spark-b", "p0")}


def test_without_power_at_one_end_a_cable_has_no_link_at_either() -> None:
    assert links(topology("ring3"), {"spark-a", "spark-c"}, set()) == {("spark-c", "p1"), ("spark-a", "p0")}


def test_a_switch_keeps_the_others_up() -> None:
    plan = topology("switch", 3)
    assert links(plan, {"spark-a", "spark-b"}, {("spark-a", "p0")}) == {("spark-b", "p0")}


@pytest.mark.parametrize(("name", "hosts"), EVERY)
def test_names_addresses_and_macs_are_unique_and_fit(name: str, hosts: int) -> None:
    plan = topology(name, hosts)
    addresses = [host.address for host in plan.hosts]
    nics = [nic for host in plan.hosts for nic in host.nics]
    assert len(set(addresses)) == len(addresses)
    assert GATEWAY not in addresses
    assert all(int(address.rpartition(".")[2]) < 255 for address in addresses)
    assert len({nic.mac for nic in nics}) == len({nic.outer for nic in nics}) == len(nics)
    assert all(len(name) <= 15 for nic in nics for name in (nic.name, nic.outer))  # IFNAMSIZ


def test_machines_and_containers_share_neither_names_nor_addresses() -> None:
    switch, fleet = topology("switch", 26).hosts, topology("fleet", 150).hosts
    assert not {host.name for host in switch} & {host.name for host in fleet}
    assert not {host.address for host in switch} & {host.address for host in fleet}


def test_interfaces_carry_the_names_of_a_spark() -> None:
    names = [nic.name for nic in topology("pair").hosts[0].nics]
    assert names == ["enP7s7", "enp1s0f0np0", "enP2p1s0f0np0", "enp1s0f1np1", "enP2p1s0f1np1"]


@pytest.mark.parametrize(("name", "hosts"), [("switch", 1), ("switch", 27), ("fleet", 0), ("fleet", 151)])
def test_too_few_or_too_many_hosts_are_refused(name: str, hosts: int) -> None:
    with pytest.raises(ValueError, match=f"--hosts {hosts}"):
        topology(name, hosts)


def test_a_fleet_of_another_architecture_is_refused() -> None:
    with pytest.raises(ValueError, match="containers run on this machine's kernel"):
        topology("fleet", 2, "arm64")


def test_both_twins_of_a_cabled_port_hang_on_the_cable_and_an_uncabled_port_on_nothing() -> None:
    plan = topology("pair")
    host = plan.hosts[0]
    plugged = {line.split()[2] for line in network.host_commands(plan, host) if line.endswith("master cable1")}
    assert plugged == {nic.outer for nic in host.nics if nic.name in RAILS["p0"]}
    assert f"link set {host.nics[0].outer} master management" in network.host_commands(plan, host)
    assert not any("master" in line for line in network.host_commands(plan, host) if f"{host.nics[3].outer} " in line)


def test_a_container_gets_management_alone() -> None:
    plan = topology("fleet", 1)
    made = [line for line in network.host_commands(plan, plan.hosts[0]) if " add " in line]
    assert made == ["link add h101-m type veth peer name enP7s7 address 02:67:62:10:65:00 netns gb10-spark-01"]
