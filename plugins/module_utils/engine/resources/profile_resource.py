# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A NetworkManager profile as it is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import Resource
from ansible_collections.gb10.fleet.plugins.module_utils.engine.structs import dataclass


@dataclass(frozen=True)
class Profile(Resource):
    """A profile and what it makes of its interface. `former` is an undo: the record of how both stood before.

    `peers`: who must answer over the interface, with packets as large as its MTU, before a change of it is kept.
    """

    KIND = "nm_profile"

    state: str = "present"
    uuid: str = ""
    interface: str = ""
    addresses: tuple[str, ...] = ()
    mtu: int = 0
    consent: str = ""
    replace_foreign: bool = False
    peers: tuple[str, ...] = ()
    former: Mapping[str, Any] | None = None

    @property
    def identities(self) -> tuple[str, ...]:
        return (self.label, f"uuid {self.uuid}", f"interface {self.interface}")

    def differences(self, mtu: int, addresses: frozenset[str]) -> list[str]:
        """What of an interface as it is now is other than wanted, a text for each."""
        found = [f"live MTU {mtu} -> {self.mtu}"] if mtu != self.mtu else []
        if addresses != set(self.addresses):
            now = ", ".join(sorted(addresses)) or "none"
            found.append(f"live addresses {now} -> {', '.join(self.addresses)}")
        return found

    @property
    def settings(self) -> dict[str, str]:
        """The profile as nmcli reads and writes it."""
        if self.former is not None and self.former["profile"] is not None:
            return dict(self.former["profile"])
        return {
            "connection.id": self.name,
            "connection.interface-name": self.interface,
            "connection.autoconnect": "yes",
            # Above a profile that names no interface and would otherwise compete at boot (the default is 0).
            "connection.autoconnect-priority": "10",
            "802-3-ethernet.mtu": str(self.mtu),
            "ipv4.method": "manual",
            "ipv4.addresses": ", ".join(self.addresses),
            "ipv4.never-default": "yes",
            "ipv4.may-fail": "no",
            "ipv6.method": "disabled",
        }


SETTINGS = tuple(Profile(0, "").settings)
