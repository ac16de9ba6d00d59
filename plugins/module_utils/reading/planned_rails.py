# SPDX-License-Identifier: GPL-3.0-or-later
"""The network devices that are rails by plan: those of the profiles that the engine keeps."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import Unknown, quoted

_PROFILE = "nm_profile:"


def read_planned_rails(host: HostReader) -> list[str] | None:
    """None where nothing was ever applied: then nobody has planned anything."""
    try:
        known = host.system.once(manifests.load)
    except HostError as error:
        raise Unknown(quoted(str(error))) from None
    if not known.resources:
        return None
    ours = {label: entry.declared for label, entry in known.resources.items() if not entry.orphan}
    return sorted(
        {quoted(str(declared.get("interface"))) for label, declared in ours.items() if label.startswith(_PROFILE)}
    )
