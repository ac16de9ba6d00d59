"""Pings: what is run, and what iputils' words mean."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import rail_ping
from ansible_collections.gb10.fleet.plugins.module_utils.fabric.rail_ping import Ping
from hypothesis import given
from hypothesis import strategies as st

PING = Ping("rail", "enp1s0f0np0", "192.168.100.10", "192.168.100.11", 8972, 3)
STATISTICS = (
    "\n--- 192.168.100.11 ping statistics ---\n{} packets transmitted, {} received{}, {}% packet loss, time 612ms\n"
)
TIMES = "rtt min/avg/max/mdev = 0.041/0.062/0.090/0.010 ms\n"


def test_command() -> None:
    assert rail_ping.argv("ping", PING) == [
        *["ping", "-n", "-M", "do", "-i", "0.2", "-W", "4", "-c", "4", "-s", "8972"],
        *["-I", "enp1s0f0np0", "-I", "192.168.100.10", "192.168.100.11"],
    ]


@pytest.mark.parametrize(
    ("answered", "good"),
    [((1, 2, 3, 4), True), ((2, 3, 4), True), ((1, 2, 4), False), ((1, 2, 3), False), ((3, 4), False), ((), False)],
)
def test_the_first_packet_may_be_lost_and_no_other(answered: tuple[int, ...], good: bool) -> None:
    lines = "".join(f"8980 bytes from 192.168.100.11: icmp_seq={number} ttl=64 time=0.062 ms\n" for number in answered)
    counts = STATISTICS.format(4, len(answered), "", 25)
    result = rail_ping.read_result(PING, lines + counts + (TIMES if answered else ""), True)
    assert (result["ok"], result["sent"], result["received"]) == (good, 4, len(answered))
    assert result["rtt_ms"] == (0.062 if answered else None)
    assert (result["fault"] is None) == good
    assert good or result["fault"]["name"] == ("loss" if answered else "timeout")


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("ping: local error: message too long, mtu=1500\n" + STATISTICS.format(4, 0, ", +4 errors", 100), "mtu"),
        ("From 10.0.0.1 icmp_seq=1 Frag needed and DF set (mtu = 1500)\n" + STATISTICS.format(4, 0, "", 100), "mtu"),
        (
            "From 10.0.0.1 icmp_seq=1 Destination Host Unreachable\n" + STATISTICS.format(4, 0, ", +4 errors", 100),
            "unreachable",
        ),
        ("ping: connect: Network is unreachable\n", "unreachable"),
        ("ping: SO_BINDTODEVICE enp1s0f0np0: No such device\n", "no_interface"),
        ("ping: bind: Cannot assign requested address\n", "no_interface"),
        (STATISTICS.format(4, 0, "", 100), "timeout"),
        (STATISTICS.format(4, 2, "", 50), "loss"),
        ("", "timeout"),
    ],
)
def test_faults_have_names(output: str, name: str) -> None:
    fault = rail_ping.read_result(PING, output, True)["fault"]
    assert fault["name"] == name
    assert fault["text"] and fault["way_out"]


def install(folder: Path, body: str) -> str:
    path = folder / "ping"
    path.write_text(f"#!{sys.executable} -SE\nimport sys, time\n{body}", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_all_pings_at_once_and_in_order(tmp_path: Path) -> None:
    executable = install(
        tmp_path, "print('4 packets transmitted, %d received' % (4 if sys.argv[-1][-1] == '1' else 0))"
    )
    pings = [Ping("x", "lo", "127.0.0.1", f"127.0.0.{number}", 56, 3) for number in range(1, 9)]
    results = rail_ping.run_pings(pings, executable)
    assert [result["ok"] for result in results] == [True] + [False] * 7
    assert [result["peer"] for result in results] == [ping.peer for ping in pings]


def test_a_hanging_ping_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rail_ping, "WAIT_S", 0.1)
    monkeypatch.setattr(rail_ping, "MARGIN_S", 0.1)
    (result,) = rail_ping.run_pings([PING], install(tmp_path, "time.sleep(60)"))
    assert result["fault"]["name"] == "timeout"
    assert "did not end" in result["fault"]["text"]


def test_missing_package() -> None:
    (result,) = rail_ping.run_pings([PING], None)
    assert (result["ok"], result["fault"]["name"]) == (False, "missing_package")


@given(st.text(max_size=300))
def test_any_output_is_readable(output: str) -> None:
    assert rail_ping.read_result(PING, output, True)["ok"] in (True, False)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"interface": "-f"}, "interface"),
        ({"interface": "a b"}, "interface"),
        ({"interface": "much-too-long-name"}, "interface"),
        ({"source": "host.example"}, "source"),
        ({"peer": "-f"}, "peer"),
        ({"size_bytes": 65508}, "size_bytes"),
        ({"count": 0}, "count"),
    ],
)
def test_bad_input_is_refused_with_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=rf"pings\[0\]\.{field}"):
        rail_ping.parse_pings([{**vars(PING), **change}])
    assert rail_ping.parse_pings([vars(PING)]) == [PING]
