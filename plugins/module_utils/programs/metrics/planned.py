# SPDX-License-Identifier: GPL-3.0-or-later
"""What should be there, by the manifest of the engine: an alert compares with it, and does not end with its series.

And until when somebody works on the host, by what gb10-planned has written: then alerts wait.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.reading.model_names import place
from ansible_collections.gb10.fleet.plugins.module_utils.reading.planned_rails import read_planned_rails
from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import in_force
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Notes, Unknown, text_of

from . import gateway
from .exposition import Samples, sample

WORK = "/var/lib/gb10-metrics/planned"
_TIME = re.compile(r"[0-9]{1,12}\Z")
_GATEWAYS = (gateway.GATEWAY, gateway.ROUTER)
_UNIT = re.compile(r"unit:gb10-(vllm(?:-[a-z0-9][a-z0-9-]{0,40})?)\.service\Z")


class Planned(NamedTuple):
    """Of each service that a role keeps running, whether it should run now; and the network devices of rails."""

    services: dict[str, bool]
    models: dict[str, str]  # of such a service, as a router calls it
    rails: tuple[str, ...]
    gateways: dict[str, bool]  # units that a role keeps running, and whether each runs

    @property
    def samples(self) -> Samples:
        found: Samples = []
        for unit, up in self.gateways.items():
            found += sample("gb10_gateway_wanted", 1, unit=unit) + sample("gb10_gateway_up", up, unit=unit)
        for name, wanted in self.services.items():
            found += sample("gb10_service_wanted", wanted, service=name, model=self.models[name])
        for netdev in self.rails:
            found += sample("gb10_rail_planned", 1, netdev=netdev)
        return found


def read(host: HostReader, notes: Notes) -> Planned:
    return notes.read("planned", lambda: _planned(host, notes)) or Planned({}, {}, (), {})


def of_work(host: HostReader, notes: Notes, cluster: str) -> Samples:
    """The last end of all. Without any it is 0, not absent: the last value known must be the right one."""
    ends = [notes.read(f"work.{name}", partial(_end, host, name)) for name in host.names(WORK) if name[0] != "."]
    return sample("gb10_planned_until_seconds", max([0, *filter(None, ends)]), cluster=cluster)


def _end(host: HostReader, name: str) -> int:
    text = text_of(host, f"{WORK}/{name}").strip()
    if not _TIME.match(text):
        raise Unknown(f"{WORK}/{name} has no time")
    return int(text)


def _planned(host: HostReader, notes: Notes) -> Planned:
    try:
        known = host.system.once(manifests.load)
    except HostError as error:
        raise Unknown(str(error)) from None
    stopped = in_force(known.wishes, host.system.clock.utc())
    ours = {label: entry.declared for label, entry in known.resources.items() if not entry.orphan}
    services = {
        unit[1]: label not in stopped
        for label, declared in ours.items()
        if (unit := _UNIT.match(label)) and declared.get("state") == "started"
    }
    running = {
        unit: gateway.running(host, unit)
        for unit in _GATEWAYS
        if ours.get(f"unit:{unit}", {}).get("state") == "started"
    }
    models = {name: notes.read(f"model.{name}", partial(_served, host, name)) or "" for name in services}
    return Planned(services, models, tuple(read_planned_rails(host) or ()), running)


def _served(host: HostReader, name: str) -> str:
    """vLLM's name is a flag of its command line; of another engine the role says it."""
    path = f"/etc/gb10-fleet/{name}.json"
    try:
        written = json.loads(text_of(host, path))
        flags = dict(zip(written["argv"], written["argv"][1:]))
        return place(str(written["serves"]["name"] if "serves" in written else flags.get("--served-model-name", "")))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unknown(f"{path} is not what the role writes") from None
