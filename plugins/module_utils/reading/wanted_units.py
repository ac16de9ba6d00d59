# SPDX-License-Identifier: GPL-3.0-or-later
"""Units that a role wants started, by the manifest, and that stand still."""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.gb10.fleet.plugins.module_utils.reading.stop_requests import told
from ansible_collections.gb10.fleet.plugins.module_utils.reading.unit_states import read_units
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown, quoted


class StoppedUnit(TypedDict):
    unit: str
    role: str
    state: str
    file_state: str
    wish: str | None


def read_stopped(host: HostReader) -> list[StoppedUnit]:
    """`{unit, role, state, file_state, wish}` of each; `wish`: whose it is that it stands still, None: nobody's."""
    try:
        known = host.system.once(manifests.load)
        wanted = {
            str(entry.declared["unit"]): next(iter(entry.roles))
            for entry in known.resources.values()
            if entry.declared.get("unit") and entry.declared.get("state") == "started" and not entry.orphan
        }
        live = read_units(host.system, list(wanted)) if wanted else {}
    except HostError as error:
        raise Unknown(quoted(str(error))) from None
    wishes = {
        wish["unit"]: f"{wish['who']}{' until ' if wish['shown'] else ''}{wish['shown']}"
        for wish in told(known.wishes, host.system.clock.utc())
    }
    return [
        {
            "unit": name,
            "role": wanted[name],
            "state": quoted(unit.active),
            "file_state": quoted(unit.file_state),
            "wish": quoted(wishes[name]) if name in wishes else None,
        }
        for name, unit in live.items()
        if not unit.running and not unit.restarts
    ]
