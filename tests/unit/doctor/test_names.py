"""Names of variables: a mistyped one of ours stops a fleet, and one of another collection does not."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.findings import evaluate_variables
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.names import slips
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.subject import Subject
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from tests.support.proofs import facts


def judged(**variables: Any) -> Subject:
    return Subject(
        "spark-a", facts(), {"vllm_model": "openai/gpt-oss-120b", **variables}, {}, {}, catalog.declared_variables()
    )


# Defaults of roles that many fleets have, beside hand-made variables as in many inventories.
FOREIGN = """
docker_users docker_edition docker_package docker_packages docker_package_state docker_service_state
docker_service_enabled docker_restart_handler_state docker_install_compose docker_compose_version
docker_compose_path docker_repo_url docker_apt_arch docker_apt_repository docker_add_repo docker_privileged_users
docker_user docker_group docker_uid docker_gid docker_bin_dir docker_channel docker_latest_version docker_plugins
docker_setup_repos docker_daemon_config docker_daemon_envs docker_daemon_opts docker_storage docker_registry
docker_networks docker_volumes docker_config_mtu docker_config_hosts docker_pip_upgrade docker_remove docker_sdk
docker_stack docker_repo_enabled docker_pkg_name docker_service_name docker_client_config firewall_state
firewall_enabled_at_boot firewall_flush_rules_and_chains firewall_allowed_incoming_tcp_ports
firewall_allowed_tcp_ports firewall_allowed_udp_ports firewall_forwarded_tcp_ports firewall_additional_rules
firewall_enable_ipv6 firewall_log_dropped_packets firewall_disable_firewalld firewall_disable_conflicting_services
firewall_ssh_port gateway_ip gateway_host gateway_name gateway_enabled gateway_vip driver_name driver_version
driver_branch driver_packages fabric_name fabric_type fabric_id fabric_asn reboot_required reboot_timeout
reboot_delay benchmark_tool benchmark_results
""".split()  # noqa: SIM905


def test_variables_of_other_collections_stop_no_fleet() -> None:
    found = evaluate_variables(judged(**dict.fromkeys(FOREIGN)))
    assert [(one.id, one.severity) for one in found] == [("foreign_variables", "info")]
    assert all(name in found[0].fact for name in FOREIGN)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("fabric_mut", "fabric_mtu"), ("docker_vesrion", "docker_version"), ("docker_sorce", "docker_source"),
        ("docker_daemon_option", "docker_daemon_options"), ("docker_deamon_optons", "docker_daemon_options"),
        ("firewall_open_port", "firewall_open_ports"), ("firewall_cleints", "firewall_clients"),
        ("gateway_adress", "gateway_address"), ("gateway_prot", "gateway_port"), ("driver_hostset", "driver_host_set"),
        ("reboot_alow", "reboot_allow"), ("vllm_max_num_seqs", "vllm_"), ("gb10_clusters", "gb10_cluster"),
        ("gb10_something_else", "README"), ("page_cache_operator", "page_cache_operators"),
    ],
)  # fmt: skip
def test_a_mistyped_name_of_ours_stops_it(name: str, meant: str) -> None:
    (found,) = evaluate_variables(judged(**{name: 1}))
    assert found.id == "unknown_variable" and found.blocks
    assert name in found.fact and meant in found.way_out


def test_all_mistyped_names_are_said_at_once() -> None:
    found, others = evaluate_variables(judged(fabric_mut=1, vllm_modle="m", docker_users=[]))
    assert found.fact == "no role declares the variables fabric_mut, vllm_modle"
    assert "fabric_mut (did you mean fabric_mtu?), vllm_modle (did you mean vllm_model?)" in found.way_out
    assert others.fact.startswith("docker_users: ")


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [("mtu", "mtu", 0), ("mut", "mtu", 1), ("mt", "mtu", 1), ("matu", "mtu", 1), ("utm", "mtu", 2), ("", "mtu", 3)],
)
def test_slips_are_counted(one: str, other: str, count: int) -> None:
    assert slips(one, other) == slips(other, one) == count
