"""The plan of the gateway: where it is, where vLLM is, which paths are open, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import plan as plans
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway import planner as gateway
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.gateway.planner import GatewayPlan, Path

KEY = "Sesame/0123456789.abcdef+ABCDEF~_-="
SAID: dict[str, Any] = {
    "gateway_address": "192.0.2.11", "gateway_plain_http": True, "gateway_keys": {"laptop": KEY},
}  # fmt: skip
FILES = {"gateway_certificate": "/etc/a.pem", "gateway_certificate_key": "/etc/b.pem"}
BARE: dict[str, Any] = {"packages": {}, "installed_by_us": []}


def planned(host: str = "spark-a", facts: dict[str, Any] = BARE, **variables: Any) -> GatewayPlan:
    return gateway.plan(View(host, facts, SAID | variables, ("spark-a", "spark-b")))


@pytest.mark.parametrize(
    ("host", "given", "serves"),
    [("spark-a", {}, True), ("spark-b", {}, False), ("spark-a", {"gateway_address": ""}, False)],
)
def test_it_stands_in_front_of_the_head(host: str, given: dict[str, Any], serves: bool) -> None:
    assert planned(host, **given).serves == serves


@pytest.mark.parametrize(
    ("host", "upstream"),
    [("127.0.0.1", "127.0.0.1:8000"), ("localhost", "127.0.0.1:8000"), ("::1", "[::1]:8000")],
)
def test_where_vllm_is(host: str, upstream: str) -> None:
    assert planned(vllm_host=host).upstream == upstream


def test_a_path_has_all_its_methods_and_health_is_no_path_of_clients() -> None:
    paths = ["GET /v1/a", "POST /v1/b", "POST /v1/a", "GET /health"]
    assert planned(gateway_paths=paths).paths == (Path("/v1/a", ("GET", "POST")), Path("/v1/b", ("POST",)))


@pytest.mark.parametrize(
    ("packages", "by_us", "ours"), [({}, [], True), ({"nginx": "1"}, ["nginx"], True), ({"nginx": "1"}, [], False)]
)
def test_whose_nginx_it_is(packages: dict[str, str], by_us: list[str], ours: bool) -> None:
    assert planned(facts={"packages": packages, "installed_by_us": by_us}).nginx_is_ours == ours


TWO = {name: {"model": name, "port": port, "span": "host"} for name, port in (("one", 8000), ("two", 8001))}


@pytest.mark.parametrize(
    ("given", "packages", "unwanted"),
    [
        ({"vllm_services": TWO}, ("nginx", "haproxy"), []),
        ({}, ("nginx",), ["gb10-router.service"]),
        ({"gateway_address": ""}, (), ["gb10-router.service", "gb10-gateway.service"]),
        ({"gateway_address": "", "vllm_services": TWO}, (), ["gb10-router.service", "gb10-gateway.service"]),
    ],
)
def test_what_a_host_gets_and_what_is_taken_away(
    given: dict[str, Any], packages: tuple[str, ...], unwanted: list[str]
) -> None:
    plan = planned(facts=BARE | {"memory_bytes": 128 << 30}, **given)
    assert (plan.packages, [proxy.unit for proxy in plan.unwanted]) == (packages, unwanted)
    assert [file for file in plan.unwanted_files if file.endswith(".service")] == [
        f"/etc/systemd/system/{unit}" for unit in unwanted
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"gateway_address": "lan"}, "gateway_address 'lan' is no IP address"),
        *(({"gateway_port": port}, f"gateway_port {port} is no TCP port") for port in (0, 65536, 8000, 6379, 6380)),
        ({"gateway_plain_http": False}, "gateway_address is set, and gateway_certificate"),
        (FILES, "gateway_plain_http is true and a certificate is named"),
        (FILES | {"gateway_plain_http": False, "gateway_certificate": "a.pem"}, "gateway_certificate 'a.pem' or"),
        ({"gateway_keys": {}}, "gateway_address is set and gateway_keys is empty"),
        ({"gateway_keys": {"a b": KEY}}, "gateway_keys names a b."),
        ({"gateway_keys": {"a": "short"}}, "gateway_keys: the key of a is shorter"),
        ({"gateway_keys": {"a": KEY, "b": KEY}}, "gateway_keys has the same key twice"),
        ({"gateway_paths": ["GET v1"]}, "gateway_paths holds GET v1."),
        ({"gateway_paths": [""]}, "gateway_paths holds ."),
        ({"gateway_paths": ["GET /pause"]}, "gateway_paths opens what no client may reach: /pause, which stops "),
        (
            {"gateway_paths": ["POST /update_weights_from_disk"]},
            "gateway_paths opens what no client may reach: /update",
        ),
        (
            {"gateway_paths": ["POST /release_memory_occupation"]},
            "gateway_paths opens what no client may reach: /release",
        ),
        ({"gateway_paths": ["GET /configure_logging"]}, "gateway_paths opens what no client may reach: /configure"),
        ({"gateway_paths": ["GET /get_server_info"]}, "gateway_paths opens what no client may reach: /get_server"),
        ({"gateway_paths": ["POST /init_weights_update_group"]}, "gateway_paths opens what no client may reach: /init"),
        (
            {"gateway_paths": ["PUT /hicache/storage-backend"]},
            "gateway_paths opens what no client may reach: /hicache/s",
        ),
        ({"gateway_paths": ["POST /end_weight_update"]}, "gateway_paths opens what no client may reach: /end_weight"),
        ({"gateway_paths": ["POST /tools"]}, "gateway_paths opens what no client may reach: /tools, which runs"),
        (
            {"gateway_paths": ["POST /v1/chat/completions/control"]},
            "gateway_paths opens what no client may reach: /v1/c",
        ),
        ({"gateway_paths": ["POST /slots/3"]}, "gateway_paths opens what no client may reach: /slots/3, which shows"),
        ({"vllm_host": "192.0.2.11"}, "vllm_host is 192.0.2.11, so clients reach vLLM past the gateway"),
        ({"vllm_api_key": "a$b"}, "vllm_api_key has other characters"),
    ],
)
def test_what_is_refused_where_it_stands_and_only_there(given: dict[str, Any], says: str) -> None:
    (found,) = planned(**given).refusals
    assert found.startswith(says)
    assert planned("spark-b", **given).refusals == ()


def test_a_plan_may_be_shown() -> None:
    shown = json.dumps(plans.shown(planned(vllm_api_key="sesame")))
    assert KEY not in shown and "sesame" not in shown
