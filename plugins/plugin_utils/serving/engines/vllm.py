# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import draft_wish, lora
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.engine import AUTO, Engine, Start


def _words(start: Start) -> list[object]:
    by_vllm = start.hosts > 1 and start.executor != "ray"
    words: list[object] = ["serve", start.model, "--served-model-name", start.served_name, *start.further_names]
    if start.revision:
        words += ["--revision", start.revision]
    if start.context:
        words += ["--max-model-len", "auto" if start.context == AUTO else start.context]
    if start.draft:
        words += [draft_wish.FLAG, start.draft.config(start.revision)]
    words += lora.words(start.adapters)
    if start.hosts > 1:
        words += ["--tensor-parallel-size", start.tensor, "--distributed-executor-backend", start.executor]
    if start.pipeline > 1:
        words += ["--pipeline-parallel-size", start.pipeline]
    if by_vllm:
        words += ["--nnodes", start.hosts, "--node-rank", start.rank, "--master-port", start.meeting_port]
    if start.rank == 0:
        words += ["--host", start.address, "--port", start.port]
    elif by_vllm:
        words += ["--headless"]
    words += [*start.further, "--gpu-memory-utilization", start.share]
    if by_vllm:
        words += ["--master-addr", start.head]
    return words


def _environment(ready_timeout: int) -> dict[str, Any]:
    """vLLM gives up on its own engine after 600 s unless told; a large model takes longer."""
    return {"VLLM_ENGINE_READY_TIMEOUT_S": ready_timeout}


ENGINE = Engine(
    name="vllm",
    title="vLLM",
    words=_words,
    own_flags=frozenset({
        *("--api-key", "--distributed-executor-backend", "--gpu-memory-utilization", "--headless", "--host"),
        *("--master-addr", "--master-port", "--max-model-len", "--nnodes", "--node-rank", "--pipeline-parallel-size"),
        *("--port", "--revision", "--served-model-name", "--tensor-parallel-size"),
    }),
    environment=_environment,
    program="vllm",
    log="vllm_log",
    key_variable="VLLM_API_KEY",
    address_variable="VLLM_HOST_IP",
)  # fmt: skip
