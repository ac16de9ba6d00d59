"""A service that sleeps until it is asked: real NGINX, HAProxy and responder; a thread is in the place of systemd."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.support import router_fleet
from tests.support.router_fleet import FLEET_KEY, KEY, Fleet
from tests.support.sleeper import Sleeper

pytestmark = pytest.mark.skipif(router_fleet.MISSING, reason=router_fleet.WHY)
AWAKE, HERE, THERE, LONE = "Qwen/Qwen3-8B", "bge-m3", "reranker", "of-one-host-alone"
LOADED_IN_S = 41.5


class Answer(NamedTuple):
    status: int
    retry_after: str | None
    said: Any

    @property
    def words(self) -> str:
        return str(self.said["error"]["message"])


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    hosts = {"spark-a": [AWAKE, HERE], "spark-b": [THERE], "spark-c": [LONE]}
    with router_fleet.running(hosts, alone=["spark-c"], sleeps=[HERE, THERE, LONE]) as made:
        yield made


@contextmanager
def asleep(fleet: Fleet, host: str, model: str, serves: bool = True) -> Iterator[Sleeper]:
    """The socket of a service, which its first request starts where it `serves`."""
    spark = fleet.spark(host)
    home = fleet.folder / host
    status = home / f"run/gb10-{spark.stem(model)}/status.json"
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_text(json.dumps({"phase": "stopped", "load_s": LOADED_IN_S}))
    sleeper = Sleeper(
        home / f"wake/{spark.stem(model)}.sock",
        spark.stem(model),
        home / "run",
        lambda: spark.serve(model) if serves else None,
    )
    try:
        yield sleeper
    finally:
        if sleeper.path.exists():
            sleeper.stop()
        if model in spark.replicas:
            spark.kill_one(model)


def ask(fleet: Fleet, model: str, path: str = "/v1/chat/completions", host: str = "spark-a", key: str = KEY) -> Answer:
    spark = fleet.spark(host)
    trusted = ssl.create_default_context(cafile=str(fleet.ca))
    connection = http.client.HTTPSConnection(spark.address, spark.gateway_port, context=trusted, timeout=60)
    body = None if path.endswith("/health") else json.dumps({"model": model, "messages": ["x" * 100_000]})
    connection.request("POST" if body else "GET", path, body, {"Authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    return Answer(answer.status, answer.headers["Retry-After"], json.loads(said) if said else None)


def await_answer(fleet: Fleet, model: str, host: str = "spark-a") -> Any:
    until = time.monotonic() + 60
    while (answer := ask(fleet, model, host=host)).status != 200:
        assert answer.status == 503 and time.monotonic() < until, answer
        time.sleep(0.2)
    return answer.said


def await_sleep(fleet: Fleet, host: str) -> None:
    """Another test may have had it awake: the router asks in turns."""
    until = time.monotonic() + router_fleet.READY_S
    while {each["host"]: each["state"] for each in fleet.show() if each["on_demand"]}[host] != "asleep":
        assert time.monotonic() < until, fleet.show()
        time.sleep(0.1)


@pytest.mark.parametrize(("host", "model"), [("spark-a", HERE), ("spark-b", THERE)])
def test_the_first_request_starts_it_and_says_when_to_ask_again(fleet: Fleet, host: str, model: str) -> None:
    """Through the router of spark-a, for a service of its own and for one of another host."""
    await_sleep(fleet, host)
    with asleep(fleet, host, model, serves=False) as sleeper:
        first = ask(fleet, model)
        assert (first.status, first.retry_after) == (503, "42"), "as long as its last load took"
        assert "asleep" in first.words and sleeper.activations == 1
        fleet.spark(host).serve(model)  # it has loaded
        assert await_answer(fleet, model)["replica"] == host
        fleet.await_state(host, "ready")


def test_nobody_without_a_key_and_no_look_at_its_health_starts_it(fleet: Fleet) -> None:
    with asleep(fleet, "spark-b", THERE) as sleeper:
        for key in ("", "wrong", FLEET_KEY):
            assert ask(fleet, THERE, key=key).status in (401, 404)
        assert ask(fleet, THERE, "/v1/score").status == 404
        assert ask(fleet, THERE, "/health", key="").status == 200, "another model serves"
        assert ask(fleet, THERE, f"/replica/{THERE}/health", "spark-b", FLEET_KEY).status == 503, "as the router asks"
        assert sleeper.activations == 0


def test_who_asks_at_once_starts_it_once(fleet: Fleet) -> None:
    with asleep(fleet, "spark-b", THERE, serves=False) as sleeper:
        assert {ask(fleet, THERE).status for _ in range(8)} == {503}
        assert sleeper.activations == 1


def test_what_the_operator_stopped_is_not_started_and_the_answer_says_so(fleet: Fleet) -> None:
    with asleep(fleet, "spark-b", THERE) as sleeper:
        sleeper.stop()  # as `gb10 stop` does
        answer = ask(fleet, THERE)
        assert (answer.status, answer.retry_after) == (503, "5")
        assert "stopped by its operator" in answer.words and THERE not in fleet.spark("spark-b").replicas


def test_a_host_that_is_taken_out_of_the_router_is_not_woken(fleet: Fleet) -> None:
    with asleep(fleet, "spark-b", THERE, serves=False) as sleeper:
        assert fleet.router("drain", "spark-b").returncode == 0
        assert ask(fleet, THERE).status == 503 and sleeper.activations == 0
        fleet.reload()
        assert ask(fleet, THERE).status == 503 and sleeper.activations == 0
        assert fleet.router("ready", "spark-b").returncode == 0
        assert ask(fleet, THERE).status == 503 and sleeper.activations == 1


def test_a_start_that_failed_is_said_by_its_verdict(fleet: Fleet) -> None:
    with asleep(fleet, "spark-b", THERE, serves=False):
        status = fleet.folder / "spark-b/run/gb10-vllm/status.json"
        status.write_text(json.dumps({"phase": "failed", "failure": {"verdict": "memory_short"}}))
        answer = ask(fleet, THERE)
        assert (answer.status, answer.retry_after) == (503, "300") and "memory_short" in answer.words


def test_a_gateway_without_a_router_starts_its_only_service(fleet: Fleet) -> None:
    assert "/run/gb10-router" not in fleet.document(fleet.spark("spark-c"))["/etc/gb10-fleet/gateway.conf"]
    with asleep(fleet, "spark-c", LONE, serves=False) as sleeper:
        assert ask(fleet, LONE, "/health", "spark-c", "").status == 503 and sleeper.activations == 0
        first = ask(fleet, LONE, host="spark-c")
        assert (first.status, first.retry_after, sleeper.activations) == (503, "42", 1)
        fleet.spark("spark-c").serve(LONE)
        assert await_answer(fleet, LONE, "spark-c")["replica"] == "spark-c"
    with asleep(fleet, "spark-c", LONE) as sleeper:
        sleeper.stop()
        assert "stopped by its operator" in ask(fleet, LONE, host="spark-c").words
