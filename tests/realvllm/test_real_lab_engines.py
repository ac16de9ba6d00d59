"""A real llama.cpp beside a real vLLM on two hosts of the lab, and a service that moves from one to the other and back.

Roles, units, gateways, router and commands are those of `test_real_lab.py`. Both have the same weights, taught for the
proof. Needs root, `GB10_REAL_VLLM`, `GB10_OPENAI` and `GB10_LLAMA_SERVER`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.realvllm import as_gguf
from tests.realvllm import fleet as real_fleet
from tests.realvllm.fleet import CHAT, CLIENT, Caller, answered
from tests.realvllm.lab_fleet import RealFleet, commit, libraries, snapshot
from tests.realvllm.llama import ENTRY, SERVER

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED with two engines: the lab needs root"),
    pytest.mark.skipif(not (CLIENT / "python").is_file(), reason="GB10_OPENAI names no folder with a Python"),
    pytest.mark.skipif(not SERVER, reason="GB10_LLAMA_SERVER names no server of llama.cpp"),
    pytest.mark.lab,
]
FILE = "chat.gguf"
CLIENTS = ["stream", *["whole"] * 3]
LLAMA: dict[str, Any] = {
    **ENTRY,
    **{"model": CHAT, "model_revision": commit(CHAT), "gguf": FILE, "served_model_name": CHAT, "port": 8000},
    "slots": 4,
}


class TwoEngines(RealFleet):
    """The head has llama.cpp for good; `moves` is the engine of the other host."""

    moves = "vllm"

    def models(self, host: str) -> list[str]:
        return [CHAT]

    def services(self, host: str) -> dict[str, Any]:
        return {"chat": self.chat() if host == self.other and self.moves == "vllm" else LLAMA}

    @property
    def other(self) -> str:
        return self.hosts[1]

    def files(self, host: str, kinds: Sequence[str]) -> dict[str, Path | bytes]:
        file = self.home / FILE
        as_gguf.write(self.model_of("answers"), file)
        more = {"app/llama-server": Path(SERVER), f"{snapshot(CHAT)}/{FILE}": file, **libraries(Path(SERVER))}
        return {**super().files(host, kinds), **more}

    def engine(self, host: str) -> str:
        """By the names of its own metrics, below the gateway."""
        ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/metrics').read().decode())"
        text = self.shell(host, f'python3 -c "{ask}"')
        return next(name for prefix, name in (("llamacpp:", "llama_cpp"), ("vllm:", "vllm")) if f"\n{prefix}" in text)

    def servers(self, host: str) -> set[str]:
        """Which engines have a process on the host; its memory comes back with the last of them."""
        said = self.shell(
            host, r"for each in /proc/[0-9]*; do tr '\0' ' ' <$each/cmdline || true; echo; done 2>/dev/null"
        )
        lines = [line for line in said.splitlines() if "systemd-run" not in line]
        programs = {"vllm": ("vllm serve", "VLLM::"), "llama_cpp": ("/app/llama-server",)}
        return {name for name, words in programs.items() if any(word in line for line in lines for word in words)}

    def move(self, engine: str) -> dict[str, Any]:
        """By `gb10 rollout`."""
        self.moves = engine
        self.write()
        done = self.rollout()
        assert done.returncode == 0, done.stdout[-3000:]
        return dict(json.loads(done.stdout))


@pytest.fixture(name="lab", scope="module")
def fixture_lab(taught: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoEngines]:
    lab = TwoEngines(tmp_path_factory.mktemp("lab"), taught)
    try:
        lab.up()
        assert lab.deploy().rc == 0, "placed, and proven by the questions of the proof"
        yield lab
    finally:
        lab.down()


class Load:
    """OpenAI's library at work, and what the router counted meanwhile."""

    def __init__(self, lab: TwoEngines) -> None:
        lab.all_ready()
        self.lab, self.before = lab, real_fleet.requests(lab)
        self.caller = Caller(lab.asked(clients=CLIENTS))

    def end(self) -> tuple[dict[str, Any], dict[str, int]]:
        tally = self.caller.end()
        return tally, real_fleet.served_between(self.before, real_fleet.requests(self.lab))

    def lost_nothing(self, capsys: pytest.CaptureFixture[str], what: str) -> dict[str, int]:
        """End it; each request has reached one replica, and was answered."""
        tally, served = self.end()
        said_to(capsys, f"{what}: {tally}; served: {served}")
        assert (tally["failed"], tally["cut"]) == (0, 0), tally["words"]
        assert sum(served.values()) == answered(tally) and min(tally["whole"], tally["streamed"]) > 0
        return served


def said_to(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(f"\n{text}")


def test_both_are_drained_and_restarted_under_load_and_no_request_fails(
    lab: TwoEngines, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [lab.engine(host) for host in lab.hosts] == ["llama_cpp", "vllm"]
    started = {host: lab.started(host, "chat") for host in lab.hosts}
    load = Load(lab)
    try:
        for host in lab.hosts:
            assert lab.gb10("stop", "chat", "--limit", host, "--yes").returncode == 0
            assert lab.state(CHAT, host) != "ready"
            assert lab.gb10("start", "chat", "--limit", host, "--yes", "--prove").returncode == 0
            lab.all_ready()
    finally:
        served = load.lost_nothing(capsys, "llama.cpp and vLLM restarted in turn")
    assert min(served.values()) > 0
    assert all(lab.started(host, "chat") != started[host] for host in lab.hosts)


def test_a_rollout_moves_a_service_to_another_engine_and_back_proven_each_time(
    lab: TwoEngines, capsys: pytest.CaptureFixture[str]
) -> None:
    load = Load(lab)
    try:
        for engine in ("llama_cpp", "vllm"):
            report = lab.move(engine)
            lab.all_ready()
            assert report["outcome"] == "done" and lab.engine(lab.other) == engine
            assert lab.servers(lab.other) == {engine}, "nothing of the former engine keeps memory"
    finally:
        served = load.lost_nothing(capsys, "a rollout from vLLM to llama.cpp, and one back")
    assert min(served.values()) > 0


def test_without_the_drain_a_stop_is_noticed(lab: TwoEngines, capsys: pytest.CaptureFixture[str]) -> None:
    """So what is counted above can be seen at all. The last test: the replica stays down."""
    load = Load(lab)
    lab.shell(lab.other, "systemctl stop gb10-vllm-chat.service")
    time.sleep(2)
    tally, _ = load.end()
    said_to(capsys, f"a stop without the drain: {tally}")
    assert tally["failed"] + tally["cut"] > 0, tally
