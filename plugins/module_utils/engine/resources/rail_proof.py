# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the rails do what they are for."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.network_manager import read_link
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.profile_resource import Profile
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.profile_work import SETTLE_S
from ansible_collections.gb10.fleet.plugins.module_utils.reading.network import NO_NETWORK
from ansible_collections.gb10.fleet.plugins.module_utils.reading.rdma import ports
from ansible_collections.gb10.fleet.plugins.module_utils.system.system import HostError, System

_PEERS_S = 45.0  # what the hosts of a cluster may be apart in their work on the same task
_IPV4_AND_ICMP_HEADERS = 20 + 8
_MAPPED = "0000:0000:0000:0000:0000:ffff:"  # an IPv4 address as a GID


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
    deadline = system.clock.now() + SETTLE_S
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
    for port in ports(system):
        for slot in system.names(f"{port.folder}/gid_attrs/ndevs"):
            if (system.text(f"{port.folder}/gid_attrs/ndevs/{slot}") or "").strip() != interface:
                continue  # an empty slot answers EINVAL
            found = set() if found is None else found
            gid = (system.text(f"{port.folder}/gids/{slot}") or "").strip()
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
