# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role monitoring: what is collected and who may read it, and whether this host has the server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import addresses, catalog, limits
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.monitoring.rules import collector, figures
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.monitoring_settings import MonitoringSettings

PROMETHEUS, ALERTMANAGER = "127.0.0.1:9090", "127.0.0.1:9093"
_GRAFANA, DASHBOARDS = "/etc/grafana/provisioning", "/usr/local/share/gb10-fleet/dashboards"
_TARGET = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?::([0-9]+))?\Z")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_URL = re.compile(r"https?://[^\s\"]+\Z")
SLO = {"ttft_p95_s": 640.0, "error_share": 1.0}  # targets, and the most that each can be
_STATE, _ETC = "/var/lib/prometheus", "/etc/prometheus"


@dataclass(frozen=True)
class Part:
    """A part of the collector, and how often it runs."""

    part: str
    every_s: int


@dataclass(frozen=True)
class Target:
    """A host that Prometheus asks."""

    host: str
    address: str
    cluster: str  # as the inventory has it: the work of whom keeps the alerts of whom waiting, no host says


@dataclass(frozen=True)
class File:
    """A file and what it holds."""

    path: str
    content: str


@dataclass(frozen=True)
class Server:
    """A daemon of the stack; `files` restart it."""

    package: str
    unit: str
    command: str
    files: tuple[str, ...]


def _server(package: str, flags: str, *files: str) -> Server:
    unit = f"{package}.service"
    drop_in = f"/etc/systemd/system/{unit}.d/50-gb10-monitoring.conf"
    return Server(package, unit, f"/usr/bin/{package} {flags}", (drop_in, *files))


def _servers(known: Mapping[str, Any]) -> tuple[Server, ...]:
    return (
        _server(
            "prometheus-alertmanager",
            f"--config.file={_ETC}/gb10-alertmanager.yml --storage.path={_STATE}/alertmanager"
            f" --web.listen-address={ALERTMANAGER} --cluster.listen-address=",
            f"{_ETC}/gb10-alertmanager.yml",
        ),
        _server(
            "prometheus",
            f"--config.file={_ETC}/gb10.yml --storage.tsdb.path={_STATE}/metrics2 --web.listen-address={PROMETHEUS}"
            f" --storage.tsdb.retention.time=15d --storage.tsdb.retention.size={known['server_disk']}GB"
            " --web.cors.origin=nobody",  # else it lets any page of the web read on
            f"{_ETC}/gb10.yml",
            f"{_ETC}/gb10-rules.yml",
        ),
    )


@dataclass(frozen=True, kw_only=True)
class MonitoringPlan(RolePlan):
    """The collector of a host, and the stack where it runs. What is long is a property, for a plan is shown."""

    enabled: bool
    listen: str
    parts: tuple[Part, ...]
    servers: tuple[Server, ...]
    targets: tuple[Target, ...]
    grafana: bool
    cluster: str
    slo: Mapping[str, float]
    minimum_free_gib: Mapping[str, float]

    @property
    def memory_mib(self) -> int:
        """Return what each server may take."""
        known = figures()
        return int(known["server_memory"] + known["server_memory_host"] * len(self.targets))

    @property
    def settings(self) -> str:
        """Return what the collector goes by."""
        known = figures(minimum_free_gib=self.minimum_free_gib)
        return json.dumps(collector(known, self.cluster, self.slo), indent=1) + "\n"

    @property
    def rules(self) -> str:
        return _file("gb10-rules.yml")

    @property
    def grafana_files(self) -> tuple[File, ...]:
        """The dashboard, and what tells Grafana of it and of Prometheus."""
        source = {"name": "Prometheus", "uid": "prometheus", "type": "prometheus", "url": f"http://{PROMETHEUS}"}
        sources = [{**source, "access": "proxy", "isDefault": True}]
        provider = {"name": "gb10-fleet", "type": "file", "options": {"path": DASHBOARDS}}
        return (
            File(f"{_GRAFANA}/datasources/gb10.yaml", json.dumps({"apiVersion": 1, "datasources": sources}) + "\n"),
            File(f"{_GRAFANA}/dashboards/gb10.yaml", json.dumps({"apiVersion": 1, "providers": [provider]}) + "\n"),
            File(f"{DASHBOARDS}/gb10.json", _file("gb10-dashboard.json")),
        )


def plan(view: View) -> MonitoringPlan:
    """The plan for one host; one that is not watched is not judged."""
    settings = view.settings(MonitoringSettings)
    enabled, server = settings.monitoring_enabled, settings.monitoring_enabled and settings.monitoring_server
    known = figures()
    listen = f"{addresses.in_url(settings.monitoring_address)}:{settings.monitoring_port}"
    return MonitoringPlan(
        refusals=(*_refusals(settings), *(_unheard(view, settings) if server else ())) if enabled else (),
        enabled=enabled,
        listen=listen,
        parts=(Part("now", known["interval_s"]), Part("history", known["history_s"])),
        servers=_servers(known) if server else (),
        targets=(Target(view.host, listen, _cluster(view, view.host)), *_targets(view, settings)) if server else (),
        cluster=_cluster(view, view.host),
        grafana=server and settings.monitoring_grafana,
        slo={str(name): float(value) for name, value in settings.monitoring_slo.items() if _can_be(name, value)},
        minimum_free_gib=limits.minimum_free_gib(view.variables.get("gb10_minimum_free_gib")),
    )


def _targets(view: View, settings: MonitoringSettings) -> Iterator[Target]:
    for host, address in settings.monitoring_targets.items():
        found = _target(address)
        if found:
            whole = str(address) if found[2] else f"{address}:{settings.monitoring_port}"
            yield Target(str(host), whole, _cluster(view, str(host)))


def _cluster(view: View, host: str) -> str:
    """Of a host that the inventory has not, it is the host alone."""
    given = view.variables if host == view.host else view.inventory.get(host, {})
    return str(given.get("gb10_cluster") or host)


def _target(address: Any) -> re.Match[str] | None:
    """Its host and its port, if it names one."""
    found = _TARGET.match(address) if isinstance(address, str) else None
    return found if found and addresses.is_host(found[1]) and (not found[2] or addresses.is_ports(found[2])) else None


def _can_be(name: Any, value: Any) -> bool:
    """Return whether it is a target, and of a size that it can have."""
    most = SLO.get(name)
    return most is not None and isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= most


def _unheard(view: View, settings: MonitoringSettings) -> Iterator[str]:
    """Hosts of this inventory that answer nobody but themselves; another port may be another exporter's."""
    for target in _targets(view, settings):
        address, __, port = target.address.rpartition(":")
        if target.host == view.host or target.host not in view.inventory or addresses.is_loopback(address.strip("[]")):
            continue
        theirs = view.of(target.host).settings(MonitoringSettings)
        if not (theirs.monitoring_enabled and theirs.exposed) and port == str(theirs.monitoring_port):
            is_so = "listens on loopback only" if theirs.monitoring_enabled else "is not watched"
            yield (
                f"monitoring_targets names {target.host}, which {is_so}. Give it monitoring_enabled, "
                f"monitoring_address and monitoring_clients with the address of {view.host}, or leave it out."
            )


def _refusals(settings: MonitoringSettings) -> Iterator[str]:
    if not addresses.is_address(settings.monitoring_address):
        yield (
            f"monitoring_address '{settings.monitoring_address}' is no IP address. Name one of this host, for example "
            "192.0.2.11, or keep 127.0.0.1."
        )
    elif settings.exposed and not settings.monitoring_clients:
        yield (
            f"monitoring_address {settings.monitoring_address} is beyond loopback, and monitoring_clients names nobody "
            "who may ask there. Name the host of Prometheus, for example monitoring_clients: [192.0.2.7]."
        )
    if not addresses.is_ports(settings.monitoring_port):
        yield f"monitoring_port is '{settings.monitoring_port}'. Name a TCP port, from 1 to 65535."
    unknown = [client for client in settings.monitoring_clients if not addresses.is_network(client)]
    if unknown:
        yield (
            f"monitoring_clients holds {', '.join(unknown)}. Name networks without host bits, or addresses, for "
            "example 192.0.2.0/24 or 192.0.2.7."
        )
    strange = [
        f"{host}: {address}"
        for host, address in settings.monitoring_targets.items()
        if not (_HOST.match(str(host)) and _target(address))
    ]
    if strange:
        bare = [
            str(address)
            for address in settings.monitoring_targets.values()
            if ":" in str(address) and addresses.is_address(str(address))
        ]
        yield (
            f"monitoring_targets holds {', '.join(strange)}. Name each host with its address, for example "
            "{spark-b: 192.0.2.12}." + (f" Write IPv6 in brackets: '[{bare[0]}]'." if bare else "")
        )
    if settings.monitoring_heartbeat and not _URL.match(settings.monitoring_heartbeat):
        yield "monitoring_heartbeat is no address: https:// or http://, a host and a path, without blanks."
    wrong = [str(name) for name, value in settings.monitoring_slo.items() if not _can_be(name, value)]
    if wrong:
        most = f"up to {SLO['ttft_p95_s']:g}"
        yield (
            f"monitoring_slo holds {', '.join(wrong)}. Name ttft_p95_s in seconds, above 0 and {most}, and "
            "error_share, above 0 and up to 1, for example {ttft_p95_s: 2, error_share: 0.01}."
        )
    for name, asked in (
        ("monitoring_targets", settings.monitoring_targets),
        ("monitoring_alerting", settings.monitoring_alerting),
        ("monitoring_heartbeat", settings.monitoring_heartbeat),
        ("monitoring_grafana", settings.monitoring_grafana),
    ):
        if asked and not settings.monitoring_server:
            yield f"{name} is for the host of Prometheus. Set monitoring_server to true there, or leave {name} out."


def _file(name: str) -> str:
    """Written by scripts/pages/monitoring.py, and for a Prometheus of the user's own as well."""
    return (catalog.collection_root() / "roles/monitoring/files" / name).read_text(encoding="utf-8")
