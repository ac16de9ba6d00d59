"""A slow sibling is found and noise is not, by the speeds of a real vLLM that is held up for one of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.serving import load as serving_load
from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe as serving
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, run_command
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import benchmark

from tests.realvllm.real import Real, is_ours
from tests.support.load_figures import HEALTHY, readings
from tests.support.proofs import NOW

LOAD: dict[str, Any] = {"requests": 8, "concurrency": 1, "input_tokens": 64, "shared_tokens": 16, "output_tokens": 64}
REQUEST = {"prompts": 8, "input_tokens": 64, "shared_tokens": 16, "output_tokens": 64}
EVEN, SLOW, ROUNDS = ("spark-a", "spark-b", "spark-d"), "spark-c", 3


@contextlib.contextmanager
def held_up(group: int) -> Iterator[None]:
    """The server gets two thirds of its time, as behind a clock that is down."""
    end = threading.Event()

    def pulse() -> None:
        while not end.is_set():
            os.killpg(group, signal.SIGSTOP)
            end.wait(0.02)
            os.killpg(group, signal.SIGCONT)
            end.wait(0.02)

    thread = threading.Thread(target=pulse)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        os.killpg(group, signal.SIGCONT)


def document(found: dict[str, list[dict[str, Any]]], earlier: Any = ()) -> dict[str, Any]:
    steps = {
        name: [{"concurrency": 1, "load": {**each, "others": 0}, "readings": readings(*HEALTHY)} for each in runs]
        for name, runs in found.items()
    }
    hosts = {
        name: {"cluster": name, "conditions": {"model": "tiny", "image": "i", "args": []}, "steps": runs}
        for name, runs in steps.items()
    }
    return dict(json.loads(json.dumps(benchmark.build(hosts, {}, REQUEST, catalog.load("thresholds"), NOW, earlier))))


def test_the_slow_sibling_is_found_and_noise_is_not(
    real: Callable[..., Real], trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = real("--max-model-len", "2048", model=trained).start()
    one.reaches("ready")
    monkeypatch.setenv("PATH", f"{one.docker.parent}:{os.environ['PATH']}")
    url = f"http://127.0.0.1:{one.port}"
    ask = serving.http_client(url, None, is_ours)
    where = {"model": str(trained), "served_name": "tiny", "url": url, "seed": 1, "timeout_s": 300}
    sampling = serving_load.Sampling(busy_percent=50, enough=1, within_s=1)

    def measured() -> dict[str, Any]:
        found: dict[str, Any] = serving_load.measure(
            serving_load.Load(**where, **LOAD), sampling, ask, run_command, Clock()
        )["load"]
        assert "error" not in found, found
        return found

    measured()  # the first one warms up
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in (*EVEN, SLOW)}
    for _ in range(ROUNDS):
        for name in EVEN:
            runs[name].append(measured())
        with held_up(one.pid):
            runs[SLOW].append(measured())
    one.life.stop()
    one.end()
    found = document(runs)
    speeds = {each["name"]: [step["tokens_per_s"] for step in each["steps"]] for each in found["clusters"]}
    print(speeds)
    odd = {each["name"] for each in found["clusters"] if each["verdict"] == "odd_one_out"}
    assert odd == {SLOW}, speeds
    earlier = [document({"spark-a": [each]}) for each in runs["spark-a"]]
    again = document({"spark-a": runs["spark-b"]}, earlier)
    slower = document({"spark-a": runs[SLOW]}, earlier)
    assert (again["verdict"], slower["verdict"]) == ("as_expected", "slower_than_before"), speeds
