# SPDX-License-Identifier: GPL-3.0-or-later
"""A small model served from an image: whether it talks sense, and how fast. One image after the other, on one host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.images.errors import ImageError
from ansible_collections.gb10.fleet.plugins.module_utils.serving import listening, server_probe
from ansible_collections.gb10.fleet.plugins.module_utils.serving.host_tools import Command, command
from ansible_collections.gb10.fleet.plugins.module_utils.serving.server_probe import Ask
from ansible_collections.gb10.fleet.plugins.module_utils.serving.transfer_errors import last_words
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import run_command
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document

CONTAINER = "gb10-image-trial"
MODEL = "trial"
_AT = "/gb10-trial-model"
_PROMPT = "Write a long story about a lighthouse."
_ANSWER_S = 300.0
_SOON_S = 2.0  # a container that ends has ended by then


def serve(
    image: str,
    given: Mapping[str, Any],
    run: Command = command,
    ask: Ask | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """`given`: `model` (a folder), `port`, `options` of `docker run`, `arguments` of `vllm serve`, `ready_s`, `rounds`
    and `tokens`. What is wrong with a model is a verdict, and no error."""
    run(["docker", "rm", "--force", "--volumes", CONTAINER])  # of a run that was killed
    done = run(argv(image, given))
    if done.returncode != 0:
        text = last_words(done.stderr, 2)
        raise ImageError("failed", f"`docker run` of {image}: {text}", "correct vllm_image_docker_options")
    # Another user's server may hold the port: only what the container has accepted is its answer.
    owner = listening.of_container(CONTAINER, run_command)
    client = ask or server_probe.http_client(f"http://127.0.0.1:{given['port']}", None, owner)
    try:
        sleep(_SOON_S)
        proof = server_probe.probe(
            client,
            MODEL,
            timeout_s=given["ready_s"],
            answer_timeout_s=_ANSWER_S,
            status=lambda: _life(run),
            clock=clock,
            sleep=sleep,
        )
        speeds = list(_speeds(client, given, clock)) if proof.verdict == "serving" else []
        return {**asdict(proof), "speeds": speeds, "tokens_per_s": max(speeds, default=None)}
    finally:
        run(["docker", "rm", "--force", "--volumes", CONTAINER])


def argv(image: str, given: Mapping[str, Any]) -> list[str]:
    return [
        *("docker", "run", "--detach", "--name", CONTAINER, "--pull", "never", "--network", "host", "--ipc", "host"),
        *("--security-opt", "no-new-privileges", "--cap-drop", "ALL", "--env", "HF_HUB_OFFLINE=1"),
        # The kernel ends it before what serves beside it.
        *("--oom-score-adj", "1000", "--pids-limit", "32768", "--ulimit", "core=0"),
        *given["options"],
        *("--volume", f"{given['model']}:{_AT}:ro", "--entrypoint", "vllm", image, "serve", _AT),
        *("--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(given["port"]), *given["arguments"]),
    ]


def _life(run: Command) -> dict[str, Any]:
    """A container that has ended will never answer: said in the words of the unit, so that the probe does not wait."""
    shown = run(["docker", "inspect", "--format", "{{json .State}}", CONTAINER])
    state = document(shown.stdout)
    if state.get("Status") not in ("exited", "dead"):
        return {}
    logs = run(["docker", "logs", "--tail", "3", CONTAINER])
    text = last_words(logs.stdout + logs.stderr)
    failure = {"verdict": "start_failed", "text": f"it ended with {state.get('ExitCode')}: {text}", "way_out": "see it"}
    return {"phase": "failed", "failures": server_probe.FAILED_LIVES, "failure": failure}


def _speeds(ask: Ask, given: Mapping[str, Any], clock: Callable[[], float]) -> Sequence[float]:
    """Tokens per second of each round; the first one warms up, and is not told."""
    found: list[float] = []
    body = {
        "model": MODEL,
        "prompt": _PROMPT,
        "max_tokens": given["tokens"],
        "min_tokens": given["tokens"],
        "ignore_eos": True,
        "temperature": 0,
    }
    for number in range(given["rounds"] + 1):
        started = clock()
        reply = ask("/v1/completions", body, _ANSWER_S)
        seconds = clock() - started
        usage = document(reply.body).get("usage")
        tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if reply.status == 200 and number and isinstance(tokens, int) and tokens > 0 and seconds > 0:
            found.append(round(tokens / seconds, 2))
    return found
