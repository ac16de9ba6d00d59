"""Who keeps whose last seconds, and over which rail."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.programs.recorder import keep, send
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import flight_recorder

from tests.support.proofs import facts

KEY = "k" * 32
SAID: dict[str, Any] = {"flight_recorder_enabled": True, "flight_recorder_key": KEY, "fabric_topology": "pair"}
PAIR = ("spark-a", "spark-b")


def view(host: str = "spark-a", other: dict[str, Any] | None = None, **variables: Any) -> View:
    (peer,) = set(PAIR) - {host}
    said = SAID | variables
    return View(host, facts(host), said, PAIR, {peer: facts(peer)}, {peer: said | (other or {})})


def test_each_keeps_what_the_other_sends_over_one_rail() -> None:
    a, b = (flight_recorder.plan(view(host)).settings for host in PAIR)
    assert a["to"]["host"] == "spark-b" and b["to"]["host"] == "spark-a"
    assert a["to"]["address"] == b["listen"] and b["to"]["address"] == a["listen"]
    assert a["from"] == {b["listen"]: "spark-b"} and b["from"] == {a["listen"]: "spark-a"}
    assert a["listen"] != b["listen"] and a["to"]["port"] == a["port"] == 29590


@pytest.mark.parametrize(
    ("variables", "other", "said"),
    [
        ({"flight_recorder_key": "k" * 31}, {}, "fewer than 32 characters"),
        ({}, {"flight_recorder_key": "j" * 32}, "flight_recorder_key must be alike"),
        ({}, {"flight_recorder_enabled": False}, "flight_recorder_enabled must be alike"),
        ({"fabric_topology": "none"}, {}, "no rail of the plan joins spark-a and spark-b"),
    ],
)
def test_what_is_refused(variables: dict[str, Any], other: dict[str, Any], said: str) -> None:
    made = flight_recorder.plan(view(other=other, **variables))
    assert said in " ".join((*made.refusals, *made.joint_refusals)) and not made.records
    assert KEY not in json.dumps([*made.refusals, *made.joint_refusals])


def keys(host: str, members: tuple[str, ...], said: dict[str, Any]) -> dict[str, str]:
    """The keys that a host of a cluster gets, by what it does with each."""
    others = [member for member in members if member != host]
    of_all = {other: facts(other) for other in others}
    made = render("flight_recorder", View(host, facts(host), said, members, of_all, dict.fromkeys(others, said)))
    files = {entry["file"]: entry for entry in made.resources if entry.get("secret")}
    assert len(files) == 2
    return {what: files[place]["content"] for what, place in {"sends": send.KEY, "keeps": keep.KEY}.items()}


def test_a_host_has_the_keys_of_its_own_pairs_and_of_no_other() -> None:
    """With one of all, a third host that takes the address of a dead one wrote over its last words."""
    ring = ("spark-a", "spark-b", "spark-c")
    said = SAID | {"fabric_topology": "ring", "fabric_network": "192.168.96.0/21"}
    of = {host: keys(host, ring, said) for host in ring}
    for host, following in zip(ring, (*ring[1:], ring[0]), strict=True):
        assert of[host]["sends"] == of[following]["keeps"]
    known = [key for each in of.values() for key in each.values()]
    assert len({*known}) == 3 and all(len(key.strip()) == 64 and KEY not in key for key in known)
    pair = {host: keys(host, PAIR, SAID) for host in PAIR}
    assert pair["spark-a"]["sends"] != pair["spark-a"]["keeps"] == pair["spark-b"]["sends"]
    assert pair["spark-a"]["sends"] == of["spark-a"]["sends"], "of the names and of the cluster's key alone"
    other = keys("spark-a", PAIR, SAID | {"flight_recorder_key": "j" * 32})
    assert {*other.values()}.isdisjoint(known)


def test_a_single_spark_has_nobody() -> None:
    made = flight_recorder.plan(View("spark-a", facts(), SAID))
    assert "in no cluster" in made.refusals[0]
    assert flight_recorder.plan(View("spark-a", facts())).refusals == ()


def test_what_is_written() -> None:
    made = render("flight_recorder", view())
    files = {entry["file"]: entry for entry in made.resources if "file" in entry}
    settings = json.loads(files["/etc/gb10-fleet/recorder.json"]["content"])
    assert set(settings) == {"host", "to", "listen", "port", "from", "most_bytes", "bytes_per_s"}
    assert KEY not in json.dumps(made.resources)
    units = {entry["unit"]: entry["state"] for entry in made.resources if "unit" in entry}
    assert units == {"gb10-recorder-keep.service": "started", "gb10-recorder-send.service": "started"}
    off = render("flight_recorder", view(flight_recorder_enabled=False))
    assert {entry["state"] for entry in off.resources} == {"stopped", "absent"}
