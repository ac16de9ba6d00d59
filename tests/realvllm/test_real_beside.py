"""A real llama.cpp and a vLLM behind one router: drained and restarted in turn under load, and no request fails.

Needs GB10_LLAMA_SERVER. The vLLM is a stand-in, and a real one where GB10_REAL_VLLM names it.
"""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.realvllm import fleet as real_fleet
from tests.realvllm.fleet import CHAT, RealSpark
from tests.realvllm.llama import ENTRY, SERVER
from tests.realvllm.real import LONGEST_S, MISSING, there_is_a_vllm
from tests.support import router_fleet
from tests.support.ports import free_port
from tests.support.router_fleet import KEY, Fleet, Spark, at_work, await_port
from tests.support.service_plans import made

pytestmark = [
    pytest.mark.skipif(router_fleet.MISSING, reason=router_fleet.WHY),
    pytest.mark.skipif(not SERVER, reason="GB10_LLAMA_SERVER names no server of llama.cpp"),
]
CLIENTS, LEAST = 4, 40  # requests that each engine answers


@dataclass
class LlamaSpark(Spark):
    """A host that serves the model with a real llama.cpp, by the words of its plan."""

    gguf: Path = Path()

    def entry(self) -> dict[str, Any]:
        return {**ENTRY, "port": self.port, "served_model_name": CHAT}

    def variables(self) -> dict[str, Any]:
        return {"vllm_services": {"small": self.entry()}}

    def stem(self, model: str) -> str:
        return "vllm-small"

    def serve(self, model: str, gap_s: float = 0) -> None:
        plan = made({"small": self.entry()})["small"]
        words = list(plan.argv[plan.argv.index("/app/llama-server") + 2 :])
        words[words.index("--model") + 1] = str(self.gguf)
        with (self.home / "llama.log").open("wb") as log:
            self.replicas[model] = subprocess.Popen([SERVER, *words], stdout=log, stderr=log)
        self.serving(model).parent.mkdir(parents=True, exist_ok=True)
        self.serving(model).touch()

    def start(self, gap_s: float) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.serve(CHAT)
        await_port("127.0.0.1", self.port, self.replicas[CHAT])


class Load:
    """Clients that ask on, every third time for a stream; what went wrong, and who answered."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.stop, self.wrong = fleet, threading.Event(), list[str]()
        self.by: Counter[str] = Counter()
        self.threads = [threading.Thread(target=self._ask_on, args=(number,)) for number in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _ask_on(self, number: int) -> None:
        while not self.stop.is_set() and len(self.wrong) < CLIENTS:
            number += 1
            try:
                self._ask(stream=number % 3 == 0)
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.wrong.append(repr(error))

    def _ask(self, *, stream: bool) -> None:
        head = self.fleet.head
        trusted = ssl.create_default_context(cafile=str(self.fleet.ca))
        api = http.client.HTTPSConnection(head.address, head.gateway_port, context=trusted, timeout=LONGEST_S)
        asked = {"model": CHAT, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "stream": stream}
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        api.request("POST", "/v1/chat/completions", json.dumps(asked), headers)
        answer = api.getresponse()
        body = answer.read()
        api.close()
        ends = body.rstrip().endswith(b"[DONE]") if stream else bool(json.loads(body))
        if answer.status != 200 or not ends:
            self.wrong.append(f"{answer.status} {body[-200:]!r}")
        self.by["llama.cpp" if b"system_fingerprint" in body and b'"b1-' in body else "vLLM"] += 1

    def await_both(self) -> None:
        """Until each has answered some more."""
        goal = {name: self.by[name] + LEAST // 4 for name in ("llama.cpp", "vLLM")}
        while not self.wrong and any(self.by[name] < count for name, count in goal.items()):
            self.stop.wait(0.05)

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()


@pytest.fixture(name="beside", params=["a stand-in", "a real one"])
def fixture_beside(request: pytest.FixtureRequest, gguf: Path) -> Iterator[Fleet]:
    folder = Path(tempfile.mkdtemp(prefix="gb10r"))
    place = ("spark-b", "127.0.0.2", (CHAT,), (free_port(),))
    other: Spark = Spark(*place)
    if request.param == "a real one":
        if not there_is_a_vllm():
            pytest.skip(MISSING)
        request.getfixturevalue("quiet")
        taught: Callable[[str], Path] = request.getfixturevalue("taught")
        other = RealSpark(*place, folder=folder / "host-spark-b", model_of=taught)
    llama = LlamaSpark("spark-a", "127.0.0.1", (CHAT,), (free_port(),), gguf=gguf)
    fleet = Fleet(folder, [llama, other], 0.005, ())
    fleet.patience_s = LONGEST_S
    with at_work(fleet, folder):
        yield fleet


def restart(fleet: Fleet, spark: Spark) -> None:
    real_fleet.withdraw(fleet, spark.name, CHAT)
    if isinstance(spark, RealSpark):
        spark.stop(CHAT)
        spark.again(CHAT)
    else:
        spark.kill()
        spark.start(fleet.gap_s)
    real_fleet.rejoin(fleet, spark.name, CHAT)


def test_both_are_restarted_under_load_and_no_request_fails(beside: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    load = Load(beside)
    try:
        load.await_both()
        for spark in beside.sparks:
            restart(beside, spark)
            load.await_both()
    finally:
        load.end()
    with capsys.disabled():
        print(f"\nllama.cpp beside vLLM, both restarted: {dict(load.by)}, {len(load.wrong)} wrong")
    assert load.wrong == [] and min(load.by["llama.cpp"], load.by["vLLM"]) >= LEAST // 2


def test_without_the_drain_it_is_noticed(beside: Fleet) -> None:
    """So that what is counted above can be seen at all."""
    other = beside.sparks[1]
    load = Load(beside)
    try:
        load.await_both()
        if isinstance(other, RealSpark):
            other.stop(CHAT)
        else:
            other.kill()
        load.stop.wait(5)
    finally:
        load.end()
    assert load.wrong
