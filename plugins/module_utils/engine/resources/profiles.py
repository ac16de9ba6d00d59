# Copyright: gb10-fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NetworkManager profiles of the rails: what is stored and what is live, changed under a checkpoint.

A profile has a fixed UUID, one interface and static IPv4 addresses. IPv6 is disabled, so that the GID table of the
rail holds the same entries after every activation. Profiles are written through nmcli and never as files: Ubuntu's
NetworkManager moves keyfiles into netplan and would make every second run see a change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.engine import guard
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import (
    Fields,
    Kind,
    Pending,
    Plan,
    Progress,
    Resource,
    Step,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.structs import dataclass, field, replace
from ansible_collections.gb10.fleet.plugins.module_utils.engine.system import Completed, HostError, System
from ansible_collections.gb10.fleet.plugins.module_utils.facts import port_owners
from ansible_collections.gb10.fleet.plugins.module_utils.facts.network import (
    NO_NETWORK,
    Network,
    link_name,
    lower_interfaces,
    read_network,
)

_ACTIVATION_S = 10
_SETTLE_S = 10.0  # a new MTU takes a ConnectX link down and up again
_STORE_S = 30  # for all that is written before and after
_PEERS_S = 45.0  # what the hosts of a cluster may be apart in their work on the same task
_READS = 5  # of all profiles; more than once only where one vanishes meanwhile
_NO_SUCH_PROFILE = 10  # nmcli(1): connection, device or access point does not exist
_IPV4_AND_ICMP_HEADERS = 20 + 8
_MAPPED = "0000:0000:0000:0000:0000:ffff:"  # an IPv4 address as a GID

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}\Z")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_BYTE = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_ADDRESS = re.compile(rf"({_BYTE}\.){{3}}{_BYTE}\Z")
_CIDR = re.compile(rf"({_BYTE}\.){{3}}{_BYTE}/(3[0-2]|[12]?[0-9])\Z")
# NetworkManager makes these up, in memory, for a port that no profile claims.
_MADE_UP = re.compile(r"Wired connection [0-9]+\Z")
# Rendered from /etc/netplan, which is where Ubuntu's NetworkManager stores profiles: as lasting as a file in /etc.
_NETPLAN = "/run/NetworkManager/system-connections/netplan-"


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


_SETTINGS = tuple(Profile(0, "").settings)
_LISTED = ("UUID", "DEVICE", "FILENAME")
# The last two: how a profile may name its interface otherwise.
_FIELDS = ("connection.uuid", "connection.type", *_SETTINGS, "802-3-ethernet.mac-address", "match.interface-name")


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


class ProfileKind(Kind[Profile, NetworkState]):
    name = Profile.KIND

    def parse(self, index: int, fields: Fields) -> Profile:
        state = fields.choice("state", ("present", "absent"), "present")
        for key in ("uuid", "interface", "consent", *(("addresses", "mtu") if state == "present" else ())):
            if not fields.has(key):
                raise fields.fail(key, "is required")
        wish: dict[str, Any] = {}
        if state == "present":
            wish = {
                "addresses": fields.lines("addresses", _CIDR, "an IPv4 address with prefix, such as 192.0.2.1/24"),
                "mtu": fields.number("mtu", 576, 65535),
                "replace_foreign": bool(fields.flag("replace_foreign")),
                "peers": fields.lines("peers", _ADDRESS, "an IPv4 address") if fields.has("peers") else (),
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

    def read(self, system: System, resources: Sequence[Profile]) -> NetworkState:
        state = self._look(system, resources)
        # On a host where all is well, nobody has to be asked whether that is about to be rolled back.
        # What this very process has in hand, nobody rolls back behind its back.
        if system.guard is None and (_was_interrupted(system) or any(differs(item, state) for item in resources)):
            wait_for_checkpoint(system, len(resources))
            system.forget()
            state = self._look(system, resources)
        return state

    def _look(self, system: System, resources: Sequence[Profile]) -> NetworkState:
        network = system.once(read_network)
        links = {}
        for resource in resources:
            link = read_link(system, resource.interface, network)
            if link is not None:
                links[resource.interface] = link
        carriers = {*network.session_interfaces, *network.ways_out}
        return NetworkState(
            stored=read_profiles(system),
            links=links,
            ssh_interfaces=frozenset(network.session_interfaces),
            default_route_interfaces=frozenset(network.ways_out),
            lower={name: lower_interfaces(name, system.names) for name in carriers},
            unnamed_session=_unnamed_session(system, network, [resource.interface for resource in resources]),
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
        interfaces = [profile.interface for profile in profiles if profile.interface in state.links]
        with guard.guarded(system, interfaces, checkpoint_s(len(profiles))):
            for profile in profiles:
                if profile.state == "present":
                    _store(system, profile, state)
                else:
                    _take_away(system, profile, state)
            for profile in profiles:
                link = state.links.get(profile.interface)
                if profile.former is not None or profile.state == "absent":
                    _bring_back(system, profile, state)
                elif link is not None and link.carrier is not False:
                    _activate(system, profile)
        progress.done.extend(steps)

    def record(self, resource: Profile, state: NetworkState) -> dict[str, Any]:
        """The profile, and of others what we change: who is active on the interface, who would be at boot, its MTU.

        Whether the profile itself is active is no part of it, because that comes and goes with the cable.
        """
        stored, link = state.stored.get(resource.uuid), state.links.get(resource.interface)
        claims = _others(resource, state, Stored.claims)
        return {
            "profile": None if stored is None else {key: stored.settings.get(key, "") for key in _SETTINGS},
            "others": {other.uuid: other.autoconnect for other in claims},
            "active": next((other.uuid for other in claims if other.device == resource.interface), None),
            "mtu": link.mtu if link is not None and stored is None else None,
        }

    def restore(self, resource: Profile, record: Mapping[str, Any]) -> list[Resource]:
        state = "absent" if record["profile"] is None else "present"
        return [replace(resource, state=state, former=record)]


def plan_profile(resource: Profile, state: NetworkState) -> Step[Profile] | None:
    """What of the profile differs, on disk or live; None if nothing does."""
    if resource.former is not None or resource.state == "absent":
        return _plan_way_back(resource, state)
    link = state.links.get(resource.interface)
    if link is None:
        raise HostError(f"{resource.label}: the host has no interface {resource.interface}")
    if link.master is not None:
        raise HostError(
            f"{resource.label}: {resource.interface} is a port of {link.master}, which takes all that arrives there;"
            f" take it out of {link.master} for good (in netplan or nmcli), or leave its port out of fabric_ports"
        )
    differences = []
    for other in foreign_owners(resource, state):
        if not resource.replace_foreign:
            raise HostError(
                f"{resource.label}: {resource.interface} belongs to the profile {other.name!r} already"
                f" ({other.filename or other.uuid}); delete that one, or set replace_foreign"
                " (role fabric: fabric_replace_foreign) to have it deactivated"
            )
        _refuse_to_switch_off(resource, other, state)
        differences.append(f"{other.name!r} gives up the interface")
    stored = state.stored.get(resource.uuid)
    differences += _setting_differences(resource, stored)
    live = _live_differences(resource, stored, link)
    if stored is None:
        differences.append("no such profile")
    action = "create" if stored is None else "update" if differences else "activate"
    if link.carrier is False:
        # Without a cable there is nothing to activate; NetworkManager does it when the carrier comes.
        return Step(resource, action, "; ".join([*differences, "no carrier, active later"])) if differences else None
    return Step(resource, action, "; ".join([*differences, *live])) if differences or live else None


def _plan_way_back(resource: Profile, state: NetworkState) -> Step[Profile] | None:
    """Without the profile, or with what stood in its place."""
    stored, link = state.stored.get(resource.uuid), state.links.get(resource.interface)
    if resource.state == "absent":
        differences = ["the profile goes"] if stored is not None else []
    else:
        differences = _setting_differences(resource, stored) if stored is not None else ["no such profile"]
    former = resource.former or {"others": {}, "mtu": None}
    for identity, autoconnect in former["others"].items():
        other = state.stored.get(identity)
        if other is not None and other.autoconnect != autoconnect:
            differences.append(f"{other.name!r} connection.autoconnect {other.autoconnect} -> {autoconnect}")
    if link is not None and former["mtu"] not in (None, link.mtu):
        differences.append(f"live MTU {link.mtu} -> {former['mtu']}")
    if not differences:
        return None
    action = "remove" if resource.state == "absent" else "create" if stored is None else "update"
    return Step(resource, action, "; ".join(differences))


def _setting_differences(resource: Profile, stored: Stored | None) -> list[str]:
    if stored is None:
        return []
    pairs = [(key, stored.settings.get(key, ""), value) for key, value in resource.settings.items()]
    return [f"{key} {found or '(none)'} -> {value or '(none)'}" for key, found, value in pairs if found != value]


def differs(resource: Profile, state: NetworkState) -> bool:
    """Whether the profile stands in any way other than declared."""
    try:
        return plan_profile(resource, state) is not None
    except HostError:
        return True


def foreign_owners(resource: Profile, state: NetworkState) -> list[Stored]:
    """Profiles of others that are active on the interface or would take it at boot."""
    return _others(resource, state, Stored.owns)


def _others(resource: Profile, state: NetworkState, hold: Callable[[Stored, str, str | None], bool]) -> list[Stored]:
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
    for identity, device, filename in parse_listing(listing):
        known = dict(settings.get(identity, {}))
        known["ipv4.addresses"] = ", ".join(part.strip() for part in known.get("ipv4.addresses", "").split(",") if part)
        profiles[identity] = Stored(identity, known.get("connection.id", ""), device, filename, known)
    return profiles


def parse_listing(listing: str) -> list[list[str]]:
    """UUID, device and file of each profile. A name, and the file's after it, may hold a line break."""
    return [row for row in map(parse_terse, listing.split("\n")) if len(row) == len(_LISTED)]


def read_profiles(system: System) -> dict[str, Stored]:
    """Two questions, and Docker, libvirt and others make profiles and remove them at any time: also between the two."""
    for _attempt in range(_READS):
        listing = system.ask(["nmcli", "--terse", "--fields", ",".join(_LISTED), "connection", "show"])
        identities = [identity for identity, _device, _filename in parse_listing(listing)]
        if not identities:
            return {}
        selected = [word for identity in identities for word in ("uuid", identity)]
        show = ["nmcli", "--terse", "--fields", ",".join(_FIELDS), "connection", "show", *selected]
        done = system.run(show)
        if done.rc == 0:
            return parse_profiles(listing, done.stdout)
        if done.rc != _NO_SUCH_PROFILE:
            break
    raise HostError(
        f"the profiles of NetworkManager cannot be read ({done.words})"
        + (f": at each of {_READS} readings one was gone again; run again" if done.rc == _NO_SUCH_PROFILE else "")
    )


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


def _unnamed_session(system: System, network: Network, rails: Sequence[str]) -> str:
    """Why nobody can tell which interface carries the SSH session; empty if it is known, or there is none.

    A session through a tunnel (`ssh -R`, cloudflared) ends at lo, and by what the tunnel goes is not written anywhere.
    It needs a way out, and a rail with a default route is refused anyway; without such a route it still is a rail only
    where nothing else could be it, with a cable, an address and hardware of its own.
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


def checkpoint_s(profiles: int) -> int:
    """Seconds after which NetworkManager rolls back by itself, if this run dies: enough for that many activations."""
    return profiles * int(_ACTIVATION_S + _SETTLE_S) + _STORE_S


def _was_interrupted(system: System) -> bool:
    """Whether a run may have been killed so lately that its checkpoint is still open."""
    armed = guard.standing(system)
    return armed is not None and system.clock.now() < armed.until + guard.ROLLBACK_S


def wait_for_checkpoint(system: System, profiles: int) -> None:
    """A killed run leaves a checkpoint: NetworkManager will roll back, and what is read before that is void."""
    armed = guard.standing(system)
    end = armed.until if armed is not None else 0.0
    deadline = max(end, system.clock.now() + checkpoint_s(profiles)) + guard.ROLLBACK_S
    while found := guard.open_checkpoints(system):
        if system.clock.now() >= deadline:
            raise HostError(
                f"somebody holds a checkpoint of NetworkManager open ({', '.join(found)}); wait until it ends"
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
    def carries(names: frozenset[str]) -> bool:
        return any(resource.interface == name or resource.interface in state.lower.get(name, ()) for name in names)

    if state.unnamed_session:
        raise HostError(
            f"{resource.label}: {state.unnamed_session}, so {resource.interface} is left alone: it may be what"
            " carries it; reach the host at the address of its management port (ansible_host), or run at its console"
        )
    if carries(state.ssh_interfaces):
        raise HostError(
            f"{resource.label}: {resource.interface} carries the SSH session of this run, so it is left alone; reach"
            " the host over its management port"
        )
    if carries(state.default_route_interfaces):
        raise HostError(
            f"{resource.label}: {resource.interface} carries a default route, so it is left alone; a rail must not be"
            " the way out of the host"
        )


def _refuse_to_switch_off(resource: Profile, other: Stored, state: NetworkState) -> None:
    """A pattern may fit management as well: without its profile nobody would reach the host after the next boot."""
    lifelines = state.ssh_interfaces | state.default_route_interfaces
    needed = {name for name in lifelines if other.claims(name, None)} | set(filter(None, other.device.split(",")))
    elsewhere = ", ".join(sorted(needed - {resource.interface}))
    if elsewhere:
        raise HostError(
            f"{resource.label}: the profile {other.name!r} is for {resource.interface} and for {elsewhere} as well, so"
            f" it is not switched off; let it leave out {resource.interface} (match.interface-name), or delete it"
        )


def _store(system: System, profile: Profile, state: NetworkState) -> None:
    if profile.former is not None:
        _give_back(system, profile, state)
    else:
        for other in foreign_owners(profile, state):
            _modify(system, other.uuid, {"connection.autoconnect": "no"})
    if profile.uuid in state.stored:
        _modify(system, profile.uuid, profile.settings)
        return
    settings = profile.settings
    name, interface = settings.pop("connection.id"), settings.pop("connection.interface-name")
    add = ["nmcli", "connection", "add", "type", "ethernet", "con-name", name, "ifname", interface or "*"]
    system.ask([*add, "connection.uuid", profile.uuid, *_pairs(settings)])


def _take_away(system: System, profile: Profile, state: NetworkState) -> None:
    _give_back(system, profile, state)
    if profile.uuid in state.stored:
        system.ask(["nmcli", "connection", "delete", "uuid", profile.uuid])


def _give_back(system: System, profile: Profile, state: NetworkState) -> None:
    """The other profiles compete for the interface as they did."""
    for identity, autoconnect in (profile.former["others"] if profile.former else {}).items():
        if identity in state.stored and state.stored[identity].autoconnect != autoconnect:
            _modify(system, identity, {"connection.autoconnect": autoconnect})


def _bring_back(system: System, profile: Profile, state: NetworkState) -> None:
    """After an undo: whoever was active before is it again, else the link has its old MTU and none of our addresses.

    NetworkManager does most of it by itself when it deactivates a profile, but in its own time.
    """
    link, stored = state.links.get(profile.interface), state.stored.get(profile.uuid)
    if link is None:
        return
    former = profile.former or {"active": None, "mtu": None}
    again = former["active"] if former["active"] in state.stored and link.carrier is not False else None
    if again is not None:
        # What somebody else's profile needs (a DHCP server) may be missing; then NetworkManager tries on, as before us.
        _up(system, again, profile.interface)
    elif profile.state == "present" and stored is not None and stored.device == profile.interface:
        again = profile.uuid
        _must(profile, _up(system, again, profile.interface))
    deadline = system.clock.now() + _SETTLE_S
    while (link := read_link(system, profile.interface, read_network(system))) is not None:
        ours = frozenset() if again else link.addresses & set(profile.addresses)
        if former["mtu"] in (None, link.mtu) and not ours:
            return
        if system.clock.now() >= deadline:
            found = f"MTU {link.mtu}, addresses {', '.join(sorted(link.addresses)) or 'none'}"
            raise HostError(f"{profile.label}: is gone, but the link keeps {found}; NetworkManager rolled back")
        if former["mtu"] not in (None, link.mtu):
            system.ask(["ip", "link", "set", "dev", profile.interface, "mtu", str(former["mtu"])])
        system.clock.sleep(0.5)


def _modify(system: System, identity: str, settings: Mapping[str, str]) -> None:
    system.ask(["nmcli", "connection", "modify", "uuid", identity, *_pairs(settings)])


def _pairs(settings: Mapping[str, str]) -> list[str]:
    return [word for pair in settings.items() for word in pair]


def _up(system: System, identity: str, interface: str) -> Completed:
    wait = ["nmcli", "--wait", str(_ACTIVATION_S)]
    return system.run([*wait, "connection", "up", "uuid", identity, "ifname", interface])


def _must(profile: Profile, done: Completed) -> None:
    if done.rc != 0:
        raise HostError(f"{profile.label}: cannot be activated ({done.words}); NetworkManager rolled back")


def _activate(system: System, profile: Profile) -> None:
    """Bring the profile up and see it live; whatever was active on the interface gives way."""
    _must(profile, _up(system, profile.uuid, profile.interface))
    deadline = system.clock.now() + _SETTLE_S
    while True:
        link = read_link(system, profile.interface, read_network(system))
        found = f"MTU {link.mtu}, addresses {', '.join(sorted(link.addresses)) or 'none'}" if link else "no interface"
        if link is not None and link.mtu == profile.mtu and link.addresses == set(profile.addresses):
            return
        if system.clock.now() >= deadline:
            raise HostError(f"{profile.label}: is active, but the link has {found}; NetworkManager rolled back")
        system.clock.sleep(0.5)


def prove(system: System, profiles: Sequence[Profile]) -> None:
    """HostError unless the rails do what they are for: one GID for each address, and every peer answers."""
    up = []
    for profile in profiles:
        link = read_link(system, profile.interface, NO_NETWORK)
        if profile.state == "present" and link is not None and link.carrier:
            up.append(profile)
    _see_gids(system, up)
    _see_peers(system, up)


def _see_gids(system: System, profiles: Sequence[Profile]) -> None:
    """The kernel enters an address into the GID table in its own time."""
    deadline = system.clock.now() + _SETTLE_S
    for profile in profiles:
        wanted = {address.partition("/")[0] for address in profile.addresses}
        while True:
            found = _gid_addresses(system, profile.interface)
            if found is None or found == wanted:
                break
            if system.clock.now() >= deadline:
                raise HostError(
                    f"{profile.label}: the GID table of {profile.interface} holds the IPv4 addresses"
                    f" {', '.join(sorted(found)) or 'none'}, and should hold {', '.join(sorted(wanted))}"
                )
            system.clock.sleep(0.5)


def _gid_addresses(system: System, interface: str) -> set[str] | None:
    """The IPv4 addresses in the GID table of an interface; None where it has no RDMA device."""
    found = None
    for hca in system.names("/sys/class/infiniband"):
        for port in system.names(f"/sys/class/infiniband/{hca}/ports"):
            base = f"/sys/class/infiniband/{hca}/ports/{port}"
            for slot in system.names(f"{base}/gid_attrs/ndevs"):
                if (system.text(f"{base}/gid_attrs/ndevs/{slot}") or "").strip() != interface:
                    continue  # an empty slot answers EINVAL
                found = set() if found is None else found
                gid = (system.text(f"{base}/gids/{slot}") or "").strip()
                if gid.startswith(_MAPPED):
                    digits = gid[len(_MAPPED) :].replace(":", "")
                    found.add(".".join(str(byte) for byte in bytes.fromhex(digits)))
    return found


def _see_peers(system: System, profiles: Sequence[Profile]) -> None:
    """Every peer works on the same at the same time, so it gets a while."""
    deadline = system.clock.now() + _PEERS_S
    for profile in profiles:
        for peer in profile.peers:
            while not _answers(system, profile, peer, profile.mtu):
                if system.clock.now() >= deadline:
                    raise _silent(system, profile, peer)
                system.clock.sleep(1.0)


def _silent(system: System, profile: Profile, peer: str) -> HostError:
    where = f"{profile.label}: {peer} does not answer over {profile.interface}"
    if _answers(system, profile, peer, 576):
        return HostError(
            f"{where} to packets of {profile.mtu} bytes, but to small ones: the MTU is smaller at the other end or on"
            " the way; give both ends and the switch at least fabric_mtu"
        )
    return HostError(
        f"{where} within {_PEERS_S:.0f} s: check that the peer is up and has this address, and that the cable leads to"
        " it (`ansible-playbook gb10.fleet.validate` names the cable to move)"
    )


def _answers(system: System, profile: Profile, peer: str, size: int) -> bool:
    """One unfragmented packet of `size` bytes, there and back. The kernel gives up on ARP after 3 s."""
    packet = ["-M", "do", "-c", "1", "-W", "3", "-s", str(size - _IPV4_AND_ICMP_HEADERS)]
    done = system.run(["ping", "-n", "-q", *packet, "-I", profile.interface, peer], timeout=10)
    if done.rc == 127:
        raise HostError(f"{profile.label}: there is no ping to see the peer with; install iputils-ping")
    return done.rc == 0
