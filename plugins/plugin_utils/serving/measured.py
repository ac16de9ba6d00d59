# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts have measured of a start: found for a plan by image, model, revision and flags. Pure.

The unit keeps it (programs/vllm_unit/measured.py), and the fact `measured` of a host says it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.serving import vllm_cli
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.memory_fit import Measured

# What takes no other memory: addresses, names, parsers, and what a plan varies to see what fits.
_FREE = frozenset({
    *("--host", "--port", "--served-model-name", "--gpu-memory-utilization", "--max-model-len", "--revision"),
    *("--master-addr", "--master-port", "--node-rank", "--nnodes", "--headless", "--distributed-executor-backend"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "--reasoning-parser", "--chat-template", "--api-key"),
    *("--generation-config", "--override-generation-config", "--default-chat-template-kwargs"),
    *("--enable-log-requests", "--disable-log-stats", "--uvicorn-log-level", "--allowed-origins"),
})  # fmt: skip
# What changes activations and graphs, and no weight.
_BATCH = frozenset({
    *("--max-num-seqs", "--max-num-batched-tokens", "--max-cudagraph-capture-size", "--cudagraph-capture-sizes"),
    *("--enforce-eager", "--long-prefill-token-threshold", "--max-num-partial-prefills"),
})  # fmt: skip
Starts = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]  # of each host, by service


def about(
    image: str, model: str, revision: str, version: str | None, words: Sequence[str], hosts: int
) -> dict[str, Any]:
    """What a start is, in words that two plans of the same have alike. `words` are those of `vllm serve MODEL`."""
    given = {name: _plain(values) for name, values in vllm_cli.words(version, words).values.items()}
    said = {name: value for name, value in given.items() if value != "auto"}  # what vLLM would do unasked
    share = said.get("--gpu-memory-utilization", "")
    return {
        "image": image,
        "model": model,
        "revision": revision or "main",
        "hosts": hosts,
        "share": share,
        "batch": {name: value for name, value in sorted(said.items()) if name in _BATCH},
        "words": {name: value for name, value in sorted(said.items()) if name not in _FREE | _BATCH},
    }


def _plain(values: Sequence[str]) -> str:
    """Of two equal flags the last one holds; JSON without its blanks."""
    value = (list(values) or ["true"])[-1]
    try:
        return json.dumps(json.loads(value), sort_keys=True) if value.startswith(("{", "[")) else value
    except ValueError:
        return value


def find(starts: Starts, wanted: Mapping[str, Any]) -> Measured | None:
    """The measured start that is nearest: with the same batch before another one, and hosts in the order given."""
    alike = [each for each in _all(starts) if _same(each[1]["about"], wanted, "batch")]
    exact = [each for each in alike if each[1]["about"]["batch"] == wanted["batch"]]
    host, start = next(iter((*exact, *alike)), ("", None))
    return _measured(host, start["figures"], start["about"], bool(exact)) if start else None


def held(starts: Starts, wanted: Mapping[str, Any]) -> tuple[float, str]:
    """(GiB, host): what a host gave for a start of exactly this, its share included; the hosts in the order given."""
    for host, start in _all(starts):
        said = start["about"]
        if _same(said, wanted) and said["share"] == wanted["share"] and start["figures"].get("host_gib"):
            return start["figures"]["host_gib"], host
    return 0.0, ""


def _all(starts: Starts) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for host, services in starts.items():
        for kept in (services or {}).values():
            yield from ((host, each) for each in kept)


def _same(one: Mapping[str, Any], other: Mapping[str, Any], *but: str) -> bool:
    names = {"image", "model", "revision", "hosts", "words", "batch"} - {*but}
    return all(one.get(name) == other.get(name) for name in names)


def _measured(host: str, figures: Mapping[str, float], said: Mapping[str, Any], exact: bool) -> Measured | None:
    weights, cache = figures.get("weights_gib", 0.0), figures.get("pinned_gib") or figures.get("kv_gib") or 0.0
    sequences, length = figures.get("sequences", 0.0), int(figures.get("length", 0))
    request = cache / sequences if sequences else 0.0
    if not weights and not request:
        return None
    parts = _parts(figures, said, weights, cache) if exact and weights else {}
    return Measured(host, weights, parts, length, request)


def _parts(figures: Mapping[str, float], said: Mapping[str, Any], weights: float, cache: float) -> dict[str, float]:
    """What vLLM took beside weights and cache, by part where it says so; else what is left of its share."""
    if "activations_gib" in figures:
        consumed = figures.get("consumed_gib")
        context = consumed - weights if consumed is not None else figures.get("non_torch_gib", 0.0)
        found = {
            "context": context,
            "activations": figures["activations_gib"],
            "graphs": figures.get("graphs_gib", 0.0),
        }
    elif cache and "pinned_gib" not in figures and figures.get("total_gib"):
        found = {"overhead": _share(said) * figures["total_gib"] - weights - cache}
    else:
        return {}
    return {name: round(max(0.0, size), 2) for name, size in found.items()}


def _share(said: Mapping[str, Any]) -> float:
    """Of the memory; 0 where the host says no share."""
    try:
        found = float(said.get("share") or 0)
    except ValueError:
        return 0.0
    return found if 0 < found <= 1 else 0.0
