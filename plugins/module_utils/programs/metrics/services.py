# SPDX-License-Identifier: GPL-3.0-or-later
"""The services of this host: what each unit says of its life, and vLLM's own metrics.

vLLM listens on loopback, and the collector asks it there. It hands on the families that catalog/monitoring.yml names,
with the service as a label. No port is opened for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Callable, NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.reading import counters
from ansible_collections.gb10.fleet.plugins.module_utils.reading.engine_metrics import in_names_of_vllm
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_status import READY, parse_status
from ansible_collections.gb10.fleet.plugins.module_utils.system import asking
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import (
    LARGEST_TEXT,
    Notes,
    Unknown,
    checked,
    quoted,
    text_of,
)

from .exposition import Samples, sample
from .of_vllm import few, handed_on

SETTINGS, RUN = "/etc/gb10-fleet", "/run"
RUNNING = "/run/systemd/units/invocation:"
DEADLINE_S = 3.0
_LARGEST_REPLY = LARGEST_TEXT
_RUN_FOLDER = re.compile(r"gb10-(vllm(?:-[a-z0-9][a-z0-9-]{0,40})?)\Z")
Fetch = Callable[[counters.Service, asking.Owner], str]  # what the server says of its metrics


def names(host: HostReader) -> list[str]:
    """Of all services that have run here since the boot: vllm, and vllm-NAME."""
    return sorted(found[1] for folder in host.names(RUN) if (found := _RUN_FOLDER.match(folder)))


def of_targets(slo: Mapping[str, float], services: Iterable[str]) -> Samples:
    """What the services of this host are held to."""
    named = {"ttft_p95_s": "gb10_slo_ttft_p95_seconds", "error_share": "gb10_slo_error_ratio"}
    return [
        one for target, value in slo.items() for name in services for one in sample(named[target], value, service=name)
    ]


class Read(NamedTuple):
    """Metrics of the units, vLLM's own families as text, and for the detectors each unit's status and its counters."""

    samples: Samples
    text: str
    services: dict[str, Any]
    servings: dict[str, Any]


def read(
    host: HostReader, notes: Notes, families: Mapping[str, str], fetch: Fetch, planned: Iterable[str] = ()
) -> Read:
    """`planned`: services that should be there, whether they have run since the boot or not."""
    samples: Samples = []
    texts: dict[str, str] = {}
    read = Read(samples, "", {}, {})
    known = sorted({*names(host), *planned})
    for name in known:
        found, read.services[name], text = _of_service(host, notes, name, fetch)
        samples += found
        if text and notes.read(f"serving.{name}", partial(few, text, families, len(known))):
            texts[name] = text
        read.servings[name] = notes.read(f"servings.{name}", partial(counters.parse, text)) if text else None
    return read._replace(text=handed_on(texts.items(), families))


def _of_service(
    host: HostReader, notes: Notes, name: str, fetch: Fetch
) -> tuple[Samples, dict[str, Any] | None, str | None]:
    up = host.path(f"{RUNNING}gb10-{name}.service").is_symlink()
    samples = sample("gb10_service_up", up, service=name)
    path = _status_of(name)
    status = notes.part(f"service.{name}", lambda: parse_status(text_of(host, path), path)) if up else None
    samples += of_status(name, status or {})
    if not status or status["phase"] != READY:
        return samples, status, None
    path = f"{SETTINGS}/{name}.json"
    service = notes.read(f"serving.{name}", lambda: counters.service_of("", text_of(host, path), path))
    if not service or service.port is None:
        return samples, status, None
    owner = asking.said_by_unit(host.system.place(_status_of(name)))
    text = notes.read(f"serving.{name}", lambda: in_names_of_vllm(fetch(service, owner), service.naming))
    return samples + sample("gb10_service_answers", text is not None, service=name), status, text


def _status_of(name: str) -> str:
    """It outlives the unit."""
    return f"{RUN}/gb10-{name}/status.json"


def of_status(name: str, status: dict[str, Any]) -> Samples:
    if not status:
        return []
    found = sample("gb10_service_phase", 1, service=name, phase=status["phase"])
    found += sample("gb10_service_failures", status["failures"], service=name)
    return found + (
        sample("gb10_service_verdict", 1, service=name, verdict=status["verdict"]) if status["verdict"] else []
    )


def fetch(service: counters.Service, owner: asking.Owner) -> str:
    path = service.naming.path
    try:
        status, body = service.metrics(DEADLINE_S, _LARGEST_REPLY + 1, owner)
    except ValueError as error:
        raise Unknown(f"the server's {path} gave no answer: {quoted(str(error))}") from None
    if status != 200:
        raise Unknown(f"the server's {path} gave {status}")
    return checked(body.decode("utf-8", "replace"), path)
