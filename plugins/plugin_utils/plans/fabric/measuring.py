# SPDX-License-Identifier: GPL-3.0-or-later
"""What is measured on a planned fabric: pings, and rounds of bandwidth tests in which each host has one partner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric.addressing import ClusterFabric, HostFabric

# perftest's own default TCP port; twin rails are measured at once, so each takes the next port.
FIRST_TEST_PORT = 18515
IPV4_AND_ICMP_HEADERS = 20 + 8


def pings(own: HostFabric, count: int = 3) -> list[dict[str, Any]]:
    """The pings of one host to every peer on every rail, as ``rail_survey`` takes them: as large as the MTU allows."""
    return [
        {
            "name": f"{profile.netdev} to {peer.host} {peer.netdev}",
            "interface": profile.netdev,
            "source": profile.address,
            "peer": peer.address,
            "size_bytes": profile.mtu - IPV4_AND_ICMP_HEADERS,
            "count": count,
        }
        for profile in own.profiles
        for peer in profile.peers
    ]


def rounds(
    fabric: ClusterFabric,
    *,
    qps: int = 4,
    message_bytes: int = 65536,
    duration_s: int = 10,
    qp_timeout: int = 14,
) -> list[dict[str, list[dict[str, Any]]]]:
    """Arrange every pairing of a plan in rounds; each round is ``{host: [tests for ib_write_bw]}``.

    A host has at most one pairing in a round, and a pairing measures all rails of its port at once, on separate TCP
    ports. The host that comes first in the cluster is the server.
    """
    hosts = list(fabric.hosts)
    result = []
    for pairings in _schedule(hosts, fabric):
        tests: dict[str, list[dict[str, Any]]] = {}
        for server, client, link in pairings:
            for profile in fabric.hosts[server].profiles:
                if profile.link != link:
                    continue
                peer = next(peer for peer in profile.peers if peer.host == client)
                common = {
                    "name": f"{server}:{profile.port}--{client}:{peer.port}/{profile.twin_index}",
                    "port": FIRST_TEST_PORT + profile.twin_index,
                    "qps": qps,
                    "message_bytes": message_bytes,
                    "duration_s": duration_s,
                    "qp_timeout": qp_timeout,
                }
                server_end = {"end": "server", "device": profile.hca, "address": profile.address}
                client_end = {"end": "client", "device": peer.hca, "address": peer.address}
                tests.setdefault(server, []).append({**common, **server_end, "peer": peer.address})
                tests.setdefault(client, []).append({**common, **client_end, "peer": profile.address})
        result.append(tests)
    return result


def _schedule(hosts: Sequence[str], fabric: ClusterFabric) -> list[list[tuple[str, str, str]]]:
    """Colour the pairings (server, client, link) so that no host is twice in a round."""
    if fabric.topology == "switch":
        links = list(dict.fromkeys(profile.link for profile in fabric.hosts[hosts[0]].profiles))
        return [[(a, b, link) for a, b in pairs] for link in links for pairs in _circle(hosts)]
    schedule: list[list[tuple[str, str, str]]] = []
    for pairing in _cables(hosts, fabric):
        busy = set(pairing[:2])
        for pairings in schedule:
            if not any(busy & {server, client} for server, client, _link in pairings):
                pairings.append(pairing)
                break
        else:
            schedule.append([pairing])
    return schedule


def _cables(hosts: Sequence[str], fabric: ClusterFabric) -> list[tuple[str, str, str]]:
    found: dict[str, tuple[str, str, str]] = {}
    for host in hosts:
        for profile in fabric.hosts[host].profiles:
            server, client = sorted((host, profile.peers[0].host), key=hosts.index)
            found.setdefault(profile.link, (server, client, profile.link))
    # In host order the cable that closes a ring is placed early; placed last, an even ring would need a third round.
    return sorted(found.values(), key=lambda pairing: (hosts.index(pairing[0]), hosts.index(pairing[1])))


def _circle(hosts: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """Round robin by the circle method: one place stays, the others move on; ``None`` is the free place of an odd N."""
    places: list[str | None] = [*hosts] if len(hosts) % 2 == 0 else [*hosts, None]
    half = len(places) // 2
    for _round in range(len(places) - 1):
        pairs = [(places[i], places[-1 - i]) for i in range(half)]
        yield [
            (a, b) if hosts.index(a) < hosts.index(b) else (b, a) for a, b in pairs if a is not None and b is not None
        ]
        places = [places[0], places[-1], *places[1:-1]]
