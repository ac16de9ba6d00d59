"""What a figure means."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.fabric.verdicts import (
    THRESHOLDS,
    End,
    MeasuredRail,
    ThresholdError,
    cause,
    judge_port,
    thresholds_from,
)
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

DATA = catalog.load("thresholds")
NUMBERS = thresholds_from(DATA)
FAULT = {"name": "port_busy", "text": "another process has the TCP port", "way_out": "end it"}
NO_GID = {"name": "no_gid", "text": "10.0.0.1 is no RoCE v2 GID", "way_out": "give it its address"}


def rails(first: float | None, second: float | None, pcie_width: int | None = None, **more: Any) -> list[MeasuredRail]:
    """The first rail with both of its ends; the width is that of the client's."""
    ends = (End("spark-a", "enp1s0f0np0"), End("spark-b", "enp1s0f0np0", pcie_width=pcie_width))
    return [MeasuredRail("enp1s0f0np0", first, ends=ends, **more), MeasuredRail("enP2p1s0f0np0", second)]


@pytest.mark.parametrize(
    ("measured", "verdict", "severity"),
    [
        (rails(97.5, 98.5), "healthy", "ok"),  # MTU 9000
        (rails(92.57, 92.56), "healthy", "ok"),  # MTU 1500
        (rails(87.5, 87.5), "healthy", "ok"),  # the gate itself
        (rails(87.5, 87.4), "below_expected", "error"),
        (rails(109.0, 13.3), "degraded_cx7", "error"),
        (rails(13.35, 13.26), "degraded_cx7", "error"),
        (rails(8.0, 8.0), "degraded_cx7", "error"),
        (rails(7.9, 7.9), "below_expected", "error"),
        (rails(25.1, 25.1), "below_expected", "error"),
        (rails(54.0, 54.0), "half_width", "error"),
        (rails(63.0, 63.0), "half_width", "error"),
        (rails(63.1, 63.1), "below_expected", "error"),
        (rails(97.5, 98.5, pcie_width=2), "half_width", "warn"),
        (rails(50.0, 98.5, pcie_width=2), "half_width", "error"),
        (rails(97.5, 98.5, pcie_width=4), "healthy", "ok"),
        (rails(126.0, 50.0), "healthy", "ok"),  # the ceiling itself
        (rails(190.0, 0.0), "unknown", "error"),  # no PCIe function carries that
        (rails(165.0, 13.0), "unknown", "error"),
        (rails(500.0, 500.0), "unknown", "error"),
        (rails(None, 500.0, fault=NO_GID), "tcp_path", "error"),
        ([MeasuredRail("enp1s0f0np0", 130.0)], "unknown", "error"),
        (rails(None, 98.5, fault=FAULT), "unknown", "error"),
        (rails(None, 98.5, fault=NO_GID), "tcp_path", "error"),
        (rails(None, 98.5), "unknown", "error"),
        ([], "unknown", "error"),
        (rails(13.3, 13.3, pcie_width=2), "half_width", "error"),  # explains it, and a power cycle would not help
        ([MeasuredRail("enp1s0f0np0", 110.0)], "half_width", "error"),
        ([MeasuredRail("enp1s0f0np0", 95.0)], "half_width", "error"),
        ([MeasuredRail("enp1s0f0np0", 13.3)], "degraded_cx7", "error"),
        ([MeasuredRail("enp1s0f0np0", 110.0, ends=(End("spark-a", "enp1s0f0np0", (), 2),))], "half_width", "error"),
    ],
)
def test_verdicts(measured: list[MeasuredRail], verdict: str, severity: str) -> None:
    result = judge_port(measured, NUMBERS)
    assert (result.verdict, result.severity) == (verdict, severity)
    assert result.text
    assert bool(result.way_out) == (severity != "ok")


@pytest.mark.parametrize("gbps", [5.0, 6.2, 7.0, 7.9])
def test_a_degraded_adapter_behind_a_switch_has_the_same_verdict_and_way_out(gbps: float) -> None:
    # Reported by owners with a switch: 5 to 7 Gb/s where a cable shows 13. Over a cable such a figure has no name.
    found = judge_port(rails(gbps, gbps), NUMBERS, switched=True)
    known = judge_port(rails(13.3, 13.3), NUMBERS)
    assert (found.verdict, found.severity, found.way_out) == ("degraded_cx7", "error", known.way_out)
    assert judge_port(rails(gbps, gbps), NUMBERS).verdict == "below_expected"
    assert judge_port(rails(4.9, 4.9), NUMBERS, switched=True).verdict == "below_expected"
    lowered = thresholds_from(DATA, {"degraded_min_gbps": 2})
    assert judge_port(rails(3.0, 3.0), lowered, switched=True).verdict == "degraded_cx7"


@pytest.mark.parametrize(
    ("first", "second", "link", "verdict", "severity"),
    [
        (49.0, 49.0, 100, "slow_link", "warn"),  # all that such a link carries
        (46.3, 46.3, 100, "slow_link", "warn"),
        (40.0, 40.0, 100, "slow_link", "error"),
        (80.0, 18.0, 100, "degraded_cx7", "error"),
        (20.0, 20.0, 100, "degraded_cx7", "error"),  # even, and not what such a link carries
        (70.0, 28.0, 100, "slow_link", "error"),
        (98.0, 98.0, 200, "healthy", "ok"),
        (49.0, 49.0, 200, "half_width", "error"),
        (49.0, 49.0, None, "half_width", "error"),
    ],
)
def test_a_port_is_judged_by_the_rate_at_which_it_links(
    first: float, second: float, link: float | None, verdict: str, severity: str
) -> None:
    # Switches that negotiate 100000 until they are set to 200G: NVIDIA's multi-sparks README.
    ends = (End("spark-a", "enp1s0f0np0", link_gbps=200), End("spark-b", "enp1s0f0np0", link_gbps=link))
    measured = [MeasuredRail("enp1s0f0np0", first, ends=ends), MeasuredRail("enP2p1s0f0np0", second)]
    found = judge_port(measured, NUMBERS)
    assert (found.verdict, found.severity) == (verdict, severity)
    if verdict == "slow_link":
        assert found.text.startswith("linked below 200 Gb/s: spark-b enp1s0f0np0 at 100 Gb/s; ")
        assert "at least 87.5 Gb/s" in found.text and "link_gbps" in found.way_out and "both hosts" in found.way_out
        assert ("its twin" in found.text) == (first > 2 * second)
    meant = thresholds_from(DATA, {"link_gbps": 100, "port_min_gbps": 87.5})
    assert first < 49 or first > 2 * second or judge_port(measured, meant).verdict == "healthy"


@pytest.mark.parametrize(
    ("first", "second", "link", "verdict"),
    [
        (12.0, 12.0, 25, "slow_link"),
        (18.6, 18.6, 40, "slow_link"),
        (23.2, 23.1, 50, "slow_link"),
        (30.0, 16.0, 50, "slow_link"),  # less even, and together all that the link carries
        (13.3, 13.3, 40, "degraded_cx7"),  # 26.6 Gb/s of the 35 that are expected
        (13.3, 13.3, 50, "degraded_cx7"),
        (35.0, 12.0, 50, "degraded_cx7"),
    ],
)
@pytest.mark.parametrize("switched", [True, False])
def test_even_rails_that_carry_their_share_of_a_slow_link_are_not_degraded(
    first: float, second: float, link: float, verdict: str, switched: bool
) -> None:
    ends = (End("spark-a", "enp1s0f0np0", link_gbps=link), End("spark-b", "enp1s0f0np0", link_gbps=link))
    measured = [MeasuredRail("enp1s0f0np0", first, ends=ends), MeasuredRail("enP2p1s0f0np0", second)]
    found = judge_port(measured, NUMBERS, switched=switched)
    assert (found.verdict, found.severity) == (verdict, "warn" if verdict == "slow_link" else "error")
    if verdict == "slow_link":
        assert f"spark-a enp1s0f0np0 at {link:g} Gb/s" in found.text and f"{link:g} Gb/s are meant" in found.way_out


@pytest.mark.parametrize("slow", [7.0, 27.0, 40.0, 48.9])
@pytest.mark.parametrize("first", [True, False])
def test_a_slow_rail_beside_a_healthy_twin_is_named(slow: float, first: bool) -> None:
    # 98 Gb/s is a rail's half of the 196 Gb/s that healthy twins carry over one cable (catalog, port_min_gbps).
    found = judge_port(rails(slow, 98.0) if first else rails(98.0, slow), NUMBERS)
    assert (found.verdict, found.severity) == ("slow_rail", "error")
    place = "spark-a enp1s0f0np0 to spark-b enp1s0f0np0" if first else "enP2p1s0f0np0"
    assert found.text.startswith(f"{place} carries {slow:.1f} Gb/s, its twin ")
    assert "one PCIe function" not in found.text and "measure again" in found.way_out


@pytest.mark.parametrize(("first", "second", "verdict"), [(40.0, 80.0, "half_width"), (60.0, 98.0, "below_expected")])
def test_rails_that_differ_by_less_than_half_share_a_cause(first: float, second: float, verdict: str) -> None:
    assert judge_port(rails(first, second), NUMBERS).verdict == verdict


def test_a_figure_above_the_ceiling_is_not_believed() -> None:
    result = judge_port(rails(200.0, 98.0), NUMBERS)
    assert result.verdict == "unknown"
    assert "enp1s0f0np0 is said to carry 200.0 Gb/s, and a PCIe function carries 126 at most" in result.text
    assert "rail_ceiling_gbps" in result.way_out


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [(rails(100.0, 0.0), "half_width"), (rails(50.0, 50.0), "healthy"), (rails(0.0, 98.0), "half_width")],
)
def test_no_sum_makes_up_for_a_rail_that_carries_nothing(measured: list[MeasuredRail], verdict: str) -> None:
    result = judge_port(measured, thresholds_from(DATA, {"port_min_gbps": 90}))  # behind a link of 100 Gb/s
    assert result.verdict == verdict
    if verdict != "healthy":
        assert "carries 0.0 Gb/s of" in result.text


FIRST, SECOND = "10.0.0.0/24", "10.0.1.0/24"


def port(gbps: float, *subnets: tuple[str, ...], bad_end: int = 0) -> list[MeasuredRail]:
    """A port of two rails; the given subnets are those at one of its ends, the other end is as planned."""
    planned = ((FIRST,), (SECOND,))
    of_end = [subnets if number == bad_end else planned for number in range(2)]
    return [
        MeasuredRail(netdev, gbps, ends=tuple(End(f"spark-{'ab'[end]}", netdev, of_end[end][twin]) for end in range(2)))
        for twin, netdev in enumerate(("one", "two"))
    ]


@pytest.mark.parametrize("bad_end", [0, 1])
@pytest.mark.parametrize(("gbps", "severity"), [(98.0, "warn"), (45.0, "error"), (20.0, "error")])
def test_a_shared_subnet_at_either_end_is_named_before_what_it_looks_like(
    bad_end: int, gbps: float, severity: str
) -> None:
    found = judge_port(port(gbps, (FIRST,), (SECOND, FIRST), bad_end=bad_end), NUMBERS)
    assert (found.verdict, found.severity) == ("shared_subnet", severity)
    assert found.text.startswith(f"spark-{'ab'[bad_end]}: one + two share the subnet {FIRST}, ")
    assert "--tags fabric" in found.way_out


def test_both_ends_of_a_cable_are_in_its_subnet() -> None:
    assert judge_port(port(98.0, (FIRST,), (SECOND,)), NUMBERS).verdict == "healthy"


def test_a_narrow_link_and_a_degraded_rail_are_told_with_their_host() -> None:
    assert "spark-b enp1s0f0np0 x2;" in judge_port(rails(97.5, 98.5, pcie_width=2), NUMBERS).text
    text = judge_port(rails(13.3, 98.0), NUMBERS).text
    assert text.startswith("spark-a enp1s0f0np0 to spark-b enp1s0f0np0 carries 13.3 Gb/s")


def test_a_port_of_which_one_rail_was_measured_is_half_a_port() -> None:
    found = judge_port([MeasuredRail("enp1s0f0np0", 110.0)], NUMBERS)
    assert "only one of the port's 2 rails was measured: 110.0 Gb/s" in found.text and "100 Gb/s" in found.text


def test_thirteen_gigabit_follows_the_measurements_and_says_so() -> None:
    result = judge_port(rails(13.35, 13.26), NUMBERS)
    assert "one queue pair gives 107 to 112 Gb/s" in result.text
    assert "13.3 GB/s would be a healthy rail" in result.text
    steps = ["reboot both", "pull the power plugs", "power on with the cable in"]
    places = [result.way_out.index(step) for step in steps]
    assert places == sorted(places), "the cheap one first"
    claims = DATA["claims"]
    assert [claims[name]["followed"] for name in ("thirteen_gbps_is_an_artifact", "thirteen_gbps_is_a_fault")] == [
        False,
        True,
    ]


def test_figures_carry_both_units() -> None:
    figures = judge_port(rails(97.5, 98.5), NUMBERS).figures
    assert (figures["gbps"], figures["gbytes_per_s"]) == (196.0, 24.5)
    assert [(rail["netdev"], rail["gbps"], rail["gbytes_per_s"]) for rail in figures["rails"]] == [
        ("enp1s0f0np0", 97.5, 12.188),
        ("enP2p1s0f0np0", 98.5, 12.312),
    ]
    assert judge_port(rails(97.5, None), NUMBERS).figures["gbps"] is None


def test_small_mtu_is_advised() -> None:
    assert "fabric_mtu" in judge_port(rails(70.0, 70.0, mtu=1024), NUMBERS).way_out
    assert "fabric_mtu" not in judge_port(rails(70.0, 70.0, mtu=4096), NUMBERS).way_out


def test_half_a_port_says_what_a_small_mtu_has_to_do_with_it() -> None:
    # At MTU 1500 (path MTU 1024) a port carries 185 to 190 Gb/s (catalog, port_min_gbps), so 120 have another cause.
    small = judge_port(rails(60.0, 60.0, mtu=1024), NUMBERS)
    assert small.verdict == judge_port(rails(60.0, 60.0, mtu=4096), NUMBERS).verdict == "half_width"
    assert "The RoCE path MTU of 1024 is not the cause: with it healthy ports carry 185 Gb/s and more" in small.text
    assert small.way_out.endswith("then set fabric_mtu to 9000 on all hosts, which gives a little more")
    assert "MTU" not in judge_port(rails(60.0, 60.0, mtu=4096), NUMBERS).text
    tiny = judge_port(rails(60.0, 60.0, mtu=256), NUMBERS)
    assert "not the cause" not in tiny.text, "nobody has measured that"
    assert tiny.way_out.startswith("the RoCE path MTU is 256, set fabric_mtu to 9000 on all hosts; ")
    assert DATA["claims"]["small_mtu_halves_a_port"]["followed"] is False


def test_overrides() -> None:
    lab = thresholds_from(DATA, {"port_min_gbps": 0.1, "rail_min_gbps": 0.05})
    assert judge_port(rails(0.17, 0.17), lab).verdict == "healthy"
    assert judge_port(rails(10.0, 10.0), lab).verdict == "healthy", "soft-RoCE at 10 Gb/s is not a degraded NIC"
    assert set(NUMBERS) == set(THRESHOLDS) == set(DATA["thresholds"])


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"port_min_gbp": 1}, "did you mean port_min_gbps"),
        ({"zzz": 1}, "there are port_min_gbps"),
        ({"port_min_gbps": 0}, "must be a positive number"),
        ({"port_min_gbps": -1}, "must be a positive number"),
        ({"port_min_gbps": "175"}, "must be a positive number"),
        ({"port_min_gbps": True}, "must be a positive number"),
        ({"port_min_gbps": float("nan")}, "must be a positive number"),
        ({"degraded_min_gbps": 30}, "below degraded_max_gbps"),
    ],
)
def test_bad_overrides(overrides: dict[str, Any], text: str) -> None:
    with pytest.raises(ThresholdError, match=text):
        thresholds_from(DATA, overrides)


def test_the_end_that_knows_the_cause_is_heard() -> None:
    no_client = {"name": "no_client", "text": "b never connected", "way_out": "look there"}
    missing = {"name": "missing_package", "text": "ib_write_bw is not installed", "way_out": "install perftest"}
    assert cause([no_client, missing]) is cause([missing, no_client]) is missing
    assert cause([no_client]) is no_client
    assert cause([]) is None


def test_ends_that_lost_each_other_may_have_different_versions() -> None:
    died = {"name": "peer_died", "text": "the other end went away", "way_out": "see there"}
    busy = {"name": "port_busy", "text": "another process has the TCP port", "way_out": "end it"}
    found = cause([died, died], ["6.20", "6.24"])
    assert found is not None and found["name"] == "version_mismatch"
    assert "6.20 and 6.24" in found["text"] and "same version" in found["way_out"]
    assert cause([died, died], ["6.20", "6.20"]) is died
    assert cause([died], ["6.20", None]) is died, "what is not known explains nothing"
    assert cause([died, busy], ["6.20", "6.24"]) is busy, "a port that is taken has nothing to do with versions"


def test_a_retry_that_was_exceeded_is_explained_by_the_other_end() -> None:
    retry = {"name": "retry_exceeded", "text": "no answer came", "way_out": "check the MTU"}
    died = {"name": "died", "text": "perftest was killed by signal 9", "way_out": "see journalctl -k"}
    assert cause([retry, died]) is died


@pytest.mark.parametrize("name", ["wr_flush_err", "rem_access_err", "rem_op_err", "rnr_retry_exc_err"])
def test_a_completion_that_blames_the_peer_is_explained_by_the_peer(name: str) -> None:
    seen = {"name": name, "text": "the peer refused it", "way_out": "see the peer's end"}
    busy = {"name": "no_rdma", "text": "the host has no RDMA device", "way_out": "plug the cable in"}
    assert cause([seen, busy]) is busy
    lost = cause([seen], ["6.20", "6.24"])
    assert lost is not None and (lost["name"] == "version_mismatch") == (name == "rem_access_err")
