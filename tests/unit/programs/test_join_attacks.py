"""Any user of a member can connect from its address: what he says at the join port costs the cluster nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit import link, seal
from ansible_collections.gb10.fleet.plugins.module_utils.programs.vllm_unit.config import Join, Member, Timing, sha256
from hypothesis import given
from hypothesis import strategies as st

from tests.support.attacker import TRIES, tally
from tests.support.vllm_unit import (
    QUICK,
    SECRET,
    SLOW_S,
    Host,
    Speaker,
    hello_of,
    hosts,
    hung_up,
    knock,
    wait_until,
)

__all__ = ["hosts"]  # the fixture
SEEN = b"f" * 64  # a checksum of another connection


def lines_of(host: Host) -> list[bytes]:
    """What a user of a member may try who knows all of this program, and not the secret."""
    hello = hello_of(host)
    says = [hello, hello | {"hello": "gb10-vllm 1"}, {"bye": "x"}, {"served": True}, {"ready": 1}]
    texts = [json.dumps(each).encode() for each in says]
    opening = seal.Seal(b"", True).opening
    other = seal.Seal(SECRET[::-1], True)
    other.meet(seal.Seal(b"", False).opening.rstrip())
    return [
        *(text + b"\n" for text in texts),
        *(opening + text + b"\n" for text in texts),
        *(opening + SEEN + b" " + text + b"\n" for text in texts),
        *(opening + other.seal(each) for each in says),
        opening * 2,
        opening,
    ]


def test_no_line_without_the_secret_ends_a_model_that_serves(hosts: Callable[..., list[Host]]) -> None:
    """One such line once did: "it has begun anew". Three an hour, and systemd gave up."""
    pair = hosts(2, timing=QUICK | {"silence": 2 * SLOW_S})
    for host in pair:
        host.start()
    for host in pair:
        host.reaches("ready")
    lines = lines_of(pair[0])
    for number in range(TRIES):
        knock(pair[0], lines[number % len(lines)]).close()
    assert hung_up(knock(pair[0], b"{}\n")), "all of them were heard"
    tally("a line on the join port without the secret", TRIES, sum(host.status["failures"] for host in pair))
    assert [host.status["phase"] for host in pair] == ["ready", "ready"]
    assert [host.status["failures"] for host in pair] == [0, 0]


def test_seats_that_strangers_hold_keep_no_member_out(hosts: Callable[..., list[Host]]) -> None:
    head, mate = hosts(2, timing=QUICK | {"greeting": SLOW_S, "silence": 2 * SLOW_S})
    head.start()
    wait_until(lambda: head.life and head.life.link and head.life.link.listener)
    held, over = [knock(head, b"") for _ in range(100)], threading.Event()

    def come_back() -> None:
        while not over.wait(0.01):
            held.append(knock(head, b""))

    others = threading.Thread(target=come_back)
    others.start()
    try:
        mate.start().reaches("ready")
        head.reaches("ready")
    finally:
        over.set()
        others.join()
        for connection in held:
            connection.close()


def test_a_member_with_another_secret_is_missing_and_one_sees_why(hosts: Callable[..., list[Host]]) -> None:
    head, mate = hosts(2)
    (mate.root / "join.key").write_bytes(SECRET[::-1])
    head.start()
    mate.start().waits_for("waiting_for_peers", "waiting for spark-a")
    head.waits_for("waiting_for_peers", "spark-b (what calls from there does not know the cluster's secret)")
    assert head.runs() == mate.runs() == 0
    mate.stop()
    (mate.root / "join.key").write_bytes(SECRET)
    mate.start().reaches("ready")


@pytest.mark.parametrize("text", [None, b"", b"short"])
def test_a_host_without_the_secret_says_so(hosts: Callable[..., list[Host]], text: bytes | None) -> None:
    head, _ = hosts(2)
    (head.root / "join.key").unlink()
    if text is not None:
        (head.root / "join.key").write_bytes(text)
    head.start()
    assert head.verdict() == "bad_settings" and "join.key" in head.status["failure"]["text"]


def test_what_a_member_may_not_say_is_refused_from_a_member_too(hosts: Callable[..., list[Host]]) -> None:
    head, _ = hosts(2)
    head.start()
    wait_until(lambda: head.life and head.life.link and head.life.link.listener)
    hello = hello_of(head)
    for wrong in ({"rank": "1"}, {"rank": True}, {"rank": 0}, {"rank": 2}, {"settings": []}, {"hello": "gb10-vllm 1"}):
        speaker = Speaker(knock(head, b""))
        speaker.say(hello | wrong)
        assert hung_up(speaker.connection), wrong
    head.reaches("waiting")  # and has not failed


def test_a_stranger_at_the_heads_port_starts_nothing(hosts: Callable[..., list[Host]]) -> None:
    """A user of the head's host took the port first; he can repeat what he hears, and no more."""
    _, mate = hosts(2)
    with socket.create_server(("127.0.0.11", mate.raw["join"]["port"])) as stranger:
        stranger.settimeout(SLOW_S)
        mate.start()
        for said in ({"go": 1}, {"prepare": 1}, {"missing": []}):
            with Speaker(stranger.accept()[0], calls=False, secret=b"guessed" * 9) as speaker:
                heard = speaker.lines.readline()
                speaker.connection.sendall(heard)
                speaker.say(said)
                assert hung_up(speaker.connection)
    assert mate.stop() == 0 and mate.runs() == 0


def test_who_takes_the_heads_port_learns_no_setting(hosts: Callable[..., list[Host]]) -> None:
    """A caller says its settings before the listener has proven anything: a plain digest tells who tries values."""
    _, mate = hosts(2)
    plain = {sha256(json.dumps(value)) for value in mate.raw["join"]["settings"].values()}
    with socket.create_server(("127.0.0.11", mate.raw["join"]["port"])) as stranger:
        stranger.settimeout(SLOW_S)
        mate.start()
        with Speaker(stranger.accept()[0], calls=False, secret=b"guessed" * 9) as speaker:
            heard = speaker.lines.readline().decode()
    learned = [digest for digest in plain if digest in heard]
    tally("a listener learns settings", 1, int(bool(learned)))
    assert '"settings"' in heard and not learned


def test_a_head_that_does_not_stop_talking_fills_no_memory(tmp_path: Path) -> None:
    """Root on the first host may end the model of its cluster, and not the hosts of its peers."""
    posted: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as head:
        head.settimeout(SLOW_S)
        join = Join(1, (Member("a", "127.0.0.1"), Member("b", "127.0.0.1")), head.getsockname()[1], "", {})
        peer = link.Link(join, SECRET, Timing(*[SLOW_S] * len(Timing._fields))._replace(retry=0.1), posted.append)
        peer.start()
        with Speaker(head.accept()[0], calls=False) as speaker:
            speaker.say(*({"prepare": number} for number in range(2000)))
            assert hung_up(speaker.connection)
    peer.close("")
    tally("a member floods the unit of a peer", 2000, max(0, len(posted) - 2 * link.MOST_MESSAGES))
    assert len(posted) <= 2 * link.MOST_MESSAGES


# --- the seal


def pair_of(secret: bytes = SECRET) -> tuple[seal.Seal, seal.Seal]:
    caller, called = seal.Seal(secret, True), seal.Seal(SECRET, False)
    assert caller.meet(called.opening.rstrip()) and called.meet(caller.opening.rstrip())
    return caller, called


def test_a_line_counts_once_in_its_place_and_its_direction() -> None:
    caller, called = pair_of()
    first, second = caller.seal({"n": 1}).rstrip(), caller.seal({"n": 2}).rstrip()
    assert called.open(first) == {"n": 1} and called.open(second) == {"n": 2}
    assert called.open(second) is None, "repeated"
    caller, called = pair_of()
    first, second = caller.seal({"n": 1}).rstrip(), caller.seal({"n": 2}).rstrip()
    assert called.open(second) is None, "out of turn"
    caller, called = pair_of()
    assert caller.open(caller.seal({"n": 1}).rstrip()) is None, "back at its speaker"
    other, _ = pair_of()
    assert called.open(other.seal({"n": 1}).rstrip()) is None, "of another connection"
    stranger, called = pair_of(SECRET[::-1])
    assert called.open(stranger.seal({"n": 1}).rstrip()) is None


def test_before_they_met_nothing_counts() -> None:
    one, caller = seal.Seal(SECRET, False), seal.Seal(SECRET, True)
    assert caller.meet(seal.Seal(SECRET, False).opening.rstrip())
    assert one.open(caller.seal({"n": 1}).rstrip()) is None
    for opening in (b"", b"gb10-vllm 1 " + b"0" * 32, b"gb10-vllm 2 " + b"0" * 31, one.opening):
        assert not one.meet(opening)


@given(st.binary(max_size=200))
def test_no_bytes_are_a_message_without_the_secret(line: bytes) -> None:
    assert pair_of()[1].open(line) is None
