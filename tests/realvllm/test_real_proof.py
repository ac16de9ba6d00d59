"""The whole proof and a load test on a real vLLM: a model that was trained here answers the questions of the proof."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.serving import load as serving_load
from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe as serving
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Clock, run_command

from tests.realvllm.real import Real, is_ours


def test_the_whole_proof_and_a_load(real: Callable[..., Real], trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = real("--max-model-len", "2048", model=trained).start()
    one.reaches("ready")
    ask = serving.http_client(f"http://127.0.0.1:{one.port}", None, is_ours)
    proof = serving.probe(ask, "tiny", timeout_s=60, answer_timeout_s=120)
    assert (proof.verdict, proof.served_models) == ("serving", ("tiny",)), proof
    assert [answer["fault"] for answer in proof.answers] == [None, None], proof.answers

    monkeypatch.setenv("PATH", f"{one.docker.parent}:{os.environ['PATH']}")
    load = serving_load.Load(
        **{"model": str(trained), "served_name": "tiny", "url": f"http://127.0.0.1:{one.port}"},
        **{"requests": 8, "concurrency": 4, "input_tokens": 64, "shared_tokens": 16, "output_tokens": 16},
        **{"seed": 1, "timeout_s": 300},
    )
    sampling = serving_load.Sampling(busy_percent=50, enough=1, within_s=1)
    found = serving_load.measure(load, sampling, ask, run_command, Clock())["load"]
    assert "error" not in found, found
    result = found["result"]
    assert (result["completed"], result["total_output_tokens"]) == (8, 8 * 16)
    assert result["output_throughput"] > 0 and found["version"].startswith("0.")
    assert found["prefix_cache"]["queries"] > 0 and found["drafts"] is None
    one.life.stop()
    assert one.end() == 0


def test_a_model_that_lies_is_found_out(real: Callable[..., Real], trained: Path, tmp_path: Path) -> None:
    """The same weights with two tensors exchanged: it starts, it serves, and it talks nonsense."""
    folder = tmp_path / "broken"
    shutil.copytree(trained, folder)
    file = folder / "model.safetensors"
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    name = next(name for name in header if name.endswith("layers.1.mlp.down_proj.weight"))
    begin, end = (8 + size + offset for offset in header[name]["data_offsets"])
    file.write_bytes(data[:begin] + bytes(end - begin) + data[end:])
    one = real("--max-model-len", "2048", model=folder).start()
    one.reaches("ready")
    proof = serving.probe(
        serving.http_client(f"http://127.0.0.1:{one.port}", None, is_ours), "tiny", timeout_s=60, answer_timeout_s=120
    )
    assert proof.verdict == "garbage", proof


def test_a_reranker_passes_the_proof_of_its_kind(real: Callable[..., Real], taught: Callable[[str], Path]) -> None:
    """That of an embedding model: test_real_services.py."""
    one = real("--max-model-len", "2048", "--runner", "pooling", model=taught("order")).start()
    one.reaches("ready")
    ask = serving.http_client(f"http://127.0.0.1:{one.port}", None, is_ours)
    proof = serving.probe(ask, "tiny", timeout_s=60, answer_timeout_s=120)
    assert (proof.verdict, [answer["name"] for answer in proof.answers]) == ("serving", ["reranking"]), proof
    one.life.stop()
    assert one.end() == 0
