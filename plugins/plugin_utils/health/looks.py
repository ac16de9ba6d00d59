# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts said of themselves when somebody looked, checked. Pure; the task that asks them needs no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading.glance import LINE
from ansible_collections.gb10.fleet.plugins.module_utils.reading.health import Reading
from ansible_collections.gb10.fleet.plugins.module_utils.reading.services import LINE as SERVICES
from ansible_collections.gb10.fleet.plugins.module_utils.reading.services import MOST_SERVICES, Services
from ansible_collections.gb10.fleet.plugins.module_utils.system.values import AtMost
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.output import cleaned, printable

if TYPE_CHECKING:  # it imports half of Ansible, which `gb10` itself does not need
    from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts.scan import Reply

LONGEST_ERROR = 1000  # characters of one that a host says


class Counters(TypedDict):
    running: float
    generated_tokens: float
    waiting: float | None
    prompt_tokens: float | None
    ttft_s_sum: float | None
    ttft_count: float | None
    step_s_sum: float | None
    step_count: float | None


class Served(TypedDict):
    name: str
    at_s: float
    steady_s: NotRequired[float]  # by a clock that nobody sets
    phase: str | None
    since: str | None
    verdict: str | None
    counters: Counters | None
    problem: str | None


class Look(TypedDict):
    reading: Reading
    services: Annotated[list[Served], AtMost(MOST_SERVICES)]


def of_line(line: str) -> dict[str, Any] | None:
    """`look`, or why it is none; None for a line that is no look."""
    if not line.startswith(LINE):
        return None
    try:
        look = schema.parsed(line[len(LINE) :])
        wrong = schema.problem(look, Look, "look")
        return {"silent": printable(wrong)} if wrong else {"look": cleaned(schema.known(look, Look))}
    except (ValueError, RecursionError):  # what no type names may be nested as well
        return {"silent": "its answer is no JSON"}


def services_of(reply: Reply) -> dict[str, Any]:
    """The services of a host by its answer, or why there are none; empty where it gave no answer at all."""
    line = next((line for line in reply.stdout.splitlines() if line.startswith(SERVICES)), "")
    if not line:
        return {}
    try:
        said = schema.parsed(line[len(SERVICES) :])
        services, error = said.get("services"), said.get("error")
        wrong = error or schema.problem(services, Services, "services")
        if wrong:
            return {"error": printable(str(wrong)[:LONGEST_ERROR])}
        return {"services": cleaned(schema.known(services, Services))}
    except (ValueError, RecursionError, AttributeError):  # what no type names may be nested as well
        return {"error": "its answer is no JSON"}


def of_reply(reply: Reply, timeout_s: float) -> dict[str, Any]:
    """The looks in an answer; without any, why."""
    said = [found for line in reply.stdout.splitlines() if (found := of_line(line))]
    looks = [found["look"] for found in said if "look" in found]
    if looks:
        return {"looks": looks, "silent": None}
    wrong = next((found["silent"] for found in said), None)
    if wrong is None and reply.status is None:
        wrong = f"it gave no answer within {timeout_s:g} s"
    last = reply.stderr.strip().splitlines()[-1:] or [f"exit status {reply.status}"]
    return {"looks": [], "silent": wrong or printable(last[0])}
