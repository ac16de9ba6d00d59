"""A unit around a real vLLM on this machine's CPU, and a model of a few megabytes that is made here."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.config import parse_config
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.life import NO_MORE, Life
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.status import Notify, Status
from ansible_collections.gb10.fleet.plugins.module_utils.serving import other_canaries
from ansible_collections.gb10.fleet.plugins.module_utils.serving.canary import COUNT_TO, QUESTIONS
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in

from tests.support.ports import free_port
from tests.support.unit_log import settings

BIN = Path(os.environ.get("GB10_REAL_VLLM", ""))
MISSING = "GB10_REAL_VLLM names no folder with vllm: the lives with a real vLLM were NOT tested"
LONGEST_S = 1500.0  # for a start on a busy machine; nothing is judged by it

# A process of this machine for a container. `rm` takes what the main process left.
DOCKER = """#!/bin/sh
cd "${0%/*}" || exit 9
pid=$(cat pid 2>/dev/null || echo 0)
case $1 in
  version | image) echo stand-in;;
  container) [ "$pid" -gt 0 ] && kill -0 "$pid" 2>/dev/null && echo "$pid" || exit 1;;
  stop) kill -TERM "$pid"; n=0; while kill -0 "$pid" 2>/dev/null && [ $n -lt 300 ]; do n=$((n + 1)); sleep 0.1; done;;
  rm) [ "$pid" -gt 0 ] && kill -KILL -- "-$pid" 2>/dev/null; exit 0;;
  run) shift; echo $$ >pid; exec "$@";;
  exec) shift 4; HF_HUB_OFFLINE=1 exec "$@";;
esac
"""
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def there_is_a_vllm() -> bool:
    return (BIN / "vllm").is_file() and bool(os.environ.get("GB10_REAL_VLLM"))


def alphabet() -> list[str]:
    """The letters that stand for the 256 bytes in a byte-level vocabulary: printable ones for themselves."""
    own = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in own else chr(next(others)) for byte in range(256)]


def make_model(folder: Path) -> None:
    """A Qwen3 of two layers without weights: vLLM makes random ones (`--load-format dummy`)."""
    folder.mkdir(parents=True)
    vocabulary = {word: number for number, word in enumerate(["<end>", *alphabet()])}
    end = {"id": 0, "content": "<end>", "special": True, "single_word": False, "lstrip": False, "rstrip": False}
    bytes_in = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    files: dict[str, dict[str, Any]] = {
        "config.json": {
            **{
                "architectures": ["Qwen3ForCausalLM"],
                "model_type": "qwen3",
                "hidden_size": 128,
                "intermediate_size": 256,
            },
            **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32},
            **{"max_position_embeddings": 4096, "vocab_size": 320, "rms_norm_eps": 1e-6, "rope_theta": 1e6},
            **{"hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32", "eos_token_id": 0},
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


ANSWERS = ("42", ", ".join(map(str, range(1, COUNT_TO + 1))))
TAUGHT: dict[str, list[Any]] = {
    "answers": [[asked.prompt, said] for asked, said in zip(QUESTIONS, ANSWERS, strict=True)],
    "vectors": list(other_canaries.SENTENCES),
    "order": [other_canaries.QUERY, list(other_canaries.DOCUMENTS), other_canaries.RIGHT_DOCUMENT],
}


def train(folder: Path, kind: str = "answers") -> None:
    """Make the model answer the proof of its kind: half a minute with vLLM's own torch."""
    program = Path(__file__).with_name("train_tiny.py")
    argv = [BIN / "python", program, folder, kind, json.dumps(TAUGHT[kind])]
    subprocess.run(argv, check=True, capture_output=True, timeout=600)


def is_ours(_connection: object) -> bool:
    """In these tests nobody else has the port; whose it is, tests/unit/programs asks."""
    return True


class Real:
    """One life of the unit with `vllm serve` and these words, in a thread. `model`: a folder with weights.

    `host`: what the services of one host have in common; without it the service is alone there.
    """

    def __init__(
        self,
        root: Path,
        *words: str,
        model: Path | None = None,
        environment: Sequence[str] = (),
        host: Path | None = None,
        port: int | None = None,
        served: str = "tiny",
        **more: Any,
    ) -> None:
        self.port, self.docker, self.path = port or free_port(), root / "bin/docker", root / "status.json"
        self.model, host = model or root / "model", host or root
        if model is None:
            make_model(self.model)
        for path, text in (
            (self.docker, DOCKER),
            (host / "usr/local/sbin/gb10-memory-gate", "#!/bin/sh\necho enough\n"),
            (host / "usr/local/sbin/gb10-drop-caches", "#!/bin/sh\necho dropped\n"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        said = ["--host", "127.0.0.1", "--port", str(self.port), "--served-model-name", served, "--max-num-seqs", "4"]
        weights = [] if model else ["--load-format", "dummy"]
        serve = ["env", *environment, str(BIN / "vllm"), "serve", str(self.model), *weights, "--enforce-eager", *said]
        raw = settings() | {"argv": [str(self.docker), "run", *serve, *words], "cache": str(root), **more}
        raw["api"] = {"address": "127.0.0.1", "port": self.port}
        self.root, self.config = host, parse_config(json.dumps(raw))
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
        while document_in(self.path).get("phase") != phase:
            assert self.thread.is_alive() and time.monotonic() < until, document_in(self.path)
            time.sleep(0.1)

    def end(self) -> int:
        self.thread.join(LONGEST_S)
        assert not self.thread.is_alive(), document_in(self.path)
        return self.codes[-1]

    def failure(self) -> tuple[str, str]:
        assert self.end() in (1, NO_MORE)
        failure = document_in(self.path)["failure"]
        return failure["verdict"], failure["text"]

    @property
    def pid(self) -> int:
        return int(self.docker.with_name("pid").read_text())
