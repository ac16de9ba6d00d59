# SPDX-License-Identifier: GPL-3.0-or-later
"""NetworkManager profiles of the rails: what is stored and what is live, changed under a checkpoint.

A profile has a fixed UUID, one interface and static IPv4 addresses. IPv6 is disabled, so that the GID table of the
rail holds the same entries after every activation. Profiles are written through nmcli and never as files: Ubuntu's
NetworkManager moves keyfiles into netplan and would make every second run see a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.network_manager import (
    Link,
    NetworkState,
    Stored,
    foreign_owners,
    others,
    read_link,
    read_profiles,
    unnamed_session,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.profile_resource import (
    SETTINGS,
    Profile,
    parse,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.profile_work import (
    ACTIVATION_S,
    SETTLE_S,
    activate,
    bring_back,
    store,
    take_away,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.rail_proof import prove
from ansible_collections.gb10.fleet.plugins.module_utils.reading.network import lower_interfaces, read_network
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

_STORE_S = 30  # for all that is written before and after


class ProfileKind(Kind[Profile, NetworkState]):
    name = Profile.KIND
    proven = True

    def parse(self, index: int, fields: Fields) -> Profile:
        return parse(index, fields)

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
            unnamed_session=unnamed_session(system, network, [resource.interface for resource in resources]),
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
                plan.pending.append(Pending(resource, step.action, resource.consent, step.detail))

    def apply(self, system: System, steps: Sequence[Step[Profile]], state: NetworkState, progress: Progress) -> None:
        profiles = [step.resource for step in steps]
        interfaces = [profile.interface for profile in profiles if profile.interface in state.links]
        with guard.guarded(system, interfaces, checkpoint_s(len(profiles))):
            for profile in profiles:
                if profile.state == "present":
                    store(system, profile, state)
                else:
                    take_away(system, profile, state)
            for profile in profiles:
                link = state.links.get(profile.interface)
                if profile.former is not None or profile.state == "absent":
                    bring_back(system, profile, state)
                elif link is not None and link.carrier is not False:
                    activate(system, profile)
        progress.done.extend(steps)

    def record(self, resource: Profile, state: NetworkState) -> dict[str, Any]:
        """The profile, and of others what we change: who is active on the interface, who would be at boot, its MTU.

        Whether the profile itself is active is no part of it, because that comes and goes with the cable.
        """
        stored, link = state.stored.get(resource.uuid), state.links.get(resource.interface)
        claims = others(resource, state, Stored.claims)
        return {
            "profile": None if stored is None else {key: stored.settings.get(key, "") for key in SETTINGS},
            "others": {other.uuid: other.autoconnect for other in claims},
            "active": next((other.uuid for other in claims if other.device == resource.interface), None),
            "mtu": link.mtu if link is not None and stored is None else None,
        }

    def restore(self, resource: Profile, record: Mapping[str, Any]) -> list[Resource]:
        state = "absent" if record["profile"] is None else "present"
        return [replace(resource, state=state, former=record)]

    def prove(self, system: System, resources: Sequence[Profile]) -> None:
        prove(system, resources)

    def stands_unproven(self, resource: Profile, state: NetworkState) -> bool:
        """Its peer may be gone for good, so that nobody ever can."""
        return not differs(resource, state)


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
                f" ({other.filename or other.uuid}); `nmcli connection delete uuid {other.uuid}`, or set"
                " replace_foreign (role fabric: fabric_replace_foreign) to have it deactivated"
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
    """Return whether the profile stands in any way other than declared."""
    try:
        return plan_profile(resource, state) is not None
    except HostError:
        return True


def checkpoint_s(profiles: int) -> int:
    """Seconds after which NetworkManager rolls back by itself, if this run dies: enough for that many activations."""
    return profiles * int(ACTIVATION_S + SETTLE_S) + _STORE_S


def _was_interrupted(system: System) -> bool:
    """Return whether a run may have been killed so lately that its checkpoint is still open."""
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
    return [*differences, *resource.differences(link.mtu, link.addresses)]


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
