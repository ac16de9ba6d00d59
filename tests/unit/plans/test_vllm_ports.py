"""Ports that other parts of ours have: no service takes one, and whose it is is said."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import monitoring
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import planner as vllm

from tests.support.proofs import facts

IMAGE = "registry.example/vllm@sha256:" + "0" * 64
GATEWAY = {"gateway_address": "192.0.2.11"}
SERVER = {"monitoring_enabled": True, "monitoring_server": True}
PAIR = ["spark-a", "spark-b"]


def service(port: int, **more: Any) -> dict[str, Any]:
    return {"model": "acme/chat", "port": port, "memory_gib": 20, **more}


def container(port: int) -> dict[str, Any]:
    return {"kind": "container", "image": IMAGE, "port": port, "served_model_name": "tts", "memory_gib": 6}


def refusals(
    entries: dict[str, Any], members: list[str] | None = None, packages: dict[str, str] | None = None, **said: Any
) -> tuple[str, ...]:
    known = {**facts(), "packages": {**facts()["packages"], **(packages or {})}, "installed_by_us": []}
    given = {"vllm_image": IMAGE, "vllm_services": entries, **said}
    peers = {name: known for name in members or [] if name != "spark-a"}
    others = dict.fromkeys(peers, given)
    return vllm.plan(View("spark-a", known, given, members or [], peers, others)).refusals


@pytest.mark.parametrize(
    ("port", "said", "owner"),
    [
        (9100, {"monitoring_enabled": True}, "node_exporter (monitoring_port)"),
        (9101, {"monitoring_enabled": True, "monitoring_port": 9101}, "node_exporter (monitoring_port)"),
        (9090, SERVER, "Prometheus (monitoring_server)"),
        (9093, SERVER, "Alertmanager (monitoring_server)"),
        (3000, {**SERVER, "monitoring_grafana": True}, "Grafana (monitoring_server)"),
        (80, {**GATEWAY, "packages": {"nginx": "1.24"}}, "the NGINX that was there before the gateway"),
    ],
)
@pytest.mark.parametrize("entry", [service, container])
def test_a_port_of_another_part_is_refused_with_its_owner(
    port: int, said: dict[str, Any], owner: str, entry: Any
) -> None:
    (text,) = refusals({"chat": entry(port)}, **said)
    way_out = "Choose another, such as 8000."
    assert text == f"vllm_services.chat.port is {port}, which {owner} has on this host. {way_out}"
    assert refusals({"chat": entry(8001)}, **said) == ()


def test_the_short_form_is_told_its_own_variable() -> None:
    short = {"vllm_model": "openai/gpt-oss-20b", "vllm_port": 9100, "monitoring_enabled": True}
    (text,) = refusals({}, **short)
    assert text.startswith("vllm_port is 9100, which node_exporter (monitoring_port) has on this host.")


@pytest.mark.parametrize(
    ("port", "said"),
    [
        (9100, {}),
        (9090, {"monitoring_enabled": True}),
        (3000, SERVER),
        (80, GATEWAY),
        (80, {"packages": {"nginx": "1.24"}}),
        (29590, {"flight_recorder_enabled": True}),
    ],
)
def test_a_part_that_a_host_does_not_have_takes_no_port(port: int, said: dict[str, Any]) -> None:
    assert refusals({"chat": service(port)}, **said) == ()


def test_ports_of_the_cluster_are_told_to_a_service_of_one_host() -> None:
    entries = {"big": service(8000), "embed": {**service(29590, span="host"), "model": "acme/embed"}}
    (text,) = refusals(entries, PAIR, flight_recorder_enabled=True)
    assert "vllm_services.embed.port is 29590, which the flight recorder (flight_recorder_port) has" in text
    by_ray = {**entries, "big": service(8000, executor="ray", ray_token="x" * 32)}
    by_ray["embed"]["port"] = 6380
    (text,) = refusals(by_ray, PAIR)
    assert text == "vllm_services.embed.port is 6380, which Ray of big has on this host. Choose another."


def test_the_catalog_has_the_ports_that_the_stack_is_told() -> None:
    ports = {row["package"]: row["value"] for row in catalog.load("monitoring")["stack_ports"]}
    assert monitoring.PROMETHEUS.endswith(f":{ports['prometheus']}")
    assert monitoring.ALERTMANAGER.endswith(f":{ports['prometheus-alertmanager']}")


def test_a_layout_with_an_unknown_service_is_found_beside_the_short_form_alone() -> None:
    (text,) = refusals({}, vllm_model="openai/gpt-oss-20b", gb10_layouts={"day": ["vllm"], "night": ["vlm"]})
    assert text == "gb10_layouts.night: no service is called vlm; there are vllm."
    assert refusals({}, vllm_model="openai/gpt-oss-20b", gb10_layouts={"day": ["vllm"]}) == ()
