# SPDX-License-Identifier: GPL-3.0-or-later
"""What a measurement of a port means: a name, a severity and a way out. Pure.

A port is judged by what both of its rails (the twins) carry *at the same time*, because that is how a model uses them.
All numbers come from catalog/thresholds.yml; a caller may override them by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.reading.meanings import RAILS_OF_A_PORT, RUN_FABRIC

SEVERITIES = ("ok", "warn", "error")
# Faults that mean: RDMA is not usable on this rail, so NCCL would fall back to TCP.
NO_RDMA_PATH = {"no_gid", "no_rdma", "no_device"}
# What an end says when the cause is at the other end, whose own words then explain more.
CONSEQUENCES = {
    *("no_client", "refused", "unreachable", "peer_died", "timeout", "retry_exceeded", "no_report", "completion_error"),
    *("wr_flush_err", "bad_resp_err", "rem_inv_req_err", "rem_access_err", "rem_op_err", "rem_abort_err"),
    *("rnr_retry_exc_err", "resp_timeout_err"),
}
# Those that two different versions of perftest can bring about.
OF_VERSIONS = {"peer_died", "no_report", "rem_inv_req_err", "rem_access_err"}
# The RoCE path MTU, in bytes, of an interface with 9000 and of one with 1500.
FULL_PATH_MTU = 4096
PATH_MTU_OF_1500 = 1024
THRESHOLDS = (
    "port_min_gbps",
    "rail_min_gbps",
    "rail_ceiling_gbps",
    "degraded_min_gbps",
    "degraded_max_gbps",
    "degraded_switched_min_gbps",
    "link_gbps",
    "pcie_width_lanes",
)


class ThresholdError(ValueError):
    """A threshold that does not exist or is no positive number."""


@dataclass(frozen=True)
class End:
    """What was read of a rail on one of its two hosts; ``subnets`` are those that it is in."""

    host: str
    netdev: str
    subnets: tuple[str, ...] = ()
    pcie_width: int | None = None
    link_gbps: float | None = None

    def __str__(self) -> str:
        return f"{self.host} {self.netdev}"


@dataclass(frozen=True)
class MeasuredRail:
    """One measured rail, by its server's netdev. ``gbps`` is Gb/s or None where ``fault`` says why.

    ``latency_us`` is half a round trip of small messages. No threshold of it has a source, so nothing is judged by it.
    """

    netdev: str
    gbps: float | None
    fault: Mapping[str, str] | None = None
    ends: tuple[End, ...] = ()
    mtu: int | None = None
    latency_us: float | None = None


@dataclass(frozen=True)
class Verdict:
    """A named judgement; ``figures`` has Gb/s and GB/s (decimal) of the port and of each rail."""

    verdict: str
    severity: str
    text: str
    way_out: str
    figures: dict[str, Any]


def thresholds_from(catalog: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Take the numbers from the catalog's data and put the caller's overrides on top."""
    numbers = {name: float(catalog["thresholds"][name]["value"]) for name in THRESHOLDS}
    for name, value in (overrides or {}).items():
        if name not in numbers:
            near = difflib.get_close_matches(str(name), THRESHOLDS, 1)
            hint = f", did you mean {near[0]}?" if near else f"; there are {', '.join(THRESHOLDS)}"
            raise ThresholdError(f"there is no threshold {name}{hint}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
            raise ThresholdError(f"threshold {name} must be a positive number, it is {value!r}")
        numbers[name] = float(value)
    if numbers["degraded_min_gbps"] >= numbers["degraded_max_gbps"]:
        raise ThresholdError("threshold degraded_min_gbps must be below degraded_max_gbps")
    # Whoever lowers the signature of a cable means the one behind a switch too.
    numbers["degraded_switched_min_gbps"] = min(numbers["degraded_switched_min_gbps"], numbers["degraded_min_gbps"])
    return numbers


Judged = tuple[str, str, str, str]  # verdict, severity, text, way out


def judge_port(rails: Sequence[MeasuredRail], thresholds: Mapping[str, float], *, switched: bool = False) -> Verdict:
    """Judge one port against one peer by its rails, which were measured at the same time; `switched`: via a switch."""
    figures = _figures(rails)
    for name, severity, text, way_out in _judgements(rails, thresholds, switched):
        return Verdict(name, severity, text, way_out, figures)
    total = figures["gbps"]
    return Verdict("healthy", "ok", f"{total:.1f} Gb/s ({total / 8:.1f} GB/s) over {_names(rails)}", "", figures)


@dataclass(frozen=True)
class _Port:
    """What the rails of a port carry, beside what is wanted of it."""

    rails: Sequence[MeasuredRail]
    total: float
    wanted: float
    whole: bool  # both rails were measured
    idle: Sequence[MeasuredRail]

    @property
    def low(self) -> bool:
        return self.total < self.wanted or bool(self.idle)

    @property
    def measured(self) -> str:
        return f"{self.total:.1f} Gb/s ({self.total / 8:.1f} GB/s) over {_names(self.rails)}"


def _port(rails: Sequence[MeasuredRail], thresholds: Mapping[str, float]) -> _Port:
    whole = len(rails) >= RAILS_OF_A_PORT
    wanted = thresholds["port_min_gbps" if whole else "rail_min_gbps"]
    # What the other rail cannot carry this one must; a sum that is right says nothing of a rail that carries nothing.
    floor = max(0.0, wanted - thresholds["rail_ceiling_gbps"])
    idle = [rail for rail in rails if whole and (rail.gbps or 0.0) <= floor]
    return _Port(rails, sum(rail.gbps or 0.0 for rail in rails), wanted, whole, idle)


def _judgements(rails: Sequence[MeasuredRail], thresholds: Mapping[str, float], switched: bool) -> Iterable[Judged]:
    """Yield what is wrong, the gravest first."""
    yield from _faults(rails)
    if not rails or any(rail.gbps is None for rail in rails):
        yield "unknown", "error", "there is no measurement of this port", "run the playbook validate on all hosts"
        return
    port = _port(rails, thresholds)
    yield from _unbelievable(rails, thresholds["rail_ceiling_gbps"])
    # Before the low figure itself: a cause that explains it. Two rails in one subnet look like more than they are.
    yield from _causes(port, thresholds, switched)
    if not port.whole:
        yield _one_rail(port)
    if port.low:
        yield from _too_low(port, thresholds["rail_ceiling_gbps"])


def _faults(rails: Sequence[MeasuredRail]) -> Iterable[Judged]:
    faults = [(rail.netdev, rail.fault) for rail in rails if rail.fault]
    for netdev, fault in faults:
        if fault["name"] in NO_RDMA_PATH:
            text = f"{netdev}: {fault['text']}; NCCL would go over TCP, at a fraction of the bandwidth"
            yield "tcp_path", "error", text, fault["way_out"]
    for netdev, fault in faults:
        yield "unknown", "error", f"{netdev}: {fault['name']}: {fault['text']}", fault["way_out"]


def _causes(port: _Port, thresholds: Mapping[str, float], switched: bool) -> Iterable[Judged]:
    """Where the bandwidth is right, a cause is a warning; not beside a rail that is missing."""
    severity = "error" if port.low or not port.whole else "warn"
    shared = _shared(port.rails)
    if shared:
        yield (
            "shared_subnet",
            severity,
            f"{shared}, so traffic of both may take one of them; {port.measured}",
            f"give each rail a subnet of its own: {RUN_FABRIC}, or remove the foreign address",
        )
    lanes = thresholds["pcie_width_lanes"]
    narrow = [end for rail in port.rails for end in rail.ends if end.pcie_width and end.pcie_width < lanes]
    if narrow:
        links = ", ".join(f"{end} x{end.pcie_width}" for end in narrow)
        yield (
            "half_width",
            severity,
            f"PCIe link narrower than x{lanes:.0f}: {links}; {port.measured}",
            "update the system firmware there with fwupdmgr, then shut down and pull the power plug for a minute",
        )
    # The same fault carries less behind a switch than over a cable.
    lowest = thresholds["degraded_switched_min_gbps" if switched else "degraded_min_gbps"]
    highest = thresholds["degraded_max_gbps"]
    degraded = [rail for rail in port.rails if port.low and lowest <= (rail.gbps or 0.0) <= highest]
    limited = list(_slow_link(port, thresholds["link_gbps"]))
    # Even rails that carry all that their slow link can do not show that fault, whatever a rail's half of it is.
    yield from (judged for judged in limited if judged[1] == "warn")
    if degraded:
        yield _degraded(degraded[0])
    yield from limited


def _one_rail(port: _Port) -> Judged:
    return (
        "half_width",
        "error",
        f"only one of the port's {RAILS_OF_A_PORT} rails was measured: {port.measured}, and of one alone at least "
        f"{port.wanted:g} Gb/s are expected",
        "both PCIe functions of the port must be on the bus of both hosts (show_gids): shut down, pull the power "
        "plugs for a minute, and power on with the cable in; then run the playbook validate",
    )


def _too_low(port: _Port, ceiling: float) -> Iterable[Judged]:
    if port.idle and port.total >= port.wanted:
        yield (
            "half_width",
            "error",
            f"{_names(port.idle)} carries {port.idle[0].gbps:.1f} Gb/s of {port.measured}",
            "check the cable, subnet and PCIe width of that rail (show_gids), then measure again",
        )
    yield from _slow_rail(port)
    mtu = min((rail.mtu for rail in port.rails if rail.mtu), default=FULL_PATH_MTU)
    advice = f"the RoCE path MTU is {mtu}, set fabric_mtu to 9000 on all hosts; " if mtu < FULL_PATH_MTU else ""
    if ceiling / 2 < port.total <= ceiling:
        text = f"both rails together carry what one PCIe function alone can ({ceiling:.0f} Gb/s): {port.measured}"
        way_out = "check that both functions have their own subnet and PCIe x4 (show_gids), then measure again"
        if PATH_MTU_OF_1500 <= mtu < FULL_PATH_MTU:  # the claim small_mtu_halves_a_port of catalog/thresholds.yml
            text += f". The RoCE path MTU of {mtu} is not the cause: with it healthy ports carry 185 Gb/s and more"
            advice, way_out = "", f"{way_out}; then set fabric_mtu to 9000 on all hosts, which gives a little more"
        yield "half_width", "error", text, advice + way_out
    yield (
        "below_expected",
        "error",
        f"{port.measured}, expected at least {port.wanted:g} Gb/s",
        f"{advice}check the cable and its link rate (200 Gb/s), and that the hosts are idle; then measure again",
    )


def _slow_link(port: _Port, full: float) -> Iterable[Judged]:
    """A port that links below its rate cannot carry more; it is judged by what that link can."""
    slow = [(end.link_gbps, end) for rail in port.rails for end in rail.ends if end.link_gbps and end.link_gbps < full]
    if not slow or not port.whole:
        return
    rate = min(gbps for gbps, _end in slow)
    wanted = port.wanted * rate / full
    uneven = next(iter(_slow_rail(port)), None)
    links = ", ".join(f"{end} at {gbps:g} Gb/s" for gbps, end in slow)
    expected = f"at least {wanted:g} Gb/s are expected of such a link"
    text = f"linked below {full:g} Gb/s: {links}; {port.measured}, and {expected}"
    yield (
        "slow_link",
        "error" if port.total < wanted or uneven else "warn",
        f"{text}; {uneven[2]}" if uneven else text,
        way_to_full_rate(full, rate),
    )


def way_to_full_rate(full: float, rate: float) -> str:
    """What to do about a port that links at `rate` in place of `full` Gb/s."""
    return (
        "compare `ethtool NETDEV` (Speed, Auto-negotiation, Advertised link modes) on both hosts and the setting of the"
        f" switch's port, which may have to be set to {full:g} Gb/s by hand, and take a cable for {full:g} Gb/s; where"
        f" {rate:g} Gb/s are meant, set link_gbps in fabric_thresholds to it, and port_min_gbps to what it shall carry"
    )


def _slow_rail(port: _Port) -> Iterable[Judged]:
    """Twins share a cable and split it evenly; one that carries less than half of the other has a fault of its own."""
    slow, *__, fast = sorted(port.rails, key=lambda rail: rail.gbps or 0.0)
    if 2 * (slow.gbps or 0.0) < (fast.gbps or 0.0):
        yield (
            "slow_rail",
            "error",
            f"{_place(slow)} carries {slow.gbps:.1f} Gb/s, its twin {fast.netdev} {fast.gbps:.1f} Gb/s over the same"
            " cable",
            "compare address, MTU, link rate and PCIe link of that rail with its twin's on both hosts (show_gids), "
            "reboot both hosts with the cable in, then measure again",
        )


def _place(rail: MeasuredRail) -> str:
    return " to ".join(map(str, rail.ends)) or rail.netdev


def _shared(rails: Sequence[MeasuredRail]) -> str | None:
    """Return which rails of one host are in one subnet, at either end of the cable."""
    ends = [end for rail in rails for end in rail.ends]
    for host, subnet in dict.fromkeys((end.host, subnet) for end in ends for subnet in end.subnets):
        inside = [end.netdev for end in ends if end.host == host and subnet in end.subnets]
        if len(inside) > 1:
            return f"{host}: {' + '.join(inside)} share the subnet {subnet}"
    return None


def _unbelievable(rails: Sequence[MeasuredRail], ceiling: float) -> Iterable[Judged]:
    for rail in rails:
        if rail.gbps is not None and rail.gbps > ceiling:
            yield (
                "unknown",
                "error",
                f"{rail.netdev} is said to carry {rail.gbps:.1f} Gb/s, and a PCIe function carries {ceiling:g} at most,"
                " so it was not this rail that was measured",
                "check that each test goes over its own HCA (show_gids), then measure again; where the link is wider,"
                " set rail_ceiling_gbps in fabric_thresholds",
            )


def _degraded(rail: MeasuredRail) -> Judged:
    return (
        "degraded_cx7",
        "error",
        f"{_place(rail)} carries {rail.gbps:.1f} Gb/s, the signature of a "
        "ConnectX-7 that came up degraded. Some guides explain such a figure with the single queue pair of the test; "
        "this verdict follows the measurements, in which one queue pair gives 107 to 112 Gb/s on a healthy rail and "
        "more queue pairs do not help a degraded one. Nor is it a mistaken unit: 13.3 GB/s would be a healthy rail, "
        "this is Gb/s",
        "reboot both hosts with the cable in; if that is not enough, shut both down, pull the power plugs for at "
        "least a minute, and power on with the cable in, which must not come later; "
        "`dmesg | grep 'slot power capability was not advertised'` confirms the cause",
    )


def _names(rails: Sequence[MeasuredRail]) -> str:
    return " + ".join(rail.netdev for rail in rails)


def _figures(rails: Sequence[MeasuredRail]) -> dict[str, Any]:
    def one(rail: MeasuredRail) -> dict[str, Any]:
        gbytes = None if rail.gbps is None else round(rail.gbps / 8, 3)
        data = asdict(rail)
        return {"netdev": data.pop("netdev"), "gbps": data.pop("gbps"), "gbytes_per_s": gbytes, **data}

    known = [rail.gbps for rail in rails if rail.gbps is not None]
    total = round(sum(known), 3) if rails and len(known) == len(rails) else None
    return {
        "gbps": total,
        "gbytes_per_s": None if total is None else round(total / 8, 3),
        "rails": [one(rail) for rail in rails],
    }


def cause(faults: Sequence[Mapping[str, str]], versions: Iterable[str | None] = ()) -> Mapping[str, str] | None:
    """Of the faults that the two ends of a test report, the one that explains the other.

    ``versions`` are perftest's own of both ends. Where the ends merely lost each other and their versions differ, that
    is the explanation: perftest wants the same version at both ends.
    """
    found = min(faults, key=lambda fault: fault["name"] in CONSEQUENCES, default=None)
    known = sorted({version for version in versions if version})
    if found and found["name"] in OF_VERSIONS and len(known) > 1:
        return {
            "name": "version_mismatch",
            "text": f"the ends have different versions of perftest, {' and '.join(known)}",
            "way_out": "install the same version of perftest on both hosts",
        }
    return found
