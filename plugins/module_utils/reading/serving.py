# SPDX-License-Identifier: GPL-3.0-or-later
"""The counters of a service, as a reading of health has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading import counters
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_names import (
    SHORT,
    settings_of,
    status_of,
)
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_status import READY, parse_status
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown, text_of

if TYPE_CHECKING:  # a host may have Python 3.9
    from typing import NotRequired

DEADLINE_S = 5.0
COUNTED = ("running", "waiting", "generated_tokens", "prompt_tokens")
STEPS = ("step_s_sum", "step_count")  # left out where this vLLM does not count them
Ask = Callable[[], counters.Counters]


class Serving(TypedDict):
    running: float
    waiting: float | None
    generated_tokens: float
    prompt_tokens: float | None
    step_s_sum: NotRequired[float | None]
    step_count: NotRequired[float | None]


def asker(
    host: HostReader,
    name: str = SHORT,
    ask: Callable[[counters.Service, float], counters.Counters] = counters.ask,
) -> Ask:
    """Return how to ask the server of a service of this host.

    Only while its unit says that its container has the port: before and afterwards any user of the host may have it.
    """
    path, status = settings_of(name), status_of(name)
    service = counters.service_of(name, text_of(host, path), path)
    if service.port is None:
        raise Unknown(counters.NO_API)
    said, _reasons = parse_status(text_of(host, status), status)
    if said["phase"] != READY:
        raise Unknown(f"its unit says {said['phase']}, so nobody is asked")
    return lambda: ask(service, DEADLINE_S)


def read_serving(ask: Ask) -> counters.Counters:
    """Return requests and tokens over all engines of the server, and how long its steps took."""
    try:
        counted = ask()
    except OSError as error:
        raise Unknown(f"the server's /metrics: {counters.reason(error)}") from None
    steps = {name: counted[name] for name in STEPS if counted[name] is not None}
    return {**{name: counted[name] for name in COUNTED}, **steps}
