"""Many services behind routers, seen from outside: every method, path and key, and exactly what is declared answers."""

from __future__ import annotations

import http.client
import itertools
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from tests.support import router_fleet
from tests.support.router_fleet import FLEET_KEY, KEY, Fleet, Spark

pytestmark = pytest.mark.skipif(router_fleet.MISSING, reason=router_fleet.WHY)
BIG, SMALL, THIRD = "Qwen/Qwen3-8B", "bge-m3", "reranker"
HOSTS = {"spark-a": [BIG, SMALL], "spark-b": [BIG], "spark-c": [SMALL, THIRD]}
DECLARED = {entry["value"] for entry in catalog.load("gateway")["endpoints"]}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD")
PLACES = ("qwen-qwen3-8b", "bge-m3", "reranker", "no-such-model")
OTHERS = (
    "/", "/metrics", "/docs", "/openapi.json", "/tokenize", "/pause", "/invocations", "/collective_rpc", "/v1",
    "/v1/models/", "/v1//models", "/v1/%6dodels", "/V1/models", "/v1/rerank", "/v1/score", "/v1/load_lora_adapter",
    "/replica", "/replica/", "/health/", "/stats", "/haproxy",
)  # fmt: skip
PATHS = (
    *sorted({entry.split()[1] for entry in DECLARED}),
    *OTHERS,
    *(f"/replica/{place}{path}" for place in PLACES for path in ("/v1/chat/completions", "/v1/models", "/metrics")),
)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with router_fleet.running(HOSTS) as made:
        yield made


def expected(spark: Spark, key: str, method: str, path: str) -> int:
    """By the inventory alone: what a gateway with these services and this list owes to whoever asks."""
    if key not in (KEY, FLEET_KEY):
        return 401
    if key == FLEET_KEY:
        places = {"-".join(model.lower().replace("/", " ").split()) for model in spark.models}
        if path not in {f"/replica/{place}/v1/chat/completions" for place in places}:
            return 404
        return 200 if method == "POST" else 405
    methods = {entry.split()[0] for entry in DECLARED if entry.split()[1] == path}
    return 404 if not methods else 200 if method in methods else 405


def statuses(fleet: Fleet, spark: Spark, key: str) -> Iterator[tuple[str, str, int]]:
    trusted = ssl.create_default_context(cafile=str(fleet.ca))
    connection = http.client.HTTPSConnection(spark.address, spark.gateway_port, context=trusted, timeout=60)
    for method, path in itertools.product(METHODS, PATHS):
        body = json.dumps({"model": spark.models[0]}) if method not in ("GET", "HEAD") else None
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        yield method, path, answer.status
    connection.close()


@pytest.mark.parametrize("key", ["", "wrong", KEY, FLEET_KEY], ids=["none", "wrong", "client", "fleet"])
@pytest.mark.parametrize("host", HOSTS)
def test_exactly_what_is_declared_answers(fleet: Fleet, host: str, key: str) -> None:
    """A client's key opens no replica, and the fleet's nothing else."""
    spark = fleet.spark(host)
    wrong = [
        (method, path, status, wanted)
        for method, path, status in statuses(fleet, spark, key)
        if status != (wanted := expected(spark, key, method, path))
    ]
    assert wrong == []


def test_nginx_has_one_port_and_haproxy_none(fleet: Fleet) -> None:
    for spark, process in zip(fleet.sparks, fleet.processes, strict=False):
        assert listening(process.pid) == {spark.gateway_port}
    assert fleet.haproxy is not None and listening(fleet.haproxy.pid) == set()


def listening(pid: int) -> set[int]:
    """The TCP ports on which a process and its children listen."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    ports = {row[9]: int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
    found = set()
    for each in (pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
        for link in Path(f"/proc/{each}/fd").iterdir():
            target = str(link.readlink())
            if target.startswith("socket:[") and target[8:-1] in ports:
                found.add(ports[target[8:-1]])
    return found
