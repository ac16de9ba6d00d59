"""Answers of spark_facts that are not ours: the first wrong value is named."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.hosts import sections

from tests.support.release_machines import machine

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
