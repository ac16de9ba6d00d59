# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The services: what each unit says of its life, and what its server counts."""

from __future__ import annotations

import json
import math
from typing import Any, Callable

from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_names import (
    SETTINGS,
    SHORT,
    settings_of,
    status_of,
)
from ansible_collections.gb10.fleet.plugins.module_utils.serving.load import metric
from ansible_collections.gb10.fleet.plugins.module_utils.serving.server_probe import Ask, Reply, http_client
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Part, Unknown, checked, quoted, text_of

DEADLINE_S = 5.0
READY = "ready"
_MOST_FAILURES = 10**6  # more are not counted
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - what vLLM listens on, and where it is asked
METRICS = {
    "running": "num_requests_running",
    "waiting": "num_requests_waiting",
    "generated_tokens": "generation_tokens",
    "prompt_tokens": "prompt_tokens",
}
STEPS = {"step_s_sum": "inter_token_latency_seconds_sum", "step_count": "inter_token_latency_seconds_count"}


def server_url(text: str, path: str = SETTINGS) -> str:
    """Where the server of this unit answers, by the flags in its settings."""
    try:
        argv = [str(word) for word in json.loads(checked(text, path))["argv"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise (error if isinstance(error, Unknown) else Unknown(f"{path} is not what the role writes")) from None
    flags = dict(zip(argv, argv[1:]))
    if "--headless" in argv or not flags.get("--port", "").isdigit():
        raise Unknown("this rank of the cluster has no API; the head has")
    host = flags.get("--host", "127.0.0.1")
    return f"http://{_ANY_ADDRESS.get(host, host)}:{flags['--port']}"


def asker(host: HostReader, name: str = SHORT, client: Callable[[str, str | None], Ask] = http_client) -> Ask:
    """How to ask the server of a service of this host. Its metrics need no key.

    Only while its unit says that it serves: before and afterwards any user of the host may have the port.
    """
    path, status = settings_of(name), status_of(name)
    url = server_url(text_of(host, path), path)
    said, _reasons = parse_status(text_of(host, status), status)
    if said["phase"] != READY:
        raise Unknown(f"its unit says {said['phase']}, so nobody is asked")
    return client(url, None)


def read_serving(ask: Ask) -> dict[str, float | None]:
    reply = ask("/metrics", None, DEADLINE_S)
    return {**parse_metrics(reply), **parse_steps(reply.body)}


def parse_steps(body: str) -> dict[str, float]:
    """How long steps took so far, and how many there were; nothing where this vLLM does not count them."""
    found = {name: metric(body, name_of_vllm) for name, name_of_vllm in STEPS.items()}
    return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}


def parse_metrics(reply: Reply) -> dict[str, float | None]:
    """Requests and tokens over all engines of the server."""
    if reply.status != 200:
        raise Unknown(f"the server's /metrics gave {reply.status or reply.problem or 'nothing'}")
    body = checked(reply.body, "/metrics")
    try:
        values = {name: metric(body, name_of_vllm) for name, name_of_vllm in METRICS.items()}
    except ValueError:
        raise Unknown(f"/metrics has a wrong number: {quoted(body[:200])}") from None
    if not all(value is None or math.isfinite(value) for value in values.values()):
        raise Unknown(f"/metrics has a number without an end: {quoted(body[:200])}")
    if values["running"] is None or values["generated_tokens"] is None:
        raise Unknown(f"/metrics is not vLLM's: {quoted(body[:200])}")
    return values


def parse_status(text: str, path: str = status_of(SHORT)) -> Part:
    """The phase of the unit, and its last failure."""
    try:
        said: Any = json.loads(checked(text, path))
        failure = said.get("failure") or None
        values = {
            "phase": quoted(said["phase"]),
            "since": quoted(said.get("since") or "") or None,
            "failures": min(int(said.get("failures") or 0), _MOST_FAILURES),
            "verdict": quoted(failure["verdict"]) if failure else None,
            "text": quoted(failure["text"]) if failure else None,
            "at": quoted(failure.get("at") or "") or None if failure else None,
        }
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise (error if isinstance(error, Unknown) else Unknown(f"{path} is not what the unit writes")) from None
    return values, {}
