# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The services of this host: what each unit says of its life, and vLLM's own metrics.

vLLM listens on loopback, and asks nobody for a key at /metrics. So the collector asks it there, and hands on the
families that catalog/monitoring.yml names, with the service as a label. No port is opened for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Callable

from ansible_collections.gb10.fleet.plugins.module_utils.reading.counters import page, place
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
from .of_vllm import handed_on

SETTINGS, RUN, READY = "/etc/gb10-fleet", "/run", "ready"
RUNNING = "/run/systemd/units/invocation:"
DEADLINE_S = 3.0
_LARGEST_REPLY = LARGEST_TEXT
_MOST_FAILURES = 2**53  # what is above is no count
_RUN_FOLDER = re.compile(r"gb10-(vllm(?:-[a-z0-9][a-z0-9-]{0,40})?)\Z")
Fetch = Callable[[str, int], str]  # address, port -> the text of /metrics


def names(host: HostReader) -> list[str]:
    """Of all services that have run here since the boot: vllm, and vllm-NAME."""
    return sorted(found[1] for folder in host.names(RUN) if (found := _RUN_FOLDER.match(folder)))


def read(host: HostReader, notes: Notes, families: Mapping[str, str], fetch: Fetch) -> tuple[Samples, str]:
    """Samples of the units, and vLLM's own families as text."""
    samples: Samples = []
    texts: list[tuple[str, str]] = []
    for name in names(host):
        found, text = _of_service(host, notes, name, fetch)
        samples += found
        texts += [(name, text)] if text else []
    return samples, handed_on(texts, families)


def _of_service(host: HostReader, notes: Notes, name: str, fetch: Fetch) -> tuple[Samples, str | None]:
    up = host.path(f"{RUNNING}gb10-{name}.service").is_symlink()
    samples = sample("gb10_service_up", up, service=name)
    status = notes.read(f"service.{name}", lambda: _status(host, name)) if up else None  # it outlives the unit
    samples += of_status(name, status or {})
    if not status or status["phase"] != READY:
        return samples, None
    place = notes.read(f"serving.{name}", lambda: address(text_of(host, f"{SETTINGS}/{name}.json")))
    if not place:
        return samples, None
    text = notes.read(f"serving.{name}", lambda: fetch(*place))
    return samples + sample("gb10_service_answers", text is not None, service=name), text


def _status(host: HostReader, name: str) -> dict[str, Any]:
    path = f"{RUN}/gb10-{name}/status.json"
    try:
        said = json.loads(checked(text_of(host, path), path))
        failure = said.get("failure") or {}
        return {
            "phase": quoted(said["phase"]),
            "failures": _failures(said.get("failures") or 0),
            "verdict": quoted(failure["verdict"]) if failure else None,
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise (error if isinstance(error, Unknown) else Unknown(f"{path} is not what the unit writes")) from None


def _failures(said: Any) -> float:
    if not isinstance(said, (int, float)) or not 0 <= said < _MOST_FAILURES:
        raise ValueError("no number of failures")
    return float(said)


def of_status(name: str, status: dict[str, Any]) -> Samples:
    if not status:
        return []
    found = sample("gb10_service_phase", 1, service=name, phase=status["phase"])
    found += sample("gb10_service_failures", status["failures"], service=name)
    return found + (
        sample("gb10_service_verdict", 1, service=name, verdict=status["verdict"]) if status["verdict"] else []
    )


def address(text: str) -> tuple[str, int] | None:
    """Where the server answers, by its flags; None where this rank has no API, or the service is none of vLLM."""
    try:
        host, port = place(json.loads(text).get("argv") or ())
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise Unknown("the settings of the service are not what the role writes") from None
    return (host, port) if port is not None else None


def fetch(address: str, port: int) -> str:
    try:
        status, body = page(address, port, DEADLINE_S, _LARGEST_REPLY + 1)
    except ValueError as error:
        raise Unknown(f"the server's /metrics gave no answer: {quoted(str(error))}") from None
    if status != 200:
        raise Unknown(f"the server's /metrics gave {status}")
    return checked(body.decode("utf-8", "replace"), "/metrics")
