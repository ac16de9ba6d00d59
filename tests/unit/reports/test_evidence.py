"""Evidence: verdicts of a fleet out of what was measured, the document's schema, files, and the page as text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jinja2
import jsonschema
import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.system.texts import document_in
from ansible_collections.gb10.fleet.plugins.plugin_utils.doctor.findings import refused
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import schema
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import answers
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import (
    evidence_files,
    evidence_page,
    judge,
    metrics,
    picture,
    since,
)

from gb10_fleet.rollout import gate
from tests.support.attacker import tally
from tests.support.evidence import SCHEMA
from tests.support.proofs import ACCEPTED, EMBED, HOSTS, NOW, SERVING, WARNING, documents, proof, services, thresholds

DOCUMENTS = documents()


def build(hosts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return judge.build(hosts, {"gb10_fleet": "0.1.0"}, thresholds(), NOW)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_keep_the_schema_and_survive_json(name: str) -> None:
    document = json.loads(json.dumps(DOCUMENTS[name]))
    jsonschema.validate(document, SCHEMA)
    assert json.dumps(document) == json.dumps(DOCUMENTS[name])


def test_a_fleet_where_all_is_well_is_healthy() -> None:
    for topology in HOSTS:
        document = build(proof(topology))
        assert (document["verdict"], document["reasons"]) == ("healthy", [])


@pytest.mark.parametrize(("topology", "count"), [("none", 0), ("pair", 1), ("ring", 3), ("switch", 28)])
def test_every_pairing_is_judged_once_from_both_of_its_ends(topology: str, count: int) -> None:
    cluster = build(proof(topology))["clusters"][0]
    assert len(cluster["pairings"]) == count
    for pairing in cluster["pairings"]:
        assert pairing["verdict"] == "healthy"
        assert [rail["gbps"] for rail in pairing["figures"]["rails"]] == [98.02, 98.02]
        assert pairing["figures"]["gbps"] == pytest.approx(196.04)


def test_no_host_speaks_of_a_rail_of_others() -> None:
    """By the name of their test one host gave the figure of two others, and a cable was to be moved that is sound."""
    hosts = proof("ring")
    names = sorted(hosts)
    fault = {"name": "no_link", "text": "x", "way_out": "pull that cable"}
    theirs = [test for test in hosts[names[0]]["bandwidth"] if names[2] not in test["name"]]
    for test in theirs:
        for end in ("server", "client"):
            forged = {**test, "end": end, "state": "failed", "fault": fault, "figures": None, "host": names[0]}
            hosts[names[2]]["bandwidth"].append(forged)
    assert theirs and build(hosts)["verdict"] == "healthy"
    tally("a host speaks of a rail of others", 2 * len(theirs), 0)


def test_a_host_that_says_much_takes_no_proof_of_others(tmp_path: Path) -> None:
    """A text of 11 MiB made 55 MiB of evidence, which nobody reads again: no host of a wave was proven, or served."""
    sound = {name: {**proof("none")["spark-a"], "cluster": name} for name in ("spark-b", "spark-c")}
    loud = {**proof("none")["spark-a"], "cluster": "spark-a", "serving": {**SERVING, "text": "<" * 11 * 2**20}}
    document = build({"spark-a": loud, **sound})
    written = evidence_files.write(document, tmp_path)
    assert sum(file.stat().st_size for file in written.iterdir()) < 2**20
    judged = gate.proof(document["hosts"], document_in(written / evidence_files.DOCUMENT))
    assert list(judged) == ["spark-a"] and "proof_too_large" in str(judged["spark-a"][1])
    tally("a host that takes the proof of all others", 1, len(judged) - 1)


@pytest.mark.parametrize(
    ("kind", "wrong", "says"),
    [
        (answers.Heard, {"host": "spark-b; reboot"}, "answer.host is 'spark-b; reboot'"),
        (answers.Measured, {"end": "both"}, "answer.end is 'both'"),
        (answers.Proof, {"remark": {"x": "y"}}, "answer.remark.verdict is missing"),
    ],
)
def test_what_the_page_would_end_with_is_refused_on_arrival(kind: Any, wrong: dict[str, Any], says: str) -> None:
    """The page is of all hosts: one answer without a key in it ended the evidence of the others."""
    assert says in str(schema.unsound(wrong, kind, "answer"))


def test_a_ping_that_failed_for_no_reason_is_one_that_failed() -> None:
    hosts = proof("pair")
    hosts["spark-b"]["pings"][0].update(ok=False, fault=None)
    (reason,) = build(hosts)["reasons"]
    assert reason["what"] == "ping_failed" and "does not say why" in reason["text"]


def test_a_degraded_rail_makes_the_fleet_unhealthy_and_is_named() -> None:
    document = build(proof("pair", {"spark-b": 13.23}))
    assert document["verdict"] == "unhealthy"
    [reason] = document["reasons"]
    assert (reason["where"], reason["what"]) == ("spark-a p0 to spark-b p0", "degraded_cx7")
    assert "13.2 Gb/s" in reason["text"] and "power" in reason["way_out"]


@pytest.mark.parametrize(("topology", "verdict"), [("pair", "below_expected"), ("switch", "degraded_cx7")])
def test_six_gigabits_mean_a_degraded_adapter_where_the_plan_has_a_switch(topology: str, verdict: str) -> None:
    document = build(proof(topology, dict.fromkeys(HOSTS[topology], 6.2)))
    assert {reason["what"] for reason in document["reasons"]} == {verdict}


def test_the_hosts_own_thresholds_count() -> None:
    slow = proof("pair", {"spark-b": 0.34})
    assert build(slow)["verdict"] == "unhealthy"
    for host in slow.values():
        host["thresholds"] = {"port_min_gbps": 0.1, "rail_min_gbps": 0.05}
    assert build(slow)["verdict"] == "healthy"


def test_a_threshold_that_does_not_exist_is_a_reason_and_loses_no_evidence() -> None:
    hosts = proof("pair")
    hosts["spark-a"]["thresholds"] = {"port_min_gpbs": 5}
    document = build(hosts)
    [reason] = document["reasons"]
    assert (reason["what"], document["clusters"][0]["pairings"][0]["verdict"]) == ("bad_variable", "healthy")
    assert "did you mean port_min_gbps" in reason["text"] and "fabric_thresholds" in reason["way_out"]


def test_a_fault_at_either_end_is_a_fault_of_the_rail() -> None:
    hosts = proof("pair")
    fault = {"name": "timeout", "text": "the test did not end in time", "way_out": "check the peer"}
    hosts["spark-b"]["bandwidth"][0].update(state="failed", figures=None, fault=fault)
    [reason] = build(hosts)["reasons"]
    assert 'spark-b says "the test did not end in time"; spark-a has no fault' in reason["text"]
    died = {**fault, "name": "peer_died", "text": "the other end went away"}
    hosts["spark-a"]["bandwidth"][0].update(state="failed", figures=None, fault=died)
    [reason] = build(hosts)["reasons"]
    ends = ['spark-a says "the other end went away"', 'spark-b says "the test did not end in time"']
    assert all(end in reason["text"] for end in ends), "both are told, for neither knows the cause"
    hosts["spark-a"]["bandwidth"][0]["fault"] = {**fault, "name": "died", "text": "killed by signal 9"}
    [reason] = build(hosts)["reasons"]
    assert 'spark-a says "killed by signal 9"' in reason["text"] and "spark-b says" not in reason["text"]


def test_an_end_of_a_rail_puts_no_words_into_the_mouth_of_the_other_one() -> None:
    """`ended; spark-b: pull the cable out of spark-b` read as if spark-b had said it."""
    hosts = proof("pair")
    forged = {"name": "peer_died", "text": 'ended"; spark-b says "wrong cable, pull it out', "way_out": ""}
    for host, fault in (("spark-a", forged), ("spark-b", {**forged, "text": "the peer ended"})):
        hosts[host]["bandwidth"][0].update(state="failed", figures=None, fault=fault)
    [reason] = build(hosts)["reasons"]
    quoted = [part for number, part in enumerate(reason["text"].split('"')) if number % 2]
    tally("an end of a rail speaks for the other one", 1, int("the peer ended" not in quoted or len(quoted) != 2))
    assert sorted(quoted) == ["ended'; spark-b says 'wrong cable, pull it out", "the peer ended"]


def test_different_versions_of_perftest_explain_a_lost_peer() -> None:
    hosts = proof("pair")
    fault = {"name": "peer_died", "text": "the other end went away", "way_out": "see the peer"}
    for host, version in (("spark-a", "6.20"), ("spark-b", "6.24")):
        hosts[host]["bandwidth"][0].update(state="failed", figures=None, fault=fault, perftest=version)
    [reason] = build(hosts)["reasons"]
    assert "version_mismatch" in reason["text"] and "6.20 and 6.24" in reason["text"]


def test_twins_in_one_subnet_are_noticed() -> None:
    hosts = proof("pair")
    hosts["spark-a"]["gids"]["ports"][1]["addresses"].append("192.168.100.77")
    [pairing] = build(hosts)["clusters"][0]["pairings"]
    assert (pairing["verdict"], pairing["severity"]) == ("shared_subnet", "warn")
    hosts = proof("pair")
    hosts["spark-b"]["gids"]["ports"][1]["addresses"].append("192.168.100.77")
    [pairing] = build(hosts)["clusters"][0]["pairings"]
    assert pairing["text"].startswith("spark-b: enp1s0f0np0 + enP2p1s0f0np0 share the subnet 192.168.100.0/24")


def test_the_address_of_a_vlan_on_a_rail_is_foreign_and_the_rail_stays_measured() -> None:
    hosts = proof("pair")
    hosts["spark-b"]["gids"]["ports"][0]["addresses"].insert(0, "10.0.0.1")  # enp1s0f0np0.100, first in the table
    document = build(hosts)
    [reason] = document["reasons"]
    assert (reason["where"], reason["what"]) == ("spark-b enp1s0f0np0", "foreign_address")
    assert "also has 10.0.0.1; planned is 192.168.100." in reason["text"]
    [pairing] = document["clusters"][0]["pairings"]
    assert pairing["verdict"] == "healthy"


def test_twins_in_two_small_subnets_share_none() -> None:
    hosts = proof("pair")
    for last, port in zip((1, 5), hosts["spark-b"]["gids"]["ports"], strict=True):
        port["addresses"] = [f"192.168.100.{last}"]
        port["subnets"] = [f"192.168.100.{last - 1}/30"]
    [pairing] = build(hosts)["clusters"][0]["pairings"]
    assert pairing["verdict"] == "healthy"
    for port in hosts["spark-b"]["gids"]["ports"]:
        port["subnets"] = ["192.168.100.0/29"]
    [pairing] = build(hosts)["clusters"][0]["pairings"]
    assert "share the subnet 192.168.100.0/29" in pairing["text"]


def test_a_rail_that_links_at_100_gigabits_is_told_with_its_host() -> None:
    hosts = proof("pair", {"spark-b": 49.0})
    hosts["spark-b"]["gids"]["ports"][0]["speed_mbps"] = 100000
    [pairing] = build(hosts)["clusters"][0]["pairings"]
    assert (pairing["verdict"], pairing["severity"]) == ("slow_link", "warn")
    assert "linked below 200 Gb/s: spark-b enp1s0f0np0 at 100 Gb/s;" in pairing["text"]


def test_errors_that_rise_while_a_rail_is_measured_are_a_warning_with_both_readings() -> None:
    # The names are mlx5's (drivers/infiniband/hw/mlx5/counters.c); the readings are made up.
    hosts = proof("pair")
    hosts["spark-b"]["bandwidth"][0]["counters"] = {"out_of_sequence": [4, 129], "np_cnp_sent": [0, 7]}
    hosts["spark-a"]["bandwidth"][0]["counters"] = {"packet_seq_err": [31, 31]}
    document = build(hosts)
    assert document["verdict"] == "healthy"
    (risen,) = document["hosts"]["spark-b"]["findings"]
    device = hosts["spark-b"]["bandwidth"][0]["device"]
    assert (risen["id"], risen["severity"], risen["host"]) == ("rail_errors", "warn", "spark-b")
    assert risen["fact"] == (
        f"the error counters of {device} rose while it was measured: out_of_sequence from 4 to 129"
    )
    assert "cable" in risen["way_out"]
    (stood,) = document["hosts"]["spark-a"]["findings"]
    assert stood["severity"] == "info" and "packet_seq_err 31" in stood["fact"]


def test_several_rounds_of_a_rail_are_one_reading() -> None:
    hosts = proof("pair")
    first = hosts["spark-b"]["bandwidth"][0]
    first["counters"] = {"local_ack_timeout_err": [0, 2]}
    hosts["spark-b"]["bandwidth"].append({**first, "name": "by hand", "counters": {"local_ack_timeout_err": [2, 5]}})
    (risen,) = build(hosts)["hosts"]["spark-b"]["findings"]
    assert "local_ack_timeout_err from 0 to 5" in risen["fact"]


def test_a_narrow_link_is_told_with_the_host_that_has_it() -> None:
    hosts = proof("pair")
    hosts["spark-b"]["gids"]["ports"][0]["pcie_width"] = 2
    [pairing] = build(hosts)["clusters"][0]["pairings"]
    assert "narrower than x4: spark-b enp1s0f0np0 x2;" in pairing["text"]


def test_a_port_of_which_one_rail_was_measured_is_not_healthy() -> None:
    hosts = proof("pair")
    for host in hosts.values():
        host["bandwidth"] = host["bandwidth"][:1]
    [reason] = build(hosts)["reasons"]
    assert (reason["where"], reason["what"]) == ("spark-a p0 to spark-b p0", "half_width")


def test_a_failed_ping_a_wrong_model_and_a_finding_are_reasons() -> None:
    hosts = proof("pair")
    fault = {"name": "mtu", "text": "message too long", "way_out": "set MTU 9000 on both ends"}
    hosts["spark-b"]["pings"][0].update(ok=False, fault=fault)
    hosts["spark-a"]["serving"].update(verdict="wrong_model", text="the server has x", way_out="compare")
    hosts["spark-b"]["findings"] = [WARNING, ACCEPTED, {**ACCEPTED, "accepted": None}]
    document = build(hosts)
    assert document["verdict"] == "unhealthy"
    assert [reason["what"] for reason in document["reasons"]] == ["disk_full", "ping_mtu", "wrong_model"]
    assert "enp1s0f0np0" in document["reasons"][1]["where"]


def test_what_roles_refuse_stands_alone_and_each_text_is_on_the_page() -> None:
    hosts = proof("pair")
    texts = {"spark-a": ("docker is old", "set docker_version"), "spark-b": ("docker is held", "free it")}
    for host, (fact, fix) in texts.items():
        hosts[host]["findings"] = [refused(host, "docker", f"{fact}. {fix.capitalize()}").as_dict()]
    document = build(hosts)
    jsonschema.validate(document, SCHEMA)
    said = evidence_files.summary(document).splitlines()[1:]
    lines = ((f"{host}: docker_refused: {fact}", f"    Fix: {fix}") for host, (fact, fix) in texts.items())
    assert said == [line for both in lines for line in both]
    page = evidence_page.render(document)
    assert all(text in page for both in texts.values() for text in both) and "→ </span>" not in page


def test_each_service_has_a_verdict_of_its_own() -> None:
    hosts = proof("pair")
    one = hosts["spark-a"]["serving"]
    embed = one | {"service": "embed", "api": one["api"] | {"host": "spark-b"}}
    hosts["spark-a"]["services"] = [one | {"service": "chat"}]
    hosts["spark-b"]["services"] = [embed]
    assert build(hosts)["verdict"] == "healthy"
    hosts["spark-b"]["services"] = [embed | {"verdict": "garbage", "text": "no vectors", "way_out": "compare"}]
    document = build(hosts)
    assert [(each["where"], each["what"]) for each in document["reasons"]] == [("embed on spark-b", "garbage")]
    (cluster,) = document["clusters"]
    assert [each["service"] for each in cluster["services"]] == ["chat", "embed"]
    assert cluster["serving"] == cluster["services"][0]


def test_a_service_that_stands_still_by_a_wish_is_not_asked() -> None:
    hosts = proof("pair")
    hosts["spark-a"].update(serving=None)
    for host in hosts.values():
        host["facts"] = {**host["facts"], "wishes": [{"unit": "gb10-extra.service"}]}
    assert build(hosts)["verdict"] == "incomplete"
    for host in hosts.values():
        host["facts"]["wishes"] = [{"unit": "gb10-vllm.service"}]
    assert build(hosts)["verdict"] == "healthy"


def test_a_wish_for_one_service_does_not_excuse_another() -> None:
    hosts = proof("pair")
    one = hosts["spark-a"].pop("serving")
    units = {"chat": "gb10-vllm-chat.service", "embed": "gb10-vllm-embed.service"}
    hosts["spark-a"].update(serving=None, units=units)
    hosts["spark-a"]["facts"] |= {"wishes": [{"unit": "gb10-vllm-chat.service"}]}
    hosts["spark-b"].update(units={})
    document = build(hosts)
    assert [(each["where"], each["text"]) for each in document["reasons"]] == [
        ("embed on spark-a", "no model was asked")
    ]
    hosts["spark-a"]["services"] = [one | {"service": "embed"}]
    assert build(hosts)["verdict"] == "healthy"
    hosts["spark-a"]["facts"]["wishes"] = []
    assert [each["where"] for each in build(hosts)["reasons"]] == ["chat on spark-a"]


def test_what_was_not_measured_is_incomplete_not_healthy() -> None:
    hosts = proof("pair")
    hosts["spark-a"].update(serving=None)
    assert [reason["text"] for reason in build(hosts)["reasons"]] == ["no model was asked"]
    assert build({name: {**host, "serves": False} for name, host in hosts.items()})["verdict"] == "healthy"
    for host in hosts.values():
        host.update(bandwidth=[], pings=[])
    document = build(hosts)
    assert document["verdict"] == "incomplete"
    assert len(document["reasons"]) == 4
    assert build({})["verdict"] == "incomplete"


def test_the_worst_cluster_speaks_for_the_fleet() -> None:
    bad = {f"other-{name}": {**host, "cluster": "other"} for name, host in proof("none").items()}
    bad["other-spark-a"]["serving"]["verdict"] = "garbage"
    document = build({**proof("pair"), **bad})
    assert [cluster["verdict"] for cluster in document["clusters"]] == ["healthy", "unhealthy"]
    assert document["verdict"] == "unhealthy"


def test_what_ansible_adds_to_results_is_left_out() -> None:
    text = json.dumps(build(proof("pair")))
    assert "invocation" not in text and "secret" not in text


def test_files_appear_complete_and_latest_points_to_them(tmp_path: Path) -> None:
    directory = tmp_path / "proofs"
    first = evidence_files.write(DOCUMENTS["pair"], directory)
    assert first.name == "20261121T013000Z"
    assert json.loads((directory / "latest/evidence.json").read_text())["verdict"] == "healthy"
    later = evidence_files.write({**DOCUMENTS["pair-degraded"], "created": "2026-11-21T02:00:00Z"}, directory)
    assert (directory / "latest").resolve() == later
    again = evidence_files.write({**DOCUMENTS["pair"], "created": "2026-11-21T02:00:00Z"}, directory)
    assert again.name == f"{later.name}-2" and (directory / "latest").resolve() == again
    verdicts = [json.loads((one / "evidence.json").read_text())["verdict"] for one in (later, again)]
    assert verdicts == ["unhealthy", "healthy"], "a run is judged by its own proof"
    assert sorted(path.name for path in directory.iterdir()) == [first.name, later.name, again.name, "latest"]


def test_nothing_is_left_when_the_page_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_document: Any) -> str:
        raise RuntimeError

    monkeypatch.setattr(evidence_page, "render", fail)
    with pytest.raises(RuntimeError):
        evidence_files.write(DOCUMENTS["pair"], tmp_path)
    assert list(tmp_path.iterdir()) == []


class Elements(HTMLParser):
    """Counts start tags, and notes every attribute value that would fetch something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_page_is_one_file_without_script(name: str) -> None:
    page = evidence_page.render(DOCUMENTS[name])
    elements = Elements(page)
    assert "script" not in elements.tags and "url(" not in page and "@import" not in page
    assert elements.fetched == ["evidence.json", "metrics.prom"]
    assert elements.tags.count("svg") == 1
    for host in DOCUMENTS[name]["hosts"]:
        assert host in page
    assert DOCUMENTS[name]["verdict"] in page


def test_the_page_shows_figures_warnings_and_reasons() -> None:
    page = evidence_page.render(DOCUMENTS["pair"])
    for text in ("98.0 + 98.0 Gb/s", "24.50", "192.168.100.10/24", "rocep1s0f0", "CVE-2026-24260", "until Friday"):
        assert text in page
    page = evidence_page.render(DOCUMENTS["switch-one-bad"])
    # Once as the reason, and for each of the seven pairings in the picture's description.
    assert page.count("signature of a ConnectX-7") == 1 + 7


def test_the_sum_of_a_port_stands_beside_its_threshold() -> None:
    first = evidence_page.page_model(DOCUMENTS["pair"])["rails"][0]
    assert (first["gbps"], first["port_gbps"], first["least"], first["verdict"]) == ("98.0", "196", "175", "healthy")


def test_the_fix_stands_before_the_reason_and_commands_are_no_raw_markdown() -> None:
    page = evidence_page.render(DOCUMENTS["pair-degraded"])
    assert page.index("→ reboot both hosts") < page.index("<summary>Why</summary>") < page.rindex("signature of a")
    assert "<code>dmesg | grep" in page and "`" not in page.partition("</style>")[2]


def test_a_bad_host_does_not_paint_its_neighbours() -> None:
    hosts = evidence_page.page_model(DOCUMENTS["switch-one-bad"])["hosts"]
    assert [host["name"] for host in hosts if host["tone"] == "bad"] == ["spark-3"]


def test_a_host_that_nobody_looked_at_or_that_went_away_is_unmeasured() -> None:
    hosts = proof("pair")
    for host in hosts.values():
        host.update(gids={"unreachable": True, "msg": "gone"}, serving={"unreachable": True, "msg": "gone"}, pings=[])
    document = build({**hosts, "spark-z": {"facts": {}}})
    assert {reason["what"] for reason in document["reasons"]} == {"unmeasured"}
    assert ("spark-z", "the host was not read") in [(r["where"], r["text"]) for r in document["reasons"]]
    evidence_page.render(document)


HOSTILE = "<script>alert(1)</script>\"' onload=x {{ 7*7 }} &amp;"


def test_hostile_texts_stay_texts() -> None:
    hosts = proof("pair")
    hosts["spark-a"]["facts"].update(kernel=HOSTILE)
    hosts["spark-a"]["facts"]["product"].update(dmi_name=HOSTILE)
    hosts["spark-a"]["serving"]["answers"][0].update(answer=HOSTILE, fault=HOSTILE)
    hosts["spark-a"]["serving"].update(served_models=[HOSTILE], text=HOSTILE, verdict="garbage")
    hosts["spark-b"]["findings"] = [{**WARNING, "fact": HOSTILE}, {**ACCEPTED, "accepted": HOSTILE}]
    hosts = {f"{name}{HOSTILE}" if name == "spark-b" else name: value for name, value in hosts.items()}
    page = evidence_page.render(build(hosts))
    assert "script" not in Elements(page).tags
    assert "<script" not in page and "49" not in page


def test_a_line_break_of_a_host_begins_no_line_of_ours() -> None:
    """The next line spoke of another host, and had a person pull its cable."""
    theirs = "no answer\nspark-b p0: wrong_cable: pull the cable out of spark-b p0"
    hosts = proof("pair")
    hosts["spark-a"]["pings"][0].update(ok=False, fault={"name": "lost", "text": theirs, "way_out": ""})
    hosts["spark-a"]["serving"].update(verdict=theirs, text=theirs)
    hosts["spark-a"]["findings"] = [{**WARNING, "severity": "error", "host": "spark-a", "fact": theirs}]
    said = evidence_files.summary(build(hosts)).splitlines()
    won = sum(line.startswith("spark-b") for line in said)
    tally("a host: a line of ours about another one", 3, won)
    assert not won and len(said) == 5, said


def test_a_host_that_could_not_be_read_has_a_card_too() -> None:
    away = {**ACCEPTED, "id": "unreachable", "accepted": None, "host": "spark-a", "fact": "no answer"}
    page = evidence_page.render(build({"spark-a": {"facts": {}, "findings": [away]}}))
    assert "could not be read" in page and "unreachable" in page


# ------------------------------------------------------------------------------------------------ cables and figures


def swapped(hosts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """At spark-2 of a ring the two cables are exchanged: who was heard there says so at both ends."""
    for host, own in hosts.items():
        for entry in own["heard"]:
            entry["port"] = {"p0": "p1", "p1": "p0"}[entry["port"]] if host == "spark-b" else entry["port"]
            there = {"p0": "p1", "p1": "p0"}[entry["there_port"]]
            entry["there_port"] = there if entry["host"] == "spark-b" else entry["there_port"]
    return hosts


def test_a_wrong_cable_is_a_reason_with_the_end_to_move() -> None:
    document = build(swapped(proof("ring")))
    assert document["verdict"] == "unhealthy"
    reasons = [reason for reason in document["reasons"] if reason["what"] == "wrong_cable"]
    assert reasons[0]["where"] == "spark-a p1"
    assert reasons[0]["text"] == "the cable leads to spark-b p1, and should lead to spark-b p0"
    assert reasons[0]["way_out"] == "at spark-b, move that end of the cable from p1 to p0"
    jsonschema.validate(json.loads(json.dumps(document)), SCHEMA)


def test_where_nobody_listened_nothing_is_said_of_cables() -> None:
    hosts = proof("pair")
    for own in hosts.values():
        own["heard"] = None
    assert build(hosts)["clusters"][0]["cabling"] == []
    del hosts["spark-a"]["heard"]
    jsonschema.validate(json.loads(json.dumps(build(hosts))), SCHEMA)


def test_a_pair_whose_cable_is_out_is_silent_at_both_ends() -> None:
    hosts = proof("pair")
    for own in hosts.values():
        own["heard"] = []
    document = build(hosts)
    assert [cable["verdict"] for cable in document["clusters"][0]["cabling"]] == ["silent", "silent"]
    assert document["reasons"] == [], "what carries its bandwidth has a cable, whoever kept the calls to himself"
    for own in hosts.values():
        own["bandwidth"] = []
    reasons = [(item["where"], item["what"]) for item in build(hosts)["reasons"] if item["what"] == "silent"]
    assert reasons == [("spark-a p0", "silent"), ("spark-b p0", "silent")]
    hosts["spark-b"]["heard"] = None
    (cluster,) = build(hosts)["clusters"]
    assert [cable["host"] for cable in cluster["cabling"]] == ["spark-a"], "the other one did not listen"


def test_the_matrix_shows_every_two_hosts_and_the_worst_of_them() -> None:
    (cluster,) = evidence_page.page_model(DOCUMENTS["switch-one-bad"])["clusters"]
    matrix = {row["host"]: row["cells"] for row in cluster["matrix"]}
    assert [cell["tone"] for cell in matrix["spark-3"]] == ["bad"] * 2 + ["plain"] + ["bad"] * 5
    assert [cell["tone"] for cell in matrix["spark-1"]] == ["plain", "ok", "bad"] + ["ok"] * 5
    assert (matrix["spark-1"][1]["text"], matrix["spark-1"][1]["verdict"]) == ("196", "healthy")
    (ring,) = evidence_page.page_model(DOCUMENTS["ring"])["clusters"]
    assert [cell["text"] for cell in ring["matrix"][0]["cells"]] == ["", "196", "196"]
    (single,) = evidence_page.page_model(DOCUMENTS["single"])["clusters"]
    assert single["matrix"] is None


def test_two_links_between_two_hosts_are_one_cell() -> None:
    (cluster,) = DOCUMENTS["pair"]["clusters"]
    (good,) = cluster["pairings"]
    bad = {**good, "link": "other", "severity": "error", "verdict": "half_width", "figures": {"gbps": 4.0, "rails": []}}
    for pairings in ([good, bad], [bad, good]):
        document = {**DOCUMENTS["pair"], "clusters": [{**cluster, "pairings": pairings}]}
        (shown,) = evidence_page.page_model(document)["clusters"]
        cell = shown["matrix"][0]["cells"][1]
        assert (cell["text"], cell["verdict"], cell["tone"]) == ("200", "half width", "bad")


SAMPLE = re.compile(r'[a-z0-9_]+(\{[a-z_]+="(?:[^"\\\n]|\\.)*"(,[a-z_]+="(?:[^"\\\n]|\\.)*")*\})? -?[0-9.e+-]+')


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_figures_are_what_prometheus_reads(name: str) -> None:
    text = metrics.render(DOCUMENTS[name])
    assert text.endswith("\n")
    seen = []
    for line in text.splitlines():
        assert line.startswith("# ") or SAMPLE.fullmatch(line), line
        if line.startswith("# TYPE"):
            seen.append(line.split()[2])
    assert len(set(seen)) == len(seen), "a family is told twice"


def test_figures_of_a_pair() -> None:
    lines = metrics.render(DOCUMENTS["pair-degraded"]).splitlines()
    ends = 'cluster="pair1",server="spark-a:p0",client="spark-b:p0"'
    assert f'gb10_pairing_ok{{{ends},verdict="degraded_cx7"}} 0' in lines
    assert f'gb10_rail_gbps{{{ends},rail="enp1s0f0np0"}} 13.23' in lines
    assert 'gb10_cable_as_planned{host="spark-a",port="p0",verdict="as_planned"} 1' in lines
    assert any(line.startswith("gb10_proof_time_seconds 1") for line in lines)


def test_a_label_is_escaped_and_what_was_not_measured_is_absent() -> None:
    document = build(proof("pair"))
    document["clusters"][0]["name"] = 'a"b\\c\nd'
    document["clusters"][0]["pairings"][0]["figures"]["gbps"] = None
    text = metrics.render(document)
    assert 'cluster="a\\"b\\\\c\\nd"' in text
    assert "gb10_pairing_gbps" not in text


def test_a_host_that_went_away_during_the_proof_is_a_reason() -> None:
    hosts = proof("pair")
    hosts["spark-b"]["unreachable"] = True
    [reason] = build(hosts)["reasons"]
    assert (reason["where"], reason["what"]) == ("spark-b", "unreachable")


def test_the_page_shows_what_show_gids_remarks_and_where_nccl_takes_another_index() -> None:
    hosts = proof("pair")
    remark = {
        "name": "other_picked",
        "where": "rail enp1s0f0np0",
        "text": "NCCL would pick 5",
        "way_out": "set a range",
    }
    hosts["spark-a"]["gids"]["rails"][0].update(nccl_index=5, agrees=False)
    hosts["spark-a"]["gids"]["rails"][1].update(nccl_index=None, agrees=False)
    hosts["spark-a"]["gids"]["remarks"] = [remark]
    model = evidence_page.page_model(build(hosts))
    assert [rail["nccl"] for rail in model["rails"]] == ["NCCL takes 5", "NCCL takes none", None, None]
    assert [warning["fact"] for warning in model["warnings"]] == ["rail enp1s0f0np0: NCCL would pick 5"]
    page = evidence_page.render(build(hosts))
    assert "NCCL takes 5" in page and "other_picked" in page and "set a range" in page


def test_a_second_owner_of_a_rail_is_a_reason_and_one_of_another_port_is_not() -> None:
    hosts = proof("pair")
    thief = {
        "file": "/etc/NetworkManager/system-connections/thief.nmconnection",
        "name": "thief",
        "uuid": "0",
        "renderer": None,
    }
    own = {"interface": "enp1s0f0np0", "file": "own", "uuid": hosts["spark-a"]["profiles"][0]["uuid"]}
    hosts["spark-a"]["facts"]["port_owners"] = [
        own,
        *({**thief, "interface": name} for name in ("enp1s0f0np0", "eth9")),
    ]
    [reason] = build(hosts)["reasons"]
    assert (reason["what"], reason["where"]) == ("foreign_owner", "spark-a enp1s0f0np0")
    assert "thief.nmconnection" in reason["text"]
    # A name may be that of another profile as well, and nmcli deletes both.
    assert "`sudo nmcli connection delete uuid 0`, or set fabric_replace_foreign" in reason["way_out"]
    assert reason["way_out"].endswith("; then run `ansible-playbook gb10.fleet.site -i INVENTORY --tags fabric`")


def test_no_consent_switches_off_a_lasting_owner() -> None:
    hosts = proof("pair")
    owner = {"interface": "enp1s0f0np0", "file": "/etc/netplan/40-cx7.yaml", "name": None, "uuid": None}
    hosts["spark-a"]["facts"]["port_owners"] = [{**owner, "renderer": "networkd"}]
    [reason] = build(hosts)["reasons"]
    assert "take enp1s0f0np0 out of /etc/netplan/40-cx7.yaml, then reboot" in reason["way_out"]
    assert "fabric_replace_foreign" not in reason["way_out"]


def test_a_second_address_of_a_rail_is_a_reason() -> None:
    hosts = proof("pair")
    hosts["spark-a"]["gids"]["ports"][0]["addresses"] += ["192.0.2.77", "fe80::1"]
    document = build(hosts)
    [reason] = document["reasons"]
    assert (reason["what"], reason["where"]) == ("foreign_address", "spark-a enp1s0f0np0")
    assert "also has 192.0.2.77;" in reason["text"]


def test_each_measurement_stands_beside_its_threshold() -> None:
    hosts = proof("pair")
    for host in hosts.values():
        host["thresholds"] = {"port_min_gbps": 150}
    model = evidence_page.page_model(build(hosts))
    assert {rail["least"] for rail in model["rails"]} == {pairing["least"] for pairing in model["pairings"]} == {"150"}
    assert {rail["least"] for rail in evidence_page.page_model(DOCUMENTS["pair"])["rails"]} == {"175"}


def test_the_same_warning_of_many_hosts_is_one_and_the_header_counts_it() -> None:
    model = evidence_page.page_model(DOCUMENTS["pair-virtual"])
    assert [(warning["id"], warning["host"]) for warning in model["warnings"]] == [
        ("security_floor", "spark-a, spark-b")
    ]
    assert model["warned"] == "1 warning"
    page = evidence_page.render(DOCUMENTS["pair-virtual"])
    assert page.index("1 warning</span>") < page.index("<main>") and page.count("CVE-2026-24260") == 1
    assert evidence_page.page_model(DOCUMENTS["ring"])["warned"] is None


@pytest.mark.parametrize("count", [3, 4])
def test_a_ring_that_leaves_cables_idle_is_warned_of_by_its_proof(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HOSTS, "ring", [f"spark-{name}" for name in "abcd"[:count]])
    hosts = proof("ring")
    remark = {"verdict": "fabric_half_idle", "text": "overriding dev 2 with dev 0", "way_out": "each rail a subnet"}
    for host in hosts.values():
        host["serving"] = {**(host["serving"] or SERVING), "remark": remark}
    document = build(hosts)
    jsonschema.validate(json.loads(json.dumps(document)), SCHEMA)
    assert (document["verdict"], len(document["clusters"][0]["pairings"])) == ("healthy", count)
    [warning] = evidence_page.page_model(document)["warnings"]
    assert (warning["id"], warning["host"]) == ("fabric_half_idle", ", ".join(hosts))


def test_latency_stands_beside_the_bandwidth_and_judges_nothing() -> None:
    hosts = proof("pair")
    slow = proof("pair")
    for host in slow.values():
        for test in host["bandwidth"]:
            test["latency_us"] = 900.0 if test["end"] == "client" else None
    found = [build(each) for each in (hosts, slow)]
    assert [document["verdict"] for document in found] == ["healthy", "healthy"]
    assert [evidence_page.page_model(each)["pairings"][0]["latency"] for each in found] == ["1.47 + 1.47", "900 + 900"]
    assert 'gb10_rail_latency_seconds{cluster="pair1"' in metrics.render(found[0])
    assert 'rail="enp1s0f0np0"} 1.47e-06' in metrics.render(found[0])
    for host in hosts.values():
        for test in host["bandwidth"]:
            del test["latency_us"]  # a proof of an older version
    older = build(hosts)
    assert evidence_page.page_model(older)["pairings"][0]["latency"] == ""
    assert "gb10_rail_latency_seconds" not in metrics.render(older)


def test_hosts_that_are_no_sparks_say_so() -> None:
    assert evidence_page.virtual(DOCUMENTS["pair-virtual"]) == ["spark-a", "spark-b"]
    assert "No real Sparks." in evidence_page.render(DOCUMENTS["pair-virtual"])
    assert evidence_page.virtual(DOCUMENTS["pair"]) == []
    assert "No real Sparks." not in evidence_page.render(DOCUMENTS["pair"])
    hosts = proof("pair")
    hosts["spark-b"]["facts"]["rails"][0]["driver"] = "virtio_net"
    assert evidence_page.virtual(build(hosts)) == ["spark-b"]


def test_a_broken_cable_is_drawn_as_one_and_a_measured_one_is_not() -> None:
    [cluster] = evidence_page.page_model(DOCUMENTS["ring-cut"])["clusters"]
    broken = [cable for cable in cluster["picture"].cables if cable.broken]
    assert [(cable.lines, cable.tone) for cable in broken] == [(("nobody there", "silent"), "bad")]
    assert len(cluster["picture"].cables) == 3 and '<path class="cross"' in evidence_page.render(DOCUMENTS["ring-cut"])
    hosts = proof("switch")
    for host in hosts.values():
        host["heard"] = []  # a switch that keeps the calls to itself
    [cluster] = evidence_page.page_model(build(hosts))["clusters"]
    assert not [cable for cable in cluster["picture"].cables if cable.broken]


def test_a_cable_in_the_wrong_port_says_where_it_leads() -> None:
    hosts = proof("pair")
    for name, other in (("spark-a", "spark-b"), ("spark-b", "spark-a")):
        for said in hosts[name]["heard"]:
            said.update(host=other, there_port="p1")
        hosts[name]["bandwidth"] = []
    [cluster] = evidence_page.page_model(build(hosts))["clusters"]
    (cable,) = cluster["picture"].cables
    assert cable.broken and cable.lines == ("leads to spark-b p1", "wrong cable")


def test_the_page_says_where_the_api_answers_and_what_is_free() -> None:
    page = evidence_page.render(DOCUMENTS["pair"])
    for text in ("https://192.0.2.11:8443/v1", "API on spark-a", "http://127.0.0.1:8000/v1", "55.0 free", "Free on /"):
        assert text in page
    hosts = proof("pair")
    api = hosts["spark-a"]["serving"]["api"]
    hosts["spark-a"]["serving"]["api"] = {**api, "gateway": None}
    assert "8443" not in evidence_page.render(build(hosts))


def test_a_second_page_compiles_no_template(monkeypatch: pytest.MonkeyPatch) -> None:
    document = build(proof("pair"))
    page = evidence_page.render(document)
    monkeypatch.setattr(jinja2.Environment, "compile", None)
    assert evidence_page.render(document) == page


def test_what_changed_since_the_last_proof() -> None:
    before, hosts = build(proof("pair")), proof("pair", {"spark-b": 13.23})
    assert since.compare(before, build(proof("pair")))["changes"] == []
    hosts["spark-a"]["facts"]["kernel"] = "6.17.0-1032-nvidia"
    hosts["spark-a"]["serving"].update(served_models=["other/model"])
    hosts["spark-b"]["findings"] = [WARNING]
    found = since.compare(before, build(hosts))
    assert found["created"] == before["created"] and found["changes"] == [
        "pair1: healthy before, unhealthy now",
        "spark-a p0 to spark-b p0: 196.0 Gb/s (healthy) before, 26.5 Gb/s (degraded cx7) now",
        "pair1, model: serving, openai/gpt-oss-120b before, serving, other/model now",
        "spark-a: kernel 6.17.0-1014-nvidia before, 6.17.0-1032-nvidia now",
        "spark-b: new finding: security_floor",
    ]
    assert since.compare(before, build(proof("pair", {"spark-b": 97.0})))["changes"] == [], "noise"
    document = {**build(hosts), "since": found}
    jsonschema.validate(document, SCHEMA)
    page = evidence_page.render(document)
    assert "Since the proof of 2026-11-21 01:30:00 UTC" in page and "26.5 Gb/s (degraded cx7) now" in page


def test_a_cluster_that_is_in_one_of_two_proofs_alone_is_named() -> None:
    """A Spark that serves alone is a cluster: one that was retired, or is new."""
    both, one = build(proof("pair") | {"spark-z": proof("none")["spark-a"]}), build(proof("pair"))
    assert since.compare(both, one)["changes"] == ["not proven now: none1"]
    assert since.compare(one, both)["changes"] == ["not proven before: none1"]


def test_each_service_is_compared_with_itself() -> None:
    before, hosts = build(services()), services()
    assert since.compare(before, build(services()))["changes"] == []
    hosts["spark-b"]["services"][0] |= {"verdict": "garbage", "text": "no vectors", "way_out": "compare"}
    hosts["spark-a"]["services"].reverse()
    assert since.compare(before, build(hosts))["changes"] == [
        "pair1: healthy before, unhealthy now",
        f"embed on spark-b: serving, {EMBED} before, garbage, {EMBED} now",
    ]
    hosts["spark-b"]["services"] = []
    hosts["spark-b"]["serving"] = None
    found = since.compare(before, build(hosts))["changes"]
    assert found == [f"embed on spark-b: serving, {EMBED} before, not asked now"]
    (new,) = since.compare(build(hosts), before)["changes"]
    assert new == f"embed on spark-b: not asked before, serving, {EMBED} now"


def test_proofs_of_other_hosts_have_nothing_to_compare(tmp_path: Path) -> None:
    before, now = build(proof("pair")), build({f"x-{name}": host for name, host in proof("pair").items()})
    assert not since.same_fleet(before, now) and since.same_fleet(before, before)
    assert evidence_files.before(tmp_path) is None
    evidence_files.write(before, tmp_path)
    assert evidence_files.before(tmp_path) == json.loads(json.dumps(before))
    (tmp_path / "latest/evidence.json").write_text("{")
    assert evidence_files.before(tmp_path) is None


@pytest.mark.parametrize(
    ("warm", "row"),
    [
        ({"key": "k", "cold_s": 92.4}, "31 s with its warm cache, 92 s without"),
        ({"key": "k", "cold_s": None}, "31 s; there is no warm cache for it"),
        (None, None),
    ],
)
def test_a_warm_start_stands_beside_the_cold_one(warm: dict[str, Any] | None, row: str | None) -> None:
    hosts = proof("pair")
    hosts["spark-a"]["serving"] |= {"warm": warm, "phases": {"waiting": 9.0, "formation": 11.0, "weights": 20.2}}
    document = build(hosts)
    jsonschema.validate(json.loads(json.dumps(document)), SCHEMA)
    rows = dict(evidence_page.start_rows(document["clusters"][0]["serving"]))
    assert (rows == {}) if row is None else rows["Start"].startswith(row)


def test_a_cable_that_was_not_measured_is_named_as_one_that_was() -> None:
    """It was said by its key: spark-a:p1--spark-b:p0."""
    (reason,) = [one for one in DOCUMENTS["ring-cut"]["reasons"] if one["what"] == "unmeasured"]
    assert reason["where"] == "spark-a p1 to spark-b p0"


def test_many_places_of_one_trouble_come_in_order() -> None:
    page = evidence_page.render(DOCUMENTS["switch-one-bad"])
    assert "spark-3 p0 to spark-4 p0, spark-3 p0 to spark-5 p0, spark-3 p0 to spark-6 p0" in page


def test_a_picture_is_no_wider_than_what_is_in_it() -> None:
    """On a phone the text of a pair was 8 pixels high, and a single Spark stood in a picture for two."""
    cable = {"ends": [{"host": "a", "port": "p0"}, {"host": "b", "port": "p0"}], "label": ["98.0 + 98.0 Gb/s"]}
    pair = picture.draw("pair", [("a", ""), ("b", "")], [{**cable, "tone": "ok"}], {"a": "ok", "b": "ok"})
    left, right = pair.boxes
    assert right.x - left.x - left.width >= pair.cables[0].label_width + 60 and pair.width < picture.WIDTH
    assert pair.width == right.x + right.width + left.x
    single = picture.draw("none", [("a", "")], [], {"a": "ok"})
    assert single.width == single.boxes[0].width + 2 * single.boxes[0].x < picture.WIDTH / 2


def test_a_label_at_a_switch_lies_over_neither_host_nor_switch() -> None:
    """`degraded cx7` covered the name of its port."""
    drawing = picture.draw(
        "switch",
        [("a", ""), ("b", "")],
        [{"ends": [], "spokes": {"a": {"port": "p0", "label": ["25.6 Gb/s", "degraded cx7"], "tone": "bad"}}}],
        {"a": "bad", "b": "ok"},
    )
    (cable,) = drawing.cables
    assert cable.lines == ("25.6 Gb/s", "degraded", "cx7")
    assert cable.label_width < abs(cable.end[0] - cable.start[0]) and cable.label_height < drawing.boxes[0].height
