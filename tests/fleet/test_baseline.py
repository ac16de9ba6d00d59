"""What site.yml adds to a host is what catalog/baseline.yml declares: two reads of a host, before and after it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from tests.fleet.fleet import Fleet
from tests.support.baseline import compare, declared

pytestmark = pytest.mark.lab

# All that a container can carry. Docker's engine leaves a group behind; the model needs Docker.
ROLES = tuple(role for role in catalog.ROLES if role not in ("docker", "vllm"))
GIVEN = {
    "gb10_roles": list(ROLES),
    "gateway_address": "{{ ansible_host }}",
    "gateway_plain_http": True,
    "gateway_keys": {"laptop": "a-key-of-the-lab-and-of-nothing-else"},
    "page_cache_operators": ["spark"],
}
# One of each kind, and what removes it again.
PLANTED = {
    "setuid": ("install -m 4755 /bin/true /usr/local/bin/gb10-planted", "rm /usr/local/bin/gb10-planted"),
    "world_writable": ("install -m 0666 /dev/null /opt/gb10-planted", "rm /opt/gb10-planted"),
    "sudoers": (
        "echo 'spark ALL=(root) NOPASSWD: /bin/true' >/etc/sudoers.d/gb10-planted",
        "rm /etc/sudoers.d/gb10-planted",
    ),
    "cron": (
        "mkdir -p /etc/cron.d; echo '* * * * * root true' >/etc/cron.d/gb10-planted",
        "rm /etc/cron.d/gb10-planted; rmdir --ignore-fail-on-non-empty /etc/cron.d",
    ),
    "units": (
        "printf '[Service]\\nExecStart=/bin/true\\n' >/etc/systemd/system/gb10-planted.service",
        "rm /etc/systemd/system/gb10-planted.service",
    ),
    "unit_changes": (
        "mkdir -p /etc/systemd/system/cron.service.d\n"
        "printf '[Service]\\nUser=root\\n' >/etc/systemd/system/cron.service.d/gb10-planted.conf",
        "rm -r /etc/systemd/system/cron.service.d",
    ),
    "kernel_parameters": (
        "echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet",
        "echo 0 >/proc/sys/net/ipv4/conf/all/route_localnet",
    ),
    "nftables": ("nft add table inet planted; nft add chain inet planted gb10", "nft delete table inet planted"),
    "listening": (
        "systemd-run -q --unit=gb10-planted-port python3 -c"
        " 'import socket, time; it = socket.create_server((\"\", 4444)); time.sleep(600)'\n"
        "until ss -ltn | grep -q :4444; do sleep 0.1; done",
        "systemctl stop gb10-planted-port",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Reads:
    fleet: Fleet
    before: dict[str, dict[str, list[str]]]
    after: dict[str, dict[str, list[str]]]

    def settings(self, host: str) -> dict[str, Any]:
        defaults = {name: it.get("default") for name, it in catalog.declared_variables().variables.items()}
        return {**defaults, "gateway_address": self.fleet.address(host)}


@pytest.fixture(scope="module")
def reads(cleared: Fleet) -> Iterator[Reads]:
    before = {host: cleared.baseline(host) for host in cleared.hosts}
    run = cleared.site("-e", json.dumps(GIVEN), playbook="tests/fleet/state.yml")
    assert run.rc == 0
    yield Reads(cleared, before, {host: cleared.baseline(host) for host in cleared.hosts})
    for host in cleared.hosts:
        cleared.clear(host)


def test_a_host_gets_what_is_declared_and_nothing_else(reads: Reads) -> None:
    for host in reads.fleet.hosts:
        said = compare(reads.before[host], reads.after[host], declared(), ROLES, reads.settings(host))
        assert said.undeclared == (), f"{host} has what catalog/baseline.yml does not declare"
        assert said.absent == (), f"{host} lacks what catalog/baseline.yml declares"
        assert any(entry.endswith(":8443 nginx") for entry in reads.after[host]["listening"])


def test_the_reader_sees_what_an_intruder_leaves(reads: Reads) -> None:
    """One thing of each kind of the file."""
    host = reads.fleet.hosts[0]
    assert PLANTED.keys() == catalog.load("baseline").keys()
    try:
        reads.fleet.shell(host, "\n".join(plant for plant, _ in PLANTED.values()) + "\nsystemctl daemon-reload")
        said = compare(reads.after[host], reads.fleet.baseline(host), declared(), ROLES, reads.settings(host))
    finally:
        reads.fleet.shell(
            host, "set +e\n" + "\n".join(remove for _, remove in PLANTED.values()) + "\nsystemctl daemon-reload"
        )
    print("\n".join(said.undeclared))
    assert {text.partition(":")[0] for text in said.undeclared} == {*PLANTED}


# -- the window at boot: between the network and the rules nothing of ours listens

RULES, FIREWALL, GATEWAY = "/etc/gb10-fleet/firewall.nft", "gb10-firewall.service", "gb10-gateway.service"


def gateway_listens(fleet: Fleet, host: str) -> bool:
    return any(entry.endswith(":8443 nginx") for entry in fleet.baseline(host)["listening"])


def test_the_gateway_comes_behind_the_rules_as_at_boot(reads: Reads) -> None:
    """Both in one transaction of systemd, from nothing, with the gateway named first."""
    fleet, host = reads.fleet, reads.fleet.hosts[0]
    fleet.shell(host, f"systemctl stop {GATEWAY} {FIREWALL}\nsystemctl start {GATEWAY} {FIREWALL}")
    asked = "systemctl show --value -p"
    stands = fleet.shell(host, f"{asked} ActiveEnterTimestampMonotonic {FIREWALL}")
    starts = fleet.shell(host, f"{asked} ExecMainStartTimestampMonotonic {GATEWAY}")
    assert 0 < int(stands) < int(starts)
    assert gateway_listens(fleet, host)


def test_without_rules_the_gateway_does_not_listen(reads: Reads) -> None:
    fleet, host = reads.fleet, reads.fleet.hosts[0]
    try:
        fleet.shell(host, f"systemctl stop {GATEWAY} {FIREWALL}\nmv {RULES} {RULES}.away\n! systemctl start {GATEWAY}")
        assert not gateway_listens(fleet, host)
    finally:
        fleet.shell(host, f"mv {RULES}.away {RULES}\nsystemctl reset-failed\nsystemctl start {FIREWALL} {GATEWAY}")
    assert gateway_listens(fleet, host)
