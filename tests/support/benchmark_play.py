"""The playbook benchmark against a server that stands for vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lab.vendor.packages import FILES
from tests.support.plays import Plays
from tests.support.ports import free_port

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "plugins/plugin_utils/reports/schemas/benchmark.schema.json").read_text()
)
KEY = "a-key-that-nobody-may-see"
PLAY = "- ansible.builtin.import_playbook: gb10.fleet.benchmark\n"
PAIR = {"spark-a": {"ansible_host": "kind-a"}, "spark-b": {"ansible_host": "kind-b"}}
# `docker exec --env X CONTAINER ...` runs with the variables and the vllm of the container, and argv is written down.
DOCKER = """#!/bin/sh
[ "$1 $2" != "container inspect" ] || exec cat {folder}/server.pid
[ "$1" = exec ] || exit 2
shift 2
export "$1"
shift 2
echo "$@" >> {folder}/argv
PATH={folder}/container:$PATH VLLM_API_KEY={key} exec "$@"
"""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A server that gives 40 tokens a second to each request; a client that is late with the first one reads more."""
    port = free_port()
    simulated = {"NVIDIA_VISIBLE_DEVICES": "void", "GB10_SIM": "slow-load=0.1,tokens-per-s=40", "VLLM_API_KEY": KEY}
    argv = [sys.executable, str(FILES / "vllm"), "serve", "m", "--served-model-name", "served"]
    argv += ["--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(argv, env={**os.environ, **simulated}, stdout=log, stderr=log)
    (tmp_path / "server.pid").write_text(str(server.pid))
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                break
        except OSError:
            time.sleep(0.05)
    yield port
    server.kill()
    server.wait()


@pytest.fixture
def plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plays:
    """Two hosts with a GPU under load: 2418 MHz."""
    plays = Plays(tmp_path)
    programs = tmp_path / "bin"
    (tmp_path / "container").mkdir()
    programs.mkdir()
    files = {
        programs / "docker": DOCKER.format(folder=tmp_path, key=KEY),
        programs / "nvidia-smi": '#!/bin/sh\ncat "$GB10_TEST_HOST/gpu"\n',
        tmp_path / "container" / "vllm": f'#!/bin/sh\nexec {sys.executable} {FILES / "vllm"} "$@"\n',
    }
    for path, text in files.items():
        path.write_text(text)
        path.chmod(0o755)
    for kind in ("a", "b"):
        plays.host(kind)
        gpu(plays, kind, "2418, 86.20, 68, 96, 0x0000000000000000, 580.142")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return plays


def gpu(plays: Plays, kind: str, row: str) -> None:
    (plays.tmp_path / "hosts" / kind / "gpu").write_text(row + "\n")


def run(plays: Plays, port: int, *args: str, **variables: Any) -> tuple[int, str]:
    base: dict[str, Any] = {
        "gb10_cluster": "sparks", "fabric_topology": "pair", "ansible_become": False,
        "vllm_model": "openai/gpt-oss-120b", "vllm_served_model_name": "served", "vllm_port": port, "vllm_api_key": KEY,
        "benchmark_concurrency": [1, 2], "benchmark_prompts": 1, "benchmark_input_tokens": 64,
        "benchmark_output_tokens": 10,
    }  # fmt: skip
    return plays.play(PAIR, PLAY, *args, **{**base, **variables})


def document(plays: Plays) -> dict[str, Any]:
    text = (plays.tmp_path / "evidence/benchmark/latest/benchmark.json").read_text()
    found: dict[str, Any] = json.loads(text)
    jsonschema.validate(found, SCHEMA)
    assert KEY not in text
    return found
