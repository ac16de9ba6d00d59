# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engine is: command line, image, readiness, names of metrics, share of memory. All else does not know it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.engine_metrics import VLLM as NAMES_OF_VLLM
from ansible_collections.gb10.fleet.plugins.module_utils.reading.engine_metrics import Naming
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.draft_wish import Wish
from ansible_collections.gb10.fleet.plugins.plugin_utils.serving.lora import Adapter

AUTO = -1  # of a context: as long as fits
Entry = Mapping[str, Any]  # of vllm_services


@dataclass(frozen=True, kw_only=True)
class Start:
    """What one rank of a service is started with, in the words of no engine."""

    model: str
    revision: str
    served_name: str
    further_names: Sequence[str]
    share: float  # of the host's memory
    memory_gib: float  # the same, where the entry says it
    context: int  # tokens of a request; 0 is the model's own
    address: str  # of the API
    port: int
    further: Sequence[str]  # flags of the inventory
    key: bool  # whether clients need one: the variable has it
    hosts: int  # of the cluster
    rank: int
    tensor: int  # on how many hosts each layer lies
    pipeline: int  # how many stages of such hosts there are
    executor: str
    head: str  # the address of the cluster's first host
    meeting_port: int  # where the ranks find each other
    draft: Wish | None  # speculative decoding
    adapters: Sequence[Adapter]  # of LoRA
    own: Entry  # keys that this engine alone has


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One of the engines. CONTRIBUTING.md has the recipe for another."""

    name: str  # in an inventory
    title: str  # as people write it
    # The command line: what follows the program, and the flags in it that the role sets itself.
    words: Callable[[Start], Sequence[object]]
    own_flags: frozenset[str]
    environment: Callable[[int], Mapping[str, Any]] = lambda _s: {}  # of the seconds that a start may take
    options: tuple[str, ...] = ()  # of `docker run`, beside those that all have
    # The image: the program that it must have.
    program: str
    key_variable: str  # of the environment: the key that clients send, which a command line would show to all
    key_without: str = ""  # characters that its key cannot hold
    # Readiness: the lines of its log (a table of catalog/units.yml), else it is asked at /health.
    log: str = ""
    # The names of its metrics: all else knows vLLM's.
    metrics: Naming = NAMES_OF_VLLM
    # The share of memory is among the words. What an entry has, must have, and may not have, with the reason.
    keys: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    refuses: Mapping[str, str] = field(default_factory=dict)
    mistakes: Callable[[Entry], Iterator[str]] = lambda _entry: iter(())
    # Which files of the model it takes, as vllm_model_exclude says it; None: what that says.
    files: Callable[[Entry], list[str]] | None = None
    behind: int = 0  # ports behind the meeting port that it may take by itself
    address_variable: str = ""  # of the environment: where other ranks find this one; empty: on one host alone


_ONLY_VLLM = "only vLLM is told"
# What every other engine leaves to vLLM.
NOT_HERE = {
    **dict.fromkeys(("flags", "executor", "ray_port", "ray_token", "warm_cache_gib", "model_facts"), _ONLY_VLLM),
    **dict.fromkeys(("lora", "further_names"), _ONLY_VLLM),
    "gpu_memory_utilization": "means another thing to each engine; say memory_gib",
    "host": "is 127.0.0.1, and the gateway stands in front of it",
}
