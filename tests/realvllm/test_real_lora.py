"""Adapters and further names with a real vLLM: found in the cache without a network, listed, and each one answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.serving import server_probe as serving
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import lora

from tests.realvllm.real import BIN, Real, is_ours

MAIN, COMMIT = "a" * 40, "b" * 40
# Rank 8 of the tiny model's query projection, 128 to 4 heads of 32; large enough that an answer is another one.
MAKE = """
import json, pathlib, sys, torch
from safetensors.torch import save_file
folder = pathlib.Path(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))
names = [f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_" for layer in (0, 1)]
tensors = {f"{name}A.weight": torch.randn(8, 128) for name in names}
save_file(tensors | {f"{name}B.weight": torch.randn(128, 8) for name in names}, folder / "adapter_model.safetensors")
said = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
(folder / "adapter_config.json").write_text(json.dumps(said))
"""


def adapter(home: Path, model: str, commit: str, seed: int) -> None:
    """As host_files leaves one in the cache of the hub."""
    top = home / f"hub/models--{model.replace('/', '--')}"
    (top / f"snapshots/{commit}").mkdir(parents=True)
    (top / "refs").mkdir()
    (top / "refs/main").write_text(commit)
    argv = [BIN / "python", "-c", MAKE, top / f"snapshots/{commit}", str(seed)]
    subprocess.run(argv, check=True, capture_output=True, timeout=120)


def test_adapters_and_names_are_served_without_a_network(
    real: Callable[..., Real], trained: Path, tmp_path: Path
) -> None:
    home = tmp_path / "huggingface"
    adapter(home, "acme/sql-lora", MAIN, 1)
    adapter(home, "acme/talk", COMMIT, 2)
    named = ({"name": "sql", "model": "acme/sql-lora"}, {"name": "talk", "model": "acme/talk", "revision": COMMIT})
    adapters = [lora.adapter(each) for each in named]
    words = [word.replace("/root/.cache/huggingface", str(home)) for word in lora.words(adapters)]
    one = real(
        *("--max-model-len", "1024", "--served-model-name", "tiny", "best", *words),
        model=trained,
        environment=(f"HF_HOME={home}", "HF_HUB_OFFLINE=1"),
    ).start()
    one.reaches("ready")
    ask = serving.http_client(f"http://127.0.0.1:{one.port}", None, is_ours)

    def answer(name: str) -> Any:
        question = {"model": name, "prompt": "What is 6 * 7?", "max_tokens": 12, "temperature": 0}
        said = ask("/v1/completions", question, 120)
        assert said.status == 200, said
        return json.loads(said.body)["choices"][0]["text"]

    listed = json.loads(ask("/v1/models", None, 60).body)
    assert {each["id"] for each in listed["data"]} == {"tiny", "best", "sql", "talk"}
    answers = {name: answer(name) for name in ("tiny", "best", "sql", "talk")}
    assert answers["tiny"] == answers["best"] and len({*answers.values()}) == 3, answers
    one.life.stop()
    assert one.end() == 0
