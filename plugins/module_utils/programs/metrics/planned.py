# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What should be there, by the manifest of the engine: an alert compares with it, and does not end with its series."""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.gb10.fleet.plugins.module_utils.reading.planned_rails import read_planned_rails
from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import in_force
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Notes, Unknown

from .exposition import Samples, sample

_UNIT = re.compile(r"unit:gb10-(vllm(?:-[a-z0-9][a-z0-9-]{0,40})?)\.service\Z")


class Planned(NamedTuple):
    """Of each service that a role keeps running, whether it should run now; and the network devices of rails."""

    services: dict[str, bool]
    rails: tuple[str, ...]

    @property
    def samples(self) -> Samples:
        found: Samples = []
        for name, wanted in self.services.items():
            found += sample("gb10_service_wanted", wanted, service=name)
        for netdev in self.rails:
            found += sample("gb10_rail_planned", 1, netdev=netdev)
        return found


def read(host: HostReader, notes: Notes) -> Planned:
    return notes.read("planned", lambda: _planned(host)) or Planned({}, ())


def _planned(host: HostReader) -> Planned:
    try:
        known = manifests.load(host.system)
    except HostError as error:
        raise Unknown(str(error)) from None
    stopped = in_force(known.wishes, host.system.clock.utc())
    ours = {label: entry.declared for label, entry in known.resources.items() if not entry.orphan}
    services = {
        unit[1]: label not in stopped
        for label, declared in ours.items()
        if (unit := _UNIT.match(label)) and declared.get("state") == "started"
    }
    return Planned(services, tuple(read_planned_rails(host) or ()))
