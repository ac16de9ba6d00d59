# SPDX-License-Identifier: GPL-3.0-or-later
"""A NetworkManager profile as it is wanted, and as a document says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import Fields, Limits, Resource

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z"
_INTERFACE = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}\Z"
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z"
_NUMBER = r"(0|[1-9][0-9]{0,2})"  # a zero in front makes it octal to some programs
_ADDRESS = rf"({_NUMBER}\.){{3}}{_NUMBER}\Z"
_CIDR = rf"({_NUMBER}\.){{3}}{_NUMBER}/{_NUMBER}\Z"
_BYTE, _PREFIX = Limits(0, 255), Limits(0, 32)
_MTU = Limits(576, 65535)  # bytes; every IPv4 host takes the least


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


def parse(index: int, fields: Fields) -> Profile:
    """A profile as a document says it."""
    state = fields.choice("state", ("present", "absent"), "present")
    for key in ("uuid", "interface", "consent", *(("addresses", "mtu") if state == "present" else ())):
        if not fields.has(key):
            raise fields.fail(key, "is required")
    wish: dict[str, Any] = {}
    if state == "present":
        wish = {
            "addresses": _addresses(fields, "addresses", _CIDR, "an IPv4 address with prefix, such as 192.0.2.1/24"),
            "mtu": fields.number("mtu", _MTU),
            "replace_foreign": bool(fields.flag("replace_foreign")),
            "peers": _addresses(fields, "peers", _ADDRESS, "an IPv4 address"),
        }
        if not wish["addresses"]:
            raise fields.fail("addresses", "expected at least one IPv4 address with prefix")
    resource = Profile(
        index=index,
        name=fields.name(_NAME, "a name of letters, digits, dots, dashes and underscores"),
        state=state,
        uuid=fields.line("uuid", "", _UUID, "a UUID in lower case"),
        interface=fields.line("interface", "", _INTERFACE, "the name of an interface"),
        consent=fields.consent() or "",
        **wish,
    )
    fields.finish()
    return resource


def _addresses(fields: Fields, key: str, pattern: str, expected: str) -> tuple[str, ...]:
    found = fields.lines(key, pattern, expected)
    for place, text in enumerate(found):
        address, slash, prefix = text.partition("/")
        for number in address.split("."):
            fields.within(f"{key}[{place}]", int(number), _BYTE)
        if slash:
            fields.within(f"{key}[{place}]", int(prefix), _PREFIX)
    return found
