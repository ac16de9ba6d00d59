"""The whole life of a service of llama.cpp with its real server, where GB10_LLAMA_SERVER names one.

What plays Docker runs the words of the plan on this machine, with the model's path in the container led to the file.
"""

from __future__ import annotations

import http.client
import itertools
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.reading import counters
from ansible_collections.gb10.fleet.plugins.module_utils.reading.engine_metrics import in_names_of_vllm
from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe
from ansible_collections.gb10.fleet.plugins.module_utils.serving.canary import QUESTIONS
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.llama_cpp import ENGINE

from tests.realvllm.llama import ENTRY, SERVER
from tests.realvllm.real import there_is_a_vllm
from tests.support.ports import free_port
from tests.support.service_plans import made
from tests.support.vllm_unit import QUICK, Host, wait_until

pytestmark = pytest.mark.skipif(
    not SERVER, reason="GB10_LLAMA_SERVER names none: the life with a real llama.cpp NOT tested"
)
DOCKER = """#!/bin/sh
cd "${{0%/*}}" || exit 9
case $1 in
  container) [ -e running ] || exit 1; cat running;;
  stop | rm) [ ! -e running ] || {{ kill -TERM "$(cat running)" 2>/dev/null; rm -f running; }};;
  run) echo $$ >running.new && mv running.new running; exec {words};;
esac
"""


@pytest.fixture(name="served")
def fixture_served(tmp_path: Path, gguf: Path) -> Iterator[Callable[..., Host]]:
    hosts: list[Host] = []

    def serve(*more: str, key: str = "") -> Host:
        plan = made({"m": {**ENTRY, "port": free_port(), "extra_args": list(more), "api_key": key}})["m"]
        words = list(plan.argv[plan.argv.index("/app/llama-server") + 2 :])
        words[words.index("--model") + 1] = str(gguf)
        host = Host(tmp_path)
        host.raw |= {key: plan.program[key] for key in ("phases", "failures", "ready_url", "api")}
        host.raw["timing"] = {**QUICK, "stop": 10.0}
        given = [value for option, value in itertools.pairwise(plan.argv) if option == "--env"]
        given += [f"{name}={key}" for name in plan.secrets]
        host.docker.write_text(DOCKER.format(words=shlex.join(["env", *given, SERVER, *words])))
        hosts.append(host.start())
        return host

    yield serve
    for host in hosts:
        if host.thread.is_alive():
            host.stop()


def asked(host: Host, key: str | None = None) -> server_probe.Ask:
    url = str(host.raw["ready_url"]).removesuffix("/health")
    return server_probe.http_client(url, key, lambda _connection: True)


def test_it_loads_serves_is_proven_counted_and_stopped(served: Callable[..., Host]) -> None:
    host = served()
    wait_until(lambda: host.active)
    door = host.path.parent / "serving"
    while host.status["phase"] != "ready":
        assert not door.exists(), "the gateway sends nothing to a server that loads"
    wait_until(door.exists)
    ask = asked(host)
    asks = QUESTIONS if there_is_a_vllm() else ()  # its torch has taught the model what they ask
    proof = server_probe.probe(ask, "m", timeout_s=10, answer_timeout_s=60, questions=asks, status=lambda: host.status)
    assert (proof.verdict, proof.served_models, proof.phase) == ("serving", ("m",), "ready"), proof
    said = ask(
        "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}, 90
    )
    assert said.status == 200 and '"completion_tokens":4' in said.body, said
    found = counters.parse(in_names_of_vllm(ask("/metrics", None, 5).body, ENGINE.metrics))
    assert found["running"] == 0 and (found["generated_tokens"] or 0) > 0 and (found["prompt_tokens"] or 0) > 0
    assert host.stop() == 0


def test_its_key_is_asked_for_at_every_path_and_the_collector_has_it(
    served: Callable[..., Host], tmp_path: Path
) -> None:
    host = served(key="sesame")
    url = str(host.raw["ready_url"]).removesuffix("/health")
    paths = ("/v1/models", "/v1/chat/completions", "/metrics", "/props", "/slots", "/completion", "/apply-template")
    wait_until(lambda: host.active and host.status["phase"] == "ready")
    said = {key: [asked(host, key)(path, None, 5).status for path in paths] for key in (None, "else")}
    assert said == {None: [401] * len(paths), "else": [401] * len(paths)}
    proof = server_probe.probe(
        asked(host, "sesame"), "m", timeout_s=10, answer_timeout_s=60, questions=(), status=lambda: host.status
    )
    assert proof.verdict == "serving", proof
    secrets = tmp_path / "vllm-m.env"
    secrets.write_text("LLAMA_API_KEY=sesame\n")
    for file, status in ((str(secrets), 200), (None, 401)):
        port = int(url.rpartition(":")[2])
        service = counters.Service("m", "m", "m", "127.0.0.1", port, 1, ENGINE.metrics, file)
        assert service.metrics(5, counters.LARGEST, lambda _connection: True)[0] == status


@pytest.mark.parametrize(("page", "may"), [("http://page.example", False), ("http://localhost:8080", True)])
def test_a_page_of_the_web_reads_none_of_its_answers(served: Callable[..., Host], page: str, may: bool) -> None:
    host = served()
    wait_until(lambda: host.active and host.status["phase"] == "ready")
    port = int(str(host.raw["ready_url"]).removesuffix("/health").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/health", headers={"Origin": page})
    assert connection.getresponse().headers["Access-Control-Allow-Origin"] == (page if may else None)
    connection.close()


def test_a_load_is_no_death(served: Callable[..., Host]) -> None:
    """Its server answers 503 from its first moment on."""
    host = served()
    proof = server_probe.probe(
        asked(host), "m", timeout_s=30, answer_timeout_s=60, questions=(), status=lambda: host.status
    )
    assert proof.served_models == ("m",), proof


def test_a_flag_that_it_has_not_is_named(served: Callable[..., Host]) -> None:
    host = served("--nonsense")
    assert host.end() != 0
    assert host.status["failure"]["verdict"] == "refused_flag" and "--nonsense" in host.status["failure"]["text"]
