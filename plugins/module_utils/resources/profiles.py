# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NetworkManager profiles of the rails: what is stored and what is live, changed under a checkpoint.

A profile has a fixed UUID, one interface and static IPv4 addresses. IPv6 is disabled, so that the GID table of the
rail holds the same entries after every activation. Profiles are written through nmcli and never as files: Ubuntu's
NetworkManager moves keyfiles into netplan and would make every second run see a change.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.gb10.fleet.plugins.module_utils.resources.common import (
    Fields,
    Kind,
    Pending,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.spark_facts import lower_interfaces
from ansible_collections.gb10.fleet.plugins.module_utils.system import HostError, System

# NetworkManager rolls back by itself if this run dies. Long enough to activate the four rails of a Spark.
CHECKPOINT_S = 60
# DELETE_NEW_CONNECTIONS: a rollback also removes the profiles that the run has created.
_CHECKPOINT_FLAGS = 0x02
_ACTIVATION_S = 10
_SETTLE_S = 10.0  # a new MTU takes a ConnectX link down and up again
_MAX_ANCESTORS = 64

_NM = "org.freedesktop.NetworkManager"
_NM_PATH = "/org/freedesktop/NetworkManager"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}\Z")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_CIDR = re.compile(r"[0-9.]+/[0-9]{1,2}\Z")
# NetworkManager makes these up, in memory, for a port that no profile claims.
_MADE_UP = re.compile(r"Wired connection [0-9]+\Z")


@dataclass(frozen=True)
class Profile(Resource):
    KIND = "nm_profile"

    uuid: str = ""
    interface: str = ""
    addresses: tuple[str, ...] = ()
    mtu: int = 0
    consent: str = ""
    replace_foreign: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """The profile as nmcli reads and writes it."""
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


_FIELDS = ("connection.uuid", "connection.type", *Profile(0, "", addresses=()).settings)


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
        in_memory = not self.filename or self.filename.startswith("/run/")
        return in_memory and _MADE_UP.match(self.name) is not None

    def owns(self, interface: str) -> bool:
        claims = self.settings.get("connection.interface-name") == interface
        return self.device == interface or (claims and self.settings.get("connection.autoconnect") == "yes")


@dataclass(frozen=True)
class Link:
    """An interface as it is now; addresses are IPv4 with prefix. `carrier` is None if the interface is down."""

    mtu: int
    carrier: bool | None
    addresses: frozenset[str]


@dataclass(frozen=True)
class NetworkState:
    stored: Mapping[str, Stored]  # by UUID
    links: Mapping[str, Link]
    ssh_interface: str | None
    default_route_interfaces: frozenset[str] = field(default_factory=frozenset)
    lower: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what these stand on (VLAN, bond, ...)


class ProfileKind(Kind[Profile, NetworkState]):
    name = Profile.KIND

    def parse(self, index: int, fields: Fields) -> Profile:
        addresses = fields.lines("addresses", _CIDR, "an IPv4 address with prefix, such as 192.0.2.1/24")
        for place, address in enumerate(addresses):
            try:
                ipaddress.IPv4Interface(address)
            except ValueError as error:
                raise fields.fail(f"addresses[{place}]", str(error)) from None
        if not addresses:
            raise fields.fail("addresses", "expected at least one IPv4 address with prefix")
        resource = Profile(
            index=index,
            name=fields.name(_NAME, "a name of letters, digits, dots, dashes and underscores"),
            uuid=fields.line("uuid", "", _UUID, "a UUID in lower case"),
            interface=fields.line("interface", "", _INTERFACE, "the name of an interface"),
            addresses=addresses,
            mtu=fields.number("mtu", 576, 65535),
            consent=fields.consent() or "",
            replace_foreign=bool(fields.flag("replace_foreign")),
        )
        for key in ("uuid", "interface", "consent"):
            if not fields.has(key):
                raise fields.fail(key, "is required")
        fields.finish()
        return resource

    def read(self, system: System, resources: Sequence[Profile]) -> NetworkState:
        wait_for_checkpoint(system)
        addresses = read_addresses(system)
        links = {}
        for resource in resources:
            link = read_link(system, resource.interface, addresses)
            if link is not None:
                links[resource.interface] = link
        session, routes = ssh_interface(system, addresses), default_route_interfaces(system)
        return NetworkState(
            stored=read_profiles(system),
            links=links,
            ssh_interface=session,
            default_route_interfaces=routes,
            lower={name: lower_interfaces(name, system.names) for name in {session, *routes} if name},
        )

    def plan(self, resources: Sequence[Profile], state: NetworkState, plan: Plan) -> None:
        for resource in resources:
            step = plan_profile(resource, state)
            if step is None:
                continue
            _refuse_lifelines(resource, state)
            if plan.consented(resource.consent):
                plan.steps.append(step)
            else:
                plan.pending.append(Pending(resource, step.action, resource.consent))

    def apply(self, system: System, steps: Sequence[Step[Profile]], state: NetworkState, progress: Progress) -> None:
        profiles = [step.resource for step in steps]
        checkpoint = create_checkpoint(system, [profile.interface for profile in profiles])
        try:
            for profile in profiles:
                _store(system, profile, state)
            for profile in profiles:
                if state.links[profile.interface].carrier is not False:
                    _activate(system, profile)
        except BaseException:
            call(system, "CheckpointRollback", "o", checkpoint)
            raise
        call(system, "CheckpointDestroy", "o", checkpoint)
        progress.done.extend(steps)


def plan_profile(resource: Profile, state: NetworkState) -> Step[Profile] | None:
    """What of the profile differs, on disk or live; None if nothing does."""
    link = state.links.get(resource.interface)
    if link is None:
        raise HostError(f"{resource.label}: the host has no interface {resource.interface}")
    differences = []
    for other in foreign_owners(resource, state):
        if not resource.replace_foreign:
            raise HostError(
                f"{resource.label}: {resource.interface} belongs to the profile {other.name!r} already"
                f" ({other.filename or other.uuid}); delete that one, or set replace_foreign"
                " (role fabric: fabric_replace_foreign) to have it deactivated"
            )
        differences.append(f"{other.name!r} gives up the interface")
    stored = state.stored.get(resource.uuid)
    if stored is not None:
        for key, value in resource.settings.items():
            found = stored.settings.get(key, "")
            if found != value:
                differences.append(f"{key} {found or '(none)'} -> {value}")
    live = _live_differences(resource, stored, link)
    if stored is None:
        differences.append("no such profile")
    action = "create" if stored is None else "update" if differences else "activate"
    if link.carrier is False:
        # Without a cable there is nothing to activate; NetworkManager does it when the carrier comes.
        return Step(resource, action, "; ".join([*differences, "no carrier, active later"])) if differences else None
    return Step(resource, action, "; ".join([*differences, *live])) if differences or live else None


def foreign_owners(resource: Profile, state: NetworkState) -> list[Stored]:
    """Profiles of others that are active on the interface or would take it at boot."""
    return [
        other
        for other in state.stored.values()
        if other.uuid != resource.uuid and not other.made_up and other.owns(resource.interface)
    ]


def parse_terse(line: str) -> list[str]:
    """The fields of one line of `nmcli --terse`: separated by colons, a backslash before one that is content."""
    return [re.sub(r"\\(.)", r"\1", part) for part in re.findall(r"(?:^|(?<=:))((?:[^:\\]|\\.)*)(?::|$)", line)]


def parse_profiles(listing: str, details: str) -> dict[str, Stored]:
    """Profiles by UUID, from the list of all and the settings of each."""
    settings: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in details.splitlines():
        key, colon, value = line.partition(":")
        if colon and key == "connection.uuid":
            current = settings.setdefault(value, {})
        if colon:
            current[key] = re.sub(r"\\(.)", r"\1", value)
    profiles = {}
    for line in listing.splitlines():
        identity, device, filename, name = parse_terse(line)
        known = dict(settings.get(identity, {}))
        known["ipv4.addresses"] = ", ".join(part.strip() for part in known.get("ipv4.addresses", "").split(",") if part)
        profiles[identity] = Stored(identity, name, device, filename, known)
    return profiles


def read_profiles(system: System) -> dict[str, Stored]:
    listing = system.ask(["nmcli", "--terse", "--fields", "UUID,DEVICE,FILENAME,NAME", "connection", "show"])
    identities = [parse_terse(line)[0] for line in listing.splitlines()]
    if not identities:
        return {}
    selected = [word for identity in identities for word in ("uuid", identity)]
    show = ["nmcli", "--terse", "--fields", ",".join(_FIELDS), "connection", "show", *selected]
    return parse_profiles(listing, system.ask(show))


def read_addresses(system: System) -> dict[str, list[str]]:
    """Addresses with prefix by interface, IPv4 and IPv6."""
    addresses: dict[str, list[str]] = {}
    for link in json.loads(system.ask(["ip", "-j", "address", "show"])):
        entries = [f"{info['local']}/{info['prefixlen']}" for info in link.get("addr_info", []) if "local" in info]
        addresses[str(link.get("ifname", ""))] = entries
    return addresses


def read_link(system: System, interface: str, addresses: Mapping[str, Sequence[str]]) -> Link | None:
    mtu = system.text(f"/sys/class/net/{interface}/mtu")
    if mtu is None:
        return None
    carrier = (system.text(f"/sys/class/net/{interface}/carrier") or "").strip()
    return Link(
        mtu=int(mtu),
        carrier=None if not carrier else carrier == "1",
        addresses=frozenset(address for address in addresses.get(interface, ()) if ":" not in address),
    )


def ssh_interface(system: System, addresses: Mapping[str, Sequence[str]]) -> str | None:
    """The interface of the SSH session that this process belongs to.

    sudo clears SSH_CONNECTION, so it is looked for in the environments of the ancestors.
    """
    process = "self"
    for _ in range(_MAX_ANCESTORS):
        environment = system.text(f"/proc/{process}/environ") or ""
        match = re.search(r"(?:^|\0)SSH_CONNECTION=\S+ \S+ (\S+) ", environment)
        if match:
            local = ipaddress.ip_address(match.group(1).partition("%")[0])
            if isinstance(local, ipaddress.IPv6Address) and local.ipv4_mapped is not None:
                local = local.ipv4_mapped
            for interface, found in addresses.items():
                if any(ipaddress.ip_interface(address).ip == local for address in found):
                    return interface
            return None
        parent = re.search(r"^PPid:\s*(\d+)$", system.text(f"/proc/{process}/status") or "", re.MULTILINE)
        if parent is None or parent.group(1) == "0":
            return None
        process = parent.group(1)
    return None


def default_route_interfaces(system: System) -> frozenset[str]:
    """From the kernel's routing tables: destination and mask (IPv4) or prefix length (IPv6) are zero."""
    interfaces = set()
    for line in (system.text("/proc/net/route") or "").splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[1] == words[7] == "00000000":
            interfaces.add(words[0])
    for line in (system.text("/proc/net/ipv6_route") or "").splitlines():
        words = line.split()
        if len(words) == 10 and words[0] == "0" * 32 and words[1] == "00" and words[9] != "lo":
            interfaces.add(words[9])
    return frozenset(interfaces)


def call(system: System, method: str, signature: str, *arguments: str) -> str:
    """A method of NetworkManager's manager object; the last word of its answer, for example an object path."""
    answer = system.ask(["busctl", "call", _NM, _NM_PATH, _NM, method, signature, *arguments])
    return answer.split()[-1].strip('"') if answer.split() else ""


def create_checkpoint(system: System, interfaces: Sequence[str]) -> str:
    devices = [call(system, "GetDeviceByIpIface", "s", interface) for interface in interfaces]
    count, flags = str(len(devices)), str(_CHECKPOINT_FLAGS)
    return call(system, "CheckpointCreate", "aouu", count, *devices, str(CHECKPOINT_S), flags)


def wait_for_checkpoint(system: System) -> None:
    """A killed run leaves a checkpoint: NetworkManager will roll back, and what is read before that is void."""
    deadline = system.clock.now() + CHECKPOINT_S + 10
    while True:
        answer = system.ask(["busctl", "get-property", _NM, _NM_PATH, _NM, "Checkpoints"])
        if answer.split()[:2] == ["ao", "0"]:
            return
        if system.clock.now() >= deadline:
            raise HostError(
                f"somebody holds a checkpoint of NetworkManager open ({answer.strip()}); wait until it ends"
            )
        system.clock.sleep(1.0)


def _live_differences(resource: Profile, stored: Stored | None, link: Link) -> list[str]:
    differences = []
    if stored is None or stored.device != resource.interface:
        differences.append("not active")
    if link.carrier is None:
        differences.append("link is down")
    if link.mtu != resource.mtu:
        differences.append(f"live MTU {link.mtu} -> {resource.mtu}")
    if link.addresses != set(resource.addresses):
        found = ", ".join(sorted(link.addresses)) or "none"
        differences.append(f"live addresses {found} -> {', '.join(resource.addresses)}")
    return differences


def _refuse_lifelines(resource: Profile, state: NetworkState) -> None:
    def carried_by(name: str | None) -> bool:
        return resource.interface == name or resource.interface in state.lower.get(name or "", ())

    if carried_by(state.ssh_interface):
        raise HostError(
            f"{resource.label}: {resource.interface} carries the SSH session of this run, so it is left alone; reach"
            " the host over its management port"
        )
    if any(carried_by(name) for name in state.default_route_interfaces):
        raise HostError(
            f"{resource.label}: {resource.interface} carries a default route, so it is left alone; a rail must not be"
            " the way out of the host"
        )


def _store(system: System, profile: Profile, state: NetworkState) -> None:
    for other in foreign_owners(profile, state):
        system.ask(["nmcli", "connection", "modify", "uuid", other.uuid, "connection.autoconnect", "no"])
    pairs = [word for pair in profile.settings.items() for word in pair]
    if profile.uuid in state.stored:
        system.ask(["nmcli", "connection", "modify", "uuid", profile.uuid, *pairs])
    else:
        add = ["nmcli", "connection", "add", "type", "ethernet", "con-name", profile.name, "ifname", profile.interface]
        system.ask([*add, "connection.uuid", profile.uuid, *pairs[4:]])


def _activate(system: System, profile: Profile) -> None:
    """Bring the profile up and see it live; whatever was active on the interface gives way."""
    wait = ["nmcli", "--wait", str(_ACTIVATION_S)]
    done = system.run([*wait, "connection", "up", "uuid", profile.uuid, "ifname", profile.interface])
    if done.rc != 0:
        raise HostError(f"{profile.label}: cannot be activated ({done.words}); NetworkManager rolled back")
    deadline = system.clock.now() + _SETTLE_S
    while True:
        link = read_link(system, profile.interface, read_addresses(system))
        found = f"MTU {link.mtu}, addresses {', '.join(sorted(link.addresses)) or 'none'}" if link else "no interface"
        if link is not None and link.mtu == profile.mtu and link.addresses == set(profile.addresses):
            return
        if system.clock.now() >= deadline:
            raise HostError(f"{profile.label}: is active, but the link has {found}; NetworkManager rolled back")
        system.clock.sleep(0.5)
