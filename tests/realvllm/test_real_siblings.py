"""A slow sibling is found and noise is not, by the speeds of a real vLLM that is held up for one of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe as serving
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import benchmark

from tests.realvllm.real import Real, is_ours
from tests.support.load_figures import HEALTHY, readings, result
from tests.support.proofs import NOW

TOKENS = 64  # of an answer
REQUEST = {"prompts": 4, "input_tokens": 16, "shared_tokens": 0, "output_tokens": TOKENS}
EVEN, SLOW = ("spark-a", "spark-b", "spark-d"), "spark-c"
RUNS, ANSWERS = 3, 15  # a run is the median of so many answers


def processes(top: int) -> list[int]:
    """The server and all that it has started; the engine has a group of its own."""
    children = Path(f"/proc/{top}/task/{top}/children").read_text().split()
    return [top, *(each for child in children for each in processes(int(child)))]


@contextlib.contextmanager
def held_up(top: int) -> Iterator[None]:
    """The server gets a part of its time, as behind a power supply that throttles."""
    end, held = threading.Event(), processes(top)

    def send(sign: signal.Signals) -> None:
        for process in held:
            os.kill(process, sign)

    def pulse() -> None:
        while not end.is_set():
            send(signal.SIGSTOP)
            time.sleep(0.06)
            send(signal.SIGCONT)
            end.wait(0.01)

    thread = threading.Thread(target=pulse)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        send(signal.SIGCONT)


def document(speeds: dict[str, list[float]], earlier: Any = ()) -> dict[str, Any]:
    def step(speed: float) -> dict[str, Any]:
        load = {"result": result(speed), "version": "0.32.0", "others": 0, "prefix_cache": None}
        return {"concurrency": 1, "load": load, "readings": readings(*HEALTHY)}

    hosts = {
        name: {
            "cluster": name,
            "conditions": {"model": "tiny", "image": "i", "args": []},
            "steps": [step(speed) for speed in runs],
        }
        for name, runs in speeds.items()
    }
    return dict(
        json.loads(
            json.dumps(benchmark.build(hosts, {}, REQUEST, catalog.load("thresholds"), NOW, earlier, (*EVEN, SLOW)))
        )
    )


def test_the_slow_sibling_is_found_and_noise_is_not(real: Callable[..., Real], trained: Path) -> None:
    """The four take turns answer by answer, so that what else this machine does falls on all of them alike."""
    one = real("--max-model-len", "2048", model=trained).start()
    one.reaches("ready")
    ask = serving.http_client(f"http://127.0.0.1:{one.port}", None, is_ours)

    def speed() -> float:
        began = time.monotonic()
        question = {"model": "tiny", "prompt": "What is 6 * 7?", "max_tokens": TOKENS, "ignore_eos": True}
        reply = ask("/v1/completions", question, 120)
        assert reply.status == 200, reply
        return TOKENS / (time.monotonic() - began)

    def held() -> float:
        with held_up(one.pid):
            return speed()

    speed()  # the first one warms up
    seen: dict[str, list[float]] = {name: [] for name in (*EVEN, SLOW)}
    for _ in range(RUNS * ANSWERS):
        for name in EVEN:
            seen[name].append(speed())
        seen[SLOW].append(held())
    one.life.stop()
    one.end()
    runs = {name: [statistics.median(all_of_it[at::RUNS]) for at in range(RUNS)] for name, all_of_it in seen.items()}
    found = document(runs)
    odd = {each["name"] for each in found["clusters"] if each["verdict"] == "odd_one_out"}
    assert odd == {SLOW}, runs
    earlier = [document({"spark-a": [each]}) for each in runs["spark-a"]]
    again, slower = (document({"spark-a": runs[name]}, earlier)["verdict"] for name in ("spark-b", SLOW))
    assert (again, slower) == ("as_expected", "slower_than_before"), runs
