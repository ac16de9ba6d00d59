"""Answers of spark_facts that are not ours: the first wrong value is named."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import sections

from tests.support.answers import altered, places, sound_facts
from tests.support.health import BOOT, NOW, boot, event, reading, sample, serving, upgrade
from tests.support.release_machines import RECIPES, machine

NOTHING = {"installs": {}, "removes": [], "error": "", "download_bytes": 0, "disk_bytes": 0}
REHEARSAL = {
    "release": None,
    "set": None,
    "set_move": NOTHING,
    "rest": NOTHING,
    "offers_back": True,
    "lists_age_s": None,
}
ENTRY = {"name": "x", "version": "1"}


def own(date: str = "2026-01-01", **parts: Any) -> dict[str, Any]:
    return {"file": "x", "sha256": "x", "content": {"metadata": {"name": "OTA1", "releaseDate": date}, **parts}}


VERDICT = {"id": "coherent", "severity": "info", "fact": "x", "way_out": ""}
LINE = {"at_s": NOW, "text": "x"}
SERVICE = {
    **{"name": "chat", "unit": "gb10-vllm-chat.service", "state": "active", "enabled": True, "since": 7, "rank": 0},
    **{"phase": "ready", "load_s": 3.5, "members": ["a"], "memory_gib": 40, "model": "org/chat", "port": 8000},
    **{"container": "gb10-vllm-chat", "status_file": "/x", "served_name": "chat", "url": "http://127.0.0.1:8000"},
    "tools": False,
    "wish": {"unit": "x", "who": "x", "since": "y", "until": "", "shown": ""},
}


def whole() -> dict[str, Any]:
    """All sections, each with what a host can say in it."""
    status = {"phase": "ready", "since": None, "failures": 0, "verdict": None, "text": None, "at": None}
    load = {"state": "ended", "reason": None, "image": "x", "told": {"products": 8, "seconds": 1.0, "teraflops": 61.5}}
    told = sample(serving=serving(), servings={"chat": serving()}, steady_s=1.0)
    return {
        "ansible_facts": {"gb10_spark": sound_facts()},
        "health": reading(
            [told], service=status, services={"chat": status}, load=load, clock_lock_mhz=2000.0, recorded=[LINE],
            boots=[boot(BOOT, NOW - 9, NOW, lines=["x"])], events=[event("xid", NOW, "79") | {"service": "chat"}],
            apt=[upgrade(NOW, "docker-ce", "1", "2")], certificates=[{"file": "/x", "ends_s": NOW}],
            processes=[{"pid": 7, "memory_mib": 1}], unknown={"gpu": "x"},
            hwmon=[{"chip": "x", "label": "y", "unit": "power_w", "value": 1.0}],
        ),
        "release": machine("b", recipes=[{"file": "x", "sha256": "x", "content": dict(RECIPES[0].content)}]),
        "cluster": "pair1",
        "rehearsal": {**REHEARSAL, "set_move": {**NOTHING, "installs": {"x": "1"}, "removes": ["y"]}},
        "coherent": True, "verdicts": [VERDICT], "against_a_boot": [VERDICT], "kernel": "x", "packages": {"x": "1"},
        "driver": sound_facts()["driver"], "stdout_lines": ["x"],
        "services": [SERVICE], "memory": {"total": 3, "available": 2, "hidden": 1},
        "returned": {"verdict": "x", "text": "y", "way_out": ""},
        "recorded": [LINE],
    }  # fmt: skip


def problem(*asked: str, options: dict[str, Any] | None = None, **said: Any) -> str | None:
    return sections.problem(said, asked, options or {})


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"recipes": [{"file": "x", "sha256": "x", "content": {"metadata": {"name": 7}}}]}, "releaseDate is missing"),
        ({"packages": {"x": []}}, "release.packages.x"),
        ({"firmware": "x"}, "release.firmware"),
        ({"fwupd": [{}]}, "is missing"),
        ({"command_line": None}, "release.command_line"),
        ({"recipes": [own("zzzz")]}, "releaseDate is 'zzzz', and must begin with a date, such as 2026-07-15"),
        ({"recipes": [own("20280715")]}, "must begin with a date"),
        ({"recipes": [own()] * 101}, "release.recipes has 101 entries, and may have 100"),
        ({"recipes": [own(package=[ENTRY] * 2001)]}, "has a list of 2001 entries, and may have 2000"),
        ({"recipes": [own(package=[{**ENTRY, "version": "1" * 2**20}])]}, "characters, and may have 1048576"),
        ({"recipes": [own(package=[ENTRY] * 2000)] * 11}, "release.recipes have 22000 entries, and may have 20000"),
        ({"packages": dict.fromkeys(map(str, range(20_001)), "1")}, "release.packages has 20001 entries"),
    ],
)
def test_a_wrong_release_is_named(changed: dict[str, Any], says: str) -> None:
    assert problem("release", release=machine("b"), cluster="x") is None
    assert says in str(problem("release", release={**machine("b"), **changed}, cluster="x"))


@pytest.mark.parametrize("wrong", [None, {}, {**REHEARSAL, "rest": None}, {**REHEARSAL, "set_move": {"installs": []}}])
def test_a_wrong_rehearsal_is_named(wrong: Any) -> None:
    said = {"release": machine("b"), "cluster": "x"}
    assert problem("release", **said, rehearsal=REHEARSAL) is None
    assert str(problem("release", **said, rehearsal=wrong)).startswith("answer.rehearsal")


@pytest.mark.parametrize(("option", "key"), sections.WITH.items())
def test_what_an_option_asks_for_must_be_there(option: str, key: str) -> None:
    assert problem(options={option: None}) is None
    assert problem(options={option: {"to": "newest"}}) == f"answer.{key} is missing"


@pytest.mark.parametrize("section", sections.NEEDED)
def test_a_section_must_be_there(section: str) -> None:
    assert problem() is None
    assert str(problem(section)).endswith("is missing")


def test_every_former_module_is_a_section() -> None:
    assert {*sections.FORMER.values()} | {"facts"} == {*sections.NEEDED}


def test_every_value_of_an_answer_is_judged() -> None:
    """What fits no type is refused wherever it stands; a key that nobody names would pass.

    What vLLM has said is judged by who reads it: serving/engine.py, test_engine.py.
    """
    answer = whole()
    assert problem(*sections.NEEDED, **answer) is None and answer.keys() == sections.Answer.__annotations__.keys()
    ways = list(places(answer))
    unjudged = [way for way in ways if problem(**altered(answer, way, [[{}]])) is None]
    unjudged = [way for way in unjudged if "said" not in way[:-1] and "question" not in way[:-1]]
    assert unjudged == [] and len(ways) > 400
