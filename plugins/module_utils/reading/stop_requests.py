# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which units stand still because the operator said so, of the manifest."""

from __future__ import annotations

from ansible_collections.gb10.fleet.plugins.module_utils.engine import wishes
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest as manifests
from ansible_collections.gb10.fleet.plugins.module_utils.system.host_reader import HostReader
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError


def read_wishes(host: HostReader) -> list[dict[str, str]]:
    """With those that are asleep. None of a manifest that nobody can read: the engine says that it is damaged."""
    try:
        known = host.system.once(manifests.load)
        return [*wishes.told(known.wishes, host.system.clock.utc()), *wishes.asleep(known, host.system)]
    except HostError:
        return []
