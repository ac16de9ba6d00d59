# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence as Prometheus reads it (text format 0.0.4), for node_exporter's textfile collector. Pure.

What was not measured has no sample: an absent series is honest, a zero would be a figure.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.programs.metrics.exposition import escaped

Sample = tuple[dict[str, str], float]


def render(document: Mapping[str, Any]) -> str:
    """Bandwidth in Gb/s (10^9 bits per second), round trips in seconds, the time as seconds since 1970."""
    families = (
        ("gb10_proof_time_seconds", "When the proof was made.", _time),
        ("gb10_cluster_healthy", "1 where everything was measured and is as it should be.", _clusters),
        ("gb10_pairing_ok", "1 where the verdict of a link between two hosts is no error.", _pairings),
        ("gb10_pairing_gbps", "Gb/s of a link between two hosts, all its rails at once.", _sums),
        ("gb10_rail_gbps", "Gb/s of one rail between two hosts.", _rails),
        ("gb10_rail_latency_seconds", "Half a round trip of 2 bytes over one rail between two hosts.", _latencies),
        ("gb10_ping_ok", "1 where a peer answers unfragmented packets of the MTU over a rail.", _pings),
        ("gb10_ping_rtt_seconds", "Average round trip over a rail.", _round_trips),
        ("gb10_cable_as_planned", "1 where a port leads to whom the plan says.", _cables),
    )
    lines = []
    for name, about, collect in families:
        samples = [_line(name, labels, value) for labels, value in collect(document)]
        if samples:
            lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge", *samples]
    return "\n".join([*lines, ""])


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {value:.10g}" if shown else f"{name} {value:.10g}"


def _time(document: Mapping[str, Any]) -> Iterator[Sample]:
    yield {}, calendar.timegm(time.strptime(document["created"], "%Y-%m-%dT%H:%M:%SZ"))


def _clusters(document: Mapping[str, Any]) -> Iterator[Sample]:
    for cluster in document["clusters"]:
        yield {"cluster": cluster["name"], "verdict": cluster["verdict"]}, float(cluster["verdict"] == "healthy")


def _each_pairing(document: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], Mapping[str, Any]]]:
    for cluster in document["clusters"]:
        for pairing in cluster["pairings"]:
            ends = {end: f"{pairing[end]['host']}:{pairing[end]['port']}" for end in ("server", "client")}
            yield {"cluster": cluster["name"], **ends}, pairing


def _pairings(document: Mapping[str, Any]) -> Iterator[Sample]:
    for labels, pairing in _each_pairing(document):
        yield {**labels, "verdict": pairing["verdict"]}, float(pairing["severity"] != "error")


def _sums(document: Mapping[str, Any]) -> Iterator[Sample]:
    for labels, pairing in _each_pairing(document):
        if pairing["figures"]["gbps"] is not None:
            yield labels, pairing["figures"]["gbps"]


def _rails(document: Mapping[str, Any]) -> Iterator[Sample]:
    for labels, pairing in _each_pairing(document):
        for rail in pairing["figures"]["rails"]:
            if rail["gbps"] is not None:
                yield {**labels, "rail": rail["netdev"]}, rail["gbps"]


def _latencies(document: Mapping[str, Any]) -> Iterator[Sample]:
    for labels, pairing in _each_pairing(document):
        for rail in pairing["figures"]["rails"]:
            if rail.get("latency_us"):
                yield {**labels, "rail": rail["netdev"]}, rail["latency_us"] / 1e6


def _each_ping(document: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], Mapping[str, Any]]]:
    for host, proof in document["hosts"].items():
        for ping in proof["pings"]:
            yield {"host": host, "rail": ping["interface"], "peer": ping["peer"]}, ping


def _pings(document: Mapping[str, Any]) -> Iterator[Sample]:
    for labels, ping in _each_ping(document):
        yield labels, float(ping["ok"])


def _round_trips(document: Mapping[str, Any]) -> Iterator[Sample]:
    for labels, ping in _each_ping(document):
        if ping["rtt_ms"] is not None:
            yield labels, ping["rtt_ms"] / 1000


def _cables(document: Mapping[str, Any]) -> Iterator[Sample]:
    for cluster in document["clusters"]:
        for cable in cluster["cabling"]:
            labels = {"host": cable["host"], "port": cable["port"], "verdict": cable["verdict"]}
            yield labels, float(cable["verdict"] == "as_planned")
