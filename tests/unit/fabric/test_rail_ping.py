"""Pings: what is run, and what iputils' words mean."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import rail_ping
from ansible_collections.gb10.fleet.plugins.module_utils.fabric.rail_ping import Ping
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import answers
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
    assert schema.problem(result, answers.Ping, "ping") is None
    assert (result["ok"], result["sent"], result["received"]) == (good, 4, len(answered))
    assert result["rtt_ms"] == (0.062 if answered else None)
    assert (result["fault"] is None) == good
    assert good or result["fault"]["name"] == ("loss" if answered else "timeout")


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("ping: local error: message too long, mtu=1500\n" + STATISTICS.format(4, 0, ", +4 errors", 100), "mtu"),
        ("ping: sendmsg: Message too long\n" * 4 + STATISTICS.format(4, 0, ", +4 errors", 100), "mtu"),
        ("From 10.0.0.1 icmp_seq=1 Frag needed and DF set (mtu = 1500)\n" + STATISTICS.format(4, 0, "", 100), "mtu"),
        (
            "From 10.0.0.1 icmp_seq=1 Destination Host Unreachable\n" + STATISTICS.format(4, 0, ", +4 errors", 100),
            "unreachable",
        ),
        ("ping: connect: Network is unreachable\n", "no_route"),
        ("ping: connect: No route to host\n", "no_route"),  # a route that says no, as `ip route add unreachable`
        ("ping: sendmsg: No route to host\n" * 4 + STATISTICS.format(4, 0, "", 100), "unreachable"),  # ARP has failed
        ("ping: sendmsg: Network is down\n" * 4 + STATISTICS.format(4, 0, "", 100), "link_down"),
        ("ping: sendmsg: No buffer space available\n" * 4 + STATISTICS.format(4, 0, "", 100), "link_down"),
        ("From 10.0.0.1 icmp_seq=1 Time to live exceeded\n" + STATISTICS.format(4, 0, ", +4 errors", 100), "loop"),
        ("connect: Network is unreachable\n", "no_route"),
        ("ping: sendmsg: Network is unreachable\n" + STATISTICS.format(4, 0, "", 100), "no_route"),
        ("ping: SO_BINDTODEVICE enp1s0f0np0: No such device\n", "no_interface"),
        ("ping: bind: Cannot assign requested address\n", "no_interface"),
        (STATISTICS.format(4, 0, "", 100), "timeout"),
        (STATISTICS.format(4, 2, "", 50), "loss"),
        ("", "failed"),
        ("ping: sendmsg: Operation not permitted\n" + STATISTICS.format(4, 0, "", 100), "firewall"),
        ("ping: local error: Operation not permitted\n" + STATISTICS.format(4, 0, "", 100), "firewall"),
        ("ping: socket: Operation not permitted\n", "failed"),
        ("sh: 0: exec: ping: not found\n", "failed"),
    ],
)
def test_faults_have_names(output: str, name: str) -> None:
    fault = rail_ping.read_result(PING, output, True)["fault"]
    assert fault["name"] == name
    assert fault["text"] and fault["way_out"]


@pytest.mark.parametrize(
    "words",
    [
        *("Destination Port Unreachable", "Packet filtered", "Destination Host Prohibited"),
        *("Destination Net Prohibited", "Destination Protocol Unreachable"),
    ],
)
@pytest.mark.parametrize(
    ("sender", "side"),
    [(PING.peer, "the peer's"), (PING.source, "this host's"), ("10.9.9.9", "10.9.9.9, between the two hosts")],
)
def test_a_firewall_is_named_with_its_side(words: str, sender: str, side: str) -> None:
    output = f"From {sender} icmp_seq=1 {words}\n" * 4 + STATISTICS.format(4, 0, ", +4 errors", 100)
    fault = rail_ping.read_result(PING, output, True)["fault"]
    assert fault["name"] == "firewall"
    assert side in fault["text"] and words in fault["text"] and "nft list ruleset" in fault["way_out"]


def test_who_says_unreachable_decides_what_it_means() -> None:
    output = "From {} icmp_seq=1 Destination Host Unreachable\n" + STATISTICS.format(4, 0, ", +4 errors", 100)
    own = rail_ping.read_result(PING, output.format(PING.source), True)["fault"]
    assert (own["name"], "ARP" in own["text"]) == ("unreachable", True)
    # A host is not unreachable to itself: a rule of its firewall says so (reject with icmp-host-unreachable).
    peer = rail_ping.read_result(PING, output.format(PING.peer), True)["fault"]
    assert (peer["name"], "the peer's" in peer["text"]) == ("firewall", True)


def test_what_this_host_lacks_is_no_fault_of_the_peer() -> None:
    fault = rail_ping.read_result(PING, "ping: connect: Network is unreachable\n", True)["fault"]
    assert "this host" in fault["text"] and "ARP" not in fault["text"] and "--tags fabric" in fault["way_out"]
    output = "ping: sendmsg: Operation not permitted\n" * 4 + STATISTICS.format(4, 0, "", 100)
    fault = rail_ping.read_result(PING, output, True)["fault"]
    assert "this host's" in fault["text"] and "nft list ruleset" in fault["way_out"]


@pytest.mark.parametrize(
    "line",
    [
        "ping: socket: Operation not permitted",
        "ping: => missing cap_net_raw+p capability or setuid?",
        "ping: command not found",
        "/usr/bin/ping: Operation not permitted",
        "sh: 1: exec: /usr/bin/ping: Permission denied",
        "ping: invalid argument: 'x'",
    ],
)
def test_a_ping_that_could_not_run_is_quoted(line: str) -> None:
    fault = rail_ping.read_result(PING, f"something before\n{line}\n\n", True)["fault"]
    assert fault["name"] == "failed"
    assert line in fault["text"].replace('"', "'") and "reinstall" in fault["way_out"]
    assert rail_ping.read_result(PING, "PING 192.168.100.11\n", False)["fault"]["name"] == "timeout", "it did not end"


def test_an_error_of_sending_is_quoted() -> None:
    warned = "ping: Warning: source address might be selected on device other than: enp1s0f0np0\n"
    none = STATISTICS.format(4, 0, "", 100)
    fault = rail_ping.read_result(PING, f"{warned}ping: sendmsg: Cannot allocate memory\n{none}", True)["fault"]
    assert (fault["name"], "Cannot allocate memory" in fault["text"]) == ("failed", True)
    assert rail_ping.read_result(PING, warned + none, True)["fault"]["name"] == "timeout", "a warning is no error"


ANSWER = "8980 bytes from {}: icmp_seq={} ttl=64 time=0.062 ms{}\n"


@pytest.mark.parametrize(
    ("peer", "mark", "more", "name", "word"),
    [
        ("192.168.101.11", " (DIFFERENT ADDRESS!)", "", "other_address", "192.168.101.11"),
        (
            PING.peer,
            "\nwrong data byte #100 should be 0x64 but was 0x65\n#16\t10 11",
            "",
            "corrupted",
            "wrong data byte",
        ),
        (PING.peer, " (BAD CHECKSUM!)", ", +4 corrupted", "corrupted", "BAD CHECKSUM"),
        (PING.peer, " (truncated)", "", "corrupted", "truncated"),
        (PING.peer, " (DUP!)", ", +4 duplicates", "duplicates", "more than once"),
    ],
)
def test_answers_that_are_not_right_do_not_pass(peer: str, mark: str, more: str, name: str, word: str) -> None:
    clean = "".join(ANSWER.format(PING.peer, number, "") for number in range(1, 5))
    flawed = "".join(ANSWER.format(peer, number, mark) for number in range(1, 5))
    result = rail_ping.read_result(PING, clean + flawed + STATISTICS.format(4, 4, more, 0) + TIMES, True)
    assert (result["ok"], result["fault"]["name"], result["received"]) == (False, name, 4)
    assert word in result["fault"]["text"] and result["fault"]["way_out"]
    assert rail_ping.read_result(PING, clean + STATISTICS.format(4, 4, "", 0) + TIMES, True)["ok"]


def run_pings(pings: list[Ping], executable: str | None) -> list[dict[str, Any]]:
    with rail_ping.started(pings, executable) as results:
        return results()


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
    results = run_pings(pings, executable)
    assert [result["ok"] for result in results] == [True] + [False] * 7
    assert [result["peer"] for result in results] == [ping.peer for ping in pings]


def test_a_hanging_ping_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rail_ping, "WAIT_S", 0.1)
    monkeypatch.setattr(rail_ping, "MARGIN_S", 0.1)
    (result,) = run_pings([PING], install(tmp_path, "time.sleep(60)"))
    assert result["fault"]["name"] == "timeout"
    assert "did not end" in result["fault"]["text"]


def test_missing_package() -> None:
    (result,) = run_pings([PING], None)
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
