"""Who is behind each port, and which cable to move."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.fabric import neighbours
from ansible_collections.gb10.fleet.plugins.module_utils.fabric.neighbours import CallingRail, Conversation
from ansible_collections.gb10.fleet.plugins.modules import rail_neighbours
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import cabling
from hypothesis import given
from hypothesis import strategies as st

from tests.support.addressing import NAMES, cluster, make
from tests.support.attacker import tally
from tests.support.plays import ROOT

End = tuple[str, str]


def planned(fabric: dict[str, Any]) -> dict[str, Any]:
    return {host: own["profiles"] for host, own in fabric["hosts"].items()}


def wired(*cables: tuple[End, End]) -> dict[str, list[dict[str, str]]]:
    """Who hears whom with these cables; both functions of a port hear both at the other end."""
    heard: dict[str, list[dict[str, str]]] = {}
    for one, other in [pair for cable in cables for pair in (cable, cable[::-1])]:
        for (netdev, _), (there, _) in itertools.product(NAMES[one[1]], NAMES[other[1]]):
            names = {"netdev": netdev, "port": one[1], "there_netdev": there, "there_port": other[1]}
            heard.setdefault(one[0], []).append({**names, "host": other[0]})
    return heard


A0, A1, B0, B1, C0, C1 = itertools.product(("spark-0", "spark-1", "spark-2"), ("p0", "p1"))


def within(end: End, there: End, target: End) -> str:
    move = f"at {there[0]}, move that end of the cable from {there[1]} to {target[1]}"
    return f"{' '.join(end)}: the cable leads to {' '.join(there)}, and should lead to {' '.join(target)}; {move}"


def across(end: End, there: End, target: End) -> str:
    move = f"pull that cable out of {' '.join(there)} and put it into {' '.join(target)}"
    return f"{' '.join(end)}: the cable leads to {' '.join(there)}, and should lead to {' '.join(target)}; {move}"


@pytest.mark.parametrize(
    ("fabric", "cables", "says"),
    [
        (make("pair", 2), [(A0, B0)], []),
        (make("pair", 2), [], []),
        (make("pair", 2, ports=["p0", "p1"]), [(A0, B0), (A1, B1)], []),
        (make("pair", 2, ports=["p0", "p1"]), [(A0, B1), (A1, B0)], [within(A0, B1, B0), within(A1, B0, B1)]),
        (make("ring", 3), [(A1, B0), (B1, C0), (C1, A0)], []),
        (
            make("ring", 3),
            [(A1, C0), (B1, A0), (C1, B0)],
            [across(A1, C0, B0), across(B1, A0, C0), across(C1, B0, A0)],
        ),
        # at one host the two cables are exchanged
        (make("ring", 3), [(A1, B1), (B0, C0), (C1, A0)], [within(A1, B1, B0), across(B0, C0, A1)]),
        # the far ends of two cables that meet at one host are exchanged: one of them comes back to it
        (make("ring", 3), [(A1, C0), (B1, B0), (C1, A0)], [across(A1, C0, B0), across(B1, B0, C0)]),
        (make("switch", 3), [(A0, B0), (B0, C0), (A0, C0)], []),
        (make("switch", 3, ports=["p0", "p1"]), list(itertools.combinations((A0, B0, C0, A1, B1, C1), 2)), []),
    ],
)
def test_each_cable_that_leads_elsewhere_is_named_once(
    fabric: dict[str, Any], cables: list[tuple[End, End]], says: list[str]
) -> None:
    assert cabling.wrong(cabling.judge(planned(fabric), wired(*cables))) == says


@pytest.mark.parametrize("there", [("spark-x", "p1"), A1], ids=["of another cluster", "which hears its partner"])
def test_no_host_has_a_cable_pulled_at_another_one(there: End) -> None:
    """Before, its word alone sent a person to a Spark of another cluster."""
    heard = wired((A1, B0), (B1, C0), (C1, A0))
    for entry in heard["spark-2"]:
        if entry["port"] == "p0":
            entry["host"], entry["there_port"] = there
    (said,) = cabling.wrong(cabling.judge(planned(make("ring", 3)), heard))
    tally("a host has the cable of another one pulled", 1, int(f"out of {there[0]}" in said or said[:8] == there[0]))
    place = " ".join(there)
    assert said == (
        f"spark-2 p0: the cable leads to {place}, as spark-2 alone says, and should lead to spark-1 p1;"
        " follow the cable from spark-2 p0, and put its other end into spark-1 p1"
    )


def test_a_port_behind_which_nobody_was_heard_is_no_wrong_cable() -> None:
    statements = cabling.judge(planned(make("ring", 3)), wired((A1, B0), (C1, A0)))
    silent = [(item["host"], item["port"]) for item in statements if item["verdict"] == cabling.SILENT]
    assert silent == [B1, C0]
    assert statements[0]["text"] == "leads to spark-1 p0, as planned"


@given(st.permutations([A0, A1, B0, B1, C0, C1]))
def test_any_wiring_is_judged_and_a_right_end_never_moves(ends: list[End]) -> None:
    fabric = make("ring", 3)
    cables = list(zip(ends[::2], ends[1::2], strict=True))
    statements = cabling.judge(planned(fabric), wired(*cables))
    right = {frozenset(pair) for pair in ((A1, B0), (B1, C0), (C1, A0))}
    wrong = [item for item in statements if item["verdict"] == cabling.WRONG_CABLE]
    assert len(wrong) == len({frozenset(cable) for cable in cables} - right)


def test_calls_expect_the_peers_of_the_plan() -> None:
    assert cabling.calls(cluster("ring", 3).hosts["spark-0"])[2] == {
        "netdev": "enp1s0f1np1",
        "port": "p1",
        "expect": ["spark-1"],
    }


def test_the_example_has_a_token_that_is_the_same_on_all_hosts() -> None:
    [example] = yaml.safe_load(rail_neighbours.EXAMPLES)
    [ours] = yaml.safe_load((ROOT / "roles/fabric/tasks/cabling.yml").read_text())
    assert example["gb10.fleet.rail_neighbours"]["token"] == ours["gb10.fleet.rail_neighbours"]["token"]


# ---------------------------------------------------------------------------------------------------- the conversation

RAIL = CallingRail("enp1s0f0np0", "p0", ["spark-b"])


def talk(**more: Any) -> Conversation:
    return Conversation("token", "spark-a", [RAIL], until=20.0, **more)


def from_b(**more: Any) -> bytes:
    said = {"token": "token", "host": "spark-b", "netdev": "enp1s0f0np0", "port": "p0", **more}
    return neighbours.MAGIC + json.dumps(said).encode()


def test_a_call_is_heard_by_another_host_and_not_by_oneself() -> None:
    here, there = talk(), Conversation("token", "spark-b", [RAIL], until=20.0)
    there.listen(RAIL, here.call(RAIL) + b"\0" * 20, 1.0)
    here.listen(RAIL, here.call(RAIL), 1.0)
    assert [entry["host"] for entry in there.result] == ["spark-a"]
    assert here.result == []


def test_a_cable_that_comes_back_to_the_same_host_is_heard() -> None:
    conversation = talk()
    conversation.listen(RAIL, from_b(host="spark-a", netdev="enP2p1s0f0np0"), 1.0)
    assert conversation.result == [], "a twin hears the other one through the port that they share"
    conversation.listen(RAIL, from_b(host="spark-a", netdev="enp1s0f1np1", port="p1"), 1.0)
    assert [(entry["host"], entry["there_port"]) for entry in conversation.result] == [("spark-a", "p1")]


def test_both_ports_of_a_host_on_one_switch_are_no_wrong_cable() -> None:
    fabric = make("switch", 2, ports=["p0", "p1"])
    assert cabling.wrong(cabling.judge(planned(fabric), wired((A0, A1), (B0, B1)))) == []


def test_it_ends_a_little_after_the_last_expected_one_was_heard() -> None:
    conversation = talk()
    assert not conversation.over(19.9) and conversation.over(20.0)
    conversation.listen(RAIL, from_b(), 5.0)
    conversation.listen(RAIL, from_b(), 6.0)
    assert not conversation.over(5.0 + neighbours.LINGER_S - 0.1)
    assert conversation.over(5.0 + neighbours.LINGER_S)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"hello",
        neighbours.MAGIC,
        neighbours.MAGIC + b"[]",
        neighbours.MAGIC + b"[" * 1000,
        from_b(**{"token": "of another run"}),
        from_b(host=7),
        from_b(host=""),
        from_b(port="p0\x1b[2J"),
        from_b(host="x" * 2000),
    ],
)
def test_what_is_no_call_of_this_run_is_no_news(payload: bytes) -> None:
    conversation = talk()
    conversation.listen(RAIL, payload, 1.0)
    assert conversation.result == []


@given(st.binary(max_size=200))
def test_nothing_that_arrives_ends_the_conversation(noise: bytes) -> None:
    conversation = talk()
    conversation.listen(RAIL, neighbours.MAGIC + noise, 1.0)
    conversation.listen(RAIL, noise, 1.0)


def test_a_bad_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rails\[0\].netdev 'a b' is no name"):
        neighbours.parse_rails([{"netdev": "a b", "port": "p0", "expect": []}])


def test_a_host_that_calls_by_thousands_of_names_is_heard_up_to_a_bound_and_at_its_own_rail_alone() -> None:
    """Its neighbour's answer grew with each name, until the controller took none of it."""
    near, far = (CallingRail(netdev, netdev, ["-"]) for netdev in ("p0", "p1"))
    talk = Conversation("t", "spark-0", [near, far], until=10.0)
    for number in range(3 * neighbours.MOST_HEARD):
        said = {"token": "t", "host": f"h{number}", "netdev": "n", "port": "p0"}
        talk.listen(near, neighbours.MAGIC + json.dumps(said).encode(), 1.0)
    talk.listen(far, neighbours.MAGIC + json.dumps({**said, "host": "spark-1"}).encode(), 1.0)
    won = len(talk.result) > neighbours.MOST_HEARD + 1
    tally("a host calls by thousands of names, and its neighbour's answer grows", 1, int(won))
    assert not won and talk.result[-1]["host"] == "spark-1"
