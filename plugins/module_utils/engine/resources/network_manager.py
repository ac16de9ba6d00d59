# SPDX-License-Identifier: GPL-3.0-or-later
"""What NetworkManager has stored and what its interfaces are, as nmcli and the kernel say it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.profile_resource import SETTINGS, Profile
from ansible_collections.gb10.fleet.plugins.module_utils.reading import port_owners
from ansible_collections.gb10.fleet.plugins.module_utils.reading.network import Network, link_name, lower_interfaces
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, HostError, System

_READS = 5  # of all profiles; more than once only where one vanishes meanwhile
_NO_SUCH_PROFILE = 10  # nmcli(1): connection, device or access point does not exist
_NO_PROGRAM = 127
_NOT_INSTALLED = (
    "NetworkManager is not installed, and each rail is a profile of it: leave fabric out of gb10_roles, or install"
    " network-manager, with your own interfaces in unmanaged-devices of /etc/NetworkManager/conf.d if another service"
    " manages them"
)
# NetworkManager makes these up, in memory, for a port that no profile claims.
_MADE_UP = re.compile(r"Wired connection [0-9]+\Z")
# Rendered from /etc/netplan, which is where Ubuntu's NetworkManager stores profiles: as lasting as a file in /etc.
_NETPLAN = "/run/NetworkManager/system-connections/netplan-"
_LISTED = ("UUID", "DEVICE", "FILENAME")
# The last two: how a profile may name its interface otherwise.
_FIRST = "connection.uuid"  # of what is said of a profile
_FIELDS = (_FIRST, "connection.type", *SETTINGS, "802-3-ethernet.mac-address", "match.interface-name")


@dataclass(frozen=True)
class Stored:
    """A profile that NetworkManager knows."""

    uuid: str
    name: str
    device: str  # where it is active; empty if nowhere
    filename: str
    settings: Mapping[str, str]

    @property
    def made_up(self) -> bool:
        in_memory = not self.filename or (self.filename.startswith("/run/") and not self.filename.startswith(_NETPLAN))
        return in_memory and _MADE_UP.match(self.name) is not None

    @property
    def autoconnect(self) -> str:
        return self.settings.get("connection.autoconnect", "")

    def claims(self, interface: str, mac: str | None) -> bool:
        return self.device == interface or self._names(interface, mac)

    def owns(self, interface: str, mac: str | None) -> bool:
        """A profile that names no interface (the usual DHCP one) owns none: others may need it; ours outranks it."""
        return self._names(interface, mac) and (self.device == interface or self.autoconnect == "yes")

    def _names(self, interface: str, mac: str | None) -> bool:
        return port_owners.names(self.settings, {"name": interface, "mac": mac})


@dataclass(frozen=True)
class Link:
    """An interface as it is now; addresses are IPv4 with prefix. `carrier` is None if the interface is down.

    `master`: the bridge or bond that it is a port of.
    """

    mtu: int
    carrier: bool | None
    addresses: frozenset[str]
    master: str | None
    mac: str | None


@dataclass(frozen=True)
class NetworkState:
    stored: Mapping[str, Stored]  # by UUID
    links: Mapping[str, Link]
    ssh_interfaces: frozenset[str] = field(default_factory=frozenset)
    default_route_interfaces: frozenset[str] = field(default_factory=frozenset)
    lower: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what these stand on (VLAN, bond, ...)
    unnamed_session: str = ""  # why nobody can tell what carries the SSH session


def foreign_owners(resource: Profile, state: NetworkState) -> list[Stored]:
    """Profiles of others that are active on the interface or would take it at boot."""
    return others(resource, state, Stored.owns)


def others(resource: Profile, state: NetworkState, hold: Callable[[Stored, str, str | None], bool]) -> list[Stored]:
    """Profiles of others that hold the interface in that sense, but for those that NetworkManager has made up."""
    link = state.links.get(resource.interface)
    mac = link.mac if link is not None else None
    return [
        other
        for other in state.stored.values()
        if other.uuid != resource.uuid and not other.made_up and hold(other, resource.interface, mac)
    ]


def parse_terse(line: str) -> list[str]:
    """The fields of one line of `nmcli --terse`: separated by colons, a backslash before one that is content."""
    return [re.sub(r"\\(.)", r"\1", part) for part in re.findall(r"(?:^|(?<=:))((?:[^:\\]|\\.)*)(?::|$)", line)]


def parse_profiles(listing: str, details: Mapping[str, str]) -> dict[str, Stored]:
    """Profiles by UUID, from the list of all and what is said of each."""
    profiles = {}
    for identity, device, filename in parse_listing(listing):
        lines = (line.partition(":") for line in details.get(identity, "").split("\n"))
        known = {key: re.sub(r"\\(.)", r"\1", value) for key, colon, value in lines if colon}
        known["ipv4.addresses"] = ", ".join(part.strip() for part in known.get("ipv4.addresses", "").split(",") if part)
        profiles[identity] = Stored(identity, known.get("connection.id", ""), device, filename, known)
    return profiles


def parse_listing(listing: str) -> list[list[str]]:
    """UUID, device and file of each profile. A name, and the file's after it, may hold a line break."""
    return [row for row in map(parse_terse, listing.split("\n")) if len(row) == len(_LISTED)]


def read_profiles(system: System) -> dict[str, Stored]:
    """Two questions, and Docker, libvirt and others make profiles and remove them at any time: also between the two."""
    for _attempt in range(_READS):
        listed = system.run(["nmcli", "--terse", "--fields", ",".join(_LISTED), "connection", "show"])
        if listed.rc != 0:
            raise HostError(_NOT_INSTALLED if listed.rc == _NO_PROGRAM else f"`nmcli connection show`: {listed.words}")
        listing = listed.stdout
        identities = [identity for identity, _device, _filename in parse_listing(listing)]
        if not identities:
            return {}
        done = _shown(system, identities)
        blocks = re.split(f"(?m)^{_FIRST}:", done.stdout)[1:]
        details = {block.partition("\n")[0]: block for block in blocks}
        if done.stdout.count(f"{_FIRST}:") > len(identities):  # in a name with a line break, too: each by itself then
            answers = [_shown(system, [identity]) for identity in identities]
            done = next((each for each in answers if each.rc != 0), done)
            details = {identity: each.stdout for identity, each in zip(identities, answers)}
        if done.rc == 0:
            return parse_profiles(listing, details)
        if done.rc != _NO_SUCH_PROFILE:
            break
    raise HostError(
        f"the profiles of NetworkManager cannot be read ({done.words})"
        + (f": at each of {_READS} readings one was gone again; run again" if done.rc == _NO_SUCH_PROFILE else "")
    )


def _shown(system: System, identities: Sequence[str]) -> Completed:
    selected = [word for identity in identities for word in ("uuid", identity)]
    return system.run(["nmcli", "--terse", "--fields", ",".join(_FIELDS), "connection", "show", *selected])


def read_link(system: System, interface: str, network: Network) -> Link | None:
    mtu = system.text(f"/sys/class/net/{interface}/mtu")
    if mtu is None:
        return None
    carrier = (system.text(f"/sys/class/net/{interface}/carrier") or "").strip()
    return Link(
        mtu=int(mtu),
        carrier=None if not carrier else carrier == "1",
        addresses=frozenset(address for address in network.addresses.get(interface, ()) if ":" not in address),
        master=link_name(system.path(f"/sys/class/net/{interface}/master")),
        mac=(system.text(f"/sys/class/net/{interface}/address") or "").strip() or None,
    )


def unnamed_session(system: System, network: Network, rails: Sequence[str]) -> str:
    """Return why nobody can tell which interface carries the SSH session; empty if it is known, or there is none.

    A session through a tunnel (`ssh -R`, cloudflared) ends at lo, and by what the tunnel goes is not written anywhere.
    It needs a way out, and a rail with a default route is refused anyway. Without such a route it is a rail only where
    nothing else has a cable, an address and hardware of its own.
    """
    if network.session is None or set(network.session_interfaces) - {"lo"}:
        return ""
    session = "the SSH session of this run ({} to {})".format(*network.session)
    if not network.session_interfaces:
        return f"{session} is at an address of no interface"
    for name, cidrs in network.addresses.items():
        below = {name, *lower_interfaces(name, system.names)}
        addressed = any(not cidr.startswith(("fe80:", "169.254.")) for cidr in cidrs)
        carrier = (system.text(f"/sys/class/net/{name}/carrier") or "").strip() == "1"
        hardware = any("device" in system.names(f"/sys/class/net/{item}") for item in below)
        if name != "lo" and addressed and carrier and hardware and not below & set(rails):
            return ""
    return f"{session} comes through a tunnel, and nothing but the rails has a cable and an address"
