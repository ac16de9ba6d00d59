# SPDX-License-Identifier: GPL-3.0-or-later
"""Put a load on a vLLM server, and read on every host of its cluster what the GPU does meanwhile.

The load is vLLM's own `vllm bench serve`, in the container that serves: it has that version's client, the tokenizer and
the API key. What was read is judged elsewhere (plugin_utils/reports/benchmark.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Callable

from ansible_collections.gb10.fleet.plugins.module_utils.reading import gpu
from ansible_collections.gb10.fleet.plugins.module_utils.reading.counters import OF_A_LOAD, count
from ansible_collections.gb10.fleet.plugins.module_utils.serving.server_probe import STRANGER, Ask
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import NOT_ENDED, Clock, Runner
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document

_FIGURES = ("clock_mhz", "power_w", "temperature_c", "utilization_percent")
GPU_FIELDS = (*(gpu.NUMBERS[name][0] for name in _FIGURES), gpu.REASON_BITS, gpu.TEXTS["driver"])
METRICS_DEADLINE_S = 30.0
GRACE_S = 30.0  # of `docker exec`, after the time of what runs in the container
LARGEST_COMPLAINT = 500

# The key stays where it is: the server's variable becomes the client's inside the container. Only the result goes to
# stdout. `timeout` is the container's own, for what `docker exec` has started does not end with Docker's client.
SCRIPT = """\
folder=$(mktemp -d) || exit
trap 'rm -rf "$folder"' EXIT
OPENAI_API_KEY="$VLLM_API_KEY" timeout -k 10 "$@" --result-dir "$folder" --result-filename result.json >&2 || exit
cat "$folder/result.json"
"""
# What of the server's own flags the client needs to find and read the tokenizer.
TOKENIZER_FLAGS = ("--tokenizer", "--tokenizer-mode")
TRUST_FLAG = "--trust-remote-code"


@dataclass(frozen=True)
class Load:
    """One step of a load test. Tokens are of one request; `shared_tokens` of its input are alike in all of them."""

    model: str
    served_name: str
    url: str
    requests: int
    concurrency: int
    input_tokens: int
    shared_tokens: int
    output_tokens: int
    seed: int
    timeout_s: int
    container: str = "gb10-vllm"
    serve_args: Sequence[str] = ()

    def __post_init__(self) -> None:
        counts = ("requests", "concurrency", "input_tokens", "output_tokens", "timeout_s")
        for name in counts:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.shared_tokens < self.input_tokens:
            raise ValueError(f"shared_tokens is {self.shared_tokens}; it must be less than input_tokens")
        for name in ("model", "served_name", "container"):
            if not re.match(r"[\w/]", getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)!r}; a name begins with a letter or a digit")


@dataclass(frozen=True)
class Reading:
    """What nvidia-smi said once; None where it gives no number."""

    clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    utilization_percent: float | None
    event_reasons: int | None  # bits
    driver: str


@dataclass(frozen=True)
class Sampling:
    """How long to read: while the load runs; on a host without it until `enough` readings were busy, or `within_s`."""

    busy_percent: float
    enough: int
    within_s: float
    every_s: float = 1.0


# ------------------------------------------------------------------------------------------------------------- the load


def argv(load: Load) -> list[str]:
    """The command. The tokenizer is in the cache of a server that runs, so nobody is asked for it again."""
    return [
        *("docker", "exec", "--env", "HF_HUB_OFFLINE=1", load.container, "sh", "-c", SCRIPT, "sh", str(load.timeout_s)),
        *("vllm", "bench", "serve", "--backend", "openai", "--base-url", load.url, "--endpoint", "/v1/completions"),
        *("--model", load.model, "--served-model-name", load.served_name, *_tokenizer(load.serve_args)),
        *("--dataset-name", "random", "--random-prefix-len", str(load.shared_tokens)),
        *("--random-input-len", str(load.input_tokens - load.shared_tokens)),
        *("--random-output-len", str(load.output_tokens), "--ignore-eos", "--temperature", "0"),
        *("--num-prompts", str(load.requests), "--max-concurrency", str(load.concurrency), "--seed", str(load.seed)),
        *("--disable-tqdm", "--save-result"),
    ]


def _tokenizer(serve_args: Sequence[str]) -> list[str]:
    found: list[str] = []
    for index, word in enumerate(serve_args):
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        if flag in TOKENIZER_FLAGS and (equals or index + 1 < len(serve_args)):
            found += [flag, value if equals else serve_args[index + 1]]
        elif word.replace("_", "-") == TRUST_FLAG:
            found.append(TRUST_FLAG)
    return found


def put(load: Load, run: Runner) -> dict[str, Any]:
    """The result of vLLM's client, or `error`: why there is none."""
    done = run(argv(load), None, load.timeout_s + GRACE_S)
    if done.rc == NOT_ENDED:
        return {"error": f"the load did not end within {load.timeout_s} s"}
    if done.rc != 0:
        said = " / ".join(line.strip() for line in (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
        return {"error": f"vllm bench serve ended with {done.rc}: {said[-LARGEST_COMPLAINT:] or 'it said nothing'}"}
    result = document(done.stdout)
    return {"result": result} if result else {"error": "vllm bench serve wrote no result that can be read"}


def _version(body: str) -> str | None:
    said = document(body).get("version")
    return None if said is None else str(said)


def prefix_cache(before: str, after: str) -> dict[str, float] | None:
    """Return the tokens looked up in the prefix cache between two answers of /metrics, and those found there."""
    first, last = (count(text, OF_A_LOAD) for text in (before, after))
    grown: dict[str, float] = {}
    for name in ("queries", "hits"):
        was, now = first[f"cache_{name}"], last[f"cache_{name}"]
        if was is None or now is None:
            return None
        grown[name] = now - was
    return grown


def drafts(before: str, after: str) -> dict[str, float] | None:
    """Return steps, drafted and accepted tokens between two answers of /metrics; None without drafts."""
    first, last = (count(text, OF_A_LOAD) for text in (before, after))
    grown: dict[str, float] = {}
    for name in ("drafts", "draft_tokens", "accepted_tokens"):
        now = last[name]
        if now is None:
            return None
        grown[name] = now - (first[name] or 0)
    return grown


# -------------------------------------------------------------------------------------------------------------- the GPU


def read_gpu(run: Runner) -> Reading | None:
    """One reading, or None: nvidia-smi failed, hangs, or sees no GPU."""
    done = run(gpu.argv(GPU_FIELDS), None, gpu.GPU_DEADLINE_S)
    cells = gpu.row(done.stdout, GPU_FIELDS)
    if done.rc or not cells:
        return None
    values, _reasons = gpu.values(cells)
    figures = {name: values[name] for name in _FIGURES}
    return Reading(**figures, event_reasons=gpu.reason_bits(cells), driver=values["driver"] or "")


def measure(load: Load | None, sampling: Sampling, ask: Ask | None, run: Runner, clock: Clock) -> dict[str, Any]:
    """Put the load, if this host is to, and read the GPU meanwhile."""
    if load is None or ask is None:
        return {"load": None, "readings": _watch(sampling, run, clock, lambda readings: _seen(readings, sampling))}
    first = ask("/metrics", None, METRICS_DEADLINE_S)
    if first.problem == STRANGER:  # the client would send it the key
        error = f"another process than that of {load.container} has the port of {load.url}; `ss -ltnp` names it"
        return {
            "load": {"error": error, "version": None, "prefix_cache": None, "drafts": None, "others": 0},
            "readings": [],
        }
    before = first.body
    with ThreadPoolExecutor(1) as pool:
        running: Future[dict[str, Any]] = pool.submit(put, load, run)
        readings = _watch(sampling, run, clock, lambda _readings: running.done(), load.timeout_s + GRACE_S)
    after = ask("/metrics", None, METRICS_DEADLINE_S).body
    said = {
        "version": _version(ask("/version", None, METRICS_DEADLINE_S).body),
        "prefix_cache": prefix_cache(before, after),
        "drafts": drafts(before, after),
        "others": int(count(before, OF_A_LOAD)["running"] or 0),
    }
    return {"load": {**running.result(), **said}, "readings": readings}


def _seen(readings: Sequence[Reading | None], sampling: Sampling) -> bool:
    busy = [one for one in readings if one and (one.utilization_percent or 0) >= sampling.busy_percent]
    return len(busy) >= sampling.enough


def _watch(
    sampling: Sampling,
    run: Runner,
    clock: Clock,
    over: Callable[[Sequence[Reading | None]], bool],
    within_s: float | None = None,
) -> list[dict[str, Any] | None]:
    until = clock.now() + (sampling.within_s if within_s is None else within_s)
    readings: list[Reading | None] = []
    while not over(readings) and clock.now() < until:
        readings.append(read_gpu(run))
        clock.sleep(sampling.every_s)
    return [asdict(one) if one else None for one in readings]
