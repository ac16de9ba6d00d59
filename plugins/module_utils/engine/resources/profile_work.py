# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles are stored, brought up and taken back with nmcli, each within a guarded change of the network."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.network_manager import (
    NetworkState,
    foreign_owners,
    read_link,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.profile_resource import Profile
from ansible_collections.gb10.fleet.plugins.module_utils.reading.network import read_network
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import Completed, HostError, System

ACTIVATION_S = 10
SETTLE_S = 10.0  # a new MTU takes a ConnectX link down and up again


def store(system: System, profile: Profile, state: NetworkState) -> None:
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


def take_away(system: System, profile: Profile, state: NetworkState) -> None:
    _give_back(system, profile, state)
    if profile.uuid in state.stored:
        system.ask(["nmcli", "connection", "delete", "uuid", profile.uuid])


def _give_back(system: System, profile: Profile, state: NetworkState) -> None:
    """The other profiles compete for the interface as they did."""
    for identity, autoconnect in (profile.former["others"] if profile.former else {}).items():
        if identity in state.stored and state.stored[identity].autoconnect != autoconnect:
            _modify(system, identity, {"connection.autoconnect": autoconnect})


def bring_back(system: System, profile: Profile, state: NetworkState) -> None:
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
    deadline = system.clock.now() + SETTLE_S
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
    wait = ["nmcli", "--wait", str(ACTIVATION_S)]
    return system.run([*wait, "connection", "up", "uuid", identity, "ifname", interface])


def _must(profile: Profile, done: Completed) -> None:
    if done.rc != 0:
        raise HostError(f"{profile.label}: cannot be activated ({done.words}); NetworkManager rolled back")


def activate(system: System, profile: Profile) -> None:
    """Bring the profile up and see it live; whatever was active on the interface gives way."""
    _must(profile, _up(system, profile.uuid, profile.interface))
    deadline = system.clock.now() + SETTLE_S
    while True:
        link = read_link(system, profile.interface, read_network(system))
        found = f"MTU {link.mtu}, addresses {', '.join(sorted(link.addresses)) or 'none'}" if link else "no interface"
        if link is not None and not profile.differences(link.mtu, link.addresses):
            return
        if system.clock.now() >= deadline:
            raise HostError(f"{profile.label}: is active, but the link has {found}; NetworkManager rolled back")
        system.clock.sleep(0.5)
