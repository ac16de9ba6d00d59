"""Monitoring, watchdog, clock lock and flight recorder in one plan, behind the firewall, on two hosts with a cable.

One host has the server: a real Prometheus asks both, and a fault becomes an alert and goes. Facts, GPU and the rails'
HCAs are made up; the cable, the packages and everything that runs are real.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

from lab.network import container_namespace
from lab.topology import RAILS, containers
from tests.fleet.fleet import Fleet, named
from tests.support.proofs import facts
from tests.support.rig import differences

pytestmark = [pytest.mark.lab, pytest.mark.long]

ROLES = ("firewall", "clock_lock", "watchdog", "flight_recorder", "monitoring")
RAIL = RAILS["p0"][0]
ADDRESSES = ("192.168.100.10", "192.168.100.11")  # what the plan of a pair gives the first rail
SAID: dict[str, Any] = {
    "fabric_topology": "pair",
    "clock_lock_allow": True,
    "clock_lock_max_mhz": 2100,
    "watchdog_allow_restart": True,
    "flight_recorder_enabled": True,
    "flight_recorder_key": "k" * 32,
    "monitoring_enabled": True,
}
UNITS = (
    *("gb10-clock-lock.service", "gb10-watchdog.timer", "gb10-recorder-send.service", "gb10-recorder-keep.service"),
    *("gb10-metrics-now.timer", "gb10-metrics-history.timer", "prometheus-node-exporter.service"),
)
SERVERS = ("prometheus.service", "prometheus-alertmanager.service")
RECORD = "/var/lib/gb10-recorder"
SCENARIO = "/run/gb10-lab/gpu-scenario"
ALERT = "Gb10GpuNotAnswering"
INTERVAL_S = catalog.load("monitoring")["figures"]["interval_s"]["value"]
WAIT_S = 120.0
# Packages leave their account, as Debian's policy has it.
ACCOUNTS = {"file /etc/passwd", "file /etc/group", "file /etc/gshadow", "file /etc/shadow"}


class Watched:
    """Two hosts of the fleet as a pair, of which the first one has the server."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.server, self.other = fleet, *fleet.hosts
        self.hosts = (self.server, self.other)
        self.address = {host: fleet.address(host) for host in self.hosts}

    def variables(self, host: str) -> dict[str, Any]:
        own = {"monitoring_address": self.address[host], "monitoring_clients": [self.address[self.server]]}
        targets = {self.other: self.address[self.other]}
        return SAID | own | ({"monitoring_server": True, "monitoring_targets": targets} if host == self.server else {})

    def documents(self, host: str) -> list[dict[str, Any]]:
        (peer,) = set(self.hosts) - {host}
        known = {name: {**facts(name), "interfaces": []} for name in self.hosts}
        view = View(
            host, known[host], self.variables(host), self.hosts, {peer: known[peer]}, {peer: self.variables(peer)}
        )
        made = {role: render(role, view) for role in ROLES}
        assert [text for one in made.values() for text in one.refusals] == []
        return [{"role": role, "resources": one.resources} for role, one in made.items()]

    def converge(self, *, check: bool = False) -> dict[str, list[Any]]:
        said = {host: self.fleet.converge(host, self.documents(host), check=check) for host in self.hosts}
        assert {host: one["error"] for host, one in said.items()} == dict.fromkeys(self.hosts)
        return {host: one["changes"] for host, one in said.items()}

    def cable(self) -> None:
        """Between the two containers, with the addresses that the role fabric would give its ends."""
        ends = {host.name: container_namespace(host) for host in containers(150) if host.name in self.hosts}
        one, other = (ends[host] for host in self.hosts)
        _ip("link", "add", RAIL, "netns", one, "type", "veth", "peer", "name", RAIL, "netns", other)
        for end, address in zip((one, other), ADDRESSES, strict=True):
            _ip("-n", end, "address", "add", f"{address}/24", "dev", RAIL)
            _ip("-n", end, "link", "set", RAIL, "up")

    def cut(self) -> None:
        self.fleet.shell(self.server, f"ip link del {RAIL} 2>/dev/null || true")

    def ask(self, path: str, port: int = 9090) -> Any:
        """Prometheus, or Alertmanager, where they are: on loopback."""
        url = shlex.quote(f"http://127.0.0.1:{port}/api/{path}")
        return json.loads(self.fleet.shell(self.server, f"curl -fsS --max-time 20 {url}"))

    def readings(self, series: str) -> list[tuple[float, float]]:
        """Time and value of each, as Prometheus stored them."""
        found = self.ask("v1/query?" + urllib.parse.urlencode({"query": f"{series}[30m]"}))["data"]["result"]
        return [(float(at), float(value)) for one in found for at, value in one["values"]]

    def firing(self) -> list[tuple[str, str]]:
        query = urllib.parse.urlencode({"query": 'ALERTS{alertstate="firing"}'})
        found = [one["metric"] for one in self.ask(f"v1/query?{query}")["data"]["result"]]
        return [(one["instance"], one["alertname"]) for one in found]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def until(true: Callable[[], bool], what: Callable[[], Any]) -> None:
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end, what()
        time.sleep(1)


@pytest.fixture(scope="module", name="hosts")
def fixture_hosts(cleared: Fleet) -> Iterator[Watched]:
    """Once through: a dry run changes nothing, the second run changes nothing, and undo leaves nothing."""
    watched = Watched(cleared)
    watched.cut()
    watched.cable()
    before = {host: cleared.snapshot(host) for host in watched.hosts}
    try:
        foreseen = watched.converge(check=True)
        assert {host: cleared.snapshot(host) for host in watched.hosts} == before
        assert {host: named(rows) for host, rows in watched.converge().items()} == {
            host: named(rows) for host, rows in foreseen.items()
        }
        yield watched
        assert watched.converge() == {host: [] for host in watched.hosts}
    finally:
        for host in watched.hosts:
            cleared.engine(host, "undo")
    for host in watched.hosts:
        left = differences(before[host], cleared.snapshot(host))
        assert [line for line in left if line.partition(":")[0] not in ACCOUNTS] == [], host
    watched.cut()


def test_everything_runs_and_is_sound(hosts: Watched) -> None:
    for host in hosts.hosts:
        units = shlex.join([*UNITS, *(SERVERS if host == hosts.server else ())])
        said = hosts.fleet.shell(host, f"systemctl is-active {units} || true; systemctl is-enabled {units} || true")
        assert set(said.split()) == {"active", "enabled"}, said
        hosts.fleet.shell(host, "systemctl start gb10-watchdog.service gb10-metrics-now gb10-metrics-history")
        assert hosts.fleet.shell(host, "systemctl list-units --failed --plain --no-legend 'gb10-*' 'prometheus*'") == ""
        assert hosts.fleet.shell(host, "cat /run/gb10-lab/gpu-clocks") == "300,2100"


def test_each_keeps_the_seconds_of_the_other(hosts: Watched) -> None:
    """A keeper that is killed loses nothing that it had, and goes on."""
    for host, keeper in (hosts.hosts, reversed(hosts.hosts)):
        file = f"{RECORD}/{host}.jsonl"
        look = f"tr -d '\\0' <{file} 2>/dev/null || true"
        kept = lambda keeper=keeper, look=look: [  # noqa: E731
            json.loads(line) for line in hosts.fleet.shell(keeper, look).splitlines()
        ]
        until(lambda kept=kept: any("clock_mhz" in line for line in kept()), kept)
        had = kept()
        hosts.fleet.shell(keeper, "systemctl kill -s KILL gb10-recorder-keep; systemctl restart gb10-recorder-keep")
        until(lambda kept=kept, had=had: len(kept()) > len(had) + 2, kept)
        assert kept()[: len(had)] == had


def test_nobody_else_reaches_what_listens(hosts: Watched) -> None:
    """The server reaches the exporter of the other host; this machine, a stranger, reaches nothing."""
    for host in hosts.hosts:
        for port in (3000, 9090, 9093, 9100, 29590):
            with pytest.raises(OSError):
                urllib.request.urlopen(f"http://{hosts.address[host]}:{port}/", timeout=2)
    hosts.fleet.shell(hosts.server, f"curl -fsS --max-time 20 http://{hosts.address[hosts.other]}:9100/ >/dev/null")


def test_a_fault_fires_within_two_intervals_and_clears(hosts: Watched) -> None:
    up = "v1/query?" + urllib.parse.urlencode({"query": "sum(up) + count(gb10_gpu_state == 1)"})
    until(
        lambda: [one["value"][1] for one in hosts.ask(up)["data"]["result"]] == ["4"], lambda: hosts.ask("v1/targets")
    )
    assert hosts.firing() == []
    fault, place = (hosts.other, ALERT), f'instance="{hosts.other}"'
    before = hosts.fleet.shell(hosts.other, f"cat {SCENARIO} 2>/dev/null || true").strip() or "idle"
    try:
        hosts.fleet.shell(hosts.other, f"echo absent >{SCENARIO}")
        until(lambda: hosts.firing() == [fault], hosts.firing)
        until(lambda: ALERT in json.dumps(hosts.ask("v2/alerts", 9093)), lambda: hosts.ask("v2/alerts", 9093))
    finally:
        hosts.fleet.shell(hosts.other, f"echo {before} >{SCENARIO}")
    until(lambda: not hosts.firing(), hosts.firing)
    absent = hosts.readings(f'gb10_gpu_state{{{place},state="absent"}}')
    fired = hosts.readings(f'ALERTS{{{place},alertname="{ALERT}",alertstate="firing"}}')
    sound = [at for at, _value in hosts.readings(f'gb10_gpu_state{{{place},state="ok"}}') if at > absent[-1][0]]
    assert fired[0][0] - absent[0][0] <= 2 * INTERVAL_S
    assert fired[-1][0] - sound[0] <= 2 * INTERVAL_S
