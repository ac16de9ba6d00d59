"""Which hosts go together: exact counts, a cluster never split, and sizes that cannot be are refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from gb10_fleet.rollout import waves, window
from gb10_fleet.rollout.waves import FleetHost, Policy, Refused

POLICY = waves.policy(soak_s=0)


def fleet(hosts: int, clusters: int) -> list[FleetHost]:
    """So many hosts, of which the first are pairs, as many as asked for or as there are hosts for."""
    pairs = min(clusters, hosts // 2)
    return [FleetHost(f"spark-{n:02d}", f"pair{n // 2}" if n < 2 * pairs else None) for n in range(hosts)]


def sizes(hosts: Sequence[FleetHost], policy: Policy = POLICY) -> list[int]:
    return [len(wave.hosts) for wave in waves.plan(hosts, policy)]


# By default: 1 host, then 10 %, 50 % and all, of all hosts. A pair that does not fit into what is left of a wave waits
# for the next one; where it comes first it is taken, however small the wave.
COUNTS = {
    (1, 0): [1], (1, 1): [1], (1, 5): [1], (1, 20): [1],
    (2, 0): [1, 1], (2, 1): [2], (2, 5): [2], (2, 20): [2],
    (3, 0): [1, 1, 1],
    (10, 0): [1, 1, 5, 3], (10, 5): [2, 2, 4, 2], (10, 20): [2, 2, 4, 2],
    (60, 0): [1, 6, 30, 23],
}  # fmt: skip


@pytest.mark.parametrize(("hosts", "clusters"), COUNTS)
def test_exact_counts(hosts: int, clusters: int) -> None:
    assert sizes(fleet(hosts, clusters)) == COUNTS[hosts, clusters]


@pytest.mark.parametrize("clusters", [0, 1, 5, 20])
@pytest.mark.parametrize("hosts", [1, 2, 3, 10, 60])
def test_every_wave_has_what_fits_and_nobody_is_lost(hosts: int, clusters: int) -> None:
    """Where hosts alone and pairs are mixed, the hash says who comes first; what holds for each order is computed."""
    all_hosts = fleet(hosts, clusters)
    cluster = {host.name: host.cluster for host in all_hosts}
    unit = {host.name: host.cluster or host.name for host in all_hosts}
    planned = waves.plan(all_hosts, POLICY)
    assert sorted(name for wave in planned for name in wave.hosts) == sorted(unit)
    wanted = [1, max(1, hosts // 10), max(1, hosts // 2)]
    for wave, following in zip(planned, [*planned[1:], None], strict=True):
        size = (wanted[wave.number - 1 : wave.number] or [hosts])[0]
        units = [unit[name] for name in wave.hosts]
        assert len(wave.hosts) <= size or len(set(units)) == 1, "larger than its size"
        if following is not None:
            assert not set(units) & {unit[name] for name in following.hosts}, "a cluster is split"
            first = unit[following.hosts[0]]
            assert len(wave.hosts) + list(unit.values()).count(first) > size, "the next one would have fitted"
        assert set(wave.clusters) == {cluster[name] for name in wave.hosts} - {None}
    assert [wave.number for wave in planned] == [*range(1, len(planned) + 1)]


def test_the_order_is_that_of_a_hash_and_not_of_the_inventory() -> None:
    hosts = fleet(60, 5)
    planned = waves.plan(hosts, POLICY)
    assert [set(wave.hosts) for wave in waves.plan(hosts[::-1], POLICY)] == [set(wave.hosts) for wave in planned]
    assert [name for wave in planned for name in wave.hosts] != [host.name for host in hosts]
    assert waves.plan(hosts, waves.policy(soak_s=1, threshold=2)) == planned, "what was planned is not what runs"
    first = next(wave.hosts[0] for wave in planned)
    fewer = waves.plan([host for host in hosts if host.name != first], POLICY)
    assert next(name for wave in fewer for name in wave.hosts if name in planned[-1].hosts) == planned[-1].hosts[0]


@pytest.mark.parametrize("canary", ["spark-03", "pair1"])
def test_a_canary_by_name_brings_its_cluster(canary: str) -> None:
    first, *_ = waves.plan(fleet(10, 5), waves.policy(canary=canary))
    assert first.hosts == ("spark-02", "spark-03") and first.clusters == ("pair1",)


@pytest.mark.parametrize(
    ("canary", "pairs", "says"),
    [
        (1, 5, "the canary has 2 hosts and not 1: cluster pair"),
        ("10%", 5, "the canary has 2 hosts and not 1: cluster pair"),
        ("spark-03", 5, "the canary has 2 hosts and not 1: cluster pair1 serves one model and is not split"),
        ("pair1", 5, None),
        (2, 5, None),
        (1, 0, None),
        ("spark-03", 0, None),
    ],
)
def test_a_canary_that_a_cluster_widens_says_so(canary: int | str, pairs: int, says: str | None) -> None:
    policy = waves.policy(canary=canary)
    said = waves.widened(waves.plan(fleet(10, pairs), policy), policy)
    assert said is None if says is None else str(said).startswith(says), said


def test_nobody_needs_no_wave() -> None:
    assert waves.plan([], POLICY) == []


@pytest.mark.parametrize(
    ("said", "counts"),
    [
        ({"canary": "20%", "growth": ["100%"]}, [2, 8]),
        ({"canary": 3, "growth": [2]}, [3, 2, 2, 2, 1]),
        ({"canary": "1%", "growth": [1, "50%", 100]}, [1, 1, 5, 3]),
    ],
)
def test_sizes_are_hosts_or_percentages_of_all(said: dict[str, Any], counts: list[int]) -> None:
    assert sizes(fleet(10, 0), waves.policy(**said)) == counts


@pytest.mark.parametrize(
    ("said", "because"),
    [
        ({"canary": 0}, "canary: 0 is no size"),
        ({"canary": "0%"}, "canary: '0%' is no size"),
        ({"canary": ""}, "canary: '' is no size"),
        ({"canary": "nobody"}, "canary: nobody is neither a host nor a cluster"),
        ({"growth": ["0%"]}, "growth: '0%' is no size"),
        ({"growth": [True]}, "growth: True is no size"),
        ({"growth": ["half"]}, "growth: 'half' is no size"),
        ({"growth": ["101%"]}, "growth: '101%' is no size"),
        ({"threshold": "-1"}, "threshold: '-1' is neither"),
        ({"threshold": -1}, "threshold: -1 is neither"),
        ({"soak_s": -1}, "soak_s is at least 0"),
        ({"timeout_s": 0}, "soak_s is at least 0 and timeout_s at least 1"),
        ({"window": ["at night"]}, "window: 'at night': expected"),
    ],
)
def test_what_is_no_policy_is_refused(said: dict[str, Any], because: str) -> None:
    with pytest.raises(Refused, match="^" + because.replace("'", ".")):
        waves.plan(fleet(3, 0), waves.policy(**said))


def test_growth_says_something() -> None:
    with pytest.raises(Refused, match="growth: say at least one size"):
        Policy(canary=1, growth=[], threshold=0, soak_s=0, timeout_s=1)


@pytest.mark.parametrize(("threshold", "hosts", "bad"), [(0, 30, 0), (2, 30, 2), ("10%", 30, 3), ("10%", 9, 0)])
def test_a_percentage_of_bad_hosts_is_of_the_wave(threshold: int | str, hosts: int, bad: int) -> None:
    assert waves.policy(threshold=threshold).tolerated(hosts) == bad


@pytest.mark.parametrize(
    ("text", "size"), [("3", 3), ("10%", "10%"), ("spark-1", "spark-1"), (None, None), ("1234567", "1234567")]
)
def test_a_size_from_the_command_line(text: str | None, size: int | str | None) -> None:
    assert waves.size_of(text) == size


# -- windows -----------------------------------------------------------------------------------------------------------

SATURDAY = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("windows", "opens"),
    [
        ([], "2026-11-21T23:30"),
        (["22:00-06:00"], "2026-11-21T23:30"),
        (["06:00-22:00"], "2026-11-22T06:00"),
        (["Mon-Fri 00:00-24:00"], "2026-11-23T00:00"),
        (["Fri 22:00-23:31"], "2026-11-27T22:00"),
        (["Fri 23:00-23:45"], "2026-11-27T23:00"),
        (["Sat 22:00-04:00 Europe/Oslo"], "2026-11-21T23:30"),  # 00:30 there, still of Saturday's
        (["Sun 01:00-04:00 Europe/Oslo"], "2026-11-22T00:00"),
        (["Mon 01:00-02:00", "Sun 03:00-04:00"], "2026-11-22T03:00"),
        (["Sat-Sun 23:00-24:00"], "2026-11-21T23:30"),
    ],
)
def test_windows(windows: list[str], opens: str) -> None:
    assert window.opening(windows, SATURDAY).isoformat().startswith(opens)


@pytest.mark.parametrize(
    ("text", "opens"),
    [("02:10-03:00 Europe/Oslo", "2026-03-30T00:10"), ("Sun 02:30-03:10 Europe/Oslo", "2026-04-05T00:30")],
)
@pytest.mark.parametrize("now", [datetime(2026, 3, 28, 22, tzinfo=UTC), datetime(2026, 3, 29, 1, tzinfo=UTC)])
def test_a_window_that_summer_time_leaves_out_opens_the_next_time(text: str, opens: str, now: datetime) -> None:
    found = window.opening([text], now)
    assert found.isoformat().startswith(opens) and window.opening([text], found) == found


@pytest.mark.parametrize("text", ["25:00-26:00", "22:60-23:00", "Sam 22:00-23:00", "22:00-23:00 Mars/Base", "22-23"])
def test_what_is_no_window(text: str) -> None:
    with pytest.raises(ValueError, match=text.split()[0].split("-")[0]):
        window.parse(text)


def test_a_zone_has_three_parts_at_most() -> None:
    """Thousands of them exhaust the stack of what looks for its file."""
    assert str(window.parse("22:00-23:00 America/Argentina/Salta").zone) == "America/Argentina/Salta"
    with pytest.raises(ValueError, match="expected"):
        window.parse("22:00-23:00 " + "A/" * 9000 + "A")


def test_a_policy_may_change_on_the_way() -> None:
    night = waves.policy(window=["22:00-06:00"], threshold=1)
    assert waves.changed(night) == night
    assert waves.changed(night, window=["always"], timeout_s=60).window == ()
    assert waves.changed(night, threshold=0).threshold == 0 and waves.changed(night, threshold=2).window == night.window
    with pytest.raises(waves.Refused, match="soak_s"):
        waves.changed(night, soak_s=10**14)
