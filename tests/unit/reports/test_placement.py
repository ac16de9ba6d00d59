"""Who is where: the services of a fleet by host, and what they take of each host's memory."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import evidence_page, judge, placement

from tests.support.evidence import SCHEMA
from tests.support.proofs import NOW, documents, proof, services, thresholds


def build(hosts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return judge.build(hosts, {"gb10_fleet": "0.1.0"}, thresholds(), NOW)


def shown(hosts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found = placement.model(build(hosts)["hosts"])
    assert found is not None
    return found


def texts(hosts: dict[str, dict[str, Any]]) -> dict[str, list[str | None]]:
    return {row["name"]: [cell and cell["text"] for cell in row["cells"]] for row in shown(hosts)["rows"]}


def test_each_service_has_a_row_and_each_host_a_column() -> None:
    found = shown(services())
    assert found["hosts"] == ["spark-a", "spark-b"]
    assert texts(services()) == {
        "big": ["serving", "rank 1"],
        "embed": ["serving", "serving"],
        "rerank": ["stopped by you", None],
    }
    big, embed, _rerank = found["rows"]
    assert [cell["place"] for cell in big["cells"]] == ["port 8000", "asked on spark-a"]
    assert {cell["model"] for cell in embed["cells"]} == {"Qwen/Qwen3-Embedding-0.6B"}


def test_a_verdict_is_that_of_the_service_on_that_host() -> None:
    hosts = services()
    hosts["spark-b"]["services"][0].update(verdict="engine_dead", text="dead", way_out="restart")
    hosts["spark-a"]["services"] = hosts["spark-a"]["services"][:1]
    assert texts(hosts)["embed"] == ["not asked", "engine dead"]
    assert shown(hosts)["rows"][1]["cells"][1]["tone"] == "bad"


def test_who_serves_what_by_the_name_that_clients_ask_for() -> None:
    found = {each["name"]: each["replicas"] for each in shown(services())["models"]}
    assert list(found) == ["BAAI/bge-reranker-v2-m3", "Qwen/Qwen3-Embedding-0.6B", "openai/gpt-oss-120b"]
    embed = found["Qwen/Qwen3-Embedding-0.6B"]
    assert [(one["host"], one["text"], one["address"]) for one in embed] == [
        ("spark-a", "serving", "https://192.0.2.11:8443/v1"),
        ("spark-b", "serving", "https://192.0.2.12:8443/v1"),
    ]
    assert [one["host"] for one in found["openai/gpt-oss-120b"]] == ["spark-a"], "the other rank has no API"
    assert [(one["text"], one["address"]) for one in found["BAAI/bge-reranker-v2-m3"]] == [("stopped by you", "")]


def test_a_bar_adds_up_to_the_memory_of_its_host() -> None:
    a, b = shown(services())["bars"]
    assert [(part["name"], part["gib"]) for part in b["parts"]] == [
        ("big", "64.5"),
        ("embed", "9.0"),
        ("system's reserve", "12.0"),
        ("not taken", "36.2"),
    ]
    assert [part["name"] for part in a["parts"]] == [part["name"] for part in b["parts"]]
    assert (a["stopped"], b["stopped"], a["over"]) == ("rerank 6.0", "", None)
    assert sum(float(part["percent"]) for part in a["parts"]) == pytest.approx(100, abs=0.05)


def test_what_does_not_fit_stays_within_the_bar_and_is_said() -> None:
    hosts = services()
    hosts["spark-b"]["placed"]["services"][1]["memory_gib"] = 60.0
    bar = shown(hosts)["bars"][1]
    assert bar["over"] == "14.8 GiB more than the host has"
    assert sum(float(part["percent"]) for part in bar["parts"]) == pytest.approx(100, abs=0.05)


def test_a_host_that_could_not_be_read_has_a_column_and_no_bar() -> None:
    hosts = services()
    hosts["spark-b"].update(facts={}, placed=None, services=[], serving=None)
    found = shown(hosts)
    assert found["hosts"] == ["spark-a", "spark-b"] and [bar["host"] for bar in found["bars"]] == ["spark-a"]
    assert "spark-b" in evidence_page.render(build(hosts))


@pytest.mark.parametrize("topology", ["none", "pair"])
def test_the_page_of_one_service_is_the_same_to_the_byte(topology: str) -> None:
    before, hosts = proof(topology), proof(topology)
    for rank, host in enumerate(hosts.values()):
        one = {**services()["spark-a"]["placed"]["services"][0], "members": list(hosts), "rank": rank}
        host["placed"] = {"services": [one], "reserve_gib": 12.0}
    assert evidence_page.render(build(hosts)) == evidence_page.render(build(before))


def test_one_name_on_many_hosts_is_many_services() -> None:
    hosts = proof("pair")
    for name, host in hosts.items():
        one = {**services()["spark-a"]["placed"]["services"][1], "name": "vllm", "members": [name]}
        host["placed"] = {"services": [one], "reserve_gib": 12.0}
    assert [row["name"] for row in shown(hosts)["rows"]] == ["vllm"]


def test_the_evidence_keeps_of_the_plan_what_the_page_shows() -> None:
    document = documents()["services"]
    jsonschema.validate(document, SCHEMA)
    assert "argv" not in str(document["hosts"]["spark-a"]["placed"])


def test_the_page_has_table_and_bars_and_escapes_them() -> None:
    hosts = services()
    hosts["spark-b"]["placed"]["services"][1].update(name="<i>x", served_name='"><b>y')
    page = evidence_page.render(build(hosts))
    assert page.count('<div class="bar"') == 2 and ">stopped by you</span>" in page
    assert "&lt;i&gt;x" in page and "<i>x" not in page and "<b>y" not in page


def test_what_sleeps_until_it_is_asked_is_said_as_that_and_takes_nothing() -> None:
    hosts = services()
    nobody = {"who": "on_demand", "since": "", "until": "", "shown": ""}
    hosts["spark-a"]["facts"]["wishes"] = [{"unit": "gb10-vllm-rerank.service", **nobody}]
    assert texts(hosts)["rerank"] == ["asleep, starts when asked", None]
    bar = shown(hosts)["bars"][0]
    assert bar["stopped"] == "" and bar["asleep"].startswith("rerank ")
    assert "rerank" not in [part["name"] for part in bar["parts"]]
    assert "asleep, starts when asked: rerank" in evidence_page.render(build(hosts))
