"""The simulated vLLM server: what it refuses, what it answers, how it starts and dies."""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.machinery
import importlib.util
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.log import verdict_of_end
from ansible_collections.gb10.fleet.plugins.module_utils.serving import load

from lab.vendor.packages import FILES
from tests.support.ports import free_port
from tests.support.unit_log import read
from tests.support.vendor import DEADLINE_SECONDS, GPU, ask, health, wait_for, wait_for_health

PROGRAM = FILES / "vllm"


def load_program() -> Any:
    loader = importlib.machinery.SourceFileLoader("vllm_program", str(PROGRAM))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


vllm = load_program()


def parse(text: str) -> argparse.Namespace:
    args: argparse.Namespace = vllm.parse(text.split())
    return args


# ------------------------------------------------------------------------------------------------- command line


def test_flags_are_read_as_vllm_reads_them() -> None:
    args = parse(
        "m --max_model_len 32k --gpu-memory-utilization=0.8 --no-enable-prefix-caching -tp 2 --served-model-name a b"
    )
    assert (args.model_tag, args.max_model_len, args.gpu_memory_utilization) == ("m", 32000, 0.8)
    assert (args.enable_prefix_caching, args.tensor_parallel_size) == (False, 2)
    assert args.served_model_name == ["a", "b"]


@pytest.mark.parametrize(
    "words",
    [
        "m --swap-space 4",  # removed in 0.18
        "m --linear-backend marlin",  # new in 0.22
        "m --moe-backend humming",
        "m --kv-cache-dtype nvfp4",
        "m --model n",
        "m --headless --api-server-count 2",
        "m --max-model",
    ],
)
def test_usage_errors(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        parse(words)
    assert error.value.code == 2
    assert "vllm serve: error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "environ", "reason"),
    [
        ("m -tp 2", GPU, "World size \\(2\\) is larger"),
        ("m -tp 2 --nnodes 2 --distributed-executor-backend ray", GPU, "executor backend is mp"),
        ("m -tp 2 --nnodes 2 --node-rank 2", GPU, "node_rank 2"),
        ("m -tp 4 --nnodes 2", GPU, "World size \\(4\\) is larger"),
        ("m --enable-auto-tool-choice --tool-call-parser nope", GPU, "invalid tool call parser"),
        ("m --reasoning-parser nope", GPU, "invalid reasoning parser"),
        ("m", {}, "no NVIDIA GPU is visible"),
        ("/no/such/model", GPU, "HFValidationError: Repo id must be in the form"),
        ("m --gpu-memory-utilization 1.2", GPU, "for CacheConfig\ngpu_memory_utilization\n  Input should be less than"),
        ("m --quantization nope", GPU, "Value error, Unknown quantization method: nope. Must be one of"),
    ],
)
def test_start_errors(words: str, environ: dict[str, str], reason: str) -> None:
    with pytest.raises(vllm.StartError, match=reason):
        vllm.check(parse(words), environ)


def test_without_a_network_the_files_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    offline = {**GPU, "HF_HUB_OFFLINE": "1"}
    with pytest.raises(vllm.StartError, match="LocalEntryNotFoundError"):
        vllm.check(parse("acme/tiny"), offline)
    folder = tmp_path / ".cache/huggingface/hub/models--acme--tiny"
    (folder / "snapshots/abc").mkdir(parents=True)
    (folder / "snapshots/abc/config.json").touch()
    (folder / "refs").mkdir()
    (folder / "refs/main").write_text("abc")
    for words in ("acme/tiny", "acme/tiny --revision abc"):
        vllm.check(parse(words), offline)
    with pytest.raises(vllm.StartError, match="LocalEntryNotFoundError"):
        vllm.check(parse("acme/tiny --revision v2"), offline)


def test_scenarios() -> None:
    assert vllm.scenario("garbage, slow-load=30") == {"garbage": "", "slow-load": "30"}
    with pytest.raises(vllm.StartError, match="unknown scenario nope"):
        vllm.scenario("nope")


# ------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("What is 17+25? number only", "42"),
        ("what is 6 times 7", "42"),
        ("What is the capital of France?", "Paris"),
        ("Count from 1 to 5", "1, 2, 3, 4, 5"),
    ],
)
def test_answers(prompt: str, answer: str) -> None:
    assert vllm.answer(prompt) == answer


def test_limits_of_a_request() -> None:
    assert vllm.generate("Count from 1 to 100", {"max_tokens": 3}, 16, False) == (["1, ", "2, ", "3, "], "length")
    pieces, reason = vllm.generate("What is 1+1", {"max_tokens": 200, "ignore_eos": True}, 16, False)
    assert (len(pieces), reason) == (200, "length")


def test_garbage_is_garbage() -> None:
    pieces, _ = vllm.generate("What is 17+25?", {}, 1000, True)
    assert "42" not in "".join(pieces)
    assert "\ufffd" in "".join(pieces)


# ------------------------------------------------------------------------------------------------------- servers

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(name="start")
def fixture_start(tmp_path: Path) -> Iterator[Start]:
    processes: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **environ: str) -> subprocess.Popen[bytes]:
        whole = {**os.environ, **GPU, "GB10_SIM": "slow-load=0.1", **environ}
        log = (tmp_path / f"{len(processes)}.log").open("wb")
        processes.append(
            subprocess.Popen([sys.executable, PROGRAM, "serve", *words], env=whole, stdout=log, stderr=log)
        )
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


CHAT = {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is 17+25?"}]}]}


def test_a_server_with_a_key(start: Start) -> None:
    port = free_port()
    server = start("m", "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "served", VLLM_API_KEY="k")
    wait_for_health(port, 200)

    assert ask(port, "/v1/models")[0] == 401
    assert ask(port, "/v1/models", key="wrong")[0] == 401
    assert ask(port, "/metrics")[0] == 200
    assert json.loads(ask(port, "/version")[1]) == {"version": "0.19.0"}
    models = json.loads(ask(port, "/v1/models", key="k")[1])
    assert [(entry["id"], entry["root"]) for entry in models["data"]] == [("served", "m")]

    chat = json.loads(ask(port, "/v1/chat/completions", CHAT, "k")[1])
    assert chat["choices"][0]["message"]["content"] == "42"
    text = json.loads(ask(port, "/v1/completions", {"prompt": "Count from 1 to 90", "model": "served"}, "k")[1])
    assert (text["choices"][0]["finish_reason"], text["usage"]["completion_tokens"]) == ("length", 16)
    assert ask(port, "/v1/chat/completions", {**CHAT, "model": "other"}, "k")[0] == 404
    assert ask(port, "/v1/chat/completions", {"model": "served"}, "k")[0] == 400
    assert ask(port, "/v1/nothing", key="k")[0] == 404

    _, stream = ask(port, "/v1/chat/completions", {**CHAT, "stream": True}, "k")
    events = [line.removeprefix("data: ") for line in stream.splitlines() if line]
    assert events.pop() == "[DONE]"
    assert "".join(json.loads(event)["choices"][0]["delta"]["content"] for event in events) == "42"

    metrics = ask(port, "/metrics")[1]
    assert 'vllm:generation_tokens_total{engine="0",model_name="served"} 18.0' in metrics
    server.send_signal(signal.SIGTERM)
    assert server.wait(5) == 0


def test_bench_sends_what_it_says_and_counts_what_comes_back(start: Start, tmp_path: Path) -> None:
    port = free_port()
    start("m", "--host", "127.0.0.1", "--port", str(port), VLLM_API_KEY="k", GB10_SIM="slow-load=0.1,tokens-per-s=100")
    wait_for_health(port, 200)
    words = [
        *("--base-url", f"http://127.0.0.1:{port}", "--model", "m", "--num-prompts", "3", "--max-concurrency", "1"),
        *("--random-prefix-len", "32", "--random-input-len", "32", "--random-output-len", "10", "--ignore-eos"),
        *("--save-result", "--result-dir", str(tmp_path / "results"), "--result-filename", "r.json"),
    ]
    for key, completed in (("k", 3), ("wrong", 0)):
        argv = [sys.executable, str(PROGRAM), "bench", "serve", *words]
        subprocess.run(argv, env={**os.environ, "OPENAI_API_KEY": key}, check=True, capture_output=True)
        result = json.loads((tmp_path / "results" / "r.json").read_text())
        assert (result["completed"], result["failed"]) == (completed, 3 - completed)
        if completed:
            assert (result["total_input_tokens"], result["total_output_tokens"]) == (192, 30)
            assert result["median_tpot_ms"] >= 10
            metrics = ask(port, "/metrics")[1]
            assert 'vllm:prefix_cache_queries_total{engine="0",model_name="m"} 192.0' in metrics
            assert 'vllm:prefix_cache_hits_total{engine="0",model_name="m"} 64.0' in metrics  # of the second and third


def test_draft_tokens_are_counted(start: Start) -> None:
    port = free_port()
    config = '{"method": "ngram", "num_speculative_tokens": 2}'
    start("m", "--port", str(port), "--speculative-config", config, GB10_SIM="slow-load=0.1")
    wait_for_health(port, 200)
    body = json.dumps({"model": "m", "prompt": "a", "max_tokens": 10, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body)
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        assert json.load(answer)["usage"]["completion_tokens"] == 10
    counted = load.drafts("", ask(port, "/metrics")[1])
    assert counted == {"drafts": 5.0, "draft_tokens": 10.0, "accepted_tokens": 5.0}


def test_refused_while_loading_then_dies_with_code_zero(start: Start, tmp_path: Path) -> None:
    port = free_port()
    server = start("m", "--port", str(port), GB10_SIM="slow-load=2,die-after=0.2,wrong-model")
    wait_for(lambda: "Starting to load model" in (tmp_path / "0.log").read_text(), "the server does not load")
    assert health(port) == 0
    wait_for_health(port, 200)
    assert "not-the-model" in ask(port, "/v1/models")[1]
    wait_for_health(port, 503)
    assert server.wait(DEADLINE_SECONDS) == 0


@pytest.mark.parametrize("gone", [0, 1])
def test_two_nodes_live_and_die_together(start: Start, gone: int) -> None:
    port, master = free_port(), free_port()
    world = ["m", "-tp", "2", "--nnodes", "2", "--master-port", str(master)]
    worker = start(*world, "--node-rank", "1", "--headless", VLLM_HOST_IP="127.0.0.1")
    head = start(*world, "--node-rank", "0", "--port", str(port), VLLM_HOST_IP="127.0.0.1")
    wait_for_health(port, 200)
    (head, worker)[gone].kill()
    if gone == 1:
        wait_for_health(port, 503)
    assert (worker, head)[gone].wait(DEADLINE_SECONDS) == 0


def test_head_waits_for_the_other_rank(start: Start) -> None:
    port, master = free_port(), free_port()
    head = start("m", "-tp", "2", "--nnodes", "2", "--port", str(port), "--master-port", str(master),
                 VLLM_ENGINE_READY_TIMEOUT_S="0.5")  # fmt: skip
    assert head.wait(DEADLINE_SECONDS) == 1
    assert health(port) == 0


def test_an_address_of_another_host_is_refused(start: Start) -> None:
    assert start("m", VLLM_HOST_IP="192.0.2.1").wait(DEADLINE_SECONDS) == 1


# ------------------------------------------------------------------------------------------------- as the real one does


@pytest.mark.parametrize(
    ("words", "simulated", "verdict", "text"),
    [
        (
            "--max-model-len 9000",
            "kv-tokens=4096",
            "kv_cache_short",
            "a context of 4096 tokens fits; ValueError: To serve",
        ),
        ("--max-model-len 9000", "context=8192", "context_too_long", "User-specified max_model_len (9000) is greater"),
        ("", "cut-shard", "model_incomplete", "SafetensorError: Error while deserializing header"),
        ("--quantization nope", "", "unknown_quantization", "Unknown quantization method: nope."),
        (
            "--gpu-memory-utilization 1.5",
            "",
            "refused_flag",
            "gpu_memory_utilization: Input should be less than or equal",
        ),
        ("--reasoning-parser nope", "", "refused_flag", "KeyError: 'invalid reasoning parser: nope"),
        ("", "nope", "start_failed", "GB10_SIM: unknown scenario nope"),
    ],
)
def test_a_start_that_fails_says_so_as_vllm_does(
    start: Start, tmp_path: Path, words: str, simulated: str, verdict: str, text: str
) -> None:
    server = start("m", "--port", str(free_port()), *words.split(), GB10_SIM=f"slow-load=0.1,{simulated}")
    code = server.wait(DEADLINE_SECONDS)
    failure = verdict_of_end(code, read(*(tmp_path / "0.log").read_text().splitlines()), 0)
    assert (code, failure.verdict, text in failure.text) == (1, verdict, True), failure


def test_a_server_may_outlive_its_engine(start: Start, tmp_path: Path) -> None:
    port = free_port()
    server = start("m", "--port", str(port), GB10_SIM="slow-load=0.1,die-after=0.1,stuck")
    wait_for_health(port, 503)
    log = read(*(tmp_path / "0.log").read_text().splitlines())
    assert (log.phase, log.gone_since is not None, server.poll()) == ("ready", True, None)
    assert log.cause == "RuntimeError: GB10_SIM die-after (core.py, run_busy_loop)"


def test_a_model_that_thinks_answers_when_it_is_done(start: Start) -> None:
    port = free_port()
    start("m", "--port", str(port), GB10_SIM="slow-load=0.1,thinks=600")
    wait_for_health(port, 200)
    said = []
    for tokens in (512, 2048):
        body = {"messages": [{"role": "user", "content": "What is 17+25?"}], "max_tokens": tokens}
        (choice,) = json.loads(ask(port, "/v1/chat/completions", body)[1])["choices"]
        said.append((choice["finish_reason"], choice["message"]["content"], bool(choice["message"]["reasoning"])))
    assert said == [("length", None, True), ("stop", "42", True)]


def test_a_question_with_tools_is_a_call_where_the_server_takes_tools(start: Start) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"required": ["city"]}}}
    body = {"messages": [{"role": "user", "content": "Is it warm?"}], "tools": [tool]}
    said = []
    for flags in ((), ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")):
        port = free_port()
        start("m", "--port", str(port), *flags, GB10_SIM="slow-load=0.1")
        wait_for_health(port, 200)
        said.append(ask(port, "/v1/chat/completions", body))
    assert said[0][0] == 400 and "requires --enable-auto-tool-choice" in said[0][1]
    (choice,) = json.loads(said[1][1])["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Paris"}'}


def test_a_stop_answers_the_clients_that_wait_with_an_error(start: Start) -> None:
    port = free_port()
    server = start("m", "--port", str(port), GB10_SIM="slow-load=0.1,tokens-per-s=1")
    wait_for_health(port, 200)
    body = {"prompt": "x", "max_tokens": 300, "ignore_eos": True}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        whole = pool.submit(ask, port, "/v1/completions", body)
        stream = pool.submit(ask, port, "/v1/completions", {**body, "stream": True})
        wait_for(lambda: json.loads(ask(port, "/load")[1])["server_load"] == 2, "nothing is in flight")
        server.send_signal(signal.SIGTERM)
        assert whole.result(DEADLINE_SECONDS)[0] == 500
        status, text = stream.result(DEADLINE_SECONDS)
    assert status == 200 and '"error": {"message": "EngineCore encountered an issue' in text
    assert server.wait(DEADLINE_SECONDS) == 0


def test_a_request_waits_for_room_in_the_cache(start: Start) -> None:
    port = free_port()
    words = ("--port", str(port), "--max-model-len", "400")
    start("m", *words, GB10_SIM="slow-load=0.1,tokens-per-s=300,kv-tokens=400")
    wait_for_health(port, 200)
    body = {"prompt": "x", "max_tokens": 390, "ignore_eos": True}
    label = '{engine="0",model_name="m"}'
    with concurrent.futures.ThreadPoolExecutor() as pool:
        both = [pool.submit(ask, port, "/v1/completions", body) for _ in range(2)]
        wait_for(lambda: f"vllm:num_requests_waiting{label} 1.0" in ask(port, "/metrics")[1], "nobody waits")
        assert f"vllm:kv_cache_usage_perc{label} 0.9775" in ask(port, "/metrics")[1]
        assert [one.result(DEADLINE_SECONDS)[0] for one in both] == [200, 200]
    metrics = ask(port, "/metrics")[1]
    assert 'vllm:time_to_first_token_seconds_bucket{engine="0",model_name="m",le="1.0"} 1.0' in metrics
    assert 'vllm:time_to_first_token_seconds_bucket{engine="0",model_name="m",le="10.0"} 2.0' in metrics


def test_a_prompt_may_be_a_fault(start: Start) -> None:
    port = free_port()
    server = start("m", "--port", str(port), GB10_SIM="slow-load=0.1")
    wait_for_health(port, 200)
    assert ask(port, "/v1/completions", {"prompt": "GB10_SIM error"})[0] == 500
    assert 'finished_reason="error"} 1.0' in ask(port, "/metrics")[1]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        hangs = pool.submit(ask, port, "/v1/completions", {"prompt": "GB10_SIM hang"})
        wait_for(lambda: json.loads(ask(port, "/load")[1])["server_load"] == 1, "nothing is in flight")
        assert 'vllm:generation_tokens_total{engine="0",model_name="m"} 0.0' in ask(port, "/metrics")[1]
        server.send_signal(signal.SIGTERM)
        assert hangs.result(DEADLINE_SECONDS)[0] == 500


def test_a_deaf_start_is_ended_by_a_kill_only(start: Start, tmp_path: Path) -> None:
    server = start("m", "--port", str(free_port()), GB10_SIM="slow-load=4,deaf")
    wait_for(lambda: "Starting to load model" in (tmp_path / "0.log").read_text(), "the server does not load")
    server.send_signal(signal.SIGTERM)
    wait_for(lambda: "Model loading took" in (tmp_path / "0.log").read_text(), "it did not go on")
    assert server.poll() is None
