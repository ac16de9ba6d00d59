# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server of this host counts: requests, tokens, and how long tokens take."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ansible_collections.gb10.fleet.plugins.module_utils.reading.engine_metrics import VLLM, Naming, in_names_of_vllm
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_names import SHORT, long_name, status_of
from ansible_collections.gb10.fleet.plugins.module_utils.system import asking
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown, quoted

Counters = dict[str, "float | None"]

SETTINGS = "etc/gb10-fleet"
NO_API = "this rank of the cluster has no API; the head has"
LARGEST = 2**22  # bytes of an answer; a sound one has some 100,000
# As text, so that each is compiled when it is first used: a look at a host without services needs the first alone.
_FILE = r"vllm(?:-([a-z0-9][a-z0-9-]{0,62}))?\.json\Z"
_PORT = r"[1-9][0-9]{0,4}\Z"
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what vLLM listens on, and where it is asked
# Our names, and vLLM's after `vllm:`: of several the first that it has. Those behind the first two may be missing in an
# older or newer vLLM.
METRICS = {
    "running": ("num_requests_running",),
    "generated_tokens": ("generation_tokens_total", "generation_tokens"),
    "waiting": ("num_requests_waiting",),
    "prompt_tokens": ("prompt_tokens_total", "prompt_tokens"),
    "ttft_s_sum": ("time_to_first_token_seconds_sum",),
    "ttft_count": ("time_to_first_token_seconds_count",),
    "step_s_sum": ("inter_token_latency_seconds_sum", "time_per_output_token_seconds_sum"),
    "step_count": ("inter_token_latency_seconds_count", "time_per_output_token_seconds_count"),
}
# What a load test asks beside them; a server without a cache or a draft model has none.
OF_A_LOAD = {
    "running": METRICS["running"],
    "cache_queries": ("prefix_cache_queries_total", "prefix_cache_queries"),
    "cache_hits": ("prefix_cache_hits_total", "prefix_cache_hits"),
    "drafts": ("spec_decode_num_drafts_total", "spec_decode_num_drafts"),
    "draft_tokens": ("spec_decode_num_draft_tokens_total", "spec_decode_num_draft_tokens"),
    "accepted_tokens": ("spec_decode_num_accepted_tokens_total", "spec_decode_num_accepted_tokens"),
}
_LINE = r"^vllm:(\w+)(?:\{[^\n]*\})? ([0-9.eE+-]{1,30}|NaN|\+?Inf)(?: \d+)?$"


class Service:
    """A service of this host by its names; `port` is None where another host of the cluster has the API."""

    def __init__(
        self,
        name: str,
        unit: str,
        status: str,
        address: str,
        port: int | None,
        ranks: int,
        naming: Naming = VLLM,
        env_file: str | None = None,
    ) -> None:
        self.name, self.unit, self.status = name, unit, status
        self.address, self.port, self.ranks, self.naming, self.env_file = address, port, ranks, naming, env_file

    def metrics(self, seconds: float, most: int, owner: asking.Owner) -> tuple[int, bytes]:
        """Ask for them, with the key where they are shown to nobody else."""
        return asking.ask(
            *(self.address, self.port or 0, self.naming.path, owner),
            seconds=seconds,
            most=most,
            headers=self._headers(),
        )

    def _headers(self) -> dict[str, str]:
        if not self.naming.key_variable or not self.env_file:
            return {}
        with open(self.env_file, encoding="utf-8") as file:  # noqa: PTH123 - a text, not a path
            given = {name: value for name, __, value in (line.strip().partition("=") for line in file)}
        key = given.get(self.naming.key_variable)
        return {"Authorization": f"Bearer {key}"} if key else {}


def services(root: str | Path = "/") -> list[Service]:
    """Those whose settings lie on this host; what is not ours to read is left out."""
    found = []
    folder = f"{root}/{SETTINGS}"
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not paths
    except OSError:
        names = []
    for name in names:
        match = re.match(_FILE, name)
        if match:
            with contextlib.suppress(OSError, ValueError):
                path = f"{folder}/{name}"
                with open(path, encoding="utf-8") as file:  # noqa: PTH123 - a text, not a path
                    found.append(service_of(match[1] or SHORT, file.read(), path))
    return found


def service_of(name: str, text: str, path: str) -> Service:
    """Return the service that these settings are of; Unknown where they are not what the role writes."""
    try:
        settings = json.loads(text)
        address, port = place(settings["argv"])
        join = settings.get("join")
        ranks = len(join["members"]) if join else 1
        naming = Naming(**settings.get("metrics", {}))
        secrets = settings.get("env_file")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unknown(f"{path} is not what the role writes") from None
    return Service(name, f"{long_name(name)}.service", status_of(name), address, port, ranks, naming, secrets)


def place(argv: Iterable[object]) -> tuple[str, int | None]:
    """Where a server answers on the host itself, by its flags; no port where this rank of a cluster has no API."""
    words = [str(word) for word in argv]
    flags = dict(zip(words, words[1:]))
    host = flags.get("--host", "127.0.0.1")
    no_api = "--headless" in words or flags.get("--node-rank", "0") != "0"
    port = None if no_api else port_of(flags.get("--port", ""))
    return _ANY_ADDRESS.get(host, host), port


def ask(service: Service, seconds: float) -> Counters:
    """The counters of a server; OSError or ValueError, where it does not say them, or where it is not the unit's."""
    if service.port is None:
        raise ValueError(NO_API)
    owner = asking.said_by_unit(service.status)
    status, body = service.metrics(seconds, LARGEST, owner)
    if status != 200:
        raise ValueError(f"{service.naming.path} gave {status}")
    return parse(in_names_of_vllm(body.decode("utf-8", "replace"), service.naming))


def port_of(text: str) -> int | None:
    """A port, or None for what is none."""
    return int(text) if re.match(_PORT, text) and int(text) < 2**16 else None


def parse(text: str) -> Counters:
    """Return sums over all engines of the server, None for what it does not count; ValueError for another server."""
    found = count(text, METRICS)
    if found["running"] is None or found["generated_tokens"] is None:
        raise Unknown(f"/metrics is of no engine that is known: {quoted(text[:200]) or 'it is empty'}")
    return found


def count(text: str, names: Mapping[str, Sequence[str]]) -> Counters:
    """Return the same for these names, of any text."""
    sums: dict[str, float] = {}
    for name, value in re.findall(_LINE, text[:LARGEST], re.MULTILINE):
        with contextlib.suppress(ValueError):
            sums[name] = sums.get(name, 0.0) + float(value)
    found: Counters = {}
    for ours, theirs in names.items():
        value_of = next((sums[name] for name in theirs if name in sums), None)
        found[ours] = value_of if value_of is not None and math.isfinite(value_of) and value_of >= 0 else None
    return found


def reason(error: Exception) -> str:
    """Say in short why a server gave no counters."""
    return quoted(getattr(error, "strerror", None) or str(error) or "no answer")
