# SPDX-License-Identifier: GPL-3.0-or-later
"""SGLang, on one host or over those of a cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.engine_metrics import Naming
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.draft_wish import Wish
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.engines.engine import NOT_HERE, Engine, Entry, Start

_SERVER, _KEY = "sglang.launch_server", "GB10_API_KEY"
# By the source of its collector, 0.5.23, read 2026-11-28. Of an answer that does not stream it counts all of it as the
# time to its first token.
_METRICS = Naming(
    prefix="sglang:",
    names={
        "num_running_reqs": "num_requests_running",
        "num_queue_reqs": "num_requests_waiting",
        "token_usage": "kv_cache_usage_perc",
        "generation_tokens_total": "generation_tokens_total",
        "prompt_tokens_total": "prompt_tokens_total",
        "time_to_first_token_seconds": "time_to_first_token_seconds",
        "inter_token_latency_seconds": "inter_token_latency_seconds",
        "num_retracted_requests_total": "num_preemptions_total",
    },
    without=r'time_to_first_token_seconds\w*\{[^\n]*is_streaming="false"',
)


def _words(start: Start) -> list[object]:
    """All ranks are told an address: those without the API answer there whether they are alive."""
    words: list[object] = [*_launched(start.key), "--model-path", start.model]
    words += ["--served-model-name", start.served_name]
    if start.revision:
        words += ["--revision", start.revision]
    if start.context:
        words += ["--context-length", start.context]
    if start.hosts > 1:
        words += ["--tp-size", start.tensor, "--pp-size", start.pipeline]
        words += ["--nnodes", start.hosts, "--node-rank", start.rank]
        words += ["--dist-init-addr", f"{start.head}:{start.meeting_port}"]
    chunk = [] if _chunk(start.further) else ["--chunked-prefill-size", _figure("chunked_prefill")]
    words += ["--host", start.address, "--port", start.port, "--enable-metrics"]
    return [*words, *chunk, *_drafts(start.draft), *start.further, "--mem-fraction-static", _static(start)]


def _launched(key: bool) -> list[str]:
    """It takes its key from the command line alone, which all can read. So that one is made inside."""
    if not key:
        return ["-m", _SERVER]
    add = f'sys.argv += ["--api-key", os.environ["{_KEY}"]]'
    return ["-c", f'import os, runpy, sys; {add}; runpy.run_module("{_SERVER}", run_name="__main__", alter_sys=True)']


def _drafts(wish: Wish | None) -> Iterator[object]:
    """The second model among them is fetched like the first: SGLang starts without a network."""
    if not wish:
        return
    yield from ("--speculative-algorithm", wish.method.upper())
    if wish.model:
        yield from ("--speculative-draft-model-path", wish.model)
    if wish.revision:
        yield from ("--speculative-draft-model-revision", wish.revision)
    if wish.tokens:
        yield from ("--speculative-num-draft-tokens", wish.tokens)
    for name, value in wish.further.items():
        yield from (f"--speculative-{name}", value)


def _static(start: Start) -> float:
    """Return the share for weights and KV cache: SGLang takes activations and graphs beside it."""
    kept = 1 - beside_gib(start.further) / start.memory_gib
    return math.floor(start.share * kept * 1000) / 1000


def beside_gib(further: Any) -> float:
    """Return what it takes beside weights and KV cache."""
    chunk = _chunk(further) or _figure("chunked_prefill")
    return float(_figure("constant_gib") + chunk * _figure("mib_per_token") / 1024)


def _chunk(further: Any) -> int:
    """Return --chunked-prefill-size of the inventory; 0 where it says none."""
    words = " ".join(map(str, further)).replace("=", " ").split()
    given = [value for flag, value in pairwise(words) if flag == "--chunked-prefill-size"]
    return int(given[-1]) if given and given[-1].isdigit() else 0


def _figure(name: str) -> Any:
    return catalog.load("engines")["sglang_memory"][name]["value"]


def _mistakes(entry: Entry) -> Iterator[str]:
    beside = beside_gib(entry.get("extra_args", ()))
    if 0 < float(entry.get("memory_gib", 0)) <= beside:
        yield (
            f"memory_gib is {entry['memory_gib']}, and SGLang takes {beside:.1f} GiB beside weights and KV cache. Give "
            "it more, or a smaller --chunked-prefill-size in extra_args."
        )
    if entry.get("max_model_len", 0) < 0:
        yield "max_model_len is -1, and SGLang does not look for what fits. Name a number of tokens, or leave it out."


ENGINE = Engine(
    name="sglang",
    title="SGLang",
    words=_words,
    own_flags=frozenset({
        *("--model-path", "--model", "--served-model-name", "--revision", "--context-length", "--tp-size"),
        *("--tensor-parallel-size", "--tp", "--pp-size", "--pipeline-parallel-size", "--pp", "--nnodes", "--node-rank"),
        *("--dist-init-addr", "--nccl-init-addr", "--host", "--port", "--enable-metrics", "--mem-fraction-static"),
        *("--speculative-draft-model-path", "--speculative-draft-model", "--speculative-draft-model-revision"),
        *("--api-key", "--admin-api-key", "--config", "--ssl-keyfile-password"),
    }),
    # It writes its settings down, with the key, which the unit takes out. Docker keeps them for root; a driver of the
    # host's own, such as journald, would hand them on.
    options=("--log-driver", "local"),
    program="python3",
    key_variable=_KEY,
    metrics=_METRICS,
    needs=("image", "port", "memory_gib", "model"),
    refuses=NOT_HERE,
    mistakes=_mistakes,
    behind=14,  # with --enable-dp-attention six, and one for each rank (0.5.23, PortArgs); what comes is unpickled
    address_variable="SGLANG_HOST_IP",
)  # fmt: skip
